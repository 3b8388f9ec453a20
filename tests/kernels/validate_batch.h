// A whole pass in plain memory: pools, expectations, tasks and the engine's arrays, consistent
// until a test damages something.
//
// Idea: BatchBuilder is told rows and which pages they hold, and lays out records, tables, slots
// and lengths as a correct engine and ledger would. Batches are values: copy one, damage the copy,
// call launch. Invariant: an undamaged batch is clean.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "kvfence/validate.h"

namespace kvfence {

// An integer array of either width that owns its memory.
class IntBuffer {
 public:
  explicit IntBuffer(uint32_t bits = 32, uint64_t size = 0, int64_t value = 0)
      : bits_(bits), bytes_(size * bits / 8) {
    for (uint64_t i = 0; i < size; ++i) Set(i, value);
  }
  uint64_t size() const { return bytes_.size() * 8 / bits_; }
  bool empty() const { return bytes_.empty(); }
  int64_t Get(uint64_t i) const { return const_cast<IntBuffer*>(this)->View().Get(i); }
  void Set(uint64_t i, int64_t value) { View().Set(i, value); }
  void Push(int64_t value) {
    bytes_.resize(bytes_.size() + bits_ / 8);
    Set(size() - 1, value);
  }
  IntArray View() { return IntArray{bytes_.empty() ? nullptr : bytes_.data(), bits_}; }
  friend bool operator==(const IntBuffer&, const IntBuffer&) = default;

 private:
  uint32_t bits_;
  std::vector<unsigned char> bytes_;
};

// The engine's arrays of one pool.
struct PoolArrays {
  TableView shape;  // without pointers
  IntBuffer entries, indptr, last_page_len, row_map, saved;
  IntBuffer slots, slot_indptr;
  uint32_t slot_rows = 0;
  IntBuffer lengths;
  uint32_t length_rows = 0;
};

struct Batch {
  uint64_t step_number = 5;
  uint32_t rank = 0;
  uint32_t checks = ~0u;
  bool sanitise = true;
  std::vector<PoolState> pools;
  std::vector<std::vector<PageRecord>> records;
  std::vector<PoolArrays> arrays;
  std::vector<Expectation> arena;
  std::vector<uint64_t> row_requests;
  std::vector<RowTask> rows;
  std::vector<PoolTask> tasks;
  std::vector<uint32_t> chunks;
  std::vector<Stamp> write_stamps;
  std::vector<uint32_t> late;
  std::vector<std::vector<int64_t>> prefixes;
  uint32_t groups = 0;
  uint32_t finding_capacity = 4096;

  // Scratch, as the launches leave it.
  std::vector<VerdictWord> verdicts;
  std::vector<uint32_t> row_reasons;
  std::vector<uint64_t> group_done;
  std::vector<uint32_t> group_failed;
  std::vector<Stamp> seen_stamps;
  std::vector<DeviceFinding> findings;
  uint32_t finding_count = 0;
  std::vector<uint64_t> counters;

  // Points the views at this batch's memory; after each copy or change of size.
  void BindViews();
  // The same, and fills the scratch with rubbish.
  void Bind();
  GateView gate();
  StepView step();
  StepScratch scratch();

  Expectation& ExpectationOf(uint32_t task, uint32_t at);
  PageRecord& RecordOf(uint32_t task, uint32_t at);  // of the page expected there
  // Index of entry j of a row in its table's array (dense tables without damage, or csr).
  uint64_t EntryIndex(uint32_t pool, uint32_t row, uint64_t j) const;
  void SetPage(uint32_t pool, uint32_t row, uint64_t page_index, int64_t page);
  uint64_t SlotIndex(uint32_t pool, uint32_t row, uint64_t i) const;

  uint32_t ReasonsOf(uint32_t row_task) const;  // of a verdict of this step; aborts on another

 private:
  std::vector<TableView> tables_;
  std::vector<SlotView> slot_views_;
  std::vector<LengthView> length_views_;
  std::vector<PrefixTable> prefix_views_;
};

struct PoolSpec {
  uint32_t pages = 32;
  uint32_t page_size = 4;
  uint32_t null_page = 0;
  uint32_t window = 0;
  bool page_scales = false;
  uint16_t scale_epoch = 3;
  bool free_form = false;
  std::optional<int64_t> skip_slot{};
  uint32_t interleave_ranks = 0;
  uint32_t interleave_stride = 1;
  TableLayout layout = TableLayout::kDense;
  uint32_t bits = 32;
  uint32_t per_page = 1;
  int64_t divisor = 1;
  int64_t flag = 0;  // a bit above the pages that the engine packs into entries
  bool row_map = false;
  SanitiseMode sanitise = SanitiseMode::kInPlace;
  uint32_t width_pages = 8;
  bool lengths = true;  // csr may go without
};

struct RowSpec {
  uint32_t row = 0;
  uint64_t before = 0;
  uint64_t new_tokens = 1;
  uint64_t draft = 0;
  uint64_t reach = 0;                          // pages; raised to the covered ones
  std::vector<std::vector<uint32_t>> pages{};  // [pool][logical page]; kNoPage: dropped
  std::optional<uint32_t> group{};             // default: its own
  uint32_t prefix_of_pool = ~0u;               // reads `prefix` there ...
  uint32_t prefix = ~0u;                       // ... this one of the batch's prefixes
  bool keep_scales = false;
};

class BatchBuilder {
 public:
  BatchBuilder(std::vector<PoolSpec> pools, uint32_t rows);
  uint32_t AddPrefix(const std::vector<uint32_t>& pages);
  void AddRow(const RowSpec& spec);
  void AddPad(uint32_t row, uint32_t skipped_slots = 0);
  Batch Build();

  static constexpr Tag kTag(uint32_t page) { return 2 * page + 101; }
  static constexpr uint64_t Serial(uint32_t row) { return 1000 + row; }

 private:
  void AddRowTask(const RowSpec& spec);
  void AddPadTask(uint32_t row);
  PoolTask MakeTask(uint32_t pool, const RowSpec& spec);
  void AddExpectations(PoolTask& task, const RowSpec& spec);
  void FillArrays(uint32_t pool);
  void FillEntries(uint32_t pool);
  void FillSlots(uint32_t pool);
  int64_t Encode(const PoolSpec& spec, uint64_t page, uint64_t sub);
  const RowSpec* LiveAt(uint32_t row) const;

  std::vector<PoolSpec> specs_;
  uint32_t row_count_;
  Batch batch_;
  std::vector<RowSpec> live_;
  std::vector<std::pair<uint32_t, uint32_t>> pads_;  // row, skipped slots
};

}  // namespace kvfence
