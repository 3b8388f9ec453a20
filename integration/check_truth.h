// The ground truth of a log: was anything wrong published?
//
// Idea: it plays content itself, slot by slot, and knows nothing of tags, stamps, holders or
// verdict rules. Every write gives birth to content with an id of its own; copies carry ids; a
// request expects, per logical page, the ids that were written for it or for whom it shares with.
// A row read wrongly if a slot that attention read, through the table as it stood on the device,
// held another id than expected, or nothing. Only the fence's verdicts are taken from outside:
// failing rows write and read nothing, and only published rows count.
//
// Invariant: it's a judge, never a party: nothing here reaches the fence.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvfence/check_log.h"
#include "kvfence/config.h"
#include "kvfence/event_log.h"
#include "kvfence/settlement.h"

namespace kvfence {

// A row of a launched step with its tables whole, per pool: what the device holds before the fence
// makes anything harmless.
struct TruthRow {
  Row row;
  RequestId req;  // null: a padded row
  uint64_t new_tokens = 0;
  int64_t len = 0;
  std::span<const NameId> loads{};
  struct Pool {
    PoolId pool;
    std::span<const int64_t> table;  // null entries at the end left out
    std::span<const int64_t> slots;  // one per new token, then draft and surplus ones
  };
  std::vector<Pool> pools;
  bool based = false;  // its length before the step is known to the device only
};

class CheckTruth {
 public:
  explicit CheckTruth(const FenceConfig& config);
  ~CheckTruth();

  // Any event but step, confirm, retire and expect: before or after the fence hears it.
  void On(const LogEvent& event);
  // After the fence judged the step. `fails(row)`: its verdict so far is not clean.
  void OnStep(StepId step, RankId rank, std::span<const TruthRow> rows,
              std::span<const PrefixPlan> prefix, const std::function<bool(Row)>& fails);
  // After the fence confirmed. `changed`: rows that attention read through another table.
  void OnConfirm(StepId step, RankId rank, std::span<const TruthRow> changed,
                 const std::function<bool(Row)>& fails);
  // After the fence settled.
  void OnRetire(StepId step, RankId rank, std::span<const RowResult> rows);

  // Called by OnRetire for each row that was published and had read wrongly; lines are unknown
  // here.
  void set_on_wrong(std::function<void(WrongRead)> on_wrong) { on_wrong_ = std::move(on_wrong); }
  // Tokens of published rows that read wrongly, up to now.
  uint64_t wrong_reads_published() const { return wrong_; }

 private:
  class Rank;
  FenceConfig config_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::function<void(WrongRead)> on_wrong_;
  uint64_t wrong_ = 0;
};

}  // namespace kvfence
