// What the fence writes: journal deltas, the stores of clean rows, and failing rows made harmless.
//
// Idea: each function changes one element, so that a launch can spread them over threads as it
// likes. Invariants: a failing row's sanitising touches only elements that are that row's own and
// no other launched row's (I-10); the null page's content is never written; confirm stores for
// clean rows only (I-9). Host and device.
#pragma once

#include <cstdint>

#include "confirm_core.h"

namespace kvfence::fence {

// --- apply --------------------------------------------------------------------------------------

KVF_HD void ApplyPage(PageRecord& record, const ApplyItem& item) {
  if ((item.fields & kApplyTag) != 0) {
    record.tag = item.record.tag;
    record.fill_flags = static_cast<uint16_t>(record.fill_flags & ~kFillMask);
    record.scale = 0;
    record.stamp = kNoStamp;
  }
  if ((item.fields & kApplyFlags) != 0) {
    record.fill_flags = static_cast<uint16_t>((record.fill_flags & kFillMask) |
                                              (item.record.fill_flags & ~kFillMask));
  }
  if ((item.fields & kApplyContent) != 0) {
    record.fill_flags = static_cast<uint16_t>((record.fill_flags & ~kFillMask) |
                                              (item.record.fill_flags & kFillMask));
    record.scale = item.record.scale;
    record.stamp = item.record.stamp;
  }
}

// One delta. False: it names something that the gate hasn't got, and changed nothing.
KVF_HD bool Apply(const GateView& gate, const ApplyItem& item) {
  switch (item.target) {
    case ApplyTarget::kPage:
      if (item.pool >= gate.pool_count || item.index >= gate.pools[item.pool].pages) return false;
      ApplyPage(gate.pools[item.pool].records[item.index], item);
      return true;
    case ApplyTarget::kExpectation:
      if (item.index / kChunkEntries >= gate.chunk_count) return false;
      gate.expectations[item.index] = item.expectation;
      return true;
    case ApplyTarget::kRow:
      if (item.index >= gate.rows) return false;
      gate.row_requests[item.index] = item.row.request;
      return true;
    case ApplyTarget::kScaleEpoch:
      if (item.pool >= gate.pool_count) return false;
      gate.pools[item.pool].scale_epoch = item.record.scale;
      return true;
  }
  return false;
}

// --- what confirm stores ------------------------------------------------------------------------

// Validate notes the stamp of write page w of a pool task: confirm must find it again.
KVF_HD void NoteStamp(const StepScratch& scratch, const RowPool& rp, uint64_t w) {
  const int64_t page = PageAt(rp, rp.task->write_first + w);
  scratch.seen_stamps[rp.task->write_begin + w] =
      InPool(rp, page) ? RecordAt(rp, page).stamp : kNoStamp;
}

// What the step did to one written page.
struct Written {
  uint64_t fill;  // contiguous committed slots, afterwards
  bool touched;   // anything of it was written (or is held by another rank)
};

KVF_HD Written WrittenInPage(const RowPool& rp, uint64_t k, uint64_t fill_before) {
  Written written{fill_before, false};
  const uint64_t first = k * rp.page_size;
  const uint64_t end = Min(rp.length, first + rp.page_size);  // draft slots don't count
  bool contiguous = true;
  for (uint64_t p = Max(rp.before, first); p < end; ++p) {
    const uint64_t off = p - first;
    const bool filled = HeldElsewhere(rp, p) || !SkipsToken(rp, p - rp.before);
    written.touched = written.touched || filled;
    contiguous = contiguous && off <= written.fill;
    if (contiguous && filled) written.fill = Max(written.fill, off + 1);
  }
  return written;
}

// A free-form row fills whatever slots of its page it wrote.
KVF_HD Written WrittenFreeForm(const RowPool& rp, int64_t page, uint64_t fill_before) {
  Written written{fill_before, false};
  for (uint64_t i = 0; i < SlotCount(rp); ++i) {
    const int64_t slot = SlotAt(rp, i);
    if (SkippedSlot(rp, slot) || !SlotInPool(rp, slot)) continue;
    if (slot / static_cast<int64_t>(rp.page_size) != page) continue;
    written.touched = true;
    written.fill = Max(written.fill, static_cast<uint64_t>(slot) % rp.page_size + 1);
  }
  return written;
}

// Stores stamp, fill and scale mark of write page w of a clean live row.
KVF_HD void Store(const GateView& gate, const StepView& step, const RowPool& rp, uint64_t w) {
  const uint64_t k = rp.task->write_first + w;
  const int64_t page = PageAt(rp, k);
  if (!InPool(rp, page) || page == int64_t{rp.pool->null_page}) return;
  PageRecord& record = rp.pool->records[page];
  Expectation* want = ExpectationAt(gate, step, *rp.task, k);
  // What stood in the page counts only if it was this lineage's: a page that is filled from its
  // start begins anew.
  const bool own = k * rp.page_size < rp.before || (want != nullptr && record.stamp == want->stamp);
  const uint64_t before = own ? FillOf(record) : 0;
  const Written written =
      rp.free_form ? WrittenFreeForm(rp, page, before) : WrittenInPage(rp, k, before);
  if (!written.touched) return;
  const Stamp stamp = step.write_stamps[rp.task->write_begin + w];
  record.stamp = stamp;
  record.fill_flags =
      static_cast<uint16_t>((record.fill_flags & ~kFillMask) | (written.fill & kFillMask));
  if (rp.pool->page_scales == 0 || rp.row->keep_scales == 0) {
    record.scale = ScaleMark(*rp.pool, record.tag);
  }
  if (want != nullptr) want->stamp = stamp;
}

// --- making a failing row harmless --------------------------------------------------------------

// Which elements are the failing row's own to change.
struct SanitisePlan {
  Range entries;  // in the table's array; `first_entry`: which entry of the row that begins
  uint64_t first_entry;
  bool shared;  // another launched row reads the same line of the table
  Range slots;
};

// [begin, end) of a csr-like range without what another row's index pointers claim too.
KVF_HD Range OwnRange(const IntArray& indptr, uint32_t rows, uint32_t row, Range range) {
  if (range.broken) return Range{};
  int64_t begin = static_cast<int64_t>(range.begin);
  int64_t end = begin + static_cast<int64_t>(range.count);
  for (uint32_t r = 0; r <= rows; ++r) {
    const int64_t bound = indptr.Get(r);
    if (r <= row && bound > begin) begin = bound;
    if (r > row && bound < end) end = bound;
  }
  if (end <= begin) return Range{};
  return Range{static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin), false};
}

// Does another launched row use the same line of a dense table?
KVF_HD bool LineIsShared(const StepView& step, const RowPool& rp) {
  if (!rp.table->row_map.present()) return false;
  const int64_t line = DenseLine(*rp.table, rp.row->row);
  for (uint32_t r = 0; r < step.row_count; ++r) {
    if (r == rp.task->row_task) continue;
    if (DenseLine(*rp.table, step.rows[r].row) == line) return true;
  }
  return false;
}

// How many entries of a failing dense row its kernel may touch. Lengths are clamped, so that is
// what the launch looks at; where length says nothing, all of them.
KVF_HD uint64_t TouchedEntries(const RowPool& rp) {
  if (rp.row->kind == RowKind::kPad || rp.free_form || !rp.lengths->values.present()) {
    return rp.entries.count;
  }
  const uint64_t pages = Max(Max(rp.task->end_page, rp.task->covered), rp.row->reach);
  return Min(rp.entries.count, pages * rp.per_page);
}

KVF_HD bool MayEditTable(const TableView& table) {
  if (table.sanitise == SanitiseMode::kNever) return false;
  return table.sanitise != SanitiseMode::kRestore || table.saved.present();
}

KVF_HD SanitisePlan PlanSanitise(const StepView& step, const RowPool& rp) {
  SanitisePlan plan{Range{}, 0, false, Range{}};
  if (MayEditTable(*rp.table) && !rp.entries.broken && rp.entries.count != 0) {
    if (rp.table->layout == TableLayout::kCsr) {
      plan.entries = OwnRange(rp.table->indptr, rp.table->rows, rp.row->row, rp.entries);
      plan.first_entry = plan.entries.begin - Min(rp.entries.begin, plan.entries.begin);
    } else {
      plan.shared = LineIsShared(step, rp);
      plan.entries = Range{rp.entries.begin, TouchedEntries(rp), false};
      // Lines that overlap: what lies beyond the stride is the next row's.
      if (rp.table->rows > 1) plan.entries.count = Min(plan.entries.count, rp.table->stride);
    }
  }
  if (SlotCount(rp) != 0) {
    plan.slots = OwnRange(rp.slots->indptr, rp.slots->rows, rp.row->row, rp.writes);
  }
  return plan;
}

// Entry i of the plan becomes the null page. In a line that another row reads too, only what no
// kernel can read without harm.
KVF_HD void SanitiseEntry(const RowPool& rp, const SanitisePlan& plan, uint64_t i) {
  const uint64_t j = plan.first_entry + i;
  const uint64_t at = plan.entries.begin + i;
  if (plan.shared && InPool(rp, EntryAt(rp, j).page)) return;
  if (rp.table->sanitise == SanitiseMode::kRestore) {
    rp.table->saved.Set(at, rp.table->entries.Get(at));
  }
  rp.table->entries.Set(at, NullEntry(rp, j));
}

// Entry i of the plan becomes what it was, unless the engine has written it since.
KVF_HD void RestoreEntry(const RowPool& rp, const SanitisePlan& plan, uint64_t i) {
  const uint64_t at = plan.entries.begin + i;
  const int64_t null_entry = NullEntry(rp, plan.first_entry + i);
  if (rp.table->entries.Get(at) == null_entry) rp.table->entries.Set(at, rp.table->saved.Get(at));
  rp.table->saved.Set(at, null_entry);  // what is stale is harmless
}

KVF_HD void SanitiseSlot(const RowPool& rp, const SanitisePlan& plan, uint64_t i) {
  rp.slots->slots.Set(plan.slots.begin + i, rp.pool->has_skip_slot != 0 ? rp.pool->skip_slot : -1);
}

// A length that is itself wrong is clamped to what the row's entries can hold.
KVF_HD void SanitiseLength(const RowPool& rp) {
  if (rp.row->kind == RowKind::kPad || rp.free_form) return;
  const uint64_t entries = rp.entries.broken ? 0 : rp.entries.count;
  const uint64_t clamped = Min(rp.length, entries * rp.entry_tokens);
  if (rp.lengths->values.present() && rp.row->row < rp.lengths->rows &&
      rp.lengths->values.Get(rp.row->row) != static_cast<int64_t>(rp.length)) {
    rp.lengths->values.Set(rp.row->row, static_cast<int64_t>(clamped));
  }
  const TableView& table = *rp.table;
  if (table.layout != TableLayout::kCsr || rp.entries.broken || entries == 0) return;
  if (!table.last_page_len.present() || CsrLength(rp) == static_cast<int64_t>(rp.length)) return;
  const uint64_t full = (entries - 1) * rp.entry_tokens;
  const uint64_t last = clamped > full ? clamped - full : 1;
  table.last_page_len.Set(rp.row->row, static_cast<int64_t>(last));
}

// --- verdicts -----------------------------------------------------------------------------------

// The reason for which the host failed the row before the launch, as a mask; 0: it didn't.
KVF_HD uint32_t DoomedMask(const RowTask& row) {
  return row.doomed == 0 ? 0 : 1u << (row.doomed - 1u);
}

// The finding of a row whose group's shared-prefix table names a wrong page at k for another row.
struct GroupFinding {
  Place place;
  uint32_t pool;
};
KVF_HD GroupFinding JudgeGroup(const GateView& gate, const StepView& step, uint32_t row_task,
                               uint64_t k) {
  uint32_t t = FirstPoolTask(step, row_task);
  uint32_t end = t;
  while (end < step.pool_task_count && step.pool_tasks[end].row_task == row_task) ++end;
  while (t + 1 < end && step.pool_tasks[t].prefix >= step.prefix_count) ++t;
  GroupFinding finding{Place{step.checks}, ~0u};
  if (t == end) {
    finding.place.Add(Reason::kPageMismatch, -1, 0, 0);
    return finding;
  }
  const RowPool rp = OpenRowPool(gate, step, t);
  const int64_t page = UnderPrefix(rp, k) ? rp.prefix[k] : -1;
  const uint64_t want = Expected(gate, step, *rp.task, k).page;
  finding.place.Add(Reason::kPageMismatch, page, want, Word(page));
  finding.pool = rp.task->pool;
  return finding;
}

// Is this row of the step to be judged again and stored?
KVF_HD bool CleanSoFar(const StepView& step, const StepScratch& scratch, uint32_t row_task) {
  const VerdictWord word = scratch.verdicts[row_task];
  return VerdictIsOf(word, step.step) && VerdictReasons(word) == 0;
}
KVF_HD bool FailedSoFar(const StepView& step, const StepScratch& scratch, uint32_t row_task) {
  const VerdictWord word = scratch.verdicts[row_task];
  return VerdictIsOf(word, step.step) && VerdictReasons(word) != 0;
}

}  // namespace kvfence::fence
