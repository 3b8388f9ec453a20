// See the header.
#include "row_tables.h"

#include <utility>

namespace kvfence {

void RowTables::Bind(RankId rank, Row row, RequestId req) {
  const uint32_t first = rank == kAllRanks ? 0 : rank.value();
  const uint32_t end = rank == kAllRanks ? static_cast<uint32_t>(config_.ranks) : first + 1;
  for (uint32_t r = first; r < end; ++r) {
    Line& line = lines_[KeyOf(RankId(r), row)];
    line.rebound |= line.bound != req;
    line.bound = req;
  }
}

std::vector<int64_t> RowTables::Whole(std::vector<int64_t> before, const LogTable& table) const {
  const PoolConfig& pool = config_.pools[table.pool.value()];
  std::vector<int64_t> words = std::move(before);
  if (table.is_patch) {
    for (const TableEdit& edit : table.edits) {
      for (uint64_t i = words.size(); i <= edit.index; ++i) words.push_back(NullEntry(pool, i));
      words[edit.index] = edit.page;
    }
  } else {
    words.assign(table.entries.begin(), table.entries.end());
  }
  while (!words.empty() && words.back() == NullEntry(pool, words.size() - 1)) words.pop_back();
  return words;
}

StepId RowTables::Show(RankId rank, Row row, StepId step, std::span<const LogTable> tables) {
  Line& line = lines_[KeyOf(rank, row)];
  const bool first = line.tables.empty();
  if (first) line.tables.resize(config_.pools.size());
  bool changed = first || line.rebound;
  line.rebound = false;
  for (const LogTable& table : tables) {
    std::vector<int64_t> words = Whole(table.is_patch ? Last(rank, row, table.pool) : none_, table);
    std::vector<int64_t>& last = line.tables[table.pool.value()];
    changed |= words != last;
    last = std::move(words);
  }
  if (changed) line.changed = step;
  return line.changed;
}

const std::vector<int64_t>& RowTables::Last(RankId rank, Row row, PoolId pool) const {
  const auto found = lines_.find(KeyOf(rank, row));
  if (found == lines_.end() || found->second.tables.empty()) return none_;
  return found->second.tables[pool.value()];
}

}  // namespace kvfence
