// Reading the engine's arrays: which entry, slot and length of a row the kernels will use.
//
// Idea: one RowPool is everything about one row in one pool, found out once; from then on "entry j
// of the row" and "slot i of the row" are questions with an answer for every j and i, also for
// arrays that are too short, negative or broken. Invariant: nothing outside an array's size is ever
// read. Host and device; no decision about right or wrong is made here.
#pragma once

#include <cstdint>

#include "kvfence/validate.h"

namespace kvfence::fence {

KVF_HD constexpr uint64_t Min(uint64_t a, uint64_t b) { return a < b ? a : b; }
KVF_HD constexpr uint64_t Max(uint64_t a, uint64_t b) { return a > b ? a : b; }
KVF_HD constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// A contiguous part of an array. `broken`: the index pointers that bound it make no sense, so that
// no element of it may be read.
struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
  bool broken = false;
};

// indptr[row] .. indptr[row + 1], judged against the size of what it points into.
KVF_HD Range IndptrRange(const IntArray& indptr, uint32_t rows, uint64_t size, uint32_t row) {
  Range range;
  if (row >= rows) {
    range.broken = true;
    return range;
  }
  const int64_t begin = indptr.Get(row);
  const int64_t end = indptr.Get(uint64_t{row} + 1);
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > size) {
    range.broken = true;
    return range;
  }
  range.begin = static_cast<uint64_t>(begin);
  range.count = static_cast<uint64_t>(end - begin);
  return range;
}

// The line of a dense table that a batch row uses, or -1: none that the table has.
KVF_HD int64_t DenseLine(const TableView& table, uint32_t row) {
  const int64_t line = table.row_map.present() ? table.row_map.Get(row) : int64_t{row};
  return line < 0 || line >= int64_t{table.rows} ? -1 : line;
}

// The entries of a row. Of a dense table that is shorter than its shape says, those that exist.
KVF_HD Range EntriesOf(const TableView& table, uint32_t row) {
  Range range;
  if (!table.entries.present()) return range;
  if (table.layout == TableLayout::kCsr) {
    return IndptrRange(table.indptr, table.indptr.present() ? table.rows : 0, table.entries_size,
                       row);
  }
  const int64_t line = DenseLine(table, row);
  if (line < 0) return range;
  range.begin = static_cast<uint64_t>(line) * table.stride;
  if (range.begin >= table.entries_size) return range;
  range.count = Min(table.width, table.entries_size - range.begin);
  return range;
}

// The write slots of a row; a pool without slots, or with fewer rows, gives it none.
KVF_HD Range SlotsOf(const SlotView& slots, uint32_t row) {
  if (!slots.slots.present() || !slots.indptr.present() || row >= slots.rows) return Range{};
  return IndptrRange(slots.indptr, slots.rows, slots.slots_size, row);
}

// One row in one pool.
struct RowPool {
  const RowTask* row;
  const PoolTask* task;
  const PoolState* pool;
  const TableView* table;
  const SlotView* slots;
  const LengthView* lengths;
  const int64_t* prefix;  // pages of the shared-prefix table, or null
  uint64_t prefix_count;  // 0: none
  Range entries;
  Range writes;
  uint64_t page_size;
  uint64_t per_page;      // table entries per page
  uint64_t entry_tokens;  // tokens per table entry
  uint64_t before;        // tokens before the step
  uint64_t length;        // expected length, new tokens included
  uint64_t may_write;     // new and draft tokens
  uint32_t rank;
  bool free_form;
};

KVF_HD RowPool OpenRowPool(const GateView& gate, const StepView& step, uint32_t pool_task) {
  RowPool rp;
  rp.task = &step.pool_tasks[pool_task];
  rp.row = &step.rows[rp.task->row_task];
  rp.pool = &gate.pools[rp.task->pool];
  rp.table = &step.tables[rp.task->pool];
  rp.slots = &step.slots[rp.task->pool];
  rp.lengths = &step.lengths[rp.task->pool];
  rp.prefix = nullptr;
  rp.prefix_count = 0;
  if (rp.task->prefix < step.prefix_count) {
    rp.prefix = step.prefixes[rp.task->prefix].pages;
    rp.prefix_count = step.prefixes[rp.task->prefix].count;
  }
  rp.entries = EntriesOf(*rp.table, rp.row->row);
  rp.writes = SlotsOf(*rp.slots, rp.row->row);
  rp.page_size = Max(rp.pool->page_size, 1);
  rp.per_page = Max(rp.table->entries_per_page, 1);
  rp.entry_tokens = Max(rp.page_size / rp.per_page, 1);
  rp.before = rp.row->length_before;
  rp.length = rp.row->length_before + rp.row->new_tokens;
  rp.may_write = rp.row->new_tokens + rp.row->draft;
  rp.rank = step.rank;
  rp.free_form = rp.pool->free_form != 0;
  return rp;
}

// What one table entry says. page -1: no page at all (absent, or a negative entry).
struct Entry {
  int64_t page = -1;
  uint64_t sub = 0;     // which part of the page, for tables with several entries per page
  bool absent = false;  // the row has no such entry
};

// Entry j of the row, decoded: u = (entry & mask) / divisor, page = u / entries_per_page.
KVF_HD Entry EntryAt(const RowPool& rp, uint64_t j) {
  Entry entry;
  if (rp.entries.broken || j >= rp.entries.count) {
    entry.absent = true;
    return entry;
  }
  const int64_t raw = rp.table->entries.Get(rp.entries.begin + j);
  const int64_t masked = raw & rp.table->mask;
  if (raw < 0 || masked < 0 || rp.table->divisor <= 0) return entry;
  const uint64_t unit = static_cast<uint64_t>(masked / rp.table->divisor);
  entry.page = static_cast<int64_t>(unit / rp.per_page);
  entry.sub = unit % rp.per_page;
  return entry;
}

// The raw entry that decodes to the null page, for entry j of a row.
KVF_HD int64_t NullEntry(const RowPool& rp, uint64_t j) {
  const auto divisor = static_cast<uint64_t>(rp.table->divisor > 0 ? rp.table->divisor : 1);
  return static_cast<int64_t>((rp.pool->null_page * rp.per_page + j % rp.per_page) * divisor);
}

KVF_HD bool UnderPrefix(const RowPool& rp, uint64_t k) { return k < rp.prefix_count; }

// The page that the kernels read at logical page k: the shared-prefix table's, or the row's own.
KVF_HD int64_t PageAt(const RowPool& rp, uint64_t k) {
  return UnderPrefix(rp, k) ? rp.prefix[k] : EntryAt(rp, k * rp.per_page).page;
}

KVF_HD bool InPool(const RowPool& rp, int64_t page) {
  return page >= 0 && page < int64_t{rp.pool->pages};
}

// A copy of the page's record as it is now. Only for pages InPool.
KVF_HD PageRecord RecordAt(const RowPool& rp, int64_t page) {
  const volatile PageRecord& at = rp.pool->records[page];
  PageRecord record;
  record.tag = at.tag;
  record.fill_flags = at.fill_flags;
  record.scale = at.scale;
  record.stamp = at.stamp;
  return record;
}
KVF_HD uint64_t FillOf(const PageRecord& record) { return record.fill_flags & kFillMask; }

KVF_HD int64_t SlotIn(const RowPool& rp, int64_t page, uint64_t offset) {
  if (!InPool(rp, page)) return -1;
  return static_cast<int64_t>(static_cast<uint64_t>(page) * rp.page_size + offset);
}
// The slot that the table names for a position, or -1: none.
KVF_HD int64_t OwnSlot(const RowPool& rp, uint64_t position) {
  const uint64_t k = position / rp.page_size;
  const uint64_t off = position % rp.page_size;
  if (UnderPrefix(rp, k)) return SlotIn(rp, rp.prefix[k], off);
  const Entry entry = EntryAt(rp, k * rp.per_page + off / rp.entry_tokens);
  return SlotIn(rp, entry.page, entry.sub * rp.entry_tokens + off % rp.entry_tokens);
}

// How many slots of the row can be looked at.
KVF_HD uint64_t SlotCount(const RowPool& rp) { return rp.writes.broken ? 0 : rp.writes.count; }
KVF_HD int64_t SlotAt(const RowPool& rp, uint64_t i) {
  return rp.slots->slots.Get(rp.writes.begin + i);
}
KVF_HD bool SkippedSlot(const RowPool& rp, int64_t slot) {
  return rp.pool->has_skip_slot != 0 ? slot == rp.pool->skip_slot : slot < 0;
}
// New token i of the step isn't written: its slot is a skip, or there is none.
KVF_HD bool SkipsToken(const RowPool& rp, uint64_t i) {
  return i >= SlotCount(rp) || SkippedSlot(rp, SlotAt(rp, i));
}
KVF_HD bool SlotInPool(const RowPool& rp, int64_t slot) {
  return slot >= 0 && static_cast<uint64_t>(slot) < uint64_t{rp.pool->pages} * rp.page_size;
}

// Other ranks hold this position.
KVF_HD bool HeldElsewhere(const RowPool& rp, uint64_t position) {
  const uint32_t ranks = rp.pool->interleave_ranks;
  if (ranks == 0) return false;
  return position / Max(rp.pool->interleave_stride, 1) % ranks != rp.rank;
}

// What the request expects at logical page k. A page of kNoPage: nothing.
KVF_HD Expectation* ExpectationAt(const GateView& gate, const StepView& step, const PoolTask& task,
                                  uint64_t k) {
  if (k >= task.expected) return nullptr;
  const uint32_t chunk = step.chunks[task.chunk_begin + k / kChunkEntries];
  if (chunk >= gate.chunk_count) return nullptr;
  return &gate.expectations[uint64_t{chunk} * kChunkEntries + k % kChunkEntries];
}
KVF_HD Expectation Expected(const GateView& gate, const StepView& step, const PoolTask& task,
                            uint64_t k) {
  const Expectation* at = ExpectationAt(gate, step, task, k);
  return at == nullptr ? Expectation{kNoPage, 0, kNoStamp} : *at;
}

// Is logical page k late: is its content judged at confirm, or by the host?
enum class Late : uint32_t { kNo, kAtConfirm, kByHost };
KVF_HD Late LateOf(const StepView& step, const PoolTask& task, uint64_t k) {
  uint32_t lo = task.late_begin;
  uint32_t hi = task.late_end;
  while (lo < hi) {
    const uint32_t mid = lo + (hi - lo) / 2;
    const uint32_t late = step.late_pages[mid];
    const uint32_t page = late & ~kLateAtConfirm;
    if (page == k) return (late & kLateAtConfirm) != 0 ? Late::kAtConfirm : Late::kByHost;
    if (page < k) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return Late::kNo;
}

// Pool tasks of a row: [first, last) in the ascending list.
KVF_HD uint32_t FirstPoolTask(const StepView& step, uint32_t row_task) {
  uint32_t lo = 0;
  uint32_t hi = step.pool_task_count;
  while (lo < hi) {
    const uint32_t mid = lo + (hi - lo) / 2;
    if (step.pool_tasks[mid].row_task < row_task) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo;
}

}  // namespace kvfence::fence
