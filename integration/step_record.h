// A step as its arrays stand, turned into a record that a log can carry.
//
// Any layout of TableView becomes the log's own: pages (or, in pools of slot entries, slots) per
// row, null entries at the end left out. What can't be said in it is said as a page that no pool
// has: a finding stays a finding.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/event.h"
#include "kvfence/event_log.h"

namespace kvfence {

// The words of one row of a table view; `pool` is the view's pool. Plain memory only.
std::vector<int64_t> TableWords(const PoolConfig& pool, const TableView& view, Row row);

// The step's record; its views live as long as this object.
class RecordedStep {
 public:
  RecordedStep(const FenceConfig& config, const StepEvent& event);
  RecordedStep(const RecordedStep&) = delete;
  const LogStep& step() const { return step_; }

  // Rows (not padded ones) for which `failed` is false and whose tables, read again through the
  // same views, differ by now. The record's views live as long as this object.
  LogConfirm Reread(const FenceConfig& config, const std::function<bool(Row)>& failed);

 private:
  std::span<const LogTable> Tables(const FenceConfig& config, Row row, uint64_t pools);
  std::span<const LogWrites> Writes(const FenceConfig& config, Row row, uint64_t pools,
                                    uint64_t new_tokens, int64_t len);
  int64_t Length(const FenceConfig& config, Row row) const;

  std::vector<PoolBuffers> buffers_;
  std::deque<std::vector<int64_t>> words_;
  std::deque<std::vector<LogTable>> tables_;
  std::deque<std::vector<SlotRun>> runs_;
  std::deque<std::vector<LogWrites>> writes_;
  std::deque<std::vector<NameId>> loads_;
  std::vector<LogRow> rows_;
  std::vector<LogPad> pads_;
  std::deque<std::vector<Row>> prefix_rows_;
  std::vector<PrefixPlan> prefix_;
  std::vector<LogConfirmRow> confirm_rows_;
  LogStep step_;
};

}  // namespace kvfence
