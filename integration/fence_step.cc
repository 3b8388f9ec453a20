// The verbs of a forward pass: Step, Confirm, Retire.
#include <algorithm>
#include <optional>

#include "fence_impl.h"
#include "kvfence/check.h"

namespace kvfence {
namespace {

Reason FirstReason(CheckSet reasons) {
  for (int i = 0; i < kReasonCount; ++i) {
    if (reasons.Has(static_cast<Reason>(i))) return static_cast<Reason>(i);
  }
  return Reason::kUnverified;
}

// Rows that the host failed since validate store nothing.
void FailOnGate(Gate* gate, const Ledger& ledger, StepId step) {
  const std::span<const LaunchedRow> launched = ledger.Launched(step);
  for (uint32_t i = 0; i < launched.size(); ++i) {
    if (!launched[i].reasons.empty()) gate->FailRow(step, i, launched[i].reasons.mask());
  }
}

}  // namespace

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
std::vector<Violation> Fence::Impl::Findings(const Rank& rank, const Gate::Pass& pass) const {
  std::vector<Violation> violations;
  const std::span<const RowTask> rows = rank.gate->Rows(pass.step);
  for (const DeviceFinding& finding : pass.findings) {
    const RowTask& row = rows[finding.row_task];
    Violation& v = violations.emplace_back();
    v.reason = static_cast<Reason>(finding.reason);
    v.step = static_cast<int64_t>(pass.step.value());
    v.req = RequestId(row.request);
    v.row = row.row;
    v.pool = finding.pool == ~0u ? -1 : static_cast<int64_t>(finding.pool);
    v.at = finding.at == ~0u ? -1 : static_cast<int64_t>(finding.at);
    v.page = v.pool < 0 ? -1 : finding.page;
    v.rank = static_cast<int64_t>(&rank - ranks.data());
    v.expected = finding.expected;
    v.found = finding.found;
  }
  return violations;
}

Status Fence::Step(const StepEvent& event) {
  if (Status status = impl_->CheckStep(event); !status.ok()) return status;
  Impl::Rank& rank = impl_->ranks[event.rank.value()];
  if (impl_->recorder != nullptr) impl_->recorder->On(event);
  const Impl::Heard heard = impl_->Begin();
  impl_->ConfirmEarlierPasses(rank);
  impl_->last_step = static_cast<int64_t>(event.step.value());
  impl_->Open(event.step);
  const StepPlan* plan = nullptr;
  if (Status status = rank.ledger->Launch(event, &plan); !status.ok()) return status;
  rank.launched.push_back(event.step);
  rank.gate->Apply(rank.journal->Seal(event.step));
  const Gate::Pass& pass = rank.gate->Validate(event, *plan);
  for (const Violation& v : impl_->Findings(rank, pass)) impl_->Report(v);
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

void Fence::Impl::JudgeConfirmed(Rank& rank, const Gate::Pass& pass) {
  const std::vector<uint32_t> dependent = rank.ledger->Judge(pass.step, pass.reasons);
  const std::span<const LaunchedRow> launched = rank.ledger->Launched(pass.step);
  for (const uint32_t row : dependent) {
    rank.gate->FailRow(pass.step, row, launched[row].reasons.mask());
  }
}

// In stream order what earlier steps store comes before this step's first launch. Where their
// confirm hasn't been said yet, what is found now is reported there.
void Fence::Impl::ConfirmEarlierPasses(Rank& rank) {
  if (std::ranges::all_of(rank.launched, [&](StepId step) { return rank.gate->Confirmed(step); })) {
    return;
  }
  for (const StepId step : rank.launched) FailOnGate(rank.gate.get(), *rank.ledger, step);
  rank.gate->ConfirmEarly([&](const Gate::Pass& pass) {
    const std::vector<Violation> found = Findings(rank, pass);
    rank.found_early.insert(rank.found_early.end(), found.begin(), found.end());
    JudgeConfirmed(rank, pass);
  });
}

void Fence::Impl::ApplyEarly(Rank& rank) {
  for (const StepId step : rank.launched) {
    if (!rank.gate->Confirmed(step)) return;
  }
  const StepId last(last_step < 0 ? 0 : static_cast<uint64_t>(last_step));
  rank.gate->Apply(rank.journal->Seal(last));
  if (rank.launched.empty()) rank.journal->Settled(last);
}

void Fence::Impl::ReportEarly(Rank& rank, StepId step) {
  const auto number = static_cast<int64_t>(step.value());
  for (const Violation& v : rank.found_early) {
    if (v.step == number) Report(v);
  }
  std::erase_if(rank.found_early, [&](const Violation& v) { return v.step == number; });
}

void Fence::Impl::ConfirmPass(Rank& rank, StepId step) {
  FailOnGate(rank.gate.get(), *rank.ledger, step);
  const Gate::Pass& pass = rank.gate->Confirm(step);
  ReportEarly(rank, step);
  for (const Violation& v : Findings(rank, pass)) Report(v);
  JudgeConfirmed(rank, pass);
}

Status Fence::Confirm(const ConfirmEvent& event) {
  if (Status status = impl_->CheckRank(event.rank); !status.ok()) return status;
  if (event.rank == kAllRanks) return Status::Invalid("confirm needs one rank");
  Impl::Rank& rank = impl_->ranks[event.rank.value()];
  if (std::find(rank.launched.begin(), rank.launched.end(), event.step) == rank.launched.end()) {
    // Too late: its rows were unverified when it was retired for all ranks.
    if (event.step.value() < rank.retired) return Status();
    return Status::Invalid("confirm of step " + std::to_string(event.step.value()) +
                           ", which isn't launched on this rank or is retired");
  }
  if (impl_->recorder != nullptr) {
    impl_->recorder->On(event,
                        [&](Row row) { return !RowReasons(event.step, event.rank, row).empty(); });
  }
  const Impl::Heard heard = impl_->Begin();
  // Said once more (after a drafter, say), it asks once more.
  const bool again = rank.gate->Confirmed(event.step);
  impl_->ConfirmPass(rank, event.step);
  return again ? Status() : rank.ledger->Confirm(event.step);
}

// I-82: one row on one rank, against all others that have to do with its request: a rank without a
// confirmed pass of this step can't vouch for it, and one with another picture contradicts it.
void Fence::Impl::DecideRow(StepId step, Rank& rank, const LaunchedRow& row) {
  if (!rank.gate->Confirmed(step)) return;  // its own ledger says so
  std::optional<Reason> reason;
  for (const Rank& other : ranks) {
    if (&other == &rank || !other.ledger->Knows(row.req)) continue;
    const std::span<const LaunchedRow> there = other.ledger->Launched(step);
    const auto same = std::ranges::find(there, row.row, &LaunchedRow::row);
    if (!other.gate->Confirmed(step)) {
      reason = Reason::kUnverified;
      break;
    }
    if (same == there.end() || same->digest != row.digest) reason = Reason::kRankDivergence;
  }
  if (!reason || !config.checks().Has(*reason)) return;
  Violation v;
  v.reason = *reason;
  v.step = static_cast<int64_t>(step.value());
  v.req = row.req;
  v.row = row.row.value();
  v.rank = static_cast<int64_t>(&rank - ranks.data());
  Report(v);
  rank.ledger->Fail(step, row.row, *reason);
}

// A row that failed on one rank isn't published at all (see Merge): only rows that each rank took
// for clean are compared.
void Fence::Impl::DecideOverRanks(OpenStep& open) {
  open.decided = true;
  if (ranks.size() < 2) return;
  std::vector<std::pair<Rank*, LaunchedRow>> clean;
  struct VoidHere {
    Rank* rank;
    LaunchedRow row;
    CheckSet reasons;
  };
  std::vector<VoidHere> void_here;
  for (Rank& rank : ranks) {
    for (const LaunchedRow& row : rank.ledger->Launched(open.step)) {
      CheckSet reasons;
      for (const Rank& other : ranks) {
        for (const LaunchedRow& there : other.ledger->Launched(open.step)) {
          if (there.row == row.row && there.req == row.req) reasons = reasons + there.reasons;
        }
      }
      if (reasons.empty()) clean.emplace_back(&rank, row);
      if (!reasons.empty() && row.reasons.empty()) void_here.push_back({&rank, row, reasons});
    }
  }
  // One verdict over all ranks: what failed on one is void on each.
  for (const auto& [rank, row, reasons] : void_here) {
    rank->ledger->Fail(open.step, row.row, FirstReason(reasons));
  }
  for (const auto& [rank, row] : clean) DecideRow(open.step, *rank, row);
}

namespace {

// The settlement's row of that number, null if it has none. Ranks launch the same rows, most often
// in the same order: `guess` is the place to look at first.
RowResult* FindRow(SettlementStore* store, Row row, size_t guess) {
  std::vector<RowResult>& rows = store->rows;
  if (guess < rows.size() && rows[guess].row == row) return &rows[guess];
  const auto found = std::ranges::find(rows, row, &RowResult::row);
  return found == rows.end() ? nullptr : &*found;
}

// Adds one rank's rows to the settlement: the union of the reasons of all ranks.
void Merge(const std::vector<LaunchedRow>& rows, SettlementStore* store) {
  const bool first = store->rows.empty();  // no row stands twice in one rank
  if (first) store->rows.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const LaunchedRow& row = rows[i];
    RowResult* found = first ? nullptr : FindRow(store, row.row, i);
    if (found == nullptr) {
      store->rows.push_back({row.row, row.req, row.reasons, false, row.good_prefix});
    } else {
      found->reasons = found->reasons + row.reasons;
      found->good_prefix = std::min(found->good_prefix, row.good_prefix);
    }
  }
}

}  // namespace

// What the device found wrong about a page's record or content stays wrong while the page is kept,
// whatever the books say of it: it's no part of what a request may keep.
void Fence::Impl::CutPrefixes(OpenStep& open) const {
  constexpr CheckSet kStays = kContentReasons + Reason::kTagMismatch + Reason::kNotCommitted;
  for (const Violation& v : open.violations) {
    if (v.row < 0 || v.at < 0 || v.pool < 0 || !kStays.Has(v.reason)) continue;
    const uint64_t size = config.pools[static_cast<size_t>(v.pool)].page_size;
    for (RowResult& row : open.store.rows) {
      if (row.row.value() != static_cast<uint64_t>(v.row)) continue;
      row.good_prefix = std::min(row.good_prefix, static_cast<uint64_t>(v.at) * size);
    }
  }
}

Status Fence::Impl::RetireOn(Rank& rank, OpenStep& open) {
  const StepId step = open.step;
  if (rank.launched.empty() || rank.launched.front() > step) return Status();
  if (rank.launched.front() < step) {
    return Status::Invalid("steps retire in order: step " +
                           std::to_string(rank.launched.front().value()) + " comes first");
  }
  if (Status status = rank.ledger->Retire(step, &retired_rows); !status.ok()) return status;
  Merge(retired_rows, &open.store);
  // What ranks that are still to retire know of a row counts as well (I-9).
  for (const Rank& other : ranks) {
    if (&other == &rank) continue;
    const auto& launched = other.ledger->Launched(step);
    for (size_t i = 0; i < launched.size(); ++i) {
      RowResult* row = FindRow(&open.store, launched[i].row, i);
      if (row == nullptr || row->req != launched[i].req) continue;
      row->reasons = row->reasons + launched[i].reasons;
    }
  }
  CutPrefixes(open);
  ApplyPolicy(config.policy, step, open.violations, *rank.ledger, &open.store);
  rank.launched.erase(rank.launched.begin());
  rank.retired = step.value() + 1;
  rank.gate->Forget(step);
  rank.journal->Settled(step);
  return Status();
}

Result<Settlement> Fence::Retire(const RetireEvent& event) {
  if (Status status = impl_->CheckRank(event.rank); !status.ok()) return status;
  Impl::OpenStep* open = impl_->FindOpen(event.step);
  if (open == nullptr) {
    // Said for each rank, where it was said for all of them already.
    const bool said =
        event.rank != kAllRanks && event.step.value() < impl_->ranks[event.rank.value()].retired;
    if (said) return Settlement{.step = event.step};
    return Status::Invalid("retire of step " + std::to_string(event.step.value()) +
                           ", which isn't launched or is retired");
  }
  if (impl_->recorder != nullptr) impl_->recorder->On(event);
  const Impl::Heard heard = impl_->Begin();
  const auto asked = [&](size_t r) { return event.rank == kAllRanks || event.rank.value() == r; };
  for (size_t r = 0; r < impl_->ranks.size(); ++r) {
    if (asked(r)) impl_->ReportEarly(impl_->ranks[r], event.step);
  }
  if (!open->decided) impl_->DecideOverRanks(*open);
  open->violations.insert(open->violations.end(), impl_->suspect_pages.begin(),
                          impl_->suspect_pages.end());
  impl_->suspect_pages.clear();
  std::vector<KeyId>& unpublish = open->store.unpublish;
  unpublish.insert(unpublish.end(), impl_->stale_keys.begin(), impl_->stale_keys.end());
  impl_->stale_keys.clear();
  for (size_t r = 0; r < impl_->ranks.size(); ++r) {
    if (!asked(r)) continue;
    if (Status status = impl_->RetireOn(impl_->ranks[r], *open); !status.ok()) return status;
  }
  for (const RowResult& row : open->store.rows) {
    if (row.reasons.empty() || !open->told.insert(row.row).second) continue;
    ++impl_->stats.rows_aborted;
    for (EventSink* sink : impl_->sinks) sink->OnAbort(row.req, FirstReason(row.reasons));
  }
  impl_->result = open->store;  // ranks that are still to retire add to it
  if (std::ranges::none_of(impl_->ranks, [&](const Impl::Rank& rank) {
        return std::ranges::find(rank.launched, event.step) != rank.launched.end();
      })) {
    std::erase_if(impl_->open_steps, [&](const auto& o) { return o.step == event.step; });
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
