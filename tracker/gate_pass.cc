#include "gate_pass.h"

#include <algorithm>

namespace kvfence {

void Gate::InFlight::Reset(StepId step) {
  pass.step = step;
  pass.findings.clear();
  confirmed = false;
  stored = false;
  chunks.clear();
  prefixes.clear();
}

void Gate::InFlight::CopyPlan(const StepEvent& event, const StepPlan& plan, size_t pool_count) {
  rows = plan.rows;
  pool_tasks = plan.pool_tasks;
  write_stamps = plan.write_stamps;
  late_pages = plan.late_pages;
  group_count = plan.group_count;
  work = plan.work;
  tables.assign(pool_count, TableView{});
  slots.assign(pool_count, SlotView{});
  lengths.assign(pool_count, LengthView{});
  for (const PoolBuffers& buffers : event.pools) {
    tables[buffers.pool.value()] = buffers.table;
    slots[buffers.pool.value()] = buffers.slots;
    lengths[buffers.pool.value()] = buffers.lengths;
  }
  prefix_pages.clear();
  for (const PrefixPlan& prefix : event.prefix) {
    prefix_pages.emplace_back(prefix.table.begin(), prefix.table.end());
  }
  for (const auto& pages : prefix_pages) {
    prefixes.push_back({pages.data(), static_cast<uint32_t>(pages.size()), 0});
  }
  pass.reasons.assign(rows.size(), 0);
  verdicts.assign(rows.size(), 0);
  row_reasons.assign(rows.size(), 0);
  group_done.assign(std::max(group_count, 1u), 0);  // element 0 also counts finished blocks
  group_failed.assign(group_count, 0);
  seen_stamps.assign(write_stamps.size(), kNoStamp);
  counters.assign(kCounters, 0);
  finding_count = 0;
  // One finding a place at most: each page looked at, each row, and pages of surplus slots, of
  // which there may be any number: a list that is cut loses no verdict.
  const uint64_t places = work + rows.size() + pool_tasks.size() * 16;
  if (places > finding_capacity) {
    finding_capacity = static_cast<uint32_t>(places + places / 2);
    findings = std::make_unique_for_overwrite<DeviceFinding[]>(finding_capacity);
  }
}

void Gate::InFlight::Fill(StepView& view) const {
  view.rows = rows.data();
  view.row_count = static_cast<uint32_t>(rows.size());
  view.pool_tasks = pool_tasks.data();
  view.pool_task_count = static_cast<uint32_t>(pool_tasks.size());
  view.work = work;
  view.chunks = chunks.data();
  view.write_stamps = write_stamps.data();
  view.late_pages = late_pages.data();
  view.prefixes = prefixes.data();
  view.prefix_count = static_cast<uint32_t>(prefixes.size());
  view.group_count = group_count;
  view.tables = tables.data();
  view.slots = slots.data();
  view.lengths = lengths.data();
}

StepScratch Gate::InFlight::Scratch() {
  StepScratch scratch{};
  scratch.verdicts = verdicts.data();
  scratch.row_reasons = row_reasons.data();
  scratch.group_done = group_done.data();
  scratch.group_failed = group_failed.data();
  scratch.seen_stamps = seen_stamps.data();
  scratch.findings = findings.get();
  scratch.finding_count = &finding_count;
  scratch.finding_capacity = finding_capacity;
  scratch.counters = counters.data();
  return scratch;
}

}  // namespace kvfence
