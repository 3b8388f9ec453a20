// Decode attention by multiply-adds, for few query heads a KV head, and the launch of either kernel
// (attention_mma.cuh is the other); for nvcc and for the CPU shim.
//
// Idea: a block is one row, one KV head, up to 16 of its lines (query heads of all query tokens)
// and, when contexts are spread, one part of the context; a warp is two lines and one share of the
// part's positions. A warp works on several tokens at a time: head_dim / 16 lanes share a token,
// each with 16 numbers (one 16-byte load of codes), decoded once for both lines. Each group of
// lanes keeps its own softmax; they are joined within the warp by shuffles, between warps through
// shared memory, and between parts of the context in order: here, or by JoinKernel. Invariant: who
// takes which position depends on logical positions only (I-62).
#pragma once

#include "attention_cuda_parts.cuh"
#include "attention_mma.cuh"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

inline constexpr uint32_t kWarpLines = 2;

// How a launch is cut, from its geometry alone, so that a captured graph stays valid.
struct AttentionGrid {
  uint32_t line_warps;   // warps of a block that have lines of their own
  uint32_t shares;       // warps that share a line's positions
  uint32_t line_blocks;  // blocks per KV head
  uint32_t parts;        // of the context
};
KVF_HD AttentionGrid AttentionGridOf(const Problem& a, uint32_t parts) {
  const uint32_t lines = a.seq_len_q * GroupOf(a);
  const uint32_t pairs = (lines + kWarpLines - 1) / kWarpLines;
  const uint32_t line_warps = pairs < kBlockWarps ? pairs : kBlockWarps;
  return {line_warps, kBlockWarps / line_warps, (pairs + line_warps - 1) / line_warps, parts};
}

template <class F>
struct Lane {
  float q[kWarpLines][kLaneDims];
  float q_tail[kWarpLines][F::kTailDims + 1];
  float acc[kWarpLines][kLaneDims];
  SoftmaxState state[kWarpLines];
  Span span[kWarpLines];
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

// Four codes, or two numbers of BF16.
template <class F>
__device__ __forceinline__ void DecodeWord(uint32_t word, float* out) {
  if constexpr (F::kKv == KvType::kE4m3) {
    DecodeFour(word, out);
  } else {
    out[0] = FloatOfBits(word << 16);
    out[1] = FloatOfBits(word & 0xFFFF0000u);
  }
}

// A lane's sixteen numbers, as they come from memory.
template <class F>
struct Numbers {
  uint4 words[F::kBytes];

  __device__ __forceinline__ void Load(const uint8_t* from) {
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kBytes; ++i) words[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  __device__ __forceinline__ void Decode(float* out) const {
    constexpr uint32_t kPerWord = 4 / F::kBytes;
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kBytes; ++i) {
      float* to = out + i * 4 * kPerWord;
      DecodeWord<F>(words[i].x, to);
      DecodeWord<F>(words[i].y, to + kPerWord);
      DecodeWord<F>(words[i].z, to + 2 * kPerWord);
      DecodeWord<F>(words[i].w, to + 3 * kPerWord);
    }
  }
};

// One number of either type.
template <class F>
__device__ __forceinline__ float NumberAt(const uint8_t* data, uint32_t i) {
  if constexpr (F::kKv == KvType::kE4m3) return DecodeE4m3(data[i]);
  return Bf16ToFloat(reinterpret_cast<const uint16_t*>(data)[i]);
}

// Sum over the lanes that share a token; all of them get it.
template <class F>
__device__ __forceinline__ float SumOverToken(float value) {
  KVF_UNROLL
  for (uint32_t offset = F::kTokenLanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(offset));
  }
  return value;
}

// The score of each line for one token, page and tensor scales apart. The whole warp calls it.
template <class F>
__device__ __forceinline__ void Dots(const float* key, const float* tail, const Lane<F>& lane,
                                     float* dots) {
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) {
    float dot = 0.0f;
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) dot += lane.q[l][d] * key[d];
    if constexpr (F::kTail != 0) {
      KVF_UNROLL
      for (uint32_t d = 0; d < F::kTailDims; ++d) dot += lane.q_tail[l][d] * tail[d];
    }
    dots[l] = SumOverToken<F>(dot);
  }
}

// One token (kMaskedSlot: none) for the lanes that share it. The whole warp calls it.
template <class F>
__device__ __forceinline__ void TakeTokenAt(const Problem& a, uint64_t position, int64_t slot,
                                            uint32_t kv_head, uint32_t dims_before, float scale,
                                            Lane<F>* lane) {
  const bool readable = slot != kMaskedSlot;
  CachePlace place = {0, 0};
  Numbers<F> k = {}, v = {};
  float tail[F::kTailDims + 1] = {};
  if (readable) {
    place = PlaceOf(a, slot);
    k.Load(a.k0.data + OffsetIn(a.k0, place) + kv_head * a.k0.head_stride +
           dims_before * F::kBytes);
    if constexpr (F::kTail == 0) {
      v.Load(a.v.data + OffsetIn(a.v, place) + kv_head * a.v.head_stride + dims_before * F::kBytes);
    } else {
      KVF_UNROLL
      for (uint32_t d = 0; d < F::kTailDims; ++d) {
        tail[d] = NumberAt<F>(a.k1.data + OffsetIn(a.k1, place), threadIdx.x * F::kTailDims + d);
      }
    }
  }
  float decoded[kLaneDims], dots[kWarpLines];
  k.Decode(decoded);
  Dots<F>(decoded, tail, *lane, dots);
  if (!readable) return;
  const float k_scale = scale * ScaleAt(a.k_page_scales, place.page);
  const float v_scale = ScaleAt(a.v_page_scales, place.page);
  if constexpr (F::kTail == 0) v.Decode(decoded);
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) {
    if (position < lane->span[l].begin || position >= lane->span[l].end) continue;
    const TokenWeight taken = TakeToken(&lane->state[l], dots[l] * k_scale);
    const float weight = taken.weight * v_scale;
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) {
      lane->acc[l][d] = lane->acc[l][d] * taken.keep + weight * decoded[d];
    }
  }
}

// Joins the groups of lanes of a warp; afterwards the first kTokenLanes lanes hold the warp's sum.
template <class F>
__device__ __forceinline__ void JoinWarp(Lane<F>* lane) {
  KVF_UNROLL
  for (uint32_t offset = F::kTokenLanes; offset < kWarpLanes; offset *= 2) {
    KVF_UNROLL
    for (uint32_t l = 0; l < kWarpLines; ++l) {
      SoftmaxState other;
      other.max = __shfl_down_sync(0xFFFFFFFFu, lane->state[l].max, offset);
      other.sum = __shfl_down_sync(0xFFFFFFFFu, lane->state[l].sum, offset);
      const TokenWeight joined = TakeState(&lane->state[l], other);
      KVF_UNROLL
      for (uint32_t d = 0; d < kLaneDims; ++d) {
        const float theirs = __shfl_down_sync(0xFFFFFFFFu, lane->acc[l][d], offset);
        lane->acc[l][d] = lane->acc[l][d] * joined.keep + theirs * joined.weight;
      }
    }
  }
}

template <class F>
__device__ __forceinline__ void OpenLines(const Problem& a, const AttentionRow& row,
                                          uint32_t kv_head, uint32_t first_line, uint32_t lines,
                                          Lane<F>* lane) {
  const uint32_t dims_before = threadIdx.x % F::kTokenLanes * kLaneDims;
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) {
    const bool mine = first_line + l < lines;
    const uint64_t out = mine ? OutputOfLine(a, row, kv_head, first_line + l) : 0;
    lane->span[l] = mine ? SpanOfQuery(a, row, (first_line + l) / GroupOf(a)) : Span{0, 0};
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) {
      lane->q[l][d] = mine ? LoadFloat(a.q0.array, out * a.q0.stride + dims_before + d) : 0.0f;
    }
    if constexpr (F::kTail != 0) {
      const uint64_t from = out * a.q1.stride + threadIdx.x * F::kTailDims;
      KVF_UNROLL
      for (uint32_t d = 0; d < F::kTailDims; ++d) {
        lane->q_tail[l][d] = mine ? LoadFloat(a.q1.array, from + d) : 0.0f;
      }
    }
  }
}

// This warp's share of positions [begin, end), and what its first lanes hold at the end into
// shared memory: [kWarpLines][PartialFloats].
template <class F>
__device__ __forceinline__ void RunShare(const Problem& a, const AttentionRow& row,
                                         uint32_t kv_head, Span part, float scale, Lane<F>* lane,
                                         float* partial) {
  const uint32_t dims_before = threadIdx.x % F::kTokenLanes * kLaneDims;
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) {
    lane->state[l] = EmptySoftmax();
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) lane->acc[l][d] = 0.0f;
  }
  for (uint64_t first = part.begin + threadIdx.y * F::kTokens; first < part.end;
       first += blockDim.y * F::kTokens) {
    const uint64_t position = first + threadIdx.x / F::kTokenLanes;
    const int64_t slot = position < part.end ? SlotOfToken(a, row, position) : kMaskedSlot;
    TakeTokenAt<F>(a, position, slot, kv_head, dims_before, scale, lane);
  }
  JoinWarp<F>(lane);
  if (threadIdx.x >= F::kTokenLanes) return;
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) {
    float* to = partial + l * PartialFloats(F::kKey);
    KVF_UNROLL
    for (uint32_t d = 0; d < kLaneDims; ++d) to[dims_before + d] = lane->acc[l][d];
    if (threadIdx.x != 0) continue;
    to[F::kKey] = lane->state[l].max;
    to[F::kKey + 1] = lane->state[l].sum;
  }
}

// grid (rows, num_kv_heads * line_blocks, parts), block (32, shares, line_warps), dynamic shared
// memory of line_warps * shares * kWarpLines * PartialFloats floats.
template <class F>
__global__ void __launch_bounds__(kBlockWarps* kWarpLanes, 1)
    DecodeAttentionKernel(const KVF_GRID_CONSTANT Problem a, uint32_t line_blocks) {
  KVF_SHARED_DYNAMIC(float, partials);
  const uint32_t kv_head = blockIdx.y / line_blocks;
  const uint32_t warp_line = (blockIdx.y % line_blocks * blockDim.z + threadIdx.z) * kWarpLines;
  float* partial =
      partials + (threadIdx.z * blockDim.y + threadIdx.y) * kWarpLines * PartialFloats(F::kKey);
  const AttentionRow row = AttentionRowOf(a, blockIdx.x);
  const uint32_t lines = LinesOfRow(a, row);
  Lane<F> lane;
  OpenLines<F>(a, row, kv_head, warp_line, lines, &lane);
  const Span all = SpanOfRow(a, row);
  const Span chunks = ChunksOfBlock(a, all);
  if (gridDim.z > 1 && chunks.begin >= chunks.end) return;
  const float scale = a.score_scale * ScaleAt(a.k_head_scales, kv_head);
  LineSum<F> total[kWarpLines];
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) total[l].Clear();
  for (uint64_t c = chunks.begin; c < chunks.end; ++c) {
    const uint64_t size = ChunkSize(a);
    const Span part = {MaxOf(c * size, all.begin), MinOf((c + 1) * size, all.end)};
    RunShare<F>(a, row, kv_head, part, scale, &lane, partial);
    __syncthreads();
    KVF_UNROLL
    for (uint32_t l = 0; l < kWarpLines && threadIdx.y == 0; ++l) {
      const uint32_t first = threadIdx.z * blockDim.y * kWarpLines + l;
      const LineSum<F> sum =
          JoinShares<F>(partials + first * PartialFloats(F::kKey), blockDim.y, kWarpLines);
      total[l].Take(sum.state, sum.acc, 1);
    }
    __syncthreads();
  }
  if (threadIdx.y != 0) return;
  KVF_UNROLL
  for (uint32_t l = 0; l < kWarpLines; ++l) {
    const uint32_t line = warp_line + l;
    if (line < lines) Finish<F>(a, row, kv_head, line, total[l]);
  }
}

template <class F, class Stream>
void LaunchKernel(const Problem& a, uint32_t parts, Stream stream) {
  if constexpr (F::kKey >= 64) {
    if (PaysOnTensorCores(a)) return LaunchMma<F>(a, parts, stream);
  }
  const AttentionGrid cut = AttentionGridOf(a, parts);
  const dim3 grid(a.rows, a.num_kv_heads * cut.line_blocks, parts);
  const dim3 block(kWarpLanes, cut.shares, cut.line_warps);
  const size_t shared_bytes =
      size_t{cut.line_warps} * cut.shares * kWarpLines * PartialFloats(F::kKey) * sizeof(float);
  KVF_LAUNCH(DecodeAttentionKernel<F>, grid, block, shared_bytes, stream, a, cut.line_blocks);
}

template <class F, class Stream>
void LaunchForm(const Problem& a, Stream stream) {
  const uint32_t parts = a.workspace == nullptr ? 1 : SpreadParts(a);
  LaunchKernel<F>(a, parts, stream);
  if (parts == 1) return;
  const uint32_t lines = a.seq_len_q * a.num_qo_heads;
  const dim3 join_grid(a.rows, (lines + kBlockWarps - 1) / kBlockWarps);
  KVF_LAUNCH(JoinKernel<F>, join_grid, dim3(kWarpLanes, kBlockWarps), 0, stream, a, parts);
}

template <KvType kType, class Stream>
void LaunchType(const Problem& a, Stream stream) {
  if (a.dim_k1 != 0) return LaunchForm<Form<kMlaCkvDim, kMlaKpeDim, kType>>(a, stream);
  switch (a.dim_k0) {
    case 32:
      return LaunchForm<Form<32, 0, kType>>(a, stream);
    case 64:
      return LaunchForm<Form<64, 0, kType>>(a, stream);
    case 128:
      return LaunchForm<Form<128, 0, kType>>(a, stream);
    default:
      return LaunchForm<Form<256, 0, kType>>(a, stream);
  }
}

// The launch for any problem of arguments that CheckDecodeAttention lets pass.
template <class Stream>
void LaunchDecodeAttention(const Problem& a, Stream stream) {
  if (a.rows == 0) return;
  if (a.kv_type == KvType::kE4m3) return LaunchType<KvType::kE4m3>(a, stream);
  LaunchType<KvType::kBf16>(a, stream);
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
