// A clean decode step for the fence's benchmarks: a pool's records, rows of random pages, and what
// the launches ask of them.
//
// Idea: each row has pages that were complete before the step, and a last one that holds `tail`
// tokens and gets one more. With sharing n, every n rows that follow each other hold the same pages
// but for that last one, as behind a prefix that they share, so that a page stands in n tables;
// what a request expects is its own. Apply's items say once more what is so before the step: apply,
// validate and confirm can be repeated, and each time is like the first. Invariant: nothing is
// wrong, so a measurement that found anything, or didn't look at every entry, is none (Clean).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kvfence/rng.h"
#include "kvfence/validate.h"

namespace kvfence {

struct BatchShape {
  uint32_t rows = 64;
  uint32_t pages_per_row = 512;
  uint32_t page_size = 64;
  uint32_t tail = 10;  // tokens in the last page before the step, less than page_size
  uint32_t sharing = 1;

  uint64_t Entries() const { return uint64_t{rows} * pages_per_row; }
  uint32_t ChunksPerRow() const { return (pages_per_row + kChunkEntries - 1) / kChunkEntries; }
  // Of rows that hold the same pages; the last may be smaller.
  uint32_t Groups() const { return (rows + sharing - 1) / sharing; }
  // Physical pages: one list for each group, and each row's own last one.
  uint32_t Pages() const { return Groups() * (pages_per_row - 1) + rows; }
  uint64_t Before() const { return uint64_t{pages_per_row - 1} * page_size + tail; }
};

// The gate's memory but for expectations. Page 0 is the null page.
struct BatchPool {
  BatchPool(uint32_t pages, const BatchShape& shape) : records(pages), row_requests(shape.rows) {
    for (uint32_t p = 0; p < pages; ++p) {
      records[p] = PageRecord{2 * p + 1, static_cast<uint16_t>(shape.page_size), 0,
                              MakeStamp(1 + p, p % 1000)};
    }
    std::iota(row_requests.begin(), row_requests.end(), uint64_t{77});
    state.records = records.data();
    state.pages = pages;
    state.page_size = shape.page_size;
  }
  BatchPool(const BatchPool&) = delete;
  BatchPool& operator=(const BatchPool&) = delete;

  std::vector<PageRecord> records;
  std::vector<uint64_t> row_requests;
  PoolState state{};
};

// All pages but the null page; the first `count` of them at random.
inline std::vector<uint32_t> AllPages(uint32_t pages) {
  std::vector<uint32_t> order(pages - 1);
  std::iota(order.begin(), order.end(), 1u);
  return order;
}
inline void ShufflePages(uint64_t count, Rng* rng, std::vector<uint32_t>* order) {
  for (uint64_t i = 0; i < count; ++i) {
    std::swap((*order)[i], (*order)[i + rng->Below(order->size() - i)]);
  }
}

class ValidatorBatch {
 public:
  // Takes its pages from the front of `order`; writes into `pool` what those pages now are.
  ValidatorBatch(const BatchShape& batch_shape, const std::vector<uint32_t>& order, BatchPool* pool)
      : shape(batch_shape) {
    slot_indptr.push_back(0);
    for (uint32_t r = 0; r < shape.rows; ++r) AddRow(r, order, pool);
    table_view.entries = IntArray{table.data(), 32};
    table_view.entries_size = table.size();
    table_view.stride = table_view.width = shape.pages_per_row;
    table_view.rows = shape.rows;
    slot_view = SlotView{{slots.data(), 64}, shape.rows, {slot_indptr.data(), 32}, shape.rows};
    length_view = LengthView{{lengths.data(), 32}, shape.rows};
  }
  ValidatorBatch(const ValidatorBatch&) = delete;
  ValidatorBatch& operator=(const ValidatorBatch&) = delete;

  GateView Gate(BatchPool* pool) {
    return GateView{&pool->state,
                    1,
                    arena.data(),
                    static_cast<uint32_t>(arena.size() / kChunkEntries),
                    pool->row_requests.data(),
                    shape.rows};
  }
  StepView Step() const {
    StepView step{};
    step.step = 1;
    step.checks = ~0u;
    step.sanitise = 1;
    step.rows = rows.data();
    step.row_count = shape.rows;
    step.pool_tasks = tasks.data();
    step.pool_task_count = shape.rows;
    step.work = shape.Entries();
    step.chunks = chunks.data();
    step.write_stamps = write_stamps.data();
    step.group_count = shape.rows;
    step.tables = &table_view;
    step.slots = &slot_view;
    step.lengths = &length_view;
    return step;
  }

  BatchShape shape;
  std::vector<int32_t> table;
  std::vector<int64_t> slots;
  std::vector<int32_t> slot_indptr, lengths;
  std::vector<Expectation> arena;  // of each row whole chunks, in order
  std::vector<uint32_t> chunks;
  std::vector<RowTask> rows;
  std::vector<PoolTask> tasks;
  std::vector<Stamp> write_stamps;
  std::vector<ApplyItem> items;  // of each row: its last page, what it expects there, its binding
  TableView table_view;
  SlotView slot_view;
  LengthView length_view;

 private:
  void AddRow(uint32_t r, const std::vector<uint32_t>& order, BatchPool* pool) {
    const uint32_t complete = shape.pages_per_row - 1;
    const uint64_t begin = uint64_t{r / shape.sharing} * complete;
    for (uint32_t k = 0; k < complete; ++k) AddPage(order[begin + k], pool);
    const uint32_t last = order[uint64_t{shape.Groups()} * complete + r];
    if (shape.tail == 0) {  // a page that was issued for this step's token
      pool->records[last] = PageRecord{2 * last + 1, 0, 0, kNoStamp};
    }
    AddPage(last, pool);
    AddItems(r, last, *pool);
    arena.resize(uint64_t{r + 1} * shape.ChunksPerRow() * kChunkEntries,
                 Expectation{kNoPage, 0, kNoStamp});
    slots.push_back(int64_t{last} * shape.page_size + shape.tail);
    slot_indptr.push_back(static_cast<int32_t>(r + 1));
    lengths.push_back(static_cast<int32_t>(shape.Before() + 1));
    write_stamps.push_back(MakeStamp(5, r));
    AddTasks(r);
  }
  void AddPage(uint32_t page, BatchPool* pool) {
    PageRecord& record = pool->records[page];
    table.push_back(static_cast<int32_t>(page));
    arena.push_back(Expectation{page, record.tag, record.stamp});
    const bool last = table.size() % shape.pages_per_row == 0;
    if (shape.sharing > 1 && !last) record.fill_flags |= kPageShared;
  }
  void AddItems(uint32_t r, uint32_t last, const BatchPool& pool) {
    ApplyItem page{};
    page.target = ApplyTarget::kPage;
    page.index = last;
    page.fields = kApplyTag | kApplyFlags | kApplyContent;
    page.record = pool.records[last];
    ApplyItem expectation{};
    expectation.target = ApplyTarget::kExpectation;
    expectation.index = static_cast<uint32_t>(arena.size() - 1);
    expectation.expectation = arena.back();
    ApplyItem row{};
    row.target = ApplyTarget::kRow;
    row.index = r;
    row.row.request = pool.row_requests[r];
    items.insert(items.end(), {page, expectation, row});
  }
  void AddTasks(uint32_t r) {
    RowTask row{};
    row.request = 77 + r;
    row.length_before = shape.Before();
    row.new_tokens = 1;
    row.reach = shape.pages_per_row;
    row.row = r;
    row.group = r;
    rows.push_back(row);
    PoolTask task{};
    task.row_task = r;
    task.covered = task.end_page = task.expected = shape.pages_per_row;
    task.chunk_begin = static_cast<uint32_t>(chunks.size());
    task.write_begin = r;
    task.write_first = shape.pages_per_row - 1;
    task.write_pages = 1;
    task.prefix = ~0u;
    task.work_begin = uint64_t{r} * shape.pages_per_row;
    tasks.push_back(task);
    for (uint32_t c = 0; c < shape.ChunksPerRow(); ++c) {
      chunks.push_back(r * shape.ChunksPerRow() + c);
    }
  }
};

struct BatchScratch {
  explicit BatchScratch(const BatchShape& shape)
      : verdicts(shape.rows),
        group_done(shape.rows),
        counters(kCounters),
        row_reasons(shape.rows),
        group_failed(shape.rows),
        seen(shape.rows),
        findings(16) {}

  StepScratch View() {
    return StepScratch{verdicts.data(), row_reasons.data(), group_done.data(), group_failed.data(),
                       seen.data(),     findings.data(),    &finding_count,    16,
                       counters.data()};
  }
  // All rows were judged, each entry was looked at, and nothing was found.
  bool Clean(const ValidatorBatch& batch) const {
    const VerdictWord clean = MakeVerdict(batch.Step().step, 0);
    return finding_count == 0 && counters[kCounterEntries] == batch.shape.Entries() &&
           counters[kCounterRows] == batch.shape.rows && counters[kCounterRowsFailed] == 0 &&
           std::count(verdicts.begin(), verdicts.end(), clean) == int64_t{batch.shape.rows};
  }

  std::vector<VerdictWord> verdicts;
  std::vector<uint64_t> group_done, counters;
  std::vector<uint32_t> row_reasons, group_failed;
  std::vector<Stamp> seen;
  std::vector<DeviceFinding> findings;
  uint32_t finding_count = 0;
};

// The launches on the CPU, twice over the same arrays, which are then as they were.
inline bool CleanOnCpu(ValidatorBatch* batch, BatchPool* pool, BatchScratch* scratch) {
  bool clean = true;
  for (int time = 0; time < 2; ++time) {
    const GateView gate = batch->Gate(pool);
    ApplyCpu(gate, batch->items.data(), batch->items.size());
    ValidateCpu(gate, batch->Step(), scratch->View());
    clean = clean && scratch->Clean(*batch);
    ConfirmCpu(gate, batch->Step(), scratch->View());
    clean = clean && scratch->Clean(*batch);
  }
  ApplyCpu(batch->Gate(pool), batch->items.data(), batch->items.size());
  return clean;
}

}  // namespace kvfence
