// The arrays of one launched step, made from its log line: what kernels would read.
//
// Tables, write slots and lengths are laid out as an engine would have them on the device: dense
// tables reached through a row map, slots in one list per pool. The fence reads them at Step and
// again at Confirm, and makes failing rows harmless in them. Invariant: no line of a log makes them
// larger than kMaxStepWords; of write runs that are longer than the step has tokens only some
// surplus slots are kept, one that is no skip among them, which is enough to be found.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/event.h"
#include "kvfence/event_log.h"
#include "kvfence/status.h"
#include "row_tables.h"

namespace kvfence {

inline constexpr uint64_t kMaxStepWords = uint64_t{1} << 27;  // table entries of one step and pool

inline constexpr uint64_t kSurplusSlots = 4096;

// The slots of a line's runs, one by one. Behind the first `most` of them, `spare` more are kept,
// and in any case one that isn't negative, if there is any.
std::vector<int64_t> ExpandRuns(std::span<const SlotRun> runs, uint64_t most, uint64_t spare);

class LaidOutStep {
 public:
  explicit LaidOutStep(const FenceConfig& config) : config_(config) {}
  LaidOutStep(const LaidOutStep&) = delete;

  // Fills the arrays; `tables` has seen the step's line. Refuses what is too large.
  Status Fill(const LogStep& step, const RowTables& tables);
  // The step as the fence is told it. Views live until the next Fill.
  const StepEvent& event() const { return event_; }
  std::vector<RowPlan>& rows() { return rows_; }
  // The slots of the step's i-th row (padded ones after live ones) in a pool.
  std::span<const int64_t> Slots(PoolId pool, size_t index) const;
  bool Touches(PoolId pool) const { return (touched_ >> pool.value() & 1) != 0; }
  bool Has(Row row) const { return row.value() < row_map_.size() && row_map_[row.value()] >= 0; }
  // The row's table as it stands, without the null entries at its end (a failing row's is null).
  std::vector<int64_t> Table(Row row, PoolId pool) const;
  // Another table for a row of the step, from now on (confirm).
  void Patch(Row row, PoolId pool, std::span<const int64_t> table);

 private:
  struct Arrays {
    std::vector<int64_t> entries;  // [rows of the step][width]
    std::vector<uint64_t> used;    // [rows of the step] entries that may not be null
    std::vector<int64_t> slots;
    std::vector<int64_t> slots_begin;  // [config rows + 1]
  };
  uint64_t WidthOf(PoolId pool) const;
  void Write(Arrays* arrays, PoolId pool, size_t line, std::span<const int64_t> table);
  void FillRows(const LogStep& step);
  void FillTable(PoolId pool, RankId rank, const RowTables& tables);
  void FillSlots(PoolId pool, const LogStep& step);
  std::vector<SlotRun> RunsOf(PoolId pool, const LogStep& step, size_t index) const;

  const FenceConfig& config_;
  std::vector<Arrays> arrays_;        // [pool]
  std::vector<Row> lines_;            // rows of the step, live ones first
  std::vector<uint64_t> line_pools_;  // [line] bit p: the line touches pool p
  std::vector<int32_t> row_map_;      // batch row -> line, -1: not in the step
  std::vector<int64_t> lengths_;
  uint64_t touched_ = 0;
  std::vector<RowPlan> rows_;
  std::deque<std::vector<NameId>> loads_;
  std::vector<Row> pads_;
  std::deque<std::vector<Row>> prefix_rows_;
  std::deque<std::vector<int64_t>> prefix_tables_;
  std::vector<PrefixPlan> prefix_;
  std::vector<PoolBuffers> pools_;
  StepEvent event_{};
};

}  // namespace kvfence
