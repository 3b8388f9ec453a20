// Plays the records of a log into a fence.
//
// Target is a Fence, or in tests something that has its methods. The player does what an engine
// would: it lays out each step's arrays, keeps them until the step is confirmed, puts the other
// table in place where confirm says so, and asks what may be published. Beside the fence it feeds
// the ground truth. A refusal of the fence ends the log: its words were off.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check_truth.h"
#include "kvfence/event_log.h"
#include "kvfence/fence.h"
#include "kvfence/log_names.h"
#include "row_tables.h"
#include "step_buffers.h"

namespace kvfence {

// A fence's names, as a log's reader asks for them.
template <class Target>
class TargetNames : public NameIntern {
 public:
  explicit TargetNames(Target* target) : target_(target) {}
  NameId Intern(std::string_view name) override { return target_->Intern(name); }
  IdentityId InternIdentity(std::span<const IdentityField> fields) override {
    return target_->InternIdentity(fields);
  }

 private:
  Target* target_;
};

template <class Target>
class Player {
 public:
  // `truth` may be null. `pad_failed(step, row)`: a violation named this padded row.
  Player(Target* target, const FenceConfig& config, CheckTruth* truth,
         std::function<bool(StepId, Row)> pad_failed)
      : target_(target),
        config_(config),
        truth_(truth),
        pad_failed_(std::move(pad_failed)),
        tables_(config_) {}

  // One record that isn't an `expect`. A Status: the fence refused it.
  Status Play(const LogEvent& event) {
    return std::visit([&](const auto& e) { return On(e, event); }, event);
  }

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // rank, step
  static Key KeyOf(RankId rank, StepId step) { return {rank.value(), step.value()}; }

  Status On(const AdmitEvent& e, const LogEvent& event) {
    target_->Admit(e);
    return Told(event, Status());
  }
#define KVF_PLAY(verb) \
  Status On(const verb##Event& e, const LogEvent& event) { return Told(event, target_->verb(e)); }
  KVF_PLAY(Alloc)
  KVF_PLAY(Share)
  KVF_PLAY(Fork)
  KVF_PLAY(Cow)
  KVF_PLAY(Trim)
  KVF_PLAY(Drop)
  KVF_PLAY(Release)
  KVF_PLAY(Free)
  KVF_PLAY(Publish)
  KVF_PLAY(Unpublish)
  KVF_PLAY(Pin)
  KVF_PLAY(Unpin)
  KVF_PLAY(Ready)
  KVF_PLAY(Audit)
  KVF_PLAY(Write)
  KVF_PLAY(Read)
  KVF_PLAY(Scale)
  KVF_PLAY(Rescale)
  KVF_PLAY(Copy)
#undef KVF_PLAY

  Status On(const BindRowEvent& e, const LogEvent& event) {
    RequestId req = e.req;
    if (req && req.incarnation() == 0) req = target_->Latest(req.name());
    tables_.Bind(e.rank, e.row, req);
    return Told(event, target_->BindRow(e));
  }

  Status On(const LogStep& e, const LogEvent&) {
    std::vector<StepId> changed;
    for (const LogRow& row : e.rows) {
      changed.push_back(tables_.Show(e.rank, row.plan.row, e.step, row.tables));
    }
    for (const LogPad& pad : e.pads) tables_.Show(e.rank, pad.row, e.step, pad.tables);
    std::unique_ptr<LaidOutStep> buffers = TakeBuffers();
    if (Status status = buffers->Fill(e, tables_); !status.ok()) return status;
    for (size_t i = 0; i < changed.size(); ++i) buffers->rows()[i].table_changed = changed[i];
    if (Status status = target_->Step(buffers->event()); !status.ok()) return status;
    if (truth_ != nullptr) {
      const std::vector<TruthRow> rows = TruthRows(e, *buffers);
      const std::span<const Row> pads = buffers->event().pads;
      truth_->OnStep(e.step, e.rank, rows, buffers->event().prefix, [&](Row row) {
        const bool pad = std::find(pads.begin(), pads.end(), row) != pads.end();
        return pad ? pad_failed_(e.step, row) : Failed(e.step, e.rank, row);
      });
    }
    open_[KeyOf(e.rank, e.step)] = std::move(buffers);
    return Status();
  }

  Status On(const LogConfirm& e, const LogEvent&) {
    const auto found = open_.find(KeyOf(e.rank, e.step));
    std::deque<std::vector<int64_t>> words;
    std::vector<TruthRow> changed;
    for (const LogConfirmRow& row : e.rows) {
      if (found == open_.end()) break;  // the fence will say so
      if (!found->second->Has(row.row)) {
        return Status::Invalid("confirm names row " + std::to_string(row.row.value()) +
                               ", which isn't in the step");
      }
      TruthRow& other = changed.emplace_back(TruthOf(*found->second, row.row, &words));
      for (const LogTable& table : row.tables) {
        words.push_back(tables_.Whole(found->second->Table(row.row, table.pool), table));
        found->second->Patch(row.row, table.pool, words.back());
        for (TruthRow::Pool& part : other.pools) {
          if (part.pool == table.pool) part.table = words.back();
        }
      }
    }
    if (Status s = target_->Confirm(ConfirmEvent{e.step, e.rank}); !s.ok()) return s;
    if (truth_ != nullptr) {
      truth_->OnConfirm(e.step, e.rank, changed,
                        [&](Row row) { return Failed(e.step, e.rank, row); });
    }
    return Status();
  }

  Status On(const RetireEvent& e, const LogEvent&) {
    Result<Settlement> settlement = target_->Retire(e);
    if (!settlement.ok()) {
      return Status(settlement.status().code(), settlement.status().message());
    }
    if (truth_ != nullptr) truth_->OnRetire(e.step, e.rank, settlement->rows);
    const auto found = open_.find(KeyOf(e.rank, e.step));
    if (found != open_.end()) {
      spare_.push_back(std::move(found->second));
      open_.erase(found);
    }
    return Status();
  }

  Status On(const LogExpect&, const LogEvent&) { return Status(); }

  // The truth hears of an event that the fence took.
  Status Told(const LogEvent& event, Status status) {
    if (status.ok() && truth_ != nullptr) truth_->On(event);
    return status;
  }

  bool Failed(StepId step, RankId rank, Row row) const {
    return !target_->RowReasons(step, rank, row).empty();
  }

  std::unique_ptr<LaidOutStep> TakeBuffers() {
    if (spare_.empty()) return std::make_unique<LaidOutStep>(config_);
    std::unique_ptr<LaidOutStep> buffers = std::move(spare_.back());
    spare_.pop_back();
    return buffers;
  }

  // Rows as the truth wants them; views into the buffers and the tables as last shown.
  std::vector<TruthRow> TruthRows(const LogStep& e, const LaidOutStep& buffers) {
    std::vector<TruthRow> rows;
    const auto add = [&](TruthRow row, std::span<const LogTable> tables) {
      for (const LogTable& table : tables) {
        row.pools.push_back({table.pool, tables_.Last(e.rank, row.row, table.pool),
                             buffers.Slots(table.pool, rows.size())});
      }
      rows.push_back(std::move(row));
    };
    for (const LogRow& row : e.rows) {
      add({row.plan.row,
           row.plan.req,
           row.plan.new_tokens,
           row.len,
           row.plan.loads,
           {},
           row.plan.base.has_value()},
          row.tables);
    }
    for (const LogPad& pad : e.pads) add({pad.row, {}, 0, pad.len, {}, {}}, pad.tables);
    return rows;
  }

  // A row of an open step, with the tables that it had there; `words` keeps them.
  static TruthRow TruthOf(const LaidOutStep& buffers, Row row,
                          std::deque<std::vector<int64_t>>* words) {
    TruthRow result;
    result.row = row;
    for (const RowPlan& plan : buffers.event().rows) {
      if (plan.row != row) continue;
      result.req = plan.req;
      result.new_tokens = plan.new_tokens;
    }
    for (const PoolBuffers& pool : buffers.event().pools) {
      result.len = pool.lengths.values.Get(row.value());
      words->push_back(buffers.Table(row, pool.pool));
      result.pools.push_back({pool.pool, words->back(), {}});
    }
    return result;
  }

  Target* target_;
  FenceConfig config_;
  CheckTruth* truth_;
  std::function<bool(StepId, Row)> pad_failed_;
  RowTables tables_;
  std::map<Key, std::unique_ptr<LaidOutStep>> open_;
  std::vector<std::unique_ptr<LaidOutStep>> spare_;
};

}  // namespace kvfence
