// The CUDA language a kernel body needs, for two compilers: nvcc, and any C++ compiler on a machine
// without a GPU or a toolkit.
//
// Idea: a kernel body lives in a `*_cuda.cuh` that includes this header. Under nvcc the header adds
// three macros and nothing else. Under g++ or clang it supplies the language as ordinary functions:
// each CUDA thread is a fiber, and a scheduler in cuda_on_cpu.cc runs them between barriers. So the
// very source that runs on the device is tested, also under ASan and TSan, on any machine.
//
// What a kernel body has to do differently:
//   KVF_SHARED_ARRAY(float, partial, 32);     instead of  __shared__ float partial[32];
//   KVF_SHARED_DYNAMIC(float, scores);        instead of  extern __shared__ float scores[];
//   KVF_LAUNCH(kernel, grid, block, bytes, stream, args...)   instead of  kernel<<<...>>>(args...)
//   KVF_UNROLL                                instead of  #pragma unroll
// A template kernel goes in parentheses: KVF_LAUNCH((Kernel<4, true>), grid, ...).
//
// Invariant: the shim is never kinder than the device. Shared memory starts as garbage; a barrier
// that an exited thread will never reach, or a collective whose mask names a thread that does not
// come, throws LaunchError. Under TSan only what orders memory on the device does so here:
// __syncthreads, __syncwarp, and __threadfence on both sides of an atomic. Shuffles and votes order
// nothing, and blocks of one launch are unordered though they run one after another.
// Not covered: blocks that wait for each other, copy engines, speed; of tensor cores, all but what
// kernels/mma_bf16.cuh spells out.
#pragma once

// Kernels are one source in two builds, and both may be linked into one program (a test that runs
// the shim links the library that holds nvcc's build): each build has names of its own.
#if defined(__CUDACC__)
#define KVF_KERNEL_BUILD on_device
#else
#define KVF_KERNEL_BUILD on_cpu
#endif

#if defined(__CUDACC__)

#define KVF_UNROLL _Pragma("unroll")
// A kernel argument whose address may be taken without a copy per thread.
#define KVF_GRID_CONSTANT __grid_constant__
// The block's dynamic shared memory as an array of T.
#define KVF_SHARED_DYNAMIC(T, name)                                         \
  extern __shared__ __align__(16) unsigned char kvf_dynamic_shared_bytes[]; \
  T* const name = reinterpret_cast<T*>(kvf_dynamic_shared_bytes)
// `count` elements of T shared by the block, uninitialised.
#define KVF_SHARED_ARRAY(T, name, count) __shared__ T name[count]
// Asynchronous; ask cudaGetLastError() afterwards.
#define KVF_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

#else

#include <math.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

#include "kvfence/cuda_on_cpu_types.h"

namespace kvfence::cuda_on_cpu {

// The launch can't have run on a device: divergence at a barrier or collective, a bad
// configuration, a __trap. Says which block and which threads.
class LaunchError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// In which order blocks, and threads between barriers, are run while this object lives: 0 ascending
// (the default), else permuted from the seed. For the calling thread's launches.
class ScopedSchedule {
 public:
  explicit ScopedSchedule(uint64_t seed);
  ~ScopedSchedule();
  ScopedSchedule(const ScopedSchedule&) = delete;
  ScopedSchedule& operator=(const ScopedSchedule&) = delete;

 private:
  uint64_t saved_;
};

// Runs `thread` once per CUDA thread of grid x block, on the calling thread, and returns when all
// are done. Throws LaunchError, or what the kernel threw. Launches of several host threads don't
// disturb each other.
void RunGrid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);

// As kernel<<<grid, block, shared_bytes>>>(args...): arguments are converted and copied once, at
// the launch, and each thread gets its own copy.
template <class... Params, class... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, Args&&... args) {
  const std::tuple<std::remove_cv_t<Params>...> copied(std::forward<Args>(args)...);
  RunGrid(grid, block, shared_bytes, [&copied, kernel] { std::apply(kernel, copied); });
}

// The scheduler's side of the language; kernels use the CUDA names further down.
// `name` is the CUDA function's, for messages and to see that all threads call the same one.
int BlockBarrier(const char* name, bool predicate);  // how many threads had a true predicate
// Waits for the threads in `mask`; returns what each lane of the warp brought (32 words, valid for
// lanes in the mask until this thread's next collective).
const uint64_t* WarpExchange(const char* name, unsigned mask, uint64_t value, bool orders_memory);
unsigned LaneIndex();
unsigned WarpLanes();  // the lanes that this warp has: fewer than 32 in a block's last warp
void MemoryFence();
[[noreturn]] void Trap();
void* SharedMemory(const void* key, size_t bytes);  // one allocation per block and key
void* DynamicSharedMemory();

template <class T>
uint64_t ToWord(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
T FromWord(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// The value of lane `source`. A lane outside the mask brings nothing: on a device that reads
// garbage, here it stops the launch.
template <class T>
T ShuffleFrom(const char* name, unsigned mask, T value, unsigned source) {
  const uint64_t* lanes = WarpExchange(name, mask, ToWord(value), false);
  if (((mask & WarpLanes()) >> source & 1u) == 0) Trap();
  return FromWord<T>(lanes[source]);
}

// Folds op over the lanes in the mask, lowest lane first.
template <class T, class Op>
T ReduceLanes(const char* name, unsigned mask, T value, Op op) {
  const uint64_t* lanes = WarpExchange(name, mask, ToWord(value), false);
  unsigned left = mask & WarpLanes();
  T result = FromWord<T>(lanes[std::countr_zero(left)]);
  for (left &= left - 1; left != 0; left &= left - 1) {
    result = op(result, FromWord<T>(lanes[std::countr_zero(left)]));
  }
  return result;
}

template <class T, class Op>
T AtomicUpdate(T* address, Op op) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, op(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace kvfence::cuda_on_cpu

#define KVF_UNROLL
#define KVF_GRID_CONSTANT
#define KVF_SHARED_DYNAMIC(T, name) \
  T* const name = static_cast<T*>(::kvfence::cuda_on_cpu::DynamicSharedMemory())
#define KVF_SHARED_ARRAY(T, name, count)       \
  static const char kvf_shared_key_##name = 0; \
  T(&name)                                     \
  [count] = *static_cast<T(*)[count]>(         \
      ::kvfence::cuda_on_cpu::SharedMemory(&kvf_shared_key_##name, sizeof(T[count])))
#define KVF_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (static_cast<void>(stream),                                      \
   ::kvfence::cuda_on_cpu::Launch(kernel, grid, block, shared_bytes __VA_OPT__(, ) __VA_ARGS__))

#include "kvfence/cuda_on_cpu_builtins.h"

#endif  // __CUDACC__
