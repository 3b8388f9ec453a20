// See step_record.h. Entry decode as TableView's comment has it.
#include "step_record.h"

#include <algorithm>
#include <functional>

namespace kvfence {
namespace {

// Which integers of `entries` belong to the row: [first, first + count).
struct Extent {
  uint64_t first = 0;
  uint64_t count = 0;
};

Extent ExtentOf(const TableView& view, Row row) {
  int64_t line = row.value();
  if (view.row_map.present()) line = view.row_map.Get(row.value());
  if (line < 0 || line >= static_cast<int64_t>(view.rows)) return {};
  const auto r = static_cast<uint64_t>(line);
  Extent extent;
  if (view.layout == TableLayout::kDense) {
    extent = {r * view.stride, view.width};
  } else {
    const int64_t begin = view.indptr.Get(r), end = view.indptr.Get(r + 1);
    if (begin < 0 || end < begin) return {};
    extent = {static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)};
  }
  if (extent.first >= view.entries_size) return {};
  extent.count = std::min(extent.count, view.entries_size - extent.first);
  return extent;
}

int64_t Decode(const TableView& view, int64_t entry) {
  return entry < 0 ? entry : (entry & view.mask) / view.divisor;
}

// `per_page` entries that stand for one page: the page, if they agree; else one that shows it.
int64_t PageOfEntries(const std::vector<int64_t>& units, uint64_t begin, uint64_t per_page) {
  const auto per = static_cast<int64_t>(per_page);
  const int64_t page = units[begin] < 0 ? -1 : units[begin] / per;
  for (uint64_t i = 0; i < per_page && begin + i < units.size(); ++i) {
    const int64_t unit = units[begin + i];
    const int64_t at = unit < 0 ? -1 : unit / per;
    if (at != page) return at;
    if (unit >= 0 && unit % per != static_cast<int64_t>(i)) return -1;
  }
  return page;
}

bool IsNull(const PoolConfig& pool, int64_t word, uint64_t index) {
  if (!pool.slot_entries) return word == static_cast<int64_t>(pool.null_page);
  return word == static_cast<int64_t>(pool.null_page * pool.page_size + index % pool.page_size);
}

}  // namespace

std::vector<int64_t> TableWords(const PoolConfig& pool, const TableView& view, Row row) {
  std::vector<int64_t> words;
  if (!view.entries.present()) return words;
  const Extent extent = ExtentOf(view, row);
  for (uint64_t i = 0; i < extent.count; ++i) {
    words.push_back(Decode(view, view.entries.Get(extent.first + i)));
  }
  if (!pool.slot_entries && view.entries_per_page > 1) {
    std::vector<int64_t> pages;
    for (uint64_t i = 0; i < words.size(); i += view.entries_per_page) {
      pages.push_back(PageOfEntries(words, i, view.entries_per_page));
    }
    words = std::move(pages);
  }
  while (!words.empty() && IsNull(pool, words.back(), words.size() - 1)) words.pop_back();
  return words;
}

RecordedStep::RecordedStep(const FenceConfig& config, const StepEvent& event)
    : buffers_(event.pools.begin(), event.pools.end()) {
  for (const RowPlan& plan : event.rows) {
    LogRow& row = rows_.emplace_back(LogRow{plan, Length(config, plan.row), {}, {}});
    row.plan.loads = loads_.emplace_back(plan.loads.begin(), plan.loads.end());
    row.tables = Tables(config, plan.row, plan.pools);
    row.writes = Writes(config, plan.row, plan.pools, plan.new_tokens, row.len);
  }
  for (const Row line : event.pads) {
    LogPad& pad = pads_.emplace_back(LogPad{line, Length(config, line), {}, {}});
    pad.tables = Tables(config, line, ~uint64_t{0});
    pad.writes = Writes(config, line, ~uint64_t{0}, 0, pad.len);
  }
  for (const PrefixPlan& plan : event.prefix) {
    const auto& rows = prefix_rows_.emplace_back(plan.rows.begin(), plan.rows.end());
    const auto& table = words_.emplace_back(plan.table.begin(), plan.table.end());
    prefix_.push_back({rows, table, plan.pool});
  }
  step_ = {event.step, event.rank, rows_, pads_, prefix_};
}

std::span<const LogTable> RecordedStep::Tables(const FenceConfig& config, Row row, uint64_t pools) {
  std::vector<LogTable>& tables = tables_.emplace_back();
  for (const PoolBuffers& buffers : buffers_) {
    if ((pools >> buffers.pool.value() & 1) == 0) continue;
    const PoolConfig& pool = config.pools[buffers.pool.value()];
    tables.push_back(
        {buffers.pool, false, words_.emplace_back(TableWords(pool, buffers.table, row)), {}});
  }
  return tables;
}

int64_t RecordedStep::Length(const FenceConfig& config, Row row) const {
  for (const PoolBuffers& buffers : buffers_) {
    if (buffers.lengths.values.present() && row.value() < buffers.lengths.rows) {
      return buffers.lengths.values.Get(row.value());
    }
  }
  for (const PoolBuffers& buffers : buffers_) {
    const TableView& view = buffers.table;
    if (view.layout != TableLayout::kCsr || !view.last_page_len.present()) continue;
    const PoolConfig& pool = config.pools[buffers.pool.value()];
    const auto pages = static_cast<int64_t>(ExtentOf(view, row).count);
    if (pages == 0 || row.value() >= view.rows) return 0;
    return (pages - 1) * static_cast<int64_t>(pool.page_size) + view.last_page_len.Get(row.value());
  }
  return 0;
}

// The slots given; where none are, those that follow from the positions of the new tokens.
std::span<const LogWrites> RecordedStep::Writes(const FenceConfig& config, Row row, uint64_t pools,
                                                uint64_t new_tokens, int64_t len) {
  std::vector<LogWrites>& writes = writes_.emplace_back();
  for (const PoolBuffers& buffers : buffers_) {
    if ((pools >> buffers.pool.value() & 1) == 0) continue;
    const PoolConfig& pool = config.pools[buffers.pool.value()];
    std::vector<SlotRun>& runs = runs_.emplace_back();
    const auto add = [&](int64_t slot) {
      const bool follows = !runs.empty() && slot >= 0 && runs.back().first >= 0 &&
                           runs.back().first + static_cast<int64_t>(runs.back().n) == slot;
      if (follows) {
        ++runs.back().n;
      } else {
        runs.push_back({slot, 1});
      }
    };
    const SlotView& slots = buffers.slots;
    if (slots.slots.present() && row.value() < slots.rows) {
      const int64_t end = slots.indptr.Get(row.value() + 1);
      for (int64_t i = slots.indptr.Get(row.value()); i >= 0 && i < end; ++i) {
        if (static_cast<uint64_t>(i) >= slots.slots_size) break;
        add(slots.slots.Get(static_cast<uint64_t>(i)));
      }
    } else if (!slots.slots.present()) {
      const std::vector<int64_t> words = TableWords(pool, buffers.table, row);
      const auto size = static_cast<int64_t>(pool.page_size);
      for (int64_t p = len - static_cast<int64_t>(new_tokens); p < len; ++p) {
        const int64_t index = pool.slot_entries ? p : p / size;
        if (p < 0 || index >= static_cast<int64_t>(words.size())) continue;
        const int64_t word = words[static_cast<size_t>(index)];
        add(pool.slot_entries ? word : word * size + p % size);
      }
    }
    writes.push_back({buffers.pool, runs});
  }
  return writes;
}

LogConfirm RecordedStep::Reread(const FenceConfig& config, const std::function<bool(Row)>& failed) {
  confirm_rows_.clear();
  for (const LogRow& row : rows_) {
    if (failed(row.plan.row)) continue;
    std::vector<LogTable> changed;
    for (const LogTable& now : Tables(config, row.plan.row, row.plan.pools)) {
      const auto then = std::find_if(row.tables.begin(), row.tables.end(),
                                     [&](const LogTable& t) { return t.pool == now.pool; });
      if (!std::ranges::equal(now.entries, then->entries)) changed.push_back(now);
    }
    if (!changed.empty()) {
      confirm_rows_.push_back({row.plan.row, tables_.emplace_back(std::move(changed))});
    }
  }
  return {step_.step, step_.rank, confirm_rows_};
}

}  // namespace kvfence
