// CUDA's built-in functions by their CUDA names, on top of the scheduler's few entry points.
//
// Included by kvfence/cuda_on_cpu.h only. Overloads are the toolkit's own set, not templates, where
// that matters: a call that compiles here (atomicAdd on uint64_t*, which is unsigned long) but not
// under nvcc would be found too late.
#pragma once

// --- Barriers and fences ---

inline void __syncthreads() { ::kvfence::cuda_on_cpu::BlockBarrier("__syncthreads", false); }
inline int __syncthreads_count(int predicate) {
  return ::kvfence::cuda_on_cpu::BlockBarrier("__syncthreads_count", predicate != 0);
}
inline int __syncthreads_or(int predicate) {
  return ::kvfence::cuda_on_cpu::BlockBarrier("__syncthreads_or", predicate != 0) != 0;
}
inline int __syncthreads_and(int predicate) {
  return ::kvfence::cuda_on_cpu::BlockBarrier("__syncthreads_and", predicate == 0) == 0;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  ::kvfence::cuda_on_cpu::WarpExchange("__syncwarp", mask, 0, true);
}
inline void __threadfence() { ::kvfence::cuda_on_cpu::MemoryFence(); }
inline void __threadfence_block() { ::kvfence::cuda_on_cpu::MemoryFence(); }
inline void __threadfence_system() { ::kvfence::cuda_on_cpu::MemoryFence(); }
[[noreturn]] inline void __trap() { ::kvfence::cuda_on_cpu::Trap(); }

// --- Shuffles: `width` splits the warp into segments, as on the device ---

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned lane = ::kvfence::cuda_on_cpu::LaneIndex();
  const unsigned w = static_cast<unsigned>(width);
  return ::kvfence::cuda_on_cpu::ShuffleFrom("__shfl_sync", mask, value,
                                             (lane & ~(w - 1)) | (unsigned(source) & (w - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const unsigned lane = ::kvfence::cuda_on_cpu::LaneIndex();
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  const bool inside = source < (lane & ~unsigned(width - 1)) + unsigned(width);
  return ::kvfence::cuda_on_cpu::ShuffleFrom("__shfl_xor_sync", mask, value,
                                             inside ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = ::kvfence::cuda_on_cpu::LaneIndex();
  const bool inside = (lane & unsigned(width - 1)) + delta < unsigned(width);
  return ::kvfence::cuda_on_cpu::ShuffleFrom("__shfl_down_sync", mask, value,
                                             inside ? lane + delta : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = ::kvfence::cuda_on_cpu::LaneIndex();
  const bool inside = (lane & unsigned(width - 1)) >= delta;
  return ::kvfence::cuda_on_cpu::ShuffleFrom("__shfl_up_sync", mask, value,
                                             inside ? lane - delta : lane);
}

// --- Votes, reductions and matching ---

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned bit = predicate != 0 ? 1u << ::kvfence::cuda_on_cpu::LaneIndex() : 0u;
  return ::kvfence::cuda_on_cpu::ReduceLanes("__ballot_sync", mask, bit, std::bit_or<unsigned>());
}
inline int __any_sync(unsigned mask, int predicate) {
  return ::kvfence::cuda_on_cpu::ReduceLanes("__any_sync", mask, predicate != 0,
                                             std::logical_or<bool>());
}
inline int __all_sync(unsigned mask, int predicate) {
  return ::kvfence::cuda_on_cpu::ReduceLanes("__all_sync", mask, predicate != 0,
                                             std::logical_and<bool>());
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  const uint64_t own = ::kvfence::cuda_on_cpu::ToWord(value);
  const uint64_t* lanes =
      ::kvfence::cuda_on_cpu::WarpExchange("__match_any_sync", mask, own, false);
  unsigned same = 0;
  for (unsigned left = mask & ::kvfence::cuda_on_cpu::WarpLanes(); left != 0; left &= left - 1) {
    if (lanes[std::countr_zero(left)] == own) same |= left & (0u - left);
  }
  return same;
}

#define KVF_REDUCE_SYNC(T, suffix, expression)                                            \
  inline T __reduce_##suffix##_sync(unsigned mask, T value) {                             \
    return ::kvfence::cuda_on_cpu::ReduceLanes("__reduce_" #suffix "_sync", mask, value,  \
                                               [](T a, T b) -> T { return expression; }); \
  }
KVF_REDUCE_SYNC(unsigned, add, a + b)
KVF_REDUCE_SYNC(unsigned, min, std::min(a, b))
KVF_REDUCE_SYNC(unsigned, max, std::max(a, b))
KVF_REDUCE_SYNC(unsigned, and, a& b)
KVF_REDUCE_SYNC(unsigned, or, a | b)
KVF_REDUCE_SYNC(unsigned, xor, a ^ b)
KVF_REDUCE_SYNC(int, add, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
KVF_REDUCE_SYNC(int, min, std::min(a, b))
KVF_REDUCE_SYNC(int, max, std::max(a, b))
#undef KVF_REDUCE_SYNC

// --- Atomics: relaxed, as on the device ---

#define KVF_ATOMIC(T, suffix, expression)                                        \
  inline T atomic##suffix(T* address, T operand) {                               \
    return ::kvfence::cuda_on_cpu::AtomicUpdate(                                 \
        address, [operand]([[maybe_unused]] T old) -> T { return expression; }); \
  }
#define KVF_ATOMIC_INTEGER(T)                                                        \
  KVF_ATOMIC(T, Min, operand < old ? operand : old)                                  \
  KVF_ATOMIC(T, Max, operand > old ? operand : old)                                  \
  KVF_ATOMIC(T, And, old& operand)                                                   \
  KVF_ATOMIC(T, Or, old | operand)                                                   \
  KVF_ATOMIC(T, Xor, old ^ operand)                                                  \
  KVF_ATOMIC(T, Exch, operand)                                                       \
  inline T atomicCAS(T* address, T compare, T operand) {                             \
    std::atomic_ref<T>(*address).compare_exchange_strong(compare, operand,           \
                                                         std::memory_order_relaxed); \
    return compare;                                                                  \
  }
KVF_ATOMIC_INTEGER(int)
KVF_ATOMIC_INTEGER(unsigned)
KVF_ATOMIC_INTEGER(unsigned long long)
KVF_ATOMIC(int, Add, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(operand)))
KVF_ATOMIC(unsigned, Add, old + operand)
KVF_ATOMIC(unsigned long long, Add, old + operand)
KVF_ATOMIC(float, Add, old + operand)
KVF_ATOMIC(double, Add, old + operand)
KVF_ATOMIC(unsigned, Sub, old - operand)
KVF_ATOMIC(unsigned, Inc, old >= operand ? 0u : old + 1u)
KVF_ATOMIC(float, Exch, operand)
#undef KVF_ATOMIC_INTEGER
#undef KVF_ATOMIC

// --- Loads with a cache hint, bits, casts, fast math ---

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcv(const T* p) {
  return *p;
}
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline int __clzll(long long v) { return std::countl_zero(static_cast<unsigned long long>(v)); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __expf(float v) { return expf(v); }
inline float __fdividef(float a, float b) { return a / b; }
using std::max;
using std::min;
