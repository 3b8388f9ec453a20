// The last table of each batch row as a log has shown it, per rank and pool.
//
// It's what `patch` lines build on, and what tells at which step a row's table or binding last
// changed, to the letter of the log. Invariant: null entries at a table's end are never kept, so
// two tables are the same if their words are; the fence's sanitising never reaches these words.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/event_log.h"

namespace kvfence {

// What a null entry is: the null page, or in pools of slot entries the slot of it.
inline int64_t NullEntry(const PoolConfig& pool, uint64_t index) {
  if (!pool.slot_entries) return static_cast<int64_t>(pool.null_page);
  return static_cast<int64_t>(pool.null_page * pool.page_size + index % pool.page_size);
}

class RowTables {
 public:
  explicit RowTables(const FenceConfig& config) : config_(config) {}

  // A `row` event: the row is bound to `req` (with its incarnation; null: let go).
  void Bind(RankId rank, Row row, RequestId req);
  // The row's tables in a step's line; they become its last ones. Returns the last step at which
  // one of them, or the binding, changed: this one, or an earlier one.
  StepId Show(RankId rank, Row row, StepId step, std::span<const LogTable> tables);
  // The row's last table in a pool, empty if none was shown yet. Valid until the next Show.
  const std::vector<int64_t>& Last(RankId rank, Row row, PoolId pool) const;
  // A table as a line shows it, without the null entries at its end; `before` is what it may patch.
  std::vector<int64_t> Whole(std::vector<int64_t> before, const LogTable& table) const;

 private:
  struct Line {
    RequestId bound;
    bool rebound = false;
    StepId changed;
    std::vector<std::vector<int64_t>> tables;  // [pool]
  };
  static uint64_t KeyOf(RankId rank, Row row) { return uint64_t{rank.value()} << 32 | row.value(); }

  const FenceConfig& config_;
  std::unordered_map<uint64_t, Line> lines_;
  std::vector<int64_t> none_;
};

}  // namespace kvfence
