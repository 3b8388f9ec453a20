// Decode attention on tensor cores, for groups of query heads large enough to fill them; for nvcc
// and for the CPU shim.
//
// Idea: a block is one row, one KV head, up to 16 of its lines and, when contexts are spread, one
// part of the context. Warps take sixteen tokens at a time (attention_mma_tile.cuh); those that
// share positions are joined through shared memory, and parts of the context in order, as in
// attention_cuda.cuh. Invariant: who takes which position depends on logical positions only (I-62).
#pragma once

#include "attention_mma_tile.cuh"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

inline constexpr uint32_t kFewestMmaLines = 4;  // below, most of a product would be padding

// A warp's sums of a part of the context, into shared memory: beside those of the other shares, to
// be joined, or where there's only one share joined to what stands there. The whole block calls it.
template <class F>
__device__ __forceinline__ void KeepSums(const Shared<F>& shared, const MmaLane<F>& lane) {
  constexpr bool kJoin = Cut<F>::kShares == 1;
  SoftmaxState states[2];
  float* lines[2];
  KVF_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    SoftmaxState own = lane.state[r];
    own.sum += __shfl_xor_sync(~0u, own.sum, 1);
    own.sum += __shfl_xor_sync(~0u, own.sum, 2);
    lines[r] = shared.sums + (lane.share * kMmaLines + lane.g + 8 * r) * PartialFloats(F::kKey);
    states[r] = EmptySoftmax();
    if constexpr (kJoin) states[r] = {lines[r][F::kKey], lines[r][F::kKey + 1]};
    const TokenWeight joined = TakeState(&states[r], own);
    const auto keep = [&](float* number, float sum) {
      *number = kJoin ? Blend(*number, joined.keep, sum, joined.weight) : sum;
    };
    float* first = lines[r] + lane.dim_warp * Cut<F>::kDims + 2 * lane.t * Cut<F>::kColumns;
    KVF_UNROLL
    for (uint32_t c = 0; c < Cut<F>::kColumns; ++c) {
      keep(first + c, lane.acc[c][2 * r]);
      keep(first + Cut<F>::kColumns + c, lane.acc[c][2 * r + 1]);
    }
  }
  if constexpr (kJoin) __syncthreads();  // all have read the old states
  if (lane.t != 0 || lane.dim_warp != 0) return;
  KVF_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    lines[r][F::kKey] = states[r].max;
    lines[r][F::kKey + 1] = states[r].sum;
  }
}

// This warp's share of a part of the context. The whole block calls it.
template <class F>
__device__ __forceinline__ void RunMmaShare(const Problem& a, const AttentionRow& row,
                                            const Shared<F>& shared, uint32_t kv_head,
                                            const Span& part, float scale, bool split,
                                            MmaLane<F>* lane) {
  KVF_UNROLL
  for (uint32_t r = 0; r < 2; ++r) lane->state[r] = EmptySoftmax();
  KVF_UNROLL
  for (uint32_t c = 0; c < Cut<F>::kColumns; ++c) {
    KVF_UNROLL
    for (uint32_t i = 0; i < 4; ++i) lane->acc[c][i] = 0.0f;
  }
  uint32_t turn = 0;
  const auto size = static_cast<uint32_t>(part.end - part.begin);
  for (uint32_t all = 0; all < size; all += Cut<F>::kShares * kMmaTokens) {
    const uint32_t first = all + lane->share * kMmaTokens;
    TakeSixteen<F>(a, row, shared, kv_head, part, first, scale, split, turn++, lane);
  }
  KeepSums<F>(shared, *lane);
}

// The lines that a warp joins at the end of each part, and writes.
inline constexpr uint32_t kOwnLines = kMmaLines / kMmaWarps;

// Share 0's sums of the own-th of them.
template <class F>
__device__ __forceinline__ const float* SumsOf(const Shared<F>& shared, uint32_t own) {
  return shared.sums + (threadIdx.y * kOwnLines + own) * PartialFloats(F::kKey);
}

template <class F>
__device__ __forceinline__ void ClearSums(const Shared<F>& shared) {
  const uint32_t thread = threadIdx.y * kWarpLanes + threadIdx.x;
  for (uint32_t i = thread; i < Cut<F>::kSumFloats; i += kMmaWarps * kWarpLanes) {
    const bool is_max = i % PartialFloats(F::kKey) == F::kKey;
    shared.sums[i] = is_max ? EmptySoftmax().max : 0.0f;
  }
}

// grid (rows, num_kv_heads * line_blocks, parts), block (32, 4), dynamic shared memory of
// SharedBytes. `split`: queries aren't BF16.
template <class F>
__global__ void __launch_bounds__(kMmaWarps* kWarpLanes)
    MmaAttentionKernel(const KVF_GRID_CONSTANT Problem a, uint32_t line_blocks, bool split) {
  KVF_SHARED_DYNAMIC(float, base);
  constexpr bool kOneShare = Cut<F>::kShares == 1;  // then KeepSums joins parts in place
  const Shared<F> shared(base);
  const uint32_t kv_head = blockIdx.y / line_blocks;
  const uint32_t first_line = blockIdx.y % line_blocks * kMmaLines;
  const AttentionRow row = AttentionRowOf(a, blockIdx.x);
  const uint32_t lines = LinesOfRow(a, row);
  const Span all = SpanOfRow(a, row);
  const Span chunks = ChunksOfBlock(a, all);
  if (first_line >= lines || (gridDim.z > 1 && chunks.begin >= chunks.end)) return;
  LoadQueries<F>(a, row, kv_head, first_line, lines, split, shared);
  if constexpr (kOneShare) ClearSums<F>(shared);
  MmaLane<F> lane;
  const float scale = a.score_scale * ScaleAt(a.k_head_scales, kv_head);
  LineSum<F> total[kOwnLines];
  KVF_UNROLL
  for (uint32_t l = 0; l < kOwnLines; ++l) total[l].Clear();
  __syncthreads();
  for (uint64_t c = chunks.begin; c < chunks.end; ++c) {
    const uint64_t size = ChunkSize(a);
    const Span part = {MaxOf(c * size, all.begin), MinOf((c + 1) * size, all.end)};
    OpenSpans<F>(a, row, first_line, lines, part, &lane);
    RunMmaShare<F>(a, row, shared, kv_head, part, scale, split, &lane);
    __syncthreads();
    if constexpr (kOneShare) continue;
    KVF_UNROLL
    for (uint32_t l = 0; l < kOwnLines; ++l) {
      const LineSum<F> sum = JoinShares<F>(SumsOf(shared, l), Cut<F>::kShares, kMmaLines);
      total[l].Take(sum.state, sum.acc, 1);
    }
    __syncthreads();
  }
  KVF_UNROLL
  for (uint32_t l = 0; l < kOwnLines; ++l) {
    const uint32_t line = first_line + threadIdx.y * kOwnLines + l;
    if constexpr (kOneShare) total[l].TakePartial(SumsOf(shared, l));
    if (line < lines) Finish<F>(a, row, kv_head, line, total[l]);
  }
}

// Does a product of 16 lines pay for this problem?
inline bool PaysOnTensorCores(const Problem& a) {
  return a.dim_k0 >= 64 && a.seq_len_q * GroupOf(a) >= kFewestMmaLines;
}

template <class F, class Stream>
void LaunchMma(const Problem& a, uint32_t parts, Stream stream) {
  const bool split = a.q0.array.type != FloatType::kBf16;
  const uint32_t line_blocks = (a.seq_len_q * GroupOf(a) + kMmaLines - 1) / kMmaLines;
  const dim3 grid(a.rows, a.num_kv_heads * line_blocks, parts);
  const size_t bytes = SharedBytes<F>(split);
#if defined(__CUDACC__)
  // More than 48 KB must be asked for, always as much: another thread, or a graph, may be about to
  // launch the other kind of queries. A refusal is the launch's error.
  cudaFuncSetAttribute(MmaAttentionKernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(SharedBytes<F>(true)));
#endif
  KVF_LAUNCH(MmaAttentionKernel<F>, grid, dim3(kWarpLanes, kMmaWarps), bytes, stream, a,
             line_blocks, split);
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
