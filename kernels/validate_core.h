// The decisions of validate: what is wrong at a place, written once for host and device.
//
// Idea: a Place collects what is wrong there and keeps the first in Reason's order, so that the
// compares stand in any order, each on a line of its own. The launches (validate_cpu.cc,
// validate_cuda.cuh) only say who judges which place. Confirm (confirm_core.h) asks again.
// Invariant: what is expected comes from the gate's expectations and the step's tasks, never from
// the arrays under judgement (I-8).
#pragma once

#include <cstdint>

#include "kvfence/reason.h"
#include "table_core.h"

namespace kvfence::fence {

inline constexpr uint32_t kClean = kReasonCount;

// The first thing wrong at one place, and nothing that `checks` leaves out.
struct Place {
  uint32_t checks;
  uint32_t reason = kClean;
  int64_t page = -1;
  uint64_t expected = 0;
  uint64_t found = 0;

  KVF_HD void Add(Reason why, int64_t at_page, uint64_t want, uint64_t got) {
    const uint32_t bit = static_cast<uint32_t>(why);
    if ((checks >> bit & 1u) == 0 || bit >= reason) return;
    reason = bit;
    page = at_page;
    expected = want;
    found = got;
  }
  KVF_HD bool clean() const { return reason == kClean; }
};

KVF_HD constexpr uint32_t Bit(Reason reason) { return 1u << static_cast<uint32_t>(reason); }
KVF_HD constexpr uint64_t Word(int64_t value) { return static_cast<uint64_t>(value); }

// When a place is judged. kAfterStore: confirm, but its own stores have been made already, and so
// have later steps' deltas: a page may have gone to another generation behind this step.
enum class When : uint32_t { kValidate, kConfirm, kAfterStore };

// --- the row as a whole ------------------------------------------------------------------------

// The length that a csr table says: full pages before the last, and what the last one holds.
KVF_HD int64_t CsrLength(const RowPool& rp) {
  if (rp.entries.count == 0) return 0;
  const uint64_t full = (rp.entries.count - 1) * rp.entry_tokens;
  // Garbage may be as large as it likes: it wraps, and is wrong.
  return static_cast<int64_t>(full + Word(rp.table->last_page_len.Get(rp.row->row)));
}

// Every statement about the row's length that a kernel may use must agree with the expected one.
KVF_HD void JudgeLength(Place& place, const RowPool& rp) {
  const auto differs = [&](uint64_t want, uint64_t got) {
    place.Add(Reason::kLengthMismatch, -1, want, got);
  };
  if (rp.entries.broken) differs(rp.length, ~uint64_t{0});
  if (rp.writes.broken) differs(rp.length, ~uint64_t{0});
  if (rp.free_form) return;
  const bool csr = rp.table->layout == TableLayout::kCsr;
  if (rp.lengths->values.present()) {
    const bool there = rp.row->row < rp.lengths->rows;
    const int64_t used = there ? rp.lengths->values.Get(rp.row->row) : -1;
    if (used != static_cast<int64_t>(rp.length)) differs(rp.length, Word(used));
  } else if (!csr) {
    differs(rp.length, ~uint64_t{0});  // no length to judge: never pass silently
  }
  if (rp.prefix_count > rp.task->covered) differs(rp.task->covered, rp.prefix_count);
  if (!csr || rp.entries.broken) return;
  const uint64_t pages = CeilDiv(rp.length, rp.entry_tokens);
  if (rp.entries.count != pages) differs(pages, rp.entries.count);
  if (!rp.table->last_page_len.present()) return;
  const int64_t said = CsrLength(rp);
  if (said != static_cast<int64_t>(rp.length)) differs(rp.length, Word(said));
}

// A live row's own place: its lengths in all pools, its binding, the age of its plan.
KVF_HD Place JudgeRow(const GateView& gate, const StepView& step, uint32_t row_task,
                      uint32_t checks) {
  const RowTask& row = step.rows[row_task];
  Place place{checks};
  for (uint32_t t = FirstPoolTask(step, row_task);
       t < step.pool_task_count && step.pool_tasks[t].row_task == row_task; ++t) {
    JudgeLength(place, OpenRowPool(gate, step, t));
  }
  const volatile uint64_t* bound_at = gate.row_requests + row.row;
  const uint64_t bound = row.row < gate.rows ? *bound_at : 0;
  if (bound != row.request) place.Add(Reason::kRowEpoch, -1, row.request, bound);
  if (row.has_table_epoch != 0 && row.table_epoch < row.table_changed) {
    place.Add(Reason::kTableEpoch, -1, row.table_changed, row.table_epoch);
  }
  return place;
}

// --- which slots of the row lie in a logical page
// -------------------------------------------------

// Slots [begin, end) of the row are those whose positions lie in logical page k.
struct SlotSpan {
  uint64_t begin;
  uint64_t end;
};
KVF_HD SlotSpan SlotsInPage(const RowPool& rp, uint64_t k) {
  const uint64_t first = k * rp.page_size;
  const uint64_t end = first + rp.page_size;
  if (end <= rp.before) return SlotSpan{0, 0};
  return SlotSpan{first > rp.before ? first - rp.before : 0, Min(SlotCount(rp), end - rp.before)};
}

// One past the last position of logical page k that new or draft slots really write; 0: none.
KVF_HD uint64_t WrittenEnd(const RowPool& rp, uint64_t k) {
  const SlotSpan span = SlotsInPage(rp, k);
  for (uint64_t i = Min(span.end, rp.may_write); i > span.begin; --i) {
    if (!SkippedSlot(rp, SlotAt(rp, i - 1))) return rp.before + i;
  }
  return 0;
}

// --- identity: is it the expected page, in the expected generation? ----------------------------

// `read`: the entry will be read. One that only is written through (drafts, positions past the
// width) and names no page leaves it to the slot.
KVF_HD void JudgeEntry(Place& place, const RowPool& rp, const Expectation& want, int64_t page,
                       bool right_part, bool read) {
  const uint64_t wanted = want.page == kNoPage ? ~uint64_t{0} : want.page;
  if (!read && (page < 0 || page == int64_t{rp.pool->null_page})) return;
  if (page < 0) place.Add(Reason::kPageOutOfRange, page, wanted, Word(page));
  if (page == int64_t{rp.pool->null_page}) {
    place.Add(Reason::kPageOutOfRange, page, wanted, Word(page));
  }
  if (page >= int64_t{rp.pool->pages}) {
    place.Add(Reason::kPageOutOfRange, page, wanted, Word(page));
  }
  if (want.page == kNoPage || page != int64_t{want.page}) {
    place.Add(Reason::kPageMismatch, page, wanted, Word(page));
  }
  if (!right_part) place.Add(Reason::kPageMismatch, page, wanted, Word(page));
}

// The entries of logical page k that stand for its first `tokens` tokens.
KVF_HD void JudgeOwnEntries(Place& place, const RowPool& rp, const Expectation& want, uint64_t k,
                            uint64_t tokens, bool read) {
  const uint64_t parts = Min(CeilDiv(tokens, rp.entry_tokens), rp.per_page);
  for (uint64_t j = k * rp.per_page; j < k * rp.per_page + parts; ++j) {
    const Entry entry = EntryAt(rp, j);
    const bool fresh = k * rp.page_size >= rp.before;
    const bool missing = entry.absent && fresh && WrittenEnd(rp, k) != 0;
    JudgeEntry(place, rp, want, entry.page, entry.sub == j % rp.per_page, read && !missing);
  }
}

KVF_HD void JudgeIdentity(Place& place, const RowPool& rp, const Expectation& want, uint64_t k,
                          uint64_t tokens, bool read) {
  if (UnderPrefix(rp, k)) {  // the row's own entries are read by nobody
    JudgeEntry(place, rp, want, rp.prefix[k], true, read);
  } else {
    JudgeOwnEntries(place, rp, want, k, tokens, read);
  }
  const int64_t page = PageAt(rp, k);
  if (want.page == kNoPage || !InPool(rp, page)) return;
  if (!read && page == int64_t{rp.pool->null_page}) return;
  const Tag tag = RecordAt(rp, page).tag;
  if (tag != want.tag) place.Add(Reason::kTagMismatch, page, want.tag, tag);
}

// --- content: was what will be read written, by the right lineage, under the right scale? -------

KVF_HD uint16_t ScaleMark(const PoolState& pool, Tag tag) {
  return pool.page_scales != 0 ? static_cast<uint16_t>(tag & 0xFFFFu) : pool.scale_epoch;
}

// State that was cleared for a request without a token yet.
KVF_HD bool Cleared(const RowPool& rp, Stamp stamp) {
  return rp.free_form && stamp == kNobodyStamp && rp.before == 0;
}

// Does the row write into this page without reading what is there? It begins its state anew, or
// puts in place what others only read.
KVF_HD bool FillsItself(const RowPool& rp, int64_t page) {
  if (rp.before != 0 && rp.pool->free_form != kCrossForm) return false;
  for (uint64_t i = 0; i < SlotCount(rp); ++i) {
    const int64_t slot = SlotAt(rp, i);
    if (SkippedSlot(rp, slot) || !SlotInPool(rp, slot)) continue;
    if (slot / static_cast<int64_t>(rp.page_size) == page) return true;
  }
  return false;
}

// A page that holds nothing but what a failed copy left there.
KVF_HD void JudgeFailed(Place& place, const RowPool& rp, Stamp want, int64_t page) {
  if (!FillsItself(rp, page)) place.Add(Reason::kNotCommitted, page, want, kFailedStamp);
}

// Content from before the step, at logical page k of a full judgement.
KVF_HD void JudgeContent(Place& place, const RowPool& rp, const Expectation& want, uint64_t k,
                         int64_t page) {
  const PageRecord record = RecordAt(rp, page);
  if (record.stamp == kFailedStamp) return JudgeFailed(place, rp, want.stamp, page);
  const bool any = record.stamp != kNoStamp;
  if (any && record.stamp != want.stamp && !Cleared(rp, record.stamp)) {
    place.Add(Reason::kStampMismatch, page, want.stamp, record.stamp);
  }
  if (rp.free_form) return;
  const uint16_t scale = ScaleMark(*rp.pool, want.tag);
  if (any && record.scale != scale) place.Add(Reason::kScaleMismatch, page, scale, record.scale);
  const uint64_t need = Min(rp.page_size, rp.before - k * rp.page_size);
  if (!any) place.Add(Reason::kNotCommitted, page, need, 0);
  if (FillOf(record) < need) place.Add(Reason::kNotCommitted, page, need, FillOf(record));
}

// New tokens of logical page k that this step doesn't write must be there already.
KVF_HD void JudgeSkipped(Place& place, const RowPool& rp, const Expectation& want, uint64_t k,
                         int64_t page) {
  const uint64_t first = k * rp.page_size;
  const PageRecord record = RecordAt(rp, page);
  const bool own = first < rp.before || record.stamp == want.stamp;
  const uint64_t there = own ? FillOf(record) : 0;
  const uint64_t end = Min(rp.length, first + rp.page_size);
  for (uint64_t p = Max(rp.before, first); p < end; ++p) {
    if (!SkipsToken(rp, p - rp.before)) continue;
    if (HeldElsewhere(rp, p)) continue;
    if (p - first >= there) place.Add(Reason::kNotCommitted, page, p - first + 1, there);
  }
}

// --- writes -------------------------------------------------------------------------------------

// The page that a slot lies in may be written there. `open`: what lies there isn't committed yet.
KVF_HD void JudgeSealed(Place& place, const RowPool& rp, int64_t slot, bool open) {
  const int64_t page = slot / static_cast<int64_t>(rp.page_size);
  const uint64_t off = static_cast<uint64_t>(slot) % rp.page_size;
  const PageRecord record = RecordAt(rp, page);
  const bool shared = (record.fill_flags & kPageShared) != 0;
  const bool sealed = (record.fill_flags & kPageSealed) != 0;
  if (shared) place.Add(Reason::kWriteShared, page, 0, Word(slot));
  // Free-form pools keep no fill: there the flag is set only where the page holds something.
  if (sealed && !open && (rp.free_form || off < FillOf(record))) {
    place.Add(Reason::kWriteShared, page, 0, Word(slot));
  }
}

// Slot i of the row, which isn't a skip.
KVF_HD void JudgeWrite(Place& place, const RowPool& rp, uint64_t i, int64_t slot) {
  const int64_t own = OwnSlot(rp, rp.before + i);
  const int64_t page = slot < 0 ? -1 : slot / static_cast<int64_t>(rp.page_size);
  if (!SlotInPool(rp, slot)) place.Add(Reason::kPageOutOfRange, page, Word(own), Word(slot));
  if (i >= rp.may_write) place.Add(Reason::kWriteTarget, page, Word(own), Word(slot));
  if (slot != own) place.Add(Reason::kWriteTarget, page, Word(own), Word(slot));
  if (HeldElsewhere(rp, rp.before + i)) {
    place.Add(Reason::kWriteTarget, page, Word(-1), Word(slot));
  }
  if (page == int64_t{rp.pool->null_page}) {  // which is nobody's own
    place.Add(Reason::kWriteTarget, page, Word(own), Word(slot));
  }
  const bool open = rp.task->open_from != 0 && rp.before + i + 1 >= rp.task->open_from;
  if (SlotInPool(rp, slot)) JudgeSealed(place, rp, slot, open && slot == own);
}

KVF_HD void JudgeWrites(Place& place, const RowPool& rp, uint64_t k) {
  if (rp.free_form) {
    // Such a row may write any slot of its own pages; here, those that lie in this page.
    const int64_t page = PageAt(rp, k);
    for (uint64_t i = 0; i < SlotCount(rp); ++i) {
      const int64_t slot = SlotAt(rp, i);
      if (SkippedSlot(rp, slot) || !SlotInPool(rp, slot)) continue;
      if (slot / static_cast<int64_t>(rp.page_size) == page) JudgeSealed(place, rp, slot, false);
    }
    return;
  }
  const SlotSpan span = SlotsInPage(rp, k);
  for (uint64_t i = span.begin; i < span.end; ++i) {
    const int64_t slot = SlotAt(rp, i);
    if (!SkippedSlot(rp, slot)) JudgeWrite(place, rp, i, slot);
  }
}

// --- beyond the covered pages -------------------------------------------------------------------

// Entries that only the consumer's reach touches: null, or the row's own page there.
KVF_HD void JudgeTail(Place& place, const RowPool& rp, const Expectation& want, uint64_t k) {
  const uint64_t end = Min((k + 1) * rp.per_page, rp.entries.count);
  for (uint64_t j = k * rp.per_page; j < end; ++j) {
    const Entry entry = EntryAt(rp, j);
    if (entry.absent || entry.page == int64_t{rp.pool->null_page}) continue;
    const bool own =
        want.page != kNoPage && entry.page == int64_t{want.page} && entry.sub == j % rp.per_page;
    const uint64_t wanted = want.page == kNoPage ? rp.pool->null_page : want.page;
    if (!own) place.Add(Reason::kRowTail, entry.page, wanted, Word(entry.page));
  }
}

// --- one logical page ---------------------------------------------------------------------------

// Do new or draft positions of this step lie in logical page k?
KVF_HD bool IsWritePage(const PoolTask& task, uint64_t k) {
  return k >= task.write_first && k - task.write_first < task.write_pages;
}

// The content questions of a covered page, as validate or confirm ask them.
KVF_HD void JudgeCovered(Place& place, const StepView& step, const StepScratch& scratch,
                         const RowPool& rp, const Expectation& want, uint64_t k, When when) {
  const int64_t page = PageAt(rp, k);
  if (want.page == kNoPage || !InPool(rp, page)) return;
  const Late late = LateOf(step, *rp.task, k);
  const bool holds = rp.free_form || k * rp.page_size < rp.before;
  if (when == When::kValidate) {
    if (late != Late::kNo) return;
    if (holds) JudgeContent(place, rp, want, k, page);
    if (!rp.free_form) JudgeSkipped(place, rp, want, k, page);
    return;
  }
  if (late == Late::kByHost) return;
  if (when == When::kAfterStore && RecordAt(rp, page).tag != want.tag) return;
  if (!rp.free_form && late == Late::kNo && when == When::kConfirm) {
    JudgeSkipped(place, rp, want, k, page);
  }
  if (late == Late::kAtConfirm) return;  // judged in full, under its own reasons
  const Stamp stamp = RecordAt(rp, page).stamp;
  if (holds && stamp == kFailedStamp) return JudgeFailed(place, rp, want.stamp, page);
  const bool none = stamp == kNoStamp;
  if (holds && none && !rp.free_form) place.Add(Reason::kNotCommitted, page, want.stamp, stamp);
  if (holds && !none && stamp != want.stamp && !Cleared(rp, stamp)) {
    place.Add(Reason::kStampMismatch, page, want.stamp, stamp);
  }
  if (holds || !IsWritePage(*rp.task, k)) return;
  const uint64_t written = rp.task->write_begin + (k - rp.task->write_first);
  const Stamp seen = scratch.seen_stamps[written];
  const bool stored = when == When::kAfterStore && stamp == step.write_stamps[written];
  if (!stored && stamp != seen) place.Add(Reason::kStampMismatch, page, seen, stamp);
}

KVF_HD Place JudgeAt(const GateView& gate, const StepView& step, const StepScratch& scratch,
                     const RowPool& rp, uint64_t k, uint32_t checks, When when) {
  Place place{checks};
  if (rp.entries.broken) return place;  // the row's own place says so; no entry can be read
  const Expectation want = Expected(gate, step, *rp.task, k);
  const uint64_t first = k * rp.page_size;
  if (k < rp.task->covered) {
    const uint64_t tokens = rp.free_form ? rp.page_size : Min(rp.page_size, rp.length - first);
    JudgeIdentity(place, rp, want, k, tokens, true);
    JudgeCovered(place, step, scratch, rp, want, k, when);
    JudgeWrites(place, rp, k);
    return place;
  }
  const uint64_t written = rp.free_form ? 0 : WrittenEnd(rp, k);
  if (written != 0) JudgeIdentity(place, rp, want, k, written - first, false);
  if (!rp.free_form) JudgeWrites(place, rp, k);
  if (written == 0 && k < rp.row->reach) JudgeTail(place, rp, want, k);
  return place;
}

// Validate's judgement of logical page k of a live row.
KVF_HD Place JudgePage(const GateView& gate, const StepView& step, const StepScratch& scratch,
                       const RowPool& rp, uint64_t k) {
  return JudgeAt(gate, step, scratch, rp, k, step.checks, When::kValidate);
}

// Does this finding at k fail the whole group: the shared-prefix table itself names another page?
KVF_HD bool FailsGroup(const GateView& gate, const StepView& step, const RowPool& rp, uint64_t k,
                       const Place& place) {
  if (place.reason != static_cast<uint32_t>(Reason::kPageMismatch)) return false;
  if (k >= rp.task->covered || !UnderPrefix(rp, k)) return false;
  const Expectation want = Expected(gate, step, *rp.task, k);
  return want.page == kNoPage || rp.prefix[k] != int64_t{want.page};
}

// --- slots that no logical page of the launch answers for ---------------------------------------

// A place found by its position: `at` is its logical page, or ~0.
struct PlaceAt {
  Place place;
  uint32_t at;
};

// Slots for positions beyond the last page that is looked at; of free-form pools, all slots.
KVF_HD uint64_t FirstStray(const RowPool& rp) {
  const uint64_t end = uint64_t{rp.task->end_page} * rp.page_size;
  return !rp.free_form && end > rp.before ? end - rp.before : 0;
}

// Slot i, as one of them: it may lie in none of the row's pages.
KVF_HD void JudgeStraySlot(Place& place, const RowPool& rp, uint64_t i) {
  const int64_t slot = SlotAt(rp, i);
  if (SkippedSlot(rp, slot)) return;
  const int64_t page = slot < 0 ? -1 : slot / static_cast<int64_t>(rp.page_size);
  if (!SlotInPool(rp, slot)) place.Add(Reason::kPageOutOfRange, page, ~uint64_t{0}, Word(slot));
  bool own = false;
  for (uint64_t k = rp.task->first_page; rp.free_form && k < rp.task->covered; ++k) {
    own = own || (page >= 0 && PageAt(rp, k) == page);
  }
  if (!own) place.Add(Reason::kWriteTarget, page, ~uint64_t{0}, Word(slot));
}

// The next place from slot i on, and i behind it: a logical page, each of which reports once; of
// free-form pools, the first slot in nobody's page. Clean when there is none.
KVF_HD PlaceAt NextStray(const RowPool& rp, uint32_t checks, uint64_t& i) {
  PlaceAt result{Place{checks}, ~0u};
  while (i < SlotCount(rp) && result.place.clean()) {
    if (rp.free_form) {
      JudgeStraySlot(result.place, rp, i++);
      continue;
    }
    const uint64_t k = (rp.before + i) / rp.page_size;
    const uint64_t end = Min(SlotCount(rp), (k + 1) * rp.page_size - rp.before);
    for (; i < end; ++i) JudgeStraySlot(result.place, rp, i);
    result.at = static_cast<uint32_t>(k);
  }
  if (rp.free_form && !result.place.clean()) i = SlotCount(rp);
  return result;
}

// --- padded rows --------------------------------------------------------------------------------

KVF_HD void JudgePadEntry(Place& place, const RowPool& rp, uint64_t j) {
  const int64_t page = EntryAt(rp, j).page;
  if (page != int64_t{rp.pool->null_page}) {
    place.Add(Reason::kPadRow, page, rp.pool->null_page, Word(page));
  }
}
KVF_HD void JudgePadSlot(Place& place, const RowPool& rp, uint64_t i) {
  const int64_t slot = SlotAt(rp, i);
  if (SkippedSlot(rp, slot)) return;
  const int64_t page = SlotInPool(rp, slot) ? slot / static_cast<int64_t>(rp.page_size) : -1;
  place.Add(Reason::kPadRow, page, Word(-1), Word(slot));
}
// How many entries of a padded row are looked at: all it has.
KVF_HD uint64_t PadEntries(const RowPool& rp) { return rp.entries.broken ? 0 : rp.entries.count; }

// A padded row's place, in full: the first entry or slot that isn't harmless, and in which pool.
struct PadPlace {
  Place place;
  uint32_t pool;
};
KVF_HD PadPlace JudgePad(const GateView& gate, const StepView& step, uint32_t row_task,
                         uint32_t checks) {
  PadPlace pad{Place{checks}, ~0u};
  Place& place = pad.place;
  for (uint32_t t = FirstPoolTask(step, row_task);
       t < step.pool_task_count && step.pool_tasks[t].row_task == row_task; ++t) {
    const RowPool rp = OpenRowPool(gate, step, t);
    const bool before = place.clean();
    if (rp.entries.broken) place.Add(Reason::kLengthMismatch, -1, 0, ~uint64_t{0});
    if (rp.writes.broken) place.Add(Reason::kLengthMismatch, -1, 0, ~uint64_t{0});
    for (uint64_t j = 0; j < PadEntries(rp) && place.clean(); ++j) JudgePadEntry(place, rp, j);
    for (uint64_t i = 0; i < SlotCount(rp) && place.clean(); ++i) JudgePadSlot(place, rp, i);
    if (before && !place.clean()) pad.pool = rp.task->pool;
  }
  if (place.reason != static_cast<uint32_t>(Reason::kPadRow)) pad.pool = ~0u;
  return pad;
}

// --- counting -----------------------------------------------------------------------------------

// Table entries that validate compares for one row and pool (I-12).
KVF_HD uint64_t CountEntries(const RowPool& rp) {
  if (rp.entries.broken) return 0;
  if (rp.row->kind == RowKind::kPad) return rp.entries.count;
  return uint64_t{rp.task->end_page - rp.task->first_page} * rp.per_page;
}

}  // namespace kvfence::fence
