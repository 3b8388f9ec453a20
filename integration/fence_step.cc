// The verbs of a forward pass: Step, Confirm, Retire.
#include <algorithm>

#include "fence_impl.h"
#include "kvfence/check.h"

namespace kvfence {

Fence::Impl::OpenStep* Fence::Impl::FindOpen(StepId step) {
  for (OpenStep& open : open_steps) {
    if (open.step == step) return &open;
  }
  return nullptr;
}

Fence::Impl::OpenStep& Fence::Impl::Open(StepId step) {
  if (OpenStep* open = FindOpen(step)) return *open;
  open_steps.emplace_back().step = step;
  return open_steps.back();
}

Status Fence::Impl::CheckStep(const StepEvent& event) const {
  if (event.rank == kAllRanks) return Status::Invalid("step needs one rank");
  if (Status status = CheckRank(event.rank); !status.ok()) return status;
  const Rank& rank = ranks[event.rank.value()];
  if (!rank.launched.empty() && rank.launched.back() >= event.step) {
    return Status::Invalid("step numbers must grow, got " + std::to_string(event.step.value()) +
                           " after " + std::to_string(rank.launched.back().value()));
  }
  for (const PoolBuffers& buffers : event.pools) {
    if (buffers.pool.value() >= config.pools.size()) {
      return Status::Invalid("step names pool " + std::to_string(buffers.pool.value()) +
                             ", there are " + std::to_string(config.pools.size()));
    }
  }
  return Status();
}

// A device finding becomes a violation: the row task gives row and request.
void Fence::Impl::ReportFindings(Rank& rank, const Gate::Pass& pass, StepId step) {
  const std::span<const RowTask> rows = rank.gate->Rows(step);
  for (const DeviceFinding& finding : pass.findings) {
    const RowTask& row = rows[finding.row_task];
    Violation v;
    v.reason = static_cast<Reason>(finding.reason);
    v.step = static_cast<int64_t>(step.value());
    v.req = RequestId(row.request);
    v.row = row.row;
    v.pool = finding.pool == ~0u ? -1 : static_cast<int64_t>(finding.pool);
    v.at = finding.at == ~0u ? -1 : static_cast<int64_t>(finding.at);
    v.page = v.pool < 0 ? -1 : finding.page;
    v.rank = static_cast<int64_t>(&rank - ranks.data());
    v.expected = finding.expected;
    v.found = finding.found;
    Report(v);
  }
}

Status Fence::Step(const StepEvent& event) {
  if (Status status = impl_->CheckStep(event); !status.ok()) return status;
  Impl::Rank& rank = impl_->ranks[event.rank.value()];
  if (impl_->recorder != nullptr) impl_->recorder->On(event);
  impl_->Begin();
  // In stream order the confirm of an earlier step comes before this step's first launch.
  for (const StepId launched : rank.launched) {
    if (!rank.gate->Confirmed(launched)) impl_->ConfirmPass(rank, launched);
  }
  impl_->last_step = static_cast<int64_t>(event.step.value());
  impl_->Open(event.step);
  const StepPlan* plan = nullptr;
  if (Status status = rank.ledger->Launch(event, &plan); !status.ok()) return status;
  rank.launched.push_back(event.step);
  rank.gate->Apply(rank.journal->Seal(event.step));
  const Gate::Pass& pass = rank.gate->Validate(event, *plan);
  impl_->ReportFindings(rank, pass, event.step);
  const std::vector<uint32_t> dependent = rank.ledger->Judge(event.step, pass.reasons);
  rank.gate->Sanitise(event.step, dependent);

  StepStats stats;
  stats.step = event.step;
  stats.rank = event.rank;
  stats.rows = pass.reasons.size();
  stats.entries = pass.entries;
  stats.validate_ns = pass.validate_ns;
  for (const uint32_t reasons : pass.reasons) {
    stats.rows_failed += reasons != 0;
    stats.rows_unverified += CheckSet(reasons).Has(Reason::kUnverified);
  }
  ++impl_->stats.steps;
  impl_->stats.entries_checked += pass.entries;
  for (EventSink* sink : impl_->sinks) sink->OnStep(stats);
  return Status();
}

void Fence::Impl::ConfirmPass(Rank& rank, StepId step) {
  // Rows that the host failed since validate store nothing.
  const std::span<const LaunchedRow> launched = rank.ledger->Launched(step);
  for (uint32_t i = 0; i < launched.size(); ++i) {
    if (!launched[i].reasons.empty()) rank.gate->FailRow(step, i, launched[i].reasons.mask());
  }
  const Gate::Pass& pass = rank.gate->Confirm(step);
  ReportFindings(rank, pass, step);
  const std::vector<uint32_t> dependent = rank.ledger->Judge(step, pass.reasons);
  for (const uint32_t row : dependent) rank.gate->FailRow(step, row, launched[row].reasons.mask());
}

Status Fence::Confirm(const ConfirmEvent& event) {
  if (Status status = impl_->CheckRank(event.rank); !status.ok()) return status;
  if (event.rank == kAllRanks) return Status::Invalid("confirm needs one rank");
  Impl::Rank& rank = impl_->ranks[event.rank.value()];
  if (std::find(rank.launched.begin(), rank.launched.end(), event.step) == rank.launched.end()) {
    return Status::Invalid("confirm of step " + std::to_string(event.step.value()) +
                           ", which isn't launched on this rank or is retired");
  }
  if (impl_->recorder != nullptr) {
    impl_->recorder->On(event,
                        [&](Row row) { return !RowReasons(event.step, event.rank, row).empty(); });
  }
  impl_->Begin();
  if (!rank.gate->Confirmed(event.step)) impl_->ConfirmPass(rank, event.step);
  return rank.ledger->Confirm(event.step);
}

// What the other ranks know of each row joins: one rank's word is enough to fail a row, and a rank
// without a confirmed pass of this step, or with another picture of it, fails them all.
void Fence::Impl::FailedOnOtherRanks(OpenStep& open) {
  const StepId step = open.step;
  for (Rank& rank : ranks) {
    for (const LaunchedRow& row : rank.ledger->Launched(step)) {
      Reason reason{};
      bool fails = false;
      for (Rank& other : ranks) {
        if (&other == &rank) continue;
        const std::span<const LaunchedRow> there = other.ledger->Launched(step);
        const auto same = std::find_if(there.begin(), there.end(),
                                       [&](const LaunchedRow& r) { return r.row == row.row; });
        if (same == there.end() || !other.gate->Confirmed(step)) {
          reason = Reason::kUnverified;
          fails = true;
        }
      }
      if (!fails || !row.reasons.empty() || !config.checks().Has(reason)) continue;
      Violation v;
      v.reason = reason;
      v.step = static_cast<int64_t>(step.value());
      v.req = row.req;
      v.row = row.row.value();
      v.rank = static_cast<int64_t>(&rank - ranks.data());
      Report(v);
      rank.ledger->Fail(step, row.row, reason);
    }
  }
}

void Fence::Impl::Settle(OpenStep& open) {
  open.settled = true;
  if (ranks.size() > 1) FailedOnOtherRanks(open);
}

namespace {

// Adds one rank's rows to the settlement: the union of the reasons of all ranks.
void Merge(const std::vector<LaunchedRow>& rows, SettlementStore* store) {
  for (const LaunchedRow& row : rows) {
    auto found = std::find_if(store->rows.begin(), store->rows.end(),
                              [&](const RowResult& r) { return r.row == row.row; });
    if (found == store->rows.end()) {
      store->rows.push_back({row.row, row.req, row.reasons, false, row.good_prefix});
    } else {
      found->reasons = found->reasons + row.reasons;
      found->good_prefix = std::min(found->good_prefix, row.good_prefix);
    }
  }
}

Reason FirstReason(CheckSet reasons) {
  for (int i = 0; i < kReasonCount; ++i) {
    if (reasons.Has(static_cast<Reason>(i))) return static_cast<Reason>(i);
  }
  return Reason::kUnverified;
}

}  // namespace

Result<Settlement> Fence::Retire(const RetireEvent& event) {
  if (Status status = impl_->CheckRank(event.rank); !status.ok()) return status;
  Impl::OpenStep* open = impl_->FindOpen(event.step);
  if (open == nullptr) {
    return Status::Invalid("retire of step " + std::to_string(event.step.value()) +
                           ", which isn't launched or is retired");
  }
  if (impl_->recorder != nullptr) impl_->recorder->On(event);
  impl_->Begin();
  if (!open->settled) impl_->Settle(*open);
  SettlementStore& store = open->store;
  std::vector<LaunchedRow> rows;
  for (size_t r = 0; r < impl_->ranks.size(); ++r) {
    if (event.rank != kAllRanks && event.rank.value() != r) continue;
    Impl::Rank& rank = impl_->ranks[r];
    if (rank.launched.empty() || rank.launched.front() > event.step) continue;
    if (rank.launched.front() < event.step) {
      return Status::Invalid("steps retire in order: step " +
                             std::to_string(rank.launched.front().value()) + " comes first");
    }
    if (Status status = rank.ledger->Retire(event.step, &rows); !status.ok()) return status;
    Merge(rows, &store);
    ApplyPolicy(impl_->config.policy, event.step, open->violations, *rank.ledger, &store);
    rank.launched.erase(rank.launched.begin());
    rank.gate->Forget(event.step);
    rank.journal->Settled(event.step);
  }
  for (const RowResult& row : store.rows) {
    if (row.reasons.empty()) continue;
    ++impl_->stats.rows_aborted;
    for (EventSink* sink : impl_->sinks) sink->OnAbort(row.req, FirstReason(row.reasons));
  }
  impl_->result = std::move(store);
  const bool everywhere =
      std::none_of(impl_->ranks.begin(), impl_->ranks.end(), [&](const Impl::Rank& rank) {
        return std::find(rank.launched.begin(), rank.launched.end(), event.step) !=
               rank.launched.end();
      });
  if (everywhere) {
    std::erase_if(impl_->open_steps, [&](const auto& o) { return o.step == event.step; });
  } else {
    open->store = impl_->result;  // the ranks that are still to retire add to it
  }
  const SettlementStore& result = impl_->result;
  return Settlement{event.step,        result.rows,  result.unpublish,
                    result.quarantine, result.storm, result.stop};
}

CheckSet Fence::RowReasons(StepId step, RankId rank, Row row) const {
  for (const LaunchedRow& launched : impl_->ranks[rank.value()].ledger->Launched(step)) {
    if (launched.row == row) return launched.reasons;
  }
  return CheckSet(Reason::kUnverified);
}

}  // namespace kvfence
