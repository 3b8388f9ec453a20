// What decode attention means, as plain host and device functions: which tokens a query reads,
// where they lie, and how scores become one weighted sum. Backends only say who computes which
// part. GQA and MLA are one problem here: a key of one or two pieces, and a value.
//
// Scores are kept in base 2 (times log2 e), since exp2 is what a GPU has. Formula: online softmax,
// Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
#pragma once

#include <math.h>

#include <cstdint>

#include "kvfence/attention.h"
#include "kvfence/bf16.h"
#include "kvfence/fp8.h"

namespace kvfence::attention {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;
inline constexpr int64_t kMaskedSlot = -1;

KVF_HD float MinusInfinity() { return FloatOfBits(0xFF800000u); }
KVF_HD uint64_t MinOf(uint64_t a, uint64_t b) { return a < b ? a : b; }
KVF_HD uint64_t MaxOf(uint64_t a, uint64_t b) { return a < b ? b : a; }

KVF_HD float LoadFloat(const FloatArray& array, uint64_t i) {
  return array.type == FloatType::kF32 ? static_cast<const float*>(array.data)[i]
                                       : Bf16ToFloat(static_cast<const uint16_t*>(array.data)[i]);
}
// All NaNs are stored as one, so that bits don't tell which instructions computed them.
KVF_HD void StoreFloat(const FloatArray& array, uint64_t i, float value) {
  const float stored = value == value ? value : FloatOfBits(0x7FC00000u);
  if (array.type == FloatType::kF32) {
    static_cast<float*>(array.data)[i] = stored;
  } else {
    static_cast<uint16_t*>(array.data)[i] = FloatToBf16(stored);
  }
}

// One array of the cache; strides in bytes.
struct KvPlane {
  const uint8_t* data;
  uint64_t page_stride, token_stride, head_stride;
};
// One array of queries; the numbers of head h of token t begin at (t * num_qo_heads + h) * stride.
struct QueryPlane {
  FloatArray array;
  uint64_t stride;
};

// What a backend is given.
struct Problem : PagedRows {
  uint32_t num_qo_heads, num_kv_heads;
  uint32_t dim_k0, dim_k1;  // a score is q0 * k0 over dim_k0 numbers + q1 * k1 over dim_k1
  uint32_t dim_v;
  QueryPlane q0, q1;
  KvPlane k0, k1, v;  // v is k0 for MLA
  FloatArray o;
  float score_scale;  // what a dot product is multiplied by, to base 2; per-tensor scale included
  float value_scale;  // per-tensor scale of v
  const float *k_head_scales, *v_head_scales, *k_page_scales, *v_page_scales;
};

KVF_HD uint32_t GroupOf(const Problem& a) { return a.num_qo_heads / a.num_kv_heads; }
KVF_HD uint32_t NumberBytes(const Problem& a) { return a.kv_type == KvType::kE4m3 ? 1 : 2; }
// Low bits of a query's or weight's word that are rounded away, so that its product with a number
// of the cache is exact (I-130).
KVF_HD uint32_t RoundedBits(const PagedRows& a) {
  return a.kv_type == KvType::kE4m3 || a.e4m3_numbers ? 4 : 8;
}
KVF_HD uint32_t ChunkSize(const Problem& a) {
  return a.kv_chunk_size != 0 ? a.kv_chunk_size : kDefaultKvChunkSize;
}

// --- which tokens -------------------------------------------------------------------------------

// A batch row: its table entries, its tokens, and its query tokens.
struct AttentionRow {
  uint64_t first_entry = 0;
  uint64_t end = 0;      // positions that may be read: p < end
  uint64_t length = 0;   // as the engine says; the last query token stands at length - 1
  uint64_t first_q = 0;  // its query tokens in q and o
  uint32_t count_q = 0;
};
struct Span {
  uint64_t begin, end;
};

// The row's entries [first, first + count) as far as the table's own arrays go.
KVF_HD void RowEntries(const TableView& table, uint32_t row, uint64_t* first, uint64_t* count) {
  *first = 0;
  *count = 0;
  const int64_t mapped = table.row_map.present() ? table.row_map.Get(row) : int64_t{row};
  if (mapped < 0 || mapped >= int64_t{table.rows}) return;
  if (table.layout == TableLayout::kDense) {
    *first = static_cast<uint64_t>(mapped) * table.stride;
    *count = table.width;
  } else {
    const int64_t from = table.indptr.Get(static_cast<uint64_t>(mapped));
    const int64_t to = table.indptr.Get(static_cast<uint64_t>(mapped) + 1);
    if (from < 0 || to <= from) return;
    *first = static_cast<uint64_t>(from);
    *count = static_cast<uint64_t>(to - from);
  }
  *count = *first >= table.entries_size ? 0 : MinOf(*count, table.entries_size - *first);
}

KVF_HD void RowQueries(const PagedRows& a, uint32_t row, AttentionRow* result) {
  if (!a.qo_indptr.present()) {
    result->first_q = uint64_t{row} * a.seq_len_q;
    result->count_q = a.seq_len_q;
    return;
  }
  const int64_t from = a.qo_indptr.Get(row);
  const int64_t to = a.qo_indptr.Get(uint64_t{row} + 1);
  if (from < 0 || to <= from || static_cast<uint64_t>(from) >= a.qo_tokens) return;
  const uint64_t first = static_cast<uint64_t>(from);
  const uint64_t count = MinOf(static_cast<uint64_t>(to), a.qo_tokens) - first;
  result->first_q = first;
  result->count_q = static_cast<uint32_t>(MinOf(count, a.seq_len_q));
}

KVF_HD AttentionRow AttentionRowOf(const PagedRows& a, uint32_t row) {
  AttentionRow result;
  RowQueries(a, row, &result);
  uint64_t count = 0;
  RowEntries(a.table, row, &result.first_entry, &count);
  if (count == 0) return result;
  const uint64_t tokens_per_entry = a.page_size / a.table.entries_per_page;
  int64_t length = 0;
  if (a.lengths.values.present()) {
    if (row < a.lengths.rows) length = a.lengths.values.Get(row);
  } else {
    const int64_t mapped = a.table.row_map.present() ? a.table.row_map.Get(row) : int64_t{row};
    length = static_cast<int64_t>((count - 1) * tokens_per_entry) +
             a.table.last_page_len.Get(static_cast<uint64_t>(mapped));
  }
  if (length <= 0) return result;
  const uint64_t tokens = static_cast<uint64_t>(length);
  result.length = tokens;
  result.end = MinOf(tokens, count * tokens_per_entry);
  return result;
}

// The positions that query token i < count_q of the row reads.
KVF_HD Span SpanOfQuery(const PagedRows& a, const AttentionRow& row, uint32_t i) {
  Span span = {0, row.end};
  const uint64_t behind = row.count_q - i;  // query tokens from this one on
  if (row.length < behind) return {0, 0};   // it has no position
  const uint64_t own = row.length - behind;
  if (a.causal) span.end = MinOf(span.end, own + 1);
  if (a.window_left >= 0 && own > static_cast<uint64_t>(a.window_left)) {
    span.begin = MinOf(own - static_cast<uint64_t>(a.window_left), span.end);
  }
  return span;
}

// What the row's query tokens read between them; empty when begin == end.
KVF_HD Span SpanOfRow(const PagedRows& a, const AttentionRow& row) {
  Span all = {~uint64_t{0}, 0};
  for (uint32_t i = 0; i < row.count_q; ++i) {
    const Span span = SpanOfQuery(a, row, i);
    if (span.begin == span.end) continue;
    all.begin = MinOf(all.begin, span.begin);
    all.end = MaxOf(all.end, span.end);
  }
  if (all.end == 0) all.begin = 0;
  return all;
}

// Which parts of the context the row has: [begin, end) / ChunkSize.
KVF_HD Span ChunksOfRow(const Problem& a, const Span& span) {
  const uint64_t size = ChunkSize(a);
  return {span.begin / size,
          span.begin == span.end ? span.begin / size : (span.end - 1) / size + 1};
}

// --- where they lie -----------------------------------------------------------------------------

// Where the row's token `position` lies in the pool; kMaskedSlot: it must not be read.
KVF_HD int64_t SlotOfToken(const PagedRows& a, const AttentionRow& row, uint64_t position) {
  const uint32_t tokens_per_entry = a.page_size / a.table.entries_per_page;
  const int64_t entry = a.table.entries.Get(row.first_entry + position / tokens_per_entry);
  if (entry < 0) return kMaskedSlot;
  const int64_t unit = (entry & a.table.mask) / a.table.divisor;
  const int64_t page = unit / a.table.entries_per_page;
  if (page < 0 || static_cast<uint64_t>(page) >= a.num_pages || page == int64_t{a.null_page}) {
    return kMaskedSlot;
  }
  return unit * tokens_per_entry + static_cast<int64_t>(position % tokens_per_entry);
}

// A token's page, and which token of it.
struct CachePlace {
  uint64_t page;
  uint64_t token;
};
KVF_HD CachePlace PlaceOf(const PagedRows& a, int64_t slot) {
  return {static_cast<uint64_t>(slot) / a.page_size, static_cast<uint64_t>(slot) % a.page_size};
}
// Bytes from the plane's start to that token's numbers of KV head 0.
KVF_HD uint64_t OffsetIn(const KvPlane& plane, const CachePlace& place) {
  return place.page * plane.page_stride + place.token * plane.token_stride;
}

KVF_HD float ScaleAt(const float* scales, uint64_t i) {
  return scales != nullptr ? scales[i] : 1.0f;
}

// --- softmax ------------------------------------------------------------------------------------

// Running state of one query head over the tokens seen so far: the largest score, and the sum of
// exp2(score - max). The weighted sum of V is kept beside it, to the same max.
struct SoftmaxState {
  float max;
  float sum;
};
KVF_HD SoftmaxState EmptySoftmax() { return {MinusInfinity(), 0.0f}; }

// 2^x for x <= 0, to 2 units in the last place, and 0 below -126; x positive or NaN gives what
// is not less than 1, or NaN. One rounding per operator on the CPU, where no library's exp2 may
// change a bit; a GPU takes its own.
KVF_HD float PowerOfTwo(float x) {
#if defined(__CUDA_ARCH__)
  return exp2f(x);
#else
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to a whole number
  if (x < -126.0f) return 0.0f;
  const float shifted = x + kRound;
  const float rest = x - (shifted - kRound);
  float power = rest * 1.5252733804e-5f + 1.5403530393e-4f;
  power = power * rest + 1.3333558146e-3f;
  power = power * rest + 9.6181291076e-3f;
  power = power * rest + 5.5504108665e-2f;
  power = power * rest + 2.4022650696e-1f;
  power = power * rest + 6.9314718056e-1f;
  power = power * rest + 1.0f;
  if (x != x) return x;
  return FloatOfBits(BitsOfFloat(power) + (BitsOfFloat(shifted) << 23));
#endif
}

// By what everything accumulated under `old_max` is multiplied when the max becomes new_max.
KVF_HD float Rescale(float old_max, float new_max) {
  return old_max == MinusInfinity() ? 0.0f : PowerOfTwo(old_max - new_max);
}

// Takes in one token; the caller then does acc = acc * keep + weight * v. A score of -infinity adds
// nothing. A NaN score makes the sum NaN: what is wrong with a row's own content stays visible.
struct TokenWeight {
  float keep;
  float weight;
};
KVF_HD TokenWeight TakeToken(SoftmaxState* state, float score) {
  if (score == MinusInfinity()) return {1.0f, 0.0f};
  const float max = fmaxf(state->max, score);
  const TokenWeight result = {Rescale(state->max, max), PowerOfTwo(score - max)};
  state->sum = state->sum * result.keep + result.weight;
  state->max = max;
  return result;
}

// had * keep + added * weight. On a device rounded as written here: which of the two products a
// compiler fuses with the sum may differ from kernel to kernel, and with it the bits (I-62).
KVF_HD float Blend(float had, float keep, float added, float weight) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(had, keep, __fmul_rn(added, weight));
#else
  return had * keep + added * weight;
#endif
}

// Joins the states of two disjoint sets of tokens; acc = Blend(acc, keep, other_acc, weight).
KVF_HD TokenWeight TakeState(SoftmaxState* state, SoftmaxState other) {
  if (other.max == MinusInfinity() && other.sum == 0.0f) return {1.0f, 0.0f};
  const float max = fmaxf(state->max, other.max);
  const TokenWeight result = {Rescale(state->max, max), Rescale(other.max, max)};
  state->sum = Blend(state->sum, result.keep, other.sum, result.weight);
  state->max = max;
  return result;
}

// What a finished weighted sum is multiplied by. No token: zero, so that the output is zero.
KVF_HD float OutputScale(const Problem& a, uint32_t kv_head, SoftmaxState state) {
  return state.sum == 0.0f ? 0.0f : a.value_scale * ScaleAt(a.v_head_scales, kv_head) / state.sum;
}
KVF_HD float LogSumExp(SoftmaxState state) {
  const float lse = state.sum == 0.0f ? MinusInfinity() : (state.max + log2f(state.sum)) * kLn2;
  return lse == lse ? lse : FloatOfBits(0x7FC00000u);
}

// --- lines: the query heads of one KV head, of all the row's query tokens -----------------------

// Line l of KV head h is query token l / group, query head h * group + l % group.
KVF_HD uint32_t LinesOfRow(const Problem& a, const AttentionRow& row) {
  return row.count_q * GroupOf(a);
}
// Its number among all [query tokens, num_qo_heads].
KVF_HD uint64_t OutputOfLine(const Problem& a, const AttentionRow& row, uint32_t kv_head,
                             uint32_t line) {
  const uint32_t group = GroupOf(a);
  return (row.first_q + line / group) * a.num_qo_heads + kv_head * group + line % group;
}

}  // namespace kvfence::attention
