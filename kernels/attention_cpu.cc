// Decode attention on the CPU: tiles of 16 logical positions, all query heads of a KV head
// together, so that each FP8 code is decoded once.
//
// Invariant: tiles are cut by logical position and every sum runs in a fixed order of 16 lanes, so
// the result is the same to the bit wherever pages lie, and in the plain and the AVX2 build of the
// loops (no fused multiply-add in either).
#include <algorithm>

#include "attention_core.h"

namespace kvfence {
namespace attention {

namespace {

constexpr uint32_t kLanes = 16;     // partial sums of a dot product; divides every head_dim
constexpr uint32_t kTile = 16;      // positions at a time
constexpr uint32_t kMaxHeads = 16;  // query heads at a time
constexpr uint32_t kMaxDim = 256;

#define KVF_INLINE inline __attribute__((always_inline))

// Working memory of one (row, KV head); a few L1 ways, on the stack.
struct Scratch {
  float q[kMaxHeads][kMaxDim];
  float acc[kMaxHeads][kMaxDim];
  float score[kMaxHeads][kTile];
  float decoded[kMaxDim];
  SoftmaxState state[kMaxHeads];
  CachePlace place[kTile];
  bool masked[kTile];
};

KVF_INLINE void DecodeRow(const uint8_t* codes, uint32_t dim, float* out) {
  for (uint32_t d = 0; d < dim; ++d) out[d] = DecodeE4m3(codes[d]);
}

KVF_INLINE float Dot(const float* a, const float* b, uint32_t dim) {
  float lanes[kLanes] = {};
  for (uint32_t d = 0; d < dim; d += kLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) lanes[i] += a[d + i] * b[d + i];
  }
  for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Scores of `count` positions from `position`, -infinity where masked.
KVF_INLINE void ScoreTile(const DecodeAttention& a, const AttentionRow& row, uint64_t position,
                          uint32_t count, uint32_t kv_head, uint32_t heads, Scratch* s) {
  const float scale = ScoreScale(a);
  for (uint32_t t = 0; t < count; ++t) {
    const int64_t slot = SlotOfToken(a, row, position + t);
    s->masked[t] = slot == kMaskedSlot;
    if (s->masked[t]) {
      for (uint32_t h = 0; h < heads; ++h) s->score[h][t] = MinusInfinity();
      continue;
    }
    s->place[t] = PlaceOf(a, slot, kv_head);
    DecodeRow(a.k_cache + s->place[t].offset, a.head_dim, s->decoded);
    const float token_scale = scale * PageScale(a.k_page_scales, s->place[t].page);
    for (uint32_t h = 0; h < heads; ++h) {
      s->score[h][t] = Dot(s->q[h], s->decoded, a.head_dim) * token_scale;
    }
  }
}

// Turns the tile's scores into weights, and rescales what was accumulated before.
KVF_INLINE void WeighTile(uint32_t count, uint32_t heads, uint32_t dim, Scratch* s) {
  for (uint32_t h = 0; h < heads; ++h) {
    SoftmaxState tile = EmptySoftmax();
    for (uint32_t t = 0; t < count; ++t) tile.max = fmaxf(tile.max, s->score[h][t]);
    for (uint32_t t = 0; t < count; ++t) {
      const float score = s->score[h][t];
      s->score[h][t] = score == MinusInfinity() ? 0.0f : exp2f(score - tile.max);
      tile.sum += s->score[h][t];
    }
    const TokenWeight joined = TakeState(&s->state[h], tile);
    for (uint32_t t = 0; t < count; ++t) s->score[h][t] *= joined.weight;
    for (uint32_t d = 0; d < dim; ++d) s->acc[h][d] *= joined.keep;
  }
}

KVF_INLINE void AddValues(const DecodeAttention& a, uint32_t count, uint32_t heads, Scratch* s) {
  for (uint32_t t = 0; t < count; ++t) {
    if (s->masked[t]) continue;
    DecodeRow(a.v_cache + s->place[t].offset, a.head_dim, s->decoded);
    const float page_scale = PageScale(a.v_page_scales, s->place[t].page);
    for (uint32_t h = 0; h < heads; ++h) {
      const float weight = s->score[h][t] * page_scale;
      for (uint32_t d = 0; d < a.head_dim; ++d) s->acc[h][d] += weight * s->decoded[d];
    }
  }
}

// Query heads [head, head + heads) of one row, all of one KV head.
KVF_INLINE void Heads(const DecodeAttention& a, uint32_t row_index, const AttentionRow& row,
                      uint32_t kv_head, uint32_t head, uint32_t heads) {
  Scratch s;
  const uint64_t first = (uint64_t{row_index} * a.num_qo_heads + head) * a.head_dim;
  for (uint32_t h = 0; h < heads; ++h) {
    s.state[h] = EmptySoftmax();
    for (uint32_t d = 0; d < a.head_dim; ++d) {
      s.q[h][d] = LoadFloat(a.q, first + uint64_t{h} * a.head_dim + d);
      s.acc[h][d] = 0.0f;
    }
  }
  for (uint64_t p = row.begin; p < row.end; p += kTile) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(kTile, row.end - p));
    ScoreTile(a, row, p, count, kv_head, heads, &s);
    WeighTile(count, heads, a.head_dim, &s);
    AddValues(a, count, heads, &s);
  }
  for (uint32_t h = 0; h < heads; ++h) {
    const float scale = OutputScale(a, s.state[h]);
    for (uint32_t d = 0; d < a.head_dim; ++d) {
      StoreFloat(a.o, first + uint64_t{h} * a.head_dim + d, s.acc[h][d] * scale);
    }
    if (a.lse != nullptr) {
      a.lse[uint64_t{row_index} * a.num_qo_heads + head + h] = LogSumExp(s.state[h]);
    }
  }
}

KVF_INLINE void Run(const DecodeAttention& a) {
  const uint32_t group = a.num_qo_heads / a.num_kv_heads;
  for (uint32_t r = 0; r < a.rows; ++r) {
    const AttentionRow row = AttentionRowOf(a, r);
    for (uint32_t kv_head = 0; kv_head < a.num_kv_heads; ++kv_head) {
      for (uint32_t g = 0; g < group; g += kMaxHeads) {
        Heads(a, r, row, kv_head, kv_head * group + g, std::min(kMaxHeads, group - g));
      }
    }
  }
}

void RunPlain(const DecodeAttention& a) { Run(a); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void RunAvx2(const DecodeAttention& a) { Run(a); }
bool HaveAvx2() { return __builtin_cpu_supports("avx2"); }
#else
void RunAvx2(const DecodeAttention& a) { Run(a); }
bool HaveAvx2() { return false; }
#endif

void RunBest(const DecodeAttention& a) {
  static const bool avx2 = HaveAvx2();
  if (avx2) {
    RunAvx2(a);
  } else {
    RunPlain(a);
  }
}

}  // namespace

}  // namespace attention

Status DecodeAttentionCpu(const DecodeAttention& args) {
  if (Status status = CheckDecodeAttention(args); !status.ok()) return status;
  attention::RunBest(args);
  return Status();
}

}  // namespace kvfence
