// What decode attention means, as plain host and device functions: which tokens a row reads, where
// they lie, and how scores become one weighted sum. Backends only say who computes which part.
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

KVF_HD float LoadFloat(const FloatArray& array, uint64_t i) {
  return array.type == FloatType::kF32 ? static_cast<const float*>(array.data)[i]
                                       : Bf16ToFloat(static_cast<const uint16_t*>(array.data)[i]);
}
KVF_HD void StoreFloat(const FloatArray& array, uint64_t i, float value) {
  if (array.type == FloatType::kF32) {
    static_cast<float*>(array.data)[i] = value;
  } else {
    static_cast<uint16_t*>(array.data)[i] = FloatToBf16(value);
  }
}

KVF_HD uint64_t PageStride(const DecodeAttention& a) {
  return a.page_stride != 0 ? a.page_stride : uint64_t{a.page_size} * a.num_kv_heads * a.head_dim;
}

// The tokens that a row reads: positions [begin, end), by the entries that start at first_entry.
struct AttentionRow {
  uint64_t first_entry = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

KVF_HD uint64_t MinOf(uint64_t a, uint64_t b) { return a < b ? a : b; }

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

KVF_HD AttentionRow AttentionRowOf(const DecodeAttention& a, uint32_t row) {
  AttentionRow result;
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
  result.end = MinOf(tokens, count * tokens_per_entry);
  if (a.window_left >= 0 && tokens > static_cast<uint64_t>(a.window_left) + 1) {
    result.begin = MinOf(tokens - 1 - static_cast<uint64_t>(a.window_left), result.end);
  }
  return result;
}

// Where the row's token `position` lies in the pool; kMaskedSlot: it must not be read.
KVF_HD int64_t SlotOfToken(const DecodeAttention& a, const AttentionRow& row, uint64_t position) {
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

// One token's place in the cache: the first of head_dim codes of `kv_head`, and its page.
struct CachePlace {
  uint64_t page;
  uint64_t offset;  // bytes
};
KVF_HD CachePlace PlaceOf(const DecodeAttention& a, int64_t slot, uint32_t kv_head) {
  const uint64_t page = static_cast<uint64_t>(slot) / a.page_size;
  const uint64_t in_page = static_cast<uint64_t>(slot) % a.page_size;
  return {page, page * PageStride(a) + (in_page * a.num_kv_heads + kv_head) * a.head_dim};
}

KVF_HD float PageScale(const float* scales, uint64_t page) {
  return scales != nullptr ? scales[page] : 1.0f;
}

// What a dot product of query and raw codes is multiplied by, page scale apart.
KVF_HD float ScoreScale(const DecodeAttention& a) {
  const float sm_scale =
      a.sm_scale != 0.0f ? a.sm_scale : 1.0f / sqrtf(static_cast<float>(a.head_dim));
  return sm_scale * a.k_scale * kLog2E;
}

// Running state of one query head over the tokens seen so far: the largest score, and the sum of
// exp2(score - max). The weighted sum of V is kept beside it, to the same max.
struct SoftmaxState {
  float max;
  float sum;
};
KVF_HD SoftmaxState EmptySoftmax() { return {MinusInfinity(), 0.0f}; }

// By what everything accumulated under `old_max` is multiplied when the max becomes new_max.
KVF_HD float Rescale(float old_max, float new_max) {
  return old_max == MinusInfinity() ? 0.0f : exp2f(old_max - new_max);
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
  const TokenWeight result = {Rescale(state->max, max), exp2f(score - max)};
  state->sum = state->sum * result.keep + result.weight;
  state->max = max;
  return result;
}

// Joins the states of two disjoint sets of tokens; acc = acc * keep + other_acc * weight.
KVF_HD TokenWeight TakeState(SoftmaxState* state, SoftmaxState other) {
  if (other.max == MinusInfinity() && other.sum == 0.0f) return {1.0f, 0.0f};
  const float max = fmaxf(state->max, other.max);
  const TokenWeight result = {Rescale(state->max, max), Rescale(other.max, max)};
  state->sum = state->sum * result.keep + other.sum * result.weight;
  state->max = max;
  return result;
}

// What a finished weighted sum is multiplied by. No token: zero, so that the output is zero.
KVF_HD float OutputScale(const DecodeAttention& a, SoftmaxState state) {
  return state.sum == 0.0f ? 0.0f : a.v_scale / state.sum;
}
KVF_HD float LogSumExp(SoftmaxState state) {
  return state.sum == 0.0f ? MinusInfinity() : (state.max + log2f(state.sum)) * kLn2;
}

}  // namespace kvfence::attention
