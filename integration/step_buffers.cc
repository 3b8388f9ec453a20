// See the header.
#include "step_buffers.h"

#include <algorithm>
#include <limits>
#include <string>

namespace kvfence {

std::vector<int64_t> ExpandRuns(std::span<const SlotRun> runs, uint64_t most, uint64_t spare) {
  std::vector<int64_t> slots;
  bool surplus = false;  // one that isn't negative
  for (const SlotRun& run : runs) {
    for (uint64_t i = 0; i < run.n; ++i) {
      if (slots.size() >= most + spare && (surplus || run.first < 0)) break;
      surplus = surplus || (slots.size() >= most && run.first >= 0);
      // A run of skipped slots stays where it is; past the largest slot there is none.
      if (run.first < 0) {
        slots.push_back(run.first);
        continue;
      }
      const auto room = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - run.first);
      slots.push_back(run.first + static_cast<int64_t>(std::min(i, room)));
    }
  }
  return slots;
}

uint64_t LaidOutStep::WidthOf(PoolId pool) const {
  const uint64_t own = config_.pools[pool.value()].width;
  return own != 0 ? own : config_.width;
}

void LaidOutStep::Write(Arrays* arrays, PoolId pool, size_t line, std::span<const int64_t> table) {
  const PoolConfig& c = config_.pools[pool.value()];
  int64_t* const entries = arrays->entries.data() + line * WidthOf(pool);
  std::copy(table.begin(), table.end(), entries);
  for (uint64_t i = table.size(); i < arrays->used[line]; ++i) entries[i] = NullEntry(c, i);
  arrays->used[line] = table.size();
}

std::vector<SlotRun> LaidOutStep::RunsOf(PoolId pool, const LogStep& step, size_t index) const {
  const auto of = [&](std::span<const LogWrites> writes) -> std::span<const SlotRun> {
    const auto found = std::ranges::find(writes, pool, &LogWrites::pool);
    return found == writes.end() ? std::span<const SlotRun>() : found->runs;
  };
  if (index >= step.rows.size()) {
    const auto runs = of(step.pads[index - step.rows.size()].writes);
    return {runs.begin(), runs.end()};
  }
  const LogRow& row = step.rows[index];
  const std::span<const SlotRun> runs = of(row.writes);
  const std::span<const SlotRun> drafts = of(row.drafts);
  std::vector<SlotRun> all(runs.begin(), runs.end());
  if (drafts.empty()) return all;
  // Drafts stand behind all new tokens, also where some of those aren't written.
  uint64_t slots = 0;
  for (const SlotRun& run : runs) slots += std::min(run.n, ~uint64_t{0} - slots);
  const int64_t skip = config_.pools[pool.value()].skip_slot.value_or(-1);
  if (slots < row.plan.new_tokens) all.push_back({skip, row.plan.new_tokens - slots});
  all.insert(all.end(), drafts.begin(), drafts.end());
  return all;
}

// Slots lie row by row in batch order, as query_start_loc has them.
void LaidOutStep::FillSlots(PoolId pool, const LogStep& step) {
  Arrays& arrays = arrays_[pool.value()];
  const PoolConfig& c = config_.pools[pool.value()];
  const uint64_t reach = WidthOf(pool) * (c.slot_entries ? 1 : c.page_size);
  const uint64_t places = std::max(reach, c.pages * c.page_size);
  arrays.slots.clear();
  arrays.slots_begin.assign(config_.rows + 1, 0);
  std::vector<std::pair<uint32_t, size_t>> order;  // batch row, line
  for (size_t i = 0; i < lines_.size(); ++i) order.emplace_back(lines_[i].value(), i);
  std::sort(order.begin(), order.end());
  uint32_t row = 0;
  for (const auto& [batch_row, index] : order) {
    for (; row <= batch_row; ++row) {
      arrays.slots_begin[row] = static_cast<int64_t>(arrays.slots.size());
    }
    uint64_t most = places;
    if (index < step.rows.size()) {
      const RowPlan& plan = step.rows[index].plan;
      most = std::min(most, std::min(plan.new_tokens, places) + std::min(plan.draft, places));
    }
    const std::vector<int64_t> slots =
        ExpandRuns(RunsOf(pool, step, index), most, std::min(reach, kSurplusSlots));
    arrays.slots.insert(arrays.slots.end(), slots.begin(), slots.end());
  }
  for (; row <= config_.rows; ++row) {
    arrays.slots_begin[row] = static_cast<int64_t>(arrays.slots.size());
  }
}

// Rows, padded rows and prefixes, copied from the line: the fence may look at them until confirm.
void LaidOutStep::FillRows(const LogStep& step) {
  loads_.clear();
  prefix_rows_.clear();
  prefix_tables_.clear();
  rows_.clear();
  pads_.clear();
  prefix_.clear();
  lines_.clear();
  line_pools_.clear();
  touched_ = 0;
  row_map_.assign(config_.rows, -1);
  lengths_.assign(config_.rows, 0);
  const auto add = [&](Row row, int64_t len, std::span<const LogTable> shown) {
    uint64_t pools = 0;
    for (const LogTable& table : shown) pools |= uint64_t{1} << table.pool.value();
    touched_ |= pools;
    row_map_[row.value()] = static_cast<int32_t>(lines_.size());
    lengths_[row.value()] = len;
    lines_.push_back(row);
    line_pools_.push_back(pools);
    return pools;
  };
  for (const LogRow& row : step.rows) {
    RowPlan& plan = rows_.emplace_back(row.plan);
    plan.loads = loads_.emplace_back(plan.loads.begin(), plan.loads.end());
    plan.pools = add(plan.row, row.len, row.tables);
  }
  for (const LogPad& pad : step.pads) {
    pads_.push_back(pad.row);
    add(pad.row, pad.len, pad.tables);
  }
  for (const PrefixPlan& plan : step.prefix) {
    const auto& rows = prefix_rows_.emplace_back(plan.rows.begin(), plan.rows.end());
    const auto& table = prefix_tables_.emplace_back(plan.table.begin(), plan.table.end());
    prefix_.push_back({rows, table, plan.pool});
  }
}

void LaidOutStep::FillTable(PoolId pool, RankId rank, const RowTables& tables) {
  Arrays& arrays = arrays_[pool.value()];
  const uint64_t width = WidthOf(pool);
  const size_t before = arrays.used.size();
  if (before < lines_.size()) {
    arrays.used.resize(lines_.size(), width);  // all of a new line is to be made null
    arrays.entries.resize(lines_.size() * width);
  }
  for (size_t i = 0; i < lines_.size(); ++i) {
    const bool shown = (line_pools_[i] >> pool.value() & 1) != 0;
    Write(&arrays, pool, i,
          shown ? std::span<const int64_t>(tables.Last(rank, lines_[i], pool))
                : std::span<const int64_t>());
  }
}

Status LaidOutStep::Fill(const LogStep& step, const RowTables& tables) {
  FillRows(step);
  pools_.clear();
  arrays_.resize(config_.pools.size());
  const auto rows = static_cast<uint32_t>(config_.rows);
  for (uint32_t p = 0; p < config_.pools.size(); ++p) {
    const PoolId pool(p);
    if (!Touches(pool)) continue;
    const uint64_t width = WidthOf(pool);
    if (lines_.size() * width > kMaxStepWords) {
      return Status(StatusCode::kResourceExhausted, "a step of " + std::to_string(lines_.size()) +
                                                        " rows of " + std::to_string(width) +
                                                        " entries is too large to play");
    }
    FillTable(pool, step.rank, tables);
    FillSlots(pool, step);
    Arrays& arrays = arrays_[p];
    const PoolConfig& c = config_.pools[p];
    PoolBuffers& buffers = pools_.emplace_back();
    buffers.pool = pool;
    buffers.table.entries = {arrays.entries.data(), 64};
    buffers.table.entries_size = lines_.size() * width;
    buffers.table.stride = buffers.table.width = width;
    buffers.table.rows = static_cast<uint32_t>(lines_.size());
    buffers.table.row_map = {row_map_.data(), 32};
    buffers.table.entries_per_page = c.slot_entries ? static_cast<uint32_t>(c.page_size) : 1;
    const auto count = static_cast<uint64_t>(arrays.slots_begin.back());
    if (arrays.slots.empty()) arrays.slots.push_back(-1);  // a null array would mean "not given"
    buffers.slots = {{arrays.slots.data(), 64}, count, {arrays.slots_begin.data(), 64}, rows};
    buffers.lengths = {{lengths_.data(), 64}, rows};
  }
  event_ = {step.step, step.rank, rows_, pads_, prefix_, pools_};
  return Status();
}

std::span<const int64_t> LaidOutStep::Slots(PoolId pool, size_t index) const {
  const Arrays& arrays = arrays_[pool.value()];
  const uint32_t row = lines_[index].value();
  const auto begin = static_cast<size_t>(arrays.slots_begin[row]);
  const auto end = static_cast<size_t>(arrays.slots_begin[row + 1]);
  return std::span<const int64_t>(arrays.slots).subspan(begin, end - begin);
}

std::vector<int64_t> LaidOutStep::Table(Row row, PoolId pool) const {
  const int32_t line = row.value() < row_map_.size() ? row_map_[row.value()] : -1;
  if (line < 0 || !Touches(pool)) return {};
  const Arrays& arrays = arrays_[pool.value()];
  const auto begin = arrays.entries.begin() +
                     static_cast<std::ptrdiff_t>(static_cast<uint64_t>(line) * WidthOf(pool));
  return {begin, begin + static_cast<std::ptrdiff_t>(arrays.used[static_cast<size_t>(line)])};
}

void LaidOutStep::Patch(Row row, PoolId pool, std::span<const int64_t> table) {
  const int32_t line = row_map_[row.value()];
  if (line < 0 || !Touches(pool)) return;
  Write(&arrays_[pool.value()], pool, static_cast<size_t>(line), table);
}

}  // namespace kvfence
