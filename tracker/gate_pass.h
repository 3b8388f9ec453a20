// One pass in flight: what it was launched with and its scratch, kept from validate to settle.
//
// Copies, because the ledger's plan and the caller's descriptors are gone when confirm comes; the
// arrays under judgement are not copied: they must be the ones the kernels read.
#pragma once

#include <memory>
#include <vector>

#include "kvfence/gate.h"

namespace kvfence {

struct Gate::InFlight {
  Pass pass;
  bool confirmed = false;
  uint64_t confirmed_at = 0;  // the next batch then
  bool stored = false;        // asked once and stored, since a later step was launched
  std::vector<RowTask> rows;
  std::vector<PoolTask> pool_tasks;
  std::vector<uint32_t> chunks;
  std::vector<kvfence::Stamp> write_stamps;
  std::vector<uint32_t> late_pages;
  // What the rows expected when the pass was stored: later deltas don't change what it was to find.
  std::vector<Expectation> kept;
  std::vector<uint32_t> kept_chunks;
  std::vector<uint32_t> not_yet_late;  // late pages, none of them asked
  std::vector<TableView> tables;
  std::vector<SlotView> slots;
  std::vector<LengthView> lengths;
  std::vector<std::vector<int64_t>> prefix_pages;
  std::vector<PrefixTable> prefixes;
  uint32_t group_count = 0;
  uint64_t work = 0;

  std::vector<VerdictWord> verdicts;
  std::vector<uint32_t> row_reasons;
  std::vector<uint64_t> group_done;
  std::vector<uint32_t> group_failed;
  std::vector<kvfence::Stamp> seen_stamps;
  std::unique_ptr<DeviceFinding[]> findings;
  uint32_t finding_count = 0;
  uint32_t finding_capacity = 0;
  std::vector<uint64_t> counters;

  void Reset(StepId step);
  void CopyPlan(const StepEvent& event, const StepPlan& plan, size_t pool_count);
  void Fill(StepView& view) const;
  StepScratch Scratch();
};

}  // namespace kvfence
