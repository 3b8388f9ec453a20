// A stand-in for a fence that finds nothing: every row is clean and published, but for those that a
// test names. What the player told it last is kept for looking at.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/event.h"
#include "kvfence/log_names.h"
#include "kvfence/settlement.h"
#include "kvfence/status.h"

namespace kvfence {

class OpenFence {
 public:
  NameId Intern(std::string_view name) { return names_.Intern(name); }
  IdentityId InternIdentity(std::span<const IdentityField> f) { return names_.InternIdentity(f); }
  RequestId Latest(NameId name) const {
    const auto found = latest_.find(name);
    return found == latest_.end() ? RequestId() : RequestId(name, found->second);
  }
  RequestId Admit(const AdmitEvent& e) { return RequestId(e.name, ++latest_[e.name]); }
#define KVF_OPEN(verb) \
  Status verb(const verb##Event&) { return Status(); }
  KVF_OPEN(Alloc)
  KVF_OPEN(Share)
  KVF_OPEN(Fork)
  KVF_OPEN(Cow)
  KVF_OPEN(Trim)
  KVF_OPEN(Drop)
  KVF_OPEN(Release)
  KVF_OPEN(Free)
  KVF_OPEN(Publish)
  KVF_OPEN(Unpublish)
  KVF_OPEN(Pin)
  KVF_OPEN(Unpin)
  KVF_OPEN(Ready)
  KVF_OPEN(BindRow)
  KVF_OPEN(Audit)
  KVF_OPEN(Write)
  KVF_OPEN(Read)
  KVF_OPEN(Scale)
  KVF_OPEN(Rescale)
  KVF_OPEN(Copy)
#undef KVF_OPEN

  Status Step(const StepEvent& e) {
    step = e;
    plans.assign(e.rows.begin(), e.rows.end());
    rows_[e.step] = plans;
    return Status();
  }
  // Before this returns, the step's arrays are those that confirm reads.
  Status Confirm(const ConfirmEvent& e) {
    confirmed_.insert(e.step);
    confirmed_words.clear();
    if (step.pools.empty()) return Status();
    const TableView& table = step.pools[0].table;
    for (uint64_t i = 0; i < table.entries_size; ++i)
      confirmed_words.push_back(table.entries.Get(i));
    return Status();
  }
  Result<Settlement> Retire(const RetireEvent& e) {
    results_.clear();
    for (const RowPlan& plan : rows_[e.step]) {
      const CheckSet reasons = fail_at_retire.contains({e.step.value(), plan.row.value()})
                                   ? CheckSet(Reason::kUnverified)
                                   : RowReasons(e.step, RankId(0), plan.row);
      results_.push_back({plan.row, plan.req, reasons, reasons.empty(), 0});
    }
    return Settlement{e.step, results_, {}, {}, false};
  }
  CheckSet RowReasons(StepId at, RankId, Row row) const {
    const std::pair<uint64_t, uint32_t> key{at.value(), row.value()};
    const bool late = confirmed_.contains(at) && fail_at_confirm.contains(key);
    return fail_at_step.contains(key) || late ? CheckSet(Reason::kUnverified) : CheckSet();
  }

  // (step, row) pairs that are found wrong, and when.
  std::set<std::pair<uint64_t, uint32_t>> fail_at_step, fail_at_confirm, fail_at_retire;
  StepEvent step{};  // the last one; its views live as long as the player's step is open
  std::vector<RowPlan> plans;
  std::vector<int64_t> confirmed_words;

 private:
  std::set<StepId> confirmed_;
  LogNames names_;
  std::map<NameId, uint32_t> latest_;
  std::map<StepId, std::vector<RowPlan>> rows_;
  std::vector<RowResult> results_;
};

}  // namespace kvfence
