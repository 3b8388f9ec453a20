#include "ledger_steps.h"

#include "kvfence/check.h"

namespace kvfence::ledger {

void StepRecord::Clear() {
  confirmed = false;
  judged = false;
  exports.clear();
  launched.clear();
  rows.clear();
  uses.clear();
  writes.clear();
  unwritten.clear();
  copies.clear();
  let_go.clear();
  reads.clear();
  loads.clear();
}

const PoolUse* StepRecord::UseOf(uint32_t row, uint32_t pool, uint64_t at) const {
  for (uint32_t u = rows[row].uses_begin; u < rows[row].uses_end; ++u) {
    const PoolUse& use = uses[u];
    if (use.pool == pool) return use.first <= at && at < use.end ? &use : nullptr;
  }
  return nullptr;
}

StepRecord& StepBook::Begin(uint64_t step) {
  KVF_CHECK(step >= launched_, "I-33: steps are launched in order");
  if (unused_.empty()) unused_.push_back(std::make_unique<StepRecord>());
  records_.push_back(std::move(unused_.back()));
  unused_.pop_back();
  StepRecord& record = *records_.back();
  record.Clear();
  record.step = step;
  launched_ = step + 1;
  ++launch_count_;
  return record;
}

StepRecord* StepBook::Find(uint64_t step) {
  // Few steps are in flight, and the newest is asked for most.
  for (auto it = records_.rbegin(); it != records_.rend(); ++it) {
    if ((*it)->step == step) return it->get();
  }
  return nullptr;
}

const StepRecord* StepBook::Find(uint64_t step) const {
  return const_cast<StepBook*>(this)->Find(step);
}

const StepRecord* StepBook::FindOrLast(uint64_t step) const {
  if (last_ != nullptr && last_->step == step) return last_.get();
  return Find(step);
}

void StepBook::EndOldest() {
  retired_ = records_.front()->step + 1;
  if (last_ != nullptr) unused_.push_back(std::move(last_));
  last_ = std::move(records_.front());
  records_.pop_front();
}

}  // namespace kvfence::ledger
