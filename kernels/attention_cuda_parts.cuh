// What both decode attention kernels share: kinds of kernel, a line's sum, and how sums of parts of
// a context are joined.
//
// Idea: a line's result is a running softmax and a weighted sum. However it was computed, it's
// joined here, in the order of positions. Invariant: the order is logical (I-62).
#pragma once

#include "attention_problem.h"
#include "kvfence/cuda_on_cpu.h"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

inline constexpr uint32_t kLaneDims = 16;  // numbers of one lane: a 16-byte load of codes
inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kBlockWarps = 8;

// What kinds of kernel there are: the dims of keys and values, and their type.
template <uint32_t kDim0, uint32_t kDim1, KvType kType>
struct Form {
  static constexpr uint32_t kKey = kDim0;   // and the value's
  static constexpr uint32_t kTail = kDim1;  // of the key only; then the value is the key (MLA)
  static constexpr KvType kKv = kType;
  static constexpr uint32_t kBytes = kType == KvType::kE4m3 ? 1 : 2;
  static constexpr uint32_t kTokenLanes = kDim0 / kLaneDims;
  static constexpr uint32_t kTokens = kWarpLanes / kTokenLanes;  // of a warp at a time
  static constexpr uint32_t kTailDims = kDim1 / kWarpLanes;      // of a lane
  static_assert(kDim1 == 0 || kTokenLanes == kWarpLanes);
};

// A line's sum while it is joined: a warp has it, a lane each 32nd number.
template <class F>
struct LineSum {
  SoftmaxState state;
  float acc[F::kKey / kWarpLanes];

  __device__ __forceinline__ void Clear() {
    state = EmptySoftmax();
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kKey / kWarpLanes; ++i) acc[i] = 0.0f;
  }
  __device__ __forceinline__ void Take(SoftmaxState other, const float* numbers, uint32_t stride) {
    const TokenWeight joined = TakeState(&state, other);
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kKey / kWarpLanes; ++i) {
      acc[i] = Blend(acc[i], joined.keep, numbers[i * stride], joined.weight);
    }
  }
  __device__ __forceinline__ void TakePartial(const float* partial) {
    Take({partial[F::kKey], partial[F::kKey + 1]}, partial + threadIdx.x, kWarpLanes);
  }
  __device__ __forceinline__ void Leave(float* partial) const {
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kKey / kWarpLanes; ++i) {
      partial[i * kWarpLanes + threadIdx.x] = acc[i];
    }
    if (threadIdx.x != 0) return;
    partial[F::kKey] = state.max;
    partial[F::kKey + 1] = state.sum;
  }
  __device__ __forceinline__ void Write(const Problem& a, uint32_t kv_head, uint64_t out) const {
    const float scale = OutputScale(a, kv_head, state);
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kKey / kWarpLanes; ++i) {
      StoreFloat(a.o, out * F::kKey + i * kWarpLanes + threadIdx.x, acc[i] * scale);
    }
    if (a.lse != nullptr && threadIdx.x == 0) a.lse[out] = LogSumExp(state);
  }
};

// Joins the shares of one line, share 0 first; `lines` partial results from one to the next.
template <class F>
__device__ __forceinline__ LineSum<F> JoinShares(const float* first, uint32_t shares,
                                                 uint32_t lines) {
  LineSum<F> sum;
  sum.Clear();
  for (uint32_t s = 0; s < shares; ++s) {
    sum.TakePartial(first + s * lines * PartialFloats(F::kKey));
  }
  return sum;
}

// Where a line's partial result of a part lies in the workspace.
KVF_HD uint64_t PartialAt(const Problem& a, uint32_t parts, uint32_t row, uint32_t kv_head,
                          uint32_t line, uint64_t part) {
  const uint64_t lines = uint64_t{a.seq_len_q} * GroupOf(a);
  const uint64_t which = (uint64_t{row} * a.num_kv_heads + kv_head) * lines + line;
  return (which * parts + part) * PartialFloats(a.dim_v);
}

// The parts of the context that this block has: all of the row's, or where they're spread one, and
// the last block what is beyond max_kv_len, too.
__device__ __forceinline__ Span ChunksOfBlock(const Problem& a, const Span& all) {
  Span chunks = ChunksOfRow(a, all);
  if (gridDim.z == 1) return chunks;
  chunks.begin = MaxOf(chunks.begin, blockIdx.z);
  if (blockIdx.z + 1 < gridDim.z) chunks.end = MinOf(chunks.end, uint64_t{blockIdx.z} + 1);
  return chunks;
}

// A line that is done: into the output, or where parts are spread into the workspace.
template <class F>
__device__ __forceinline__ void Finish(const Problem& a, const AttentionRow& row, uint32_t kv_head,
                                       uint32_t line, const LineSum<F>& total) {
  if (gridDim.z > 1) {
    total.Leave(a.workspace + PartialAt(a, gridDim.z, blockIdx.x, kv_head, line, blockIdx.z));
  } else {
    total.Write(a, kv_head, OutputOfLine(a, row, kv_head, line));
  }
}

// Joins what the parts of a context left in the workspace, in order. A warp is one line; grid
// (rows, lines of all KV heads / 8), block (32, 8).
template <class F>
__global__ void __launch_bounds__(kBlockWarps* kWarpLanes)
    JoinKernel(const KVF_GRID_CONSTANT Problem a, uint32_t parts) {
  const uint32_t most = a.seq_len_q * GroupOf(a);
  const uint32_t which = blockIdx.y * blockDim.y + threadIdx.y;
  const uint32_t kv_head = which / most;
  const uint32_t line = which % most;
  const AttentionRow row = AttentionRowOf(a, blockIdx.x);
  if (kv_head >= a.num_kv_heads || line >= LinesOfRow(a, row)) return;
  const Span chunks = ChunksOfRow(a, SpanOfRow(a, row));
  LineSum<F> total;
  total.Clear();
  for (uint64_t c = MinOf(chunks.begin, parts - 1); c < MinOf(chunks.end, parts); ++c) {
    total.TakePartial(a.workspace + PartialAt(a, parts, blockIdx.x, kv_head, line, c));
  }
  total.Write(a, kv_head, OutputOfLine(a, row, kv_head, line));
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
