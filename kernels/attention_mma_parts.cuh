// How the tensor-core kernel's block is cut, what lies in its shared memory, and its queries there.
//
// Idea: four warps share positions, or, of wide keys (256, MLA), the key's and the value's numbers.
// Dims within a product may stand in any order, so a lane takes 16 neighbours of a key, and the
// queries are laid out to match, as the product's operand. Queries are two BF16 numbers each
// (I-155).
#pragma once

#include "attention_cuda_parts.cuh"
#include "mma_bf16.cuh"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

inline constexpr uint32_t kMmaLines = 16;
inline constexpr uint32_t kMmaTokens = 16;
inline constexpr uint32_t kMmaWarps = 4;

// How a block of four warps is cut for a form.
template <class F>
struct Cut {
  static constexpr uint32_t kDimWarps = F::kKey <= 128 ? 1 : F::kKey / 128;
  static constexpr uint32_t kShares = kMmaWarps / kDimWarps;  // of the positions
  static constexpr uint32_t kDims = F::kKey / kDimWarps;      // of a warp: 64 or 128
  static constexpr uint32_t kTail = F::kTail / kDimWarps;     // of the key only
  static constexpr uint32_t kSlices = (kDims + kTail) / 16;   // products of a score
  static constexpr uint32_t kColumns = kDims / 8;             // a lane's numbers of a value
  static constexpr uint32_t kTokenBytes = kColumns * F::kBytes;
  static constexpr uint32_t kSumFloats = kShares * kMmaLines * (F::kKey + 2);
  static constexpr uint32_t kScoreFloats = kDimWarps > 1 ? 2 * kMmaWarps* kWarpLanes * 8 : 0;
  static constexpr uint32_t kQueryWords = kDimWarps * kSlices * kWarpLanes * 4;
  static_assert(kDims == 64 || kDims == 128);
  static_assert(kTail == 0 || kTail == 16);
};

// Where a block's shared memory has what.
template <class F>
struct Shared {
  float* sums;    // [shares][16 lines][kKey + 2]: a part's partial results
  float* scores;  // [2][warps][32 lanes][8]: parts of scores, by turns
  uint4* high;    // [dim warps * slices][32 lanes]: queries as operands
  uint4* low;     // what they lack; absent where queries are BF16

  __device__ __forceinline__ explicit Shared(float* base)
      : sums(base),
        scores(base + Cut<F>::kSumFloats),
        high(reinterpret_cast<uint4*>(scores + Cut<F>::kScoreFloats)),
        low(high + Cut<F>::kQueryWords / 4) {}
};
template <class F>
size_t SharedBytes(bool split) {
  const uint32_t queries = Cut<F>::kQueryWords * (split ? 2 : 1);
  return (size_t{Cut<F>::kSumFloats} + Cut<F>::kScoreFloats + queries) * 4;
}

// Positions within a part of the context, counted from its first.
struct Offsets {
  uint32_t begin, end;

  __device__ __forceinline__ bool Holds(uint32_t at) const { return at >= begin && at < end; }
};

// A warp's place in the block, and a lane's in the warp.
template <class F>
struct MmaLane {
  uint32_t share = threadIdx.y / Cut<F>::kDimWarps;
  uint32_t dim_warp = threadIdx.y % Cut<F>::kDimWarps;
  uint32_t g = threadIdx.x / 4;  // lines g and g + 8, token g, a value's numbers g * kColumns ..
  uint32_t t = threadIdx.x % 4;  // tokens 2t, 2t + 1, 2t + 8, 2t + 9
  Offsets span[2];               // what its lines read
  Offsets common;                // what all of the block's lines read
  SoftmaxState state[2];         // the sums are of this lane's tokens alone
  float acc[Cut<F>::kColumns][4];
};

// The position in a query of number i of this lane in a slice of its warp's key.
template <class F>
__device__ __forceinline__ uint32_t KeyDim(uint32_t dim_warp, uint32_t slice, uint32_t t,
                                           uint32_t i) {
  if (slice * 16 >= Cut<F>::kDims) return F::kKey + dim_warp * Cut<F>::kTail + t * 4 + i;
  return dim_warp * Cut<F>::kDims + slice / 4 * 64 + t * 16 + slice % 4 * 4 + i;
}

// Queries of the block's lines as operands, into shared memory.
template <class F>
__device__ __forceinline__ void LoadQueries(const Problem& a, const AttentionRow& row,
                                            uint32_t kv_head, uint32_t first_line, uint32_t lines,
                                            bool split, const Shared<F>& shared) {
  const uint32_t thread = threadIdx.y * kWarpLanes + threadIdx.x;
  for (uint32_t at = thread; at < Cut<F>::kQueryWords / 4; at += kMmaWarps * kWarpLanes) {
    const uint32_t slice = at / kWarpLanes, lane = at % kWarpLanes;
    SplitFloat numbers[2][4];
    KVF_UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
      const uint32_t line = first_line + lane / 4 + 8 * r;
      const uint64_t out = line < lines ? OutputOfLine(a, row, kv_head, line) : 0;
      KVF_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t d = KeyDim<F>(slice / Cut<F>::kSlices, slice % Cut<F>::kSlices, lane % 4, i);
        float q = 0.0f;
        if (line < lines) {
          q = d < F::kKey ? LoadFloat(a.q0.array, out * a.q0.stride + d)
                          : LoadFloat(a.q1.array, out * a.q1.stride + (d - F::kKey));
        }
        numbers[r][i] = Split(q);
      }
    }
    const auto both = [&](uint32_t r, uint32_t i, bool high) {
      return high ? Pair(numbers[r][i].high, numbers[r][i + 1].high)
                  : Pair(numbers[r][i].low, numbers[r][i + 1].low);
    };
    shared.high[at] = {both(0, 0, true), both(1, 0, true), both(0, 2, true), both(1, 2, true)};
    if (split) {
      shared.low[at] = {both(0, 0, false), both(1, 0, false), both(0, 2, false), both(1, 2, false)};
    }
  }
}

// What of a part of the context the block's lines read, each lane for its two.
template <class F>
__device__ __forceinline__ void OpenSpans(const Problem& a, const AttentionRow& row,
                                          uint32_t first_line, uint32_t lines, const Span& part,
                                          MmaLane<F>* lane) {
  const uint32_t group = GroupOf(a);
  const auto within = [&](const Span& span) {
    const auto place = [&](uint64_t p) {
      return static_cast<uint32_t>(MinOf(MaxOf(p, part.begin), part.end) - part.begin);
    };
    return Offsets{place(span.begin), place(span.end)};
  };
  KVF_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t line = first_line + lane->g + 8 * r;
    lane->span[r] = line < lines ? within(SpanOfQuery(a, row, line / group)) : Offsets{0, 0};
  }
  lane->common = {0, ~0u};
  const uint64_t end = MinOf(first_line + kMmaLines, lines);
  for (uint32_t i = first_line / group; uint64_t{i} * group < end; ++i) {
    const Offsets span = within(SpanOfQuery(a, row, i));
    lane->common.begin = lane->common.begin < span.begin ? span.begin : lane->common.begin;
    lane->common.end = lane->common.end < span.end ? lane->common.end : span.end;
  }
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
