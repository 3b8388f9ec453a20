// The common case of validate: pages that were complete before this step, in a plain table.
//
// Idea: of such a page there is little to ask, and nearly always the answer is "as expected". Both
// backends ask that first; whatever isn't plainly equal is judged by validate_core.h. Invariant: it
// decides nothing that stands there: never is a page called equal that validate_core.h would find
// wrong, at validate or at confirm (I-64). Host and device.
#pragma once

#include <cstdint>

#include "validate_core.h"

namespace kvfence::fence {

// Logical pages [first, end) of a row that are plain in this sense.
struct FastSpan {
  uint64_t first = 0;
  uint64_t end = 0;
};
KVF_HD FastSpan FastSpanOf(const RowPool& rp) {
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

KVF_HD bool Holds(const FastSpan& span, uint64_t k) { return k >= span.first && k < span.end; }

// Is page k of the span the expected one, in the expected state?
KVF_HD bool PlainlyEqual(const GateView& gate, const StepView& step, const RowPool& rp,
                         uint64_t k) {
  const Expectation* at = ExpectationAt(gate, step, *rp.task, k);
  if (at == nullptr) return false;
  const Expectation want = *at;
  const int64_t page = rp.table->entries.Get(rp.entries.begin + k);
  if (page != int64_t{want.page} || !InPool(rp, page)) return false;
  const PageRecord record = RecordAt(rp, page);
  const bool same = record.tag == want.tag && record.stamp == want.stamp;
  const bool full = record.stamp != kNoStamp && FillOf(record) == rp.page_size;
  return same && full && page != int64_t{rp.pool->null_page} &&
         record.scale == ScaleMark(*rp.pool, want.tag);
}

}  // namespace kvfence::fence
