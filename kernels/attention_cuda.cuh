// The decode attention kernel, for nvcc and for the CPU shim.
//
// Idea: a block is one row and up to 8 query heads of one KV head; a warp is one query head and one
// part of the row's positions. A warp works on several tokens at a time: head_dim / 16 lanes share
// a token, each with 16 codes (one 16-byte load of K, one of V), so that the cross-lane sum is
// short and all heads of a block read the same lines. Each group of lanes keeps its own softmax; at
// the end they are joined within the warp by shuffles, and between parts through shared memory.
// Invariant: who takes which position depends on logical positions only (I-62).
#pragma once

#include "attention_core.h"
#include "kvfence/cuda_on_cpu.h"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

inline constexpr uint32_t kLaneDims = 16;  // head dimensions of one lane: a 16-byte load of codes
inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kBlockHeads = 8;  // query heads of a block at most
inline constexpr uint32_t kBlockWarps = 8;  // warps of a block at most

// How a launch is cut, from its geometry alone, so that a captured graph stays valid.
struct AttentionGrid {
  uint32_t heads;        // query heads of a block
  uint32_t parts;        // warps that share a head's positions
  uint32_t head_blocks;  // blocks per KV head
};
KVF_HD AttentionGrid AttentionGridOf(const DecodeAttention& a) {
  const uint32_t group = a.num_qo_heads / a.num_kv_heads;
  const uint32_t heads = group < kBlockHeads ? group : kBlockHeads;
  return {heads, kBlockWarps / heads, (group + heads - 1) / heads};
}

// What the parts of a head hand over: the state and the weighted sum.
KVF_HD uint32_t PartialFloats(uint32_t head_dim) { return head_dim + 2; }

struct Lane {
  float q[kLaneDims];
  float acc[kLaneDims];
  SoftmaxState state;
};

// Four codes of a word, lowest byte first. The conversion is exact, by instruction or by hand.
__device__ __forceinline__ void DecodeFour(uint32_t word, float* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  KVF_UNROLL
  for (int half = 0; half < 2; ++half) {
    const unsigned short pair = static_cast<unsigned short>(word >> (16 * half));
    asm("{ .reg .b32 two; .reg .b16 low, high;\n"
        "  cvt.rn.f16x2.e4m3x2 two, %2;\n"
        "  mov.b32 {low, high}, two;\n"
        "  cvt.f32.f16 %0, low;\n"
        "  cvt.f32.f16 %1, high; }\n"
        : "=f"(out[2 * half]), "=f"(out[2 * half + 1])
        : "h"(pair));
  }
#else
  KVF_UNROLL
  for (int i = 0; i < 4; ++i) out[i] = DecodeE4m3(static_cast<uint8_t>(word >> (8 * i)));
#endif
}

__device__ __forceinline__ void DecodeSixteen(uint4 words, float* out) {
  DecodeFour(words.x, out);
  DecodeFour(words.y, out + 4);
  DecodeFour(words.z, out + 8);
  DecodeFour(words.w, out + 12);
}

// Sum over the kDim / 16 lanes that share a token; all of them get it.
template <uint32_t kDim>
__device__ __forceinline__ float SumOverToken(float value) {
  KVF_UNROLL
  for (uint32_t offset = kDim / kLaneDims / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(offset));
  }
  return value;
}

// One token (kMaskedSlot: none) for the lanes that share it. The whole warp calls it.
template <uint32_t kDim>
__device__ __forceinline__ void TakeTokenAt(const DecodeAttention& a, int64_t slot,
                                            uint32_t kv_head, uint32_t dims_before, float scale,
                                            Lane* lane) {
  const bool readable = slot != kMaskedSlot;
  CachePlace place = {0, 0};
  uint4 k = make_uint4(0, 0, 0, 0), v = make_uint4(0, 0, 0, 0);
  if (readable) {
    place = PlaceOf(a, slot, kv_head);
    k = *reinterpret_cast<const uint4*>(a.k_cache + place.offset + dims_before);
    v = *reinterpret_cast<const uint4*>(a.v_cache + place.offset + dims_before);
  }
  float decoded[kLaneDims];
  DecodeSixteen(k, decoded);
  float dot = 0.0f;
  KVF_UNROLL
  for (uint32_t d = 0; d < kLaneDims; ++d) dot += lane->q[d] * decoded[d];
  dot = SumOverToken<kDim>(dot);
  if (!readable) return;
  const float score = dot * (scale * PageScale(a.k_page_scales, place.page));
  const TokenWeight taken = TakeToken(&lane->state, score);
  const float weight = taken.weight * PageScale(a.v_page_scales, place.page);
  DecodeSixteen(v, decoded);
  KVF_UNROLL
  for (uint32_t d = 0; d < kLaneDims; ++d) {
    lane->acc[d] = lane->acc[d] * taken.keep + weight * decoded[d];
  }
}

// Joins the groups of lanes of a warp; afterwards the first kDim / 16 lanes hold the warp's sum.
template <uint32_t kDim>
__device__ __forceinline__ void JoinWarp(Lane* lane) {
  KVF_UNROLL
  for (uint32_t offset = kDim / kLaneDims; offset < kWarpLanes; offset *= 2) {
    SoftmaxState other;
    other.max = __shfl_down_sync(0xFFFFFFFFu, lane->state.max, offset);
    other.sum = __shfl_down_sync(0xFFFFFFFFu, lane->state.sum, offset);
    const TokenWeight joined = TakeState(&lane->state, other);
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) {
      const float theirs = __shfl_down_sync(0xFFFFFFFFu, lane->acc[d], offset);
      lane->acc[d] = lane->acc[d] * joined.keep + theirs * joined.weight;
    }
  }
}

// Joins the parts of a head, part 0 first, and writes the head's output. One warp.
template <uint32_t kDim>
__device__ __forceinline__ void JoinParts(const DecodeAttention& a, const float* partials,
                                          uint32_t parts, uint64_t out_head, uint32_t lane_index) {
  SoftmaxState state = EmptySoftmax();
  float acc[kDim / kWarpLanes] = {};
  for (uint32_t p = 0; p < parts; ++p) {
    const float* partial = partials + p * PartialFloats(kDim);
    const TokenWeight joined = TakeState(&state, {partial[kDim], partial[kDim + 1]});
    KVF_UNROLL
    for (uint32_t i = 0; i < kDim / kWarpLanes; ++i) {
      acc[i] = acc[i] * joined.keep + partial[i * kWarpLanes + lane_index] * joined.weight;
    }
  }
  const float scale = OutputScale(a, state);
  KVF_UNROLL
  for (uint32_t i = 0; i < kDim / kWarpLanes; ++i) {
    StoreFloat(a.o, out_head * kDim + i * kWarpLanes + lane_index, acc[i] * scale);
  }
  if (a.lse != nullptr && lane_index == 0) a.lse[out_head] = LogSumExp(state);
}

// grid (rows, num_kv_heads, head_blocks), block (32, parts, heads), dynamic shared memory
// heads * parts * PartialFloats(kDim) floats.
template <uint32_t kDim>
__global__ void __launch_bounds__(kBlockWarps* kWarpLanes)
    DecodeAttentionKernel(const DecodeAttention a) {
  KVF_SHARED_DYNAMIC(float, partials);
  const uint32_t group = a.num_qo_heads / a.num_kv_heads;
  const uint32_t head_in_group = blockIdx.z * blockDim.z + threadIdx.z;
  const uint32_t kv_head = blockIdx.y;
  const uint64_t out_head = uint64_t{blockIdx.x} * a.num_qo_heads + kv_head * group + head_in_group;
  const bool mine = head_in_group < group;
  constexpr uint32_t kTokenLanes = kDim / kLaneDims;
  constexpr uint32_t kTokens = kWarpLanes / kTokenLanes;  // of a warp at a time
  const uint32_t dims_before = threadIdx.x % kTokenLanes * kLaneDims;
  float* partial = partials + (threadIdx.z * blockDim.y + threadIdx.y) * PartialFloats(kDim);

  Lane lane;
  lane.state = EmptySoftmax();
  KVF_UNROLL
  for (uint32_t d = 0; d < kLaneDims; ++d) {
    lane.acc[d] = 0.0f;
    lane.q[d] = mine ? LoadFloat(a.q, out_head * kDim + dims_before + d) : 0.0f;
  }
  const AttentionRow row = mine ? AttentionRowOf(a, blockIdx.x) : AttentionRow();
  const float scale = ScoreScale(a);
  for (uint64_t first = row.begin + threadIdx.y * kTokens; first < row.end;
       first += blockDim.y * kTokens) {
    const uint64_t position = first + threadIdx.x / kTokenLanes;
    const int64_t slot = position < row.end ? SlotOfToken(a, row, position) : kMaskedSlot;
    TakeTokenAt<kDim>(a, slot, kv_head, dims_before, scale, &lane);
  }
  JoinWarp<kDim>(&lane);
  if (threadIdx.x < kTokenLanes) {
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) partial[dims_before + d] = lane.acc[d];
    if (threadIdx.x == 0) {
      partial[kDim] = lane.state.max;
      partial[kDim + 1] = lane.state.sum;
    }
  }
  __syncthreads();
  if (mine && threadIdx.y == 0) {
    JoinParts<kDim>(a, partial, blockDim.y, out_head, threadIdx.x);
  }
}

template <uint32_t kDim, class Stream>
void LaunchDecodeAttention(const DecodeAttention& a, Stream stream) {
  const AttentionGrid cut = AttentionGridOf(a);
  const dim3 grid(a.rows, a.num_kv_heads, cut.head_blocks);
  const dim3 block(kWarpLanes, cut.parts, cut.heads);
  const size_t shared_bytes = size_t{cut.heads} * cut.parts * PartialFloats(kDim) * sizeof(float);
  KVF_LAUNCH(DecodeAttentionKernel<kDim>, grid, block, shared_bytes, stream, a);
}

// The launch for any head_dim that CheckDecodeAttention lets pass.
template <class Stream>
void LaunchDecodeAttention(const DecodeAttention& a, Stream stream) {
  switch (a.head_dim) {
    case 32:
      return LaunchDecodeAttention<32>(a, stream);
    case 64:
      return LaunchDecodeAttention<64>(a, stream);
    case 128:
      return LaunchDecodeAttention<128>(a, stream);
    default:
      return LaunchDecodeAttention<256>(a, stream);
  }
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
