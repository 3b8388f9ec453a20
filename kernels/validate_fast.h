// The common case of validate, as one tight loop: pages that were complete before this step, in a
// plain table, all of them as expected.
//
// Idea: the loop has no branch but its own; it says only "all equal" or "not". Whatever it doesn't
// call equal is judged page by page by validate_core.h, so it decides nothing that stands there:
// it must only never call equal what validate_core.h would find wrong. CPU only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "validate_core.h"

namespace kvfence::fence {

// What has to be equal, as bit masks over the two halves of a page record.
struct FastMasks {
  uint64_t low;  // tag, fill and scale mark
  uint64_t stamp;
  uint64_t fill;    // a full page's fill, in place
  uint64_t scale;   // the pool's scale epoch, in place; 0 for per-page scales
  uint64_t by_tag;  // all ones where the scale mark is the tag's low half
  uint32_t pages;
  uint32_t null_page;
};
static_assert(std::endian::native == std::endian::little, "halves of records are read as words");

inline FastMasks MasksOf(const RowPool& rp, uint32_t checks) {
  const auto has = [&](Reason reason) { return (checks & Bit(reason)) != 0; };
  FastMasks m{};
  m.low = 0xFFFFFFFFull;
  if (has(Reason::kNotCommitted)) m.low |= uint64_t{kFillMask} << 32;
  if (has(Reason::kScaleMismatch)) m.low |= 0xFFFFull << 48;
  m.stamp = has(Reason::kStampMismatch) || has(Reason::kNotCommitted) ? ~uint64_t{0} : 0;
  m.fill = rp.page_size << 32;
  m.scale = rp.pool->page_scales != 0 ? 0 : uint64_t{rp.pool->scale_epoch} << 48;
  m.by_tag = rp.pool->page_scales != 0 ? ~uint64_t{0} : 0;
  m.pages = rp.pool->pages;
  m.null_page = rp.pool->null_page;
  return m;
}

// Are entries[0 .. n) exactly the expected pages, in the expected state? Int: int32_t or int64_t.
template <class Int>
inline bool AllEqual(const Int* entries, const Expectation* want, const PageRecord* records,
                     uint64_t n, const FastMasks& m) {
  uint64_t differs = 0;
  uint64_t outside = 0;
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t x[2];
    std::memcpy(x, want + i, sizeof x);
    const uint64_t entry =
        static_cast<uint64_t>(static_cast<std::make_unsigned_t<Int>>(entries[i]));
    const uint32_t tag = static_cast<uint32_t>(x[0] >> 32);
    const bool in_pool = entry < m.pages;
    uint64_t r[2];
    std::memcpy(r, records + (in_pool ? entry : 0), sizeof r);
    const uint64_t scale = (uint64_t{tag} << 48 & m.by_tag) | m.scale;
    const uint64_t low = uint64_t{tag} | m.fill | scale;
    differs |= entry ^ (x[0] & 0xFFFFFFFFu);
    differs |= (r[0] ^ low) & m.low;
    differs |= (r[1] ^ x[1]) & m.stamp;
    outside |= static_cast<uint64_t>(!in_pool) | static_cast<uint64_t>(entry == m.null_page) |
               (static_cast<uint64_t>(x[1] == kNoStamp) & m.stamp);
  }
  return (differs | outside) == 0;
}

// Logical pages [first, end) of a row that the loop may be asked about.
struct FastSpan {
  uint64_t first = 0;
  uint64_t end = 0;
};
inline FastSpan FastSpanOf(const RowPool& rp) {
  const TableView& table = *rp.table;
  const bool plain = rp.per_page == 1 && table.divisor == 1 && table.mask == -1;
  const bool late = rp.task->late_begin != rp.task->late_end;
  if (!plain || late || rp.free_form || rp.entries.broken) return FastSpan{};
  const uint64_t complete = rp.before / rp.page_size;
  uint64_t end = Min(complete, Min(rp.task->covered, rp.task->end_page));
  end = Min(end, Min(rp.entries.count, rp.task->expected));
  const uint64_t first = Max(rp.task->first_page, rp.prefix_count);
  return first < end ? FastSpan{first, end} : FastSpan{};
}

// The part of a row that one chunk of expectations holds: all equal?
inline bool ChunkEqual(const GateView& gate, const StepView& step, const RowPool& rp,
                       uint64_t first, uint64_t n, const FastMasks& masks) {
  const Expectation* want = ExpectationAt(gate, step, *rp.task, first);
  if (want == nullptr) return false;
  const IntArray& entries = rp.table->entries;
  const uint64_t at = rp.entries.begin + first;
  return entries.bits == 32 ? AllEqual(static_cast<const int32_t*>(entries.data) + at, want,
                                       rp.pool->records, n, masks)
                            : AllEqual(static_cast<const int64_t*>(entries.data) + at, want,
                                       rp.pool->records, n, masks);
}

// Calls judge(k) for each logical page of the row that needs a closer look, in ascending order.
template <class Judge>
void ForEachDoubtful(const GateView& gate, const StepView& step, const RowPool& rp, Judge&& judge) {
  const FastSpan fast = FastSpanOf(rp);
  const FastMasks masks = MasksOf(rp, step.checks);
  uint64_t k = rp.task->first_page;
  while (k < rp.task->end_page) {
    if (k < fast.first || k >= fast.end) {
      judge(k++);
      continue;
    }
    const uint64_t end = Min(fast.end, (k / kChunkEntries + 1) * kChunkEntries);
    if (ChunkEqual(gate, step, rp, k, end - k, masks)) {
      k = end;
    } else {
      for (; k < end; ++k) judge(k);
    }
  }
}

}  // namespace kvfence::fence
