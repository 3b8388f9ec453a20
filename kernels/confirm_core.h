// The decisions of confirm: is what validate read still the same, and did what was late arrive?
//
// Idea: the questions of validate_core.h once more, of the same arrays; any other answer than
// "clean" is `changed_during_step`. Late pages are asked for their content now, under their own
// reasons. Invariant: only rows that validate found clean in this very step are asked (I-9). Host
// and device.
#pragma once

#include <cstdint>

#include "validate_core.h"

namespace kvfence::fence {

// What confirm asks again. Flags of pages and the age of plans are the ledger's: they don't change
// under a running step by mistake.
inline constexpr uint32_t kRecheckMask = Bit(Reason::kPageOutOfRange) | Bit(Reason::kPageMismatch) |
                                         Bit(Reason::kTagMismatch) | Bit(Reason::kStampMismatch) |
                                         Bit(Reason::kNotCommitted) | Bit(Reason::kWriteTarget) |
                                         Bit(Reason::kLengthMismatch) | Bit(Reason::kRowTail) |
                                         Bit(Reason::kRowEpoch) | Bit(Reason::kPadRow);

// A place that was clean at validate and isn't any more.
KVF_HD Place Changed(const Place& again, uint32_t checks) {
  Place place{checks};
  if (!again.clean()) {
    place.Add(Reason::kChangedDuringStep, again.page, again.expected, again.found);
  }
  return place;
}

KVF_HD Place ConfirmRow(const GateView& gate, const StepView& step, uint32_t row_task) {
  const uint32_t asked = step.checks & kRecheckMask;
  const bool pad = step.rows[row_task].kind == RowKind::kPad;
  const Place again =
      pad ? JudgePad(gate, step, row_task, asked) : JudgeRow(gate, step, row_task, asked);
  return Changed(again, step.checks);
}

// Logical page k of a live row, which validate found clean.
KVF_HD Place ConfirmPage(const GateView& gate, const StepView& step, const StepScratch& scratch,
                         const RowPool& rp, uint64_t k, When when) {
  const Place again = JudgeAt(gate, step, scratch, rp, k, step.checks & kRecheckMask, when);
  if (!again.clean()) return Changed(again, step.checks);
  Place place{step.checks};
  if (k >= rp.task->covered || LateOf(step, *rp.task, k) != Late::kAtConfirm) return place;
  const Expectation want = Expected(gate, step, *rp.task, k);
  const int64_t page = PageAt(rp, k);
  if (want.page == kNoPage || !InPool(rp, page)) return place;
  if (when == When::kAfterStore && RecordAt(rp, page).tag != want.tag) return place;
  if (rp.free_form || k * rp.page_size < rp.before) JudgeContent(place, rp, want, k, page);
  if (!rp.free_form) JudgeSkipped(place, rp, want, k, page);
  return place;
}

KVF_HD PlaceAt ConfirmStray(const StepView& step, const RowPool& rp, uint64_t& i) {
  PlaceAt stray = NextStray(rp, step.checks & kRecheckMask, i);
  stray.place = Changed(stray.place, step.checks);
  return stray;
}

}  // namespace kvfence::fence
