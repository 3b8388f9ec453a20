// What append, hand-off and checksum do with one number, one token, one page. Backends only say who
// computes which.
#pragma once

#include "attention_core.h"
#include "kvfence/kv_pages.h"

namespace kvfence::pages {

enum class Side : uint32_t { kKey, kValue };

KVF_HD uint32_t NumberBytes(const KvPages& p) { return p.type == KvType::kE4m3 ? 1 : 2; }
KVF_HD uint64_t PackedPage(const KvPages& p) {
  return uint64_t{p.page_size} * p.num_kv_heads * p.head_dim * NumberBytes(p);
}
KVF_HD uint32_t Sides(const KvPages& p) { return p.v_cache != nullptr ? 2 : 1; }

// Where a token's numbers of one head begin.
KVF_HD uint8_t* HeadAt(const KvPages& p, Side side, uint64_t page, uint64_t token, uint32_t head) {
  const uint64_t stride = p.page_stride != 0 ? p.page_stride : PackedPage(p);
  const uint64_t line = p.layout == KvLayout::kNhd ? token * p.num_kv_heads + head
                                                   : uint64_t{head} * p.page_size + token;
  void* cache = side == Side::kKey ? p.k_cache : p.v_cache;
  return static_cast<uint8_t*>(cache) + page * stride + line * p.head_dim * NumberBytes(p);
}

KVF_HD bool IsPage(const KvPages& p, int64_t page) {
  return page >= 0 && static_cast<uint64_t>(page) < p.num_pages && page != int64_t{p.null_page};
}

// What a stored 1 stands for, page scale apart.
KVF_HD float HeadScale(const KvPages& p, Side side, uint32_t head) {
  return side == Side::kKey ? p.k_scale * attention::ScaleAt(p.k_head_scales, head)
                            : p.v_scale * attention::ScaleAt(p.v_head_scales, head);
}
KVF_HD float* PageScales(const KvPages& p, Side side) {
  return side == Side::kKey ? p.k_page_scales : p.v_page_scales;
}
KVF_HD float Scale(const KvPages& p, Side side, uint64_t page, uint32_t head) {
  return HeadScale(p, side, head) * attention::ScaleAt(PageScales(p, side), page);
}

KVF_HD float ReadNumber(const KvPages& p, const uint8_t* head, uint32_t d) {
  if (p.type == KvType::kE4m3) return DecodeE4m3(head[d]);
  return Bf16ToFloat(reinterpret_cast<const uint16_t*>(head)[d]);
}

// Stores value / scale; true if it saturated. Without a usable scale (zero: a page of zeroes) the
// number is stored as it is.
KVF_HD bool StoreNumber(const KvPages& p, uint8_t* head, uint32_t d, float value, float scale) {
  const float stored = scale != 0.0f ? value / scale : value;
  if (p.type == KvType::kBf16) {
    reinterpret_cast<uint16_t*>(head)[d] = FloatToBf16(stored);
    return false;
  }
  head[d] = EncodeE4m3(stored);
  // Codes are rounded, so what is nearer to 448 than to the next step hasn't lost its range.
  return stored >= 464.0f || stored <= -464.0f;
}

// --- append -------------------------------------------------------------------------------------

// One head of one token; how many of its numbers saturated.
KVF_HD uint32_t AppendHead(const KvAppend& a, Side side, uint64_t token, uint32_t head) {
  const KvPages& p = a.pages;
  const int64_t slot = a.slots.Get(token);
  const int64_t page = slot < 0 ? -1 : slot / int64_t{p.page_size};
  if (!IsPage(p, page)) return 0;
  const FloatArray& from = side == Side::kKey ? a.k : a.v;
  const uint64_t first = (token * p.num_kv_heads + head) * p.head_dim;
  const uint64_t at = static_cast<uint64_t>(page);
  uint8_t* to = HeadAt(p, side, at, static_cast<uint64_t>(slot) % p.page_size, head);
  const float scale = Scale(p, side, at, head);
  uint32_t saturated = 0;
  for (uint32_t d = 0; d < p.head_dim; ++d) {
    saturated += StoreNumber(p, to, d, attention::LoadFloat(from, first + d), scale) ? 1u : 0u;
  }
  return saturated;
}

// A slot that asks to be written and names no page.
KVF_HD bool SlotIsWrong(const KvAppend& a, uint64_t token) {
  const int64_t slot = a.slots.Get(token);
  return slot >= 0 && !IsPage(a.pages, slot / int64_t{a.pages.page_size});
}

// --- hand-off -----------------------------------------------------------------------------------

struct Move {
  int64_t from, to;
  uint32_t tokens;
  bool valid;
};
KVF_HD uint32_t TokensOf(const IntArray& tokens, uint64_t i, uint32_t page_size) {
  if (!tokens.present()) return page_size;
  const int64_t n = tokens.Get(i);
  return n < 0 ? 0 : static_cast<uint32_t>(attention::MinOf(static_cast<uint64_t>(n), page_size));
}
KVF_HD Move MoveOf(const KvHandOff& h, uint64_t i) {
  Move move = {h.from_pages.Get(i), h.to_pages.Get(i), 0, false};
  move.tokens = TokensOf(h.tokens, i, h.to.page_size);
  move.valid = IsPage(h.from, move.from) && IsPage(h.to, move.to);
  return move;
}

// The value of a number in `from`.
KVF_HD float ValueAt(const KvHandOff& h, Side side, const Move& m, uint32_t token, uint32_t head,
                     uint32_t d) {
  const uint64_t page = static_cast<uint64_t>(m.from);
  return ReadNumber(h.from, HeadAt(h.from, side, page, token, head), d) *
         Scale(h.from, side, page, head);
}

// The largest magnitude of one head of one token, as `to` would store it but for the page's scale.
// NaN and infinity don't count: they are stored as they are whatever the scale is.
KVF_HD float LargestOfHead(const KvHandOff& h, Side side, const Move& m, uint32_t token,
                           uint32_t head) {
  const float scale = HeadScale(h.to, side, head);
  float largest = 0.0f;
  for (uint32_t d = 0; d < h.to.head_dim; ++d) {
    const float value = fabsf(ValueAt(h, side, m, token, head, d) / scale);
    if (value > largest && value < FloatOfBits(0x7F800000u)) largest = value;
  }
  return largest;
}
KVF_HD float PageScaleOf(const KvPages& to, float largest) {
  if (largest == 0.0f) return 1.0f;
  return to.type == KvType::kE4m3 ? largest / kE4m3Max : 1.0f;
}

// One head of one token under that page scale; behind the page's tokens, zeroes.
KVF_HD uint32_t MoveHead(const KvHandOff& h, Side side, const Move& m, uint32_t token,
                         uint32_t head, float page_scale) {
  uint8_t* to = HeadAt(h.to, side, static_cast<uint64_t>(m.to), token, head);
  const float scale = HeadScale(h.to, side, head) * page_scale;
  uint32_t saturated = 0;
  for (uint32_t d = 0; d < h.to.head_dim; ++d) {
    const float value = token < m.tokens ? ValueAt(h, side, m, token, head, d) : 0.0f;
    saturated += StoreNumber(h.to, to, d, value, scale) ? 1u : 0u;
  }
  return saturated;
}

KVF_HD void MoveRecord(const KvHandOff& h, const Move& m) {
  if (h.to_records == nullptr || h.from_records == nullptr) return;
  const PageRecord& from = h.from_records[m.from];
  PageRecord& to = h.to_records[m.to];
  const auto fill = static_cast<uint16_t>(
      attention::MinOf(static_cast<uint64_t>(from.fill_flags & kFillMask), m.tokens));
  to.fill_flags = static_cast<uint16_t>((to.fill_flags & ~kFillMask) | fill);
  to.stamp = from.stamp;
}

// --- checksum -----------------------------------------------------------------------------------

// A good mixer (splitmix64's finisher), so that a change of one bit changes half of the sum's.
KVF_HD uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
// What the word at a logical place adds; addition, so that any order of places gives the same sum.
KVF_HD uint64_t Term(uint64_t place, uint64_t word) {
  return Mix(word + Mix((place + 1) * 0x9E3779B97F4A7C15ull));
}

// One head of one token: its numbers in words of eight bytes.
KVF_HD uint64_t SumOfHead(const KvPages& p, Side side, uint64_t page, uint32_t token,
                          uint32_t head) {
  const uint8_t* from = HeadAt(p, side, page, token, head);
  const uint32_t words = p.head_dim * NumberBytes(p) / 8;
  const uint64_t line = (uint64_t{side == Side::kValue} * p.page_size + token) * p.num_kv_heads;
  uint64_t sum = 0;
  for (uint32_t w = 0; w < words; ++w) {
    const uint64_t word = reinterpret_cast<const uint64_t*>(from)[w];
    sum += Term((line + head) * words + w, word);
  }
  return sum;
}

// The page's scales, at places of their own behind all numbers.
KVF_HD uint64_t SumOfScales(const KvPages& p, uint64_t page) {
  uint64_t sum = 0;
  for (uint32_t s = 0; s < Sides(p); ++s) {
    const auto side = static_cast<Side>(s);
    for (uint32_t h = 0; h < p.num_kv_heads; ++h) {
      sum += Term(~(uint64_t{h} * 2 + s), BitsOfFloat(Scale(p, side, page, h)));
    }
  }
  return sum;
}

}  // namespace kvfence::pages
