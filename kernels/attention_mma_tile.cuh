// Sixteen tokens on tensor cores: scores, weights, and weights * values, by one warp.
//
// Idea: scores are Q * K^T, and their layout as a result is the weights' as an operand of the next
// product. Invariant: a token that a line doesn't read adds nothing to it, be it a NaN (I-61): what
// only some lines read is added by itself, as 0 * NaN isn't 0.
#pragma once

#include "attention_mma_parts.cuh"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

// Where sixteen tokens lie: of token `lane % 16`.
struct TokenPlace {
  uint32_t page;   // kNowhere: it can't be read
  uint32_t token;  // of the page
  float k_scale, v_scale;
};
inline constexpr uint32_t kNowhere = ~0u;

__device__ __forceinline__ TokenPlace FindToken(const Problem& a, const AttentionRow& row,
                                                uint64_t position, uint64_t end, float scale) {
  const int64_t slot = position < end ? SlotOfToken(a, row, position) : kMaskedSlot;
  if (slot == kMaskedSlot) return {kNowhere, 0, 0.0f, 0.0f};
  const CachePlace place = PlaceOf(a, slot);
  return {static_cast<uint32_t>(place.page), static_cast<uint32_t>(place.token),
          scale * ScaleAt(a.k_page_scales, place.page), ScaleAt(a.v_page_scales, place.page)};
}

// Where token `from` of the sixteen lies. The whole warp calls it.
struct Found {
  bool readable;
  CachePlace place;
};
__device__ __forceinline__ Found PlaceFrom(const TokenPlace& place, uint32_t from) {
  const uint32_t page = __shfl_sync(~0u, place.page, static_cast<int>(from));
  const uint32_t token = __shfl_sync(~0u, place.token, static_cast<int>(from));
  const bool readable = page != kNowhere;
  return {readable, {readable ? page : 0, token}};
}

// The words of 16 neighbouring numbers as operands: slice i's is numbers 4i .. 4i + 3.
template <class F>
__device__ __forceinline__ uint2 OperandOf(const uint4 (&words)[F::kBytes], uint32_t slice) {
  const auto word = [&](uint32_t i) {
    const uint4& four = words[i / 4];
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  };
  if constexpr (F::kKv == KvType::kE4m3) return Bf16OfWord(word(slice));
  return {word(2 * slice), word(2 * slice + 1)};
}

template <class F>
__device__ __forceinline__ void AddScores(const Shared<F>& shared, const MmaLane<F>& lane,
                                          uint32_t slice, uint2 keys, bool split,
                                          float (&dots)[4]) {
  const uint32_t at = (lane.dim_warp * Cut<F>::kSlices + slice) * kWarpLanes + threadIdx.x;
  MmaBf16(dots, shared.high[at], keys);
  if (split) MmaBf16(dots, shared.low[at], keys);
}

// Scores of eight tokens, from `first` of the sixteen on, over this warp's numbers of the key.
template <class F>
__device__ __forceinline__ void ScoreEight(const Problem& a, const Shared<F>& shared,
                                           const MmaLane<F>& lane, const TokenPlace& place,
                                           uint32_t first, uint32_t kv_head, bool split,
                                           float (&dots)[4]) {
  const Found token = PlaceFrom(place, first + lane.g);
  const uint8_t* key = a.k0.data + OffsetIn(a.k0, token.place) + kv_head * a.k0.head_stride +
                       (lane.dim_warp * Cut<F>::kDims + lane.t * 16) * F::kBytes;
  KVF_UNROLL
  for (uint32_t block = 0; block < Cut<F>::kDims / 64; ++block) {
    uint4 words[F::kBytes] = {};
    KVF_UNROLL
    for (uint32_t i = 0; i < F::kBytes; ++i) {
      if (token.readable)
        words[i] = reinterpret_cast<const uint4*>(key + block * 64 * F::kBytes)[i];
    }
    KVF_UNROLL
    for (uint32_t s = 0; s < 4; ++s) {
      AddScores<F>(shared, lane, block * 4 + s, OperandOf<F>(words, s), split, dots);
    }
  }
  if constexpr (F::kTail != 0) {
    const uint8_t* four = a.k1.data + OffsetIn(a.k1, token.place) +
                          (lane.dim_warp * Cut<F>::kTail + lane.t * 4) * F::kBytes;
    uint2 keys = {0, 0};
    if constexpr (F::kKv == KvType::kE4m3) {
      if (token.readable) keys = Bf16OfWord(*reinterpret_cast<const uint32_t*>(four));
    } else {
      if (token.readable) keys = *reinterpret_cast<const uint2*>(four);
    }
    AddScores<F>(shared, lane, Cut<F>::kSlices - 1, keys, split, dots);
  }
}

// Adds what the other warps of the share have of the same scores. Turns take two places in shared
// memory, so that one barrier is enough.
template <class F>
__device__ __forceinline__ void JoinScores(const Shared<F>& shared, const MmaLane<F>& lane,
                                           uint32_t turn, float (&dots)[2][4]) {
  if constexpr (Cut<F>::kDimWarps > 1) {
    const auto at = [&](uint32_t warp) {
      return shared.scores + ((turn % 2 * kMmaWarps + warp) * kWarpLanes + threadIdx.x) * 8;
    };
    float* own = at(threadIdx.y);
    KVF_UNROLL
    for (uint32_t i = 0; i < 8; ++i) own[i] = dots[i / 4][i % 4];
    __syncthreads();
    KVF_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      float sum = 0.0f;
      KVF_UNROLL
      for (uint32_t w = 0; w < Cut<F>::kDimWarps; ++w) {
        sum += at(lane.share * Cut<F>::kDimWarps + w)[i];
      }
      dots[i / 4][i % 4] = sum;
    }
  }
}

// Scores become weights, page scale of the value included, as operands; sums so far are rescaled.
template <class F>
__device__ __forceinline__ void Weigh(const TokenPlace& place, uint32_t first,
                                      const float (&dots)[2][4], MmaLane<F>* lane, uint4* high,
                                      uint4* low) {
  uint32_t words[2][2][2];  // [high, low][line][eight]
  float scores[2][4], v_scale[4];
  KVF_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t token = i / 2 * 8 + 2 * lane->t + i % 2;
    const int from = static_cast<int>(token);
    const bool readable = __shfl_sync(~0u, place.page, from) != kNowhere;
    const float k_scale = __shfl_sync(~0u, place.k_scale, from);
    v_scale[i] = __shfl_sync(~0u, place.v_scale, from);
    KVF_UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
      const bool reads = readable && lane->span[r].Holds(first + token);
      scores[r][i] = reads ? dots[i / 2][2 * r + i % 2] * k_scale : MinusInfinity();
    }
  }
  KVF_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    SoftmaxState& state = lane->state[r];
    float max = fmaxf(fmaxf(scores[r][0], scores[r][1]), fmaxf(scores[r][2], scores[r][3]));
    max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
    max = fmaxf(fmaxf(max, __shfl_xor_sync(~0u, max, 2)), state.max);
    const float keep = state.max == max ? 1.0f : Rescale(state.max, max);
    state.sum *= keep;
    state.max = max;
    SplitFloat weights[4];
    KVF_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const bool none = scores[r][i] == MinusInfinity();
      const float weight = none ? 0.0f : PowerOfTwo(scores[r][i] - max);
      state.sum += weight;
      weights[i] = Split(none ? 0.0f : weight * v_scale[i]);
    }
    KVF_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      words[0][r][h] = Pair(weights[2 * h].high, weights[2 * h + 1].high);
      words[1][r][h] = Pair(weights[2 * h].low, weights[2 * h + 1].low);
    }
    KVF_UNROLL
    for (uint32_t c = 0; c < Cut<F>::kColumns; ++c) {
      lane->acc[c][2 * r] *= keep;
      lane->acc[c][2 * r + 1] *= keep;
    }
  }
  *high = {words[0][0][0], words[0][1][0], words[0][0][1], words[0][1][1]};
  *low = {words[1][0][0], words[1][1][0], words[1][0][1], words[1][1][1]};
}

// Numbers of four tokens' values: of each what a lane gets by one load of (mostly) 16 bytes.
template <class F>
struct Values {
  static constexpr uint32_t kBytes = Cut<F>::kTokenBytes < 16 ? 8 : 16;
  static constexpr uint32_t kColumns = kBytes / F::kBytes;
  uint32_t words[4][kBytes / 4];

  // Tokens 2t, 2t + 1, 2t + 8, 2t + 9; zeros for what can't be read.
  __device__ __forceinline__ void Load(const Problem& a, const TokenPlace& place, uint32_t kv_head,
                                       uint32_t before, const MmaLane<F>& lane) {
    const uint8_t* values = a.v.data + kv_head * a.v.head_stride +
                            lane.dim_warp * Cut<F>::kDims * F::kBytes +
                            lane.g * Cut<F>::kTokenBytes + before * F::kBytes;
    KVF_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const Found token = PlaceFrom(place, i / 2 * 8 + 2 * lane.t + i % 2);
      const uint8_t* value = values + OffsetIn(a.v, token.place);
      uint4 four = {0, 0, 0, 0};
      if constexpr (kBytes == 16) {
        if (token.readable) four = *reinterpret_cast<const uint4*>(value);
        words[i][2] = four.z;
        words[i][3] = four.w;
      } else if (token.readable) {
        const uint2 two = *reinterpret_cast<const uint2*>(value);
        four.x = two.x;
        four.y = two.y;
      }
      words[i][0] = four.x;
      words[i][1] = four.y;
    }
  }
  // Column c as an operand; kSome: of the tokens in `mask` (bit i: this lane's i-th).
  template <bool kSome>
  __device__ __forceinline__ uint2 Operand(uint32_t c, uint32_t mask) const {
    uint32_t pairs[2];
    KVF_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      constexpr uint32_t kPerWord = 4 / F::kBytes;
      const uint32_t at = c % kPerWord;  // in the word
      const auto word = [&](uint32_t i) {
        return !kSome || (mask >> i & 1u) != 0 ? words[i][c / kPerWord] : 0u;
      };
      const uint32_t first = word(2 * h), second = word(2 * h + 1);
      if constexpr (F::kKv == KvType::kE4m3) {
        pairs[h] = Bf16OfCodes(PickBytes(first, second, at << 4 | (4 + at) << 12));
      } else {
        pairs[h] = PickBytes(first, second, at == 0 ? 0x5410 : 0x7632);
      }
    }
    return {pairs[0], pairs[1]};
  }
};

// Keeps of an operand's tokens those in `mask`.
__device__ __forceinline__ uint4 OnlyTokens(uint4 weights, uint32_t mask) {
  const auto halves = [](uint32_t two) {
    return ((two & 1u) != 0 ? 0xFFFFu : 0u) | ((two & 2u) != 0 ? 0xFFFF0000u : 0u);
  };
  const uint32_t early = halves(mask), late = halves(mask >> 2);
  return {weights.x & early, weights.y & early, weights.z & late, weights.w & late};
}

// Adds weights * values of the tokens in `tokens` (bit i: the i-th of sixteen) to the lines that
// read them, in this lane's columns from `before` on: 0 * NaN isn't zero, so a line that doesn't
// read them keeps what it had. Not kSome: all sixteen, or zeros, and each line reads them.
template <class F, bool kSome>
__device__ __forceinline__ void AddValues(const Values<F>& values, uint4 high, uint4 low,
                                          uint32_t before, uint32_t tokens, const bool (&reads)[2],
                                          MmaLane<F>* lane) {
  const uint32_t mask = (tokens >> (2 * lane->t) & 3u) | (tokens >> (2 * lane->t + 8) & 3u) << 2;
  if constexpr (kSome) {
    high = OnlyTokens(high, mask);
    low = OnlyTokens(low, mask);
  }
  KVF_UNROLL
  for (uint32_t c = 0; c < Values<F>::kColumns; ++c) {
    const uint2 column = values.template Operand<kSome>(c, mask);
    float(&acc)[4] = lane->acc[before + c];
    float sum[4] = {acc[0], acc[1], acc[2], acc[3]};
    MmaBf16(sum, high, column);
    MmaBf16(sum, low, column);
    KVF_UNROLL
    for (uint32_t i = 0; i < 4; ++i) acc[i] = !kSome || reads[i / 2] ? sum[i] : acc[i];
  }
}

// Those that all lines read at once, the others one by one.
template <class F>
__device__ __forceinline__ void AddSomeValues(const Values<F>& values, uint4 high, uint4 low,
                                              uint32_t before, uint32_t first, uint32_t readable,
                                              uint32_t by_all, MmaLane<F>* lane) {
  for (uint32_t left = readable; left != 0;) {
    const uint32_t now = (left & by_all) != 0 ? by_all : left & (~left + 1);
    const uint32_t at = first + static_cast<uint32_t>(__popc((now & (~now + 1)) - 1));
    const bool reads[2] = {lane->span[0].Holds(at), lane->span[1].Holds(at)};
    AddValues<F, true>(values, high, low, before, now, reads, lane);
    left &= ~now;
  }
}

// Which of the sixteen tokens from `first` on lie there.
__device__ __forceinline__ uint32_t TokensIn(const Offsets& span, uint32_t first) {
  const auto before = [&](uint32_t at) {
    const uint32_t n = at > first ? at - first : 0;
    return n < kMmaTokens ? (1u << n) - 1 : 0xFFFFu;
  };
  return before(span.end) & ~before(span.begin);
}

// Sixteen tokens, from the part's `first` on. The whole block calls it.
template <class F>
__device__ __forceinline__ void TakeSixteen(const Problem& a, const AttentionRow& row,
                                            const Shared<F>& shared, uint32_t kv_head,
                                            const Span& part, uint32_t first, float scale,
                                            bool split, uint32_t turn, MmaLane<F>* lane) {
  const uint64_t position = part.begin + first + threadIdx.x % kMmaTokens;
  const TokenPlace place = FindToken(a, row, position, part.end, scale);
  float dots[2][4] = {};
  KVF_UNROLL
  for (uint32_t h = 0; h < 2; ++h) {
    ScoreEight<F>(a, shared, *lane, place, 8 * h, kv_head, split, dots[h]);
  }
  JoinScores<F>(shared, *lane, turn, dots);
  uint4 high, low;
  Weigh<F>(place, first, dots, lane, &high, &low);
  const uint32_t readable = __ballot_sync(~0u, place.page != kNowhere ? 1 : 0) & 0xFFFFu;
  const uint32_t by_all = readable & TokensIn(lane->common, first);
  KVF_UNROLL
  for (uint32_t before = 0; before < Cut<F>::kColumns; before += Values<F>::kColumns) {
    Values<F> values;
    values.Load(a, place, kv_head, before, *lane);
    if (by_all == readable) {
      AddValues<F, false>(values, high, low, before, ~0u, {true, true}, lane);
    } else {
      AddSomeValues<F>(values, high, low, before, first, readable, by_all, lane);
    }
  }
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
