// The verbs that say what the engine's bookkeeping and its movers did.
#include "kvfence/fence.h"

#include <algorithm>
#include <utility>

#include "fence_impl.h"

namespace kvfence {

Fence::Impl::Impl(const FenceConfig& config_in, std::vector<EventSink*> sinks_in)
    : config(config_in), sinks(std::move(sinks_in)) {
  std::vector<uint64_t> pages;
  for (const PoolConfig& pool : config.pools) pages.push_back(pool.pages);
  for (uint32_t r = 0; r < config.ranks; ++r) {
    Rank rank;
    rank.journal = std::make_unique<Journal>(pages);
    rank.gate = std::make_unique<Gate>(config, RankId(r));
    rank.ledger = std::make_unique<Ledger>(config, RankId(r), rank.journal.get(),
                                           [this](const Violation& v) { Report(v); });
    ranks.push_back(std::move(rank));
  }
}

Fence::Impl::Heard Fence::Impl::Begin() {
  ++stats.events;
  event_findings.clear();
  return Heard(this);
}

void Fence::Impl::Report(const Violation& violation) {
  const bool asked = auditing && violation.reason == Reason::kConservation;
  if (!config.checks().Has(violation.reason) && !asked) return;
  if (comparing_ranks && violation.step < 0 && violation.row < 0) {
    compared.push_back(violation);
    return;
  }
  // The same finding of another rank about the same event is this finding.
  for (size_t i = 0; i < event_findings.size() && ranks.size() > 1; ++i) {
    const Violation& seen = event_findings[i];
    if (seen.rank != violation.rank && seen.reason == violation.reason &&
        seen.req == violation.req && seen.row == violation.row && seen.pool == violation.pool &&
        seen.at == violation.at && seen.page == violation.page && seen.step == violation.step) {
      return;
    }
  }
  OpenStep* open =
      violation.step < 0 ? nullptr : FindOpen(StepId(static_cast<uint64_t>(violation.step)));
  // What a launch says of no row (a lease) is the same at each rank's launch of the step.
  if (open != nullptr && violation.row < 0) {
    for (const Violation& seen : open->violations) {
      if (seen.rank != violation.rank && seen.reason == violation.reason &&
          seen.pool == violation.pool && seen.page == violation.page && seen.row < 0) {
        return;
      }
    }
  }
  event_findings.push_back(violation);
  ++stats.violations;
  if (violation.step >= 0) {
    if (open != nullptr) open->violations.push_back(violation);
  } else if (violation.page >= 0) {
    suspect_pages.push_back(violation);
  }
  for (EventSink* sink : sinks) sink->OnViolation(violation);
}

void Fence::Impl::ReportCompared() {
  const std::vector<Violation> all = std::exchange(compared, {});
  // As each ledger does: what is wrong in the books comes before what the page holds.
  const auto before = [](Reason a, Reason b) {
    const bool books_a = a > Reason::kUnverified, books_b = b > Reason::kUnverified;
    return books_a != books_b ? books_a : a < b;
  };
  for (const Violation& violation : all) {
    const bool first = std::ranges::none_of(all, [&](const Violation& other) {
      return other.rank != violation.rank && before(other.reason, violation.reason) &&
             other.req == violation.req && other.pool == violation.pool &&
             other.at == violation.at && other.page == violation.page;
    });
    if (first) Report(violation);
  }
}

void Fence::Impl::NoteStaleKeys(const ShareEvent& event) {
  for (const Violation& v : event_findings) {
    // An entry that the ledger doesn't know can't leave the index either.
    if (v.reason != Reason::kStaleIndexEntry || v.expected == 0) continue;
    for (size_t i = 0; i < event.keys.size(); ++i) {
      if (event.pages[i].value() == v.page) stale_keys.push_back(event.keys[i]);
    }
  }
}

void Fence::Impl::Note(PoolId pool, std::span<const PageId> pages, PageVerb verb, RequestId req) {
  for (const PageId page : pages) {
    // The event that is about to begin.
    history.Append({stats.events + 1, last_step, req, pool.value(), page.value(), verb});
  }
}

Status Fence::Impl::CheckRank(RankId rank) const {
  if (rank == kAllRanks || rank.value() < config.ranks) return Status();
  return Status::Invalid("rank must be below " + std::to_string(config.ranks) + ", got " +
                         std::to_string(rank.value()));
}

Fence::Fence(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Fence::~Fence() = default;

Result<std::unique_ptr<Fence>> Fence::Create(const FenceConfig& config,
                                             std::vector<EventSink*> sinks) {
  if (Status status = CheckConfig(config); !status.ok()) return status;
  std::unique_ptr<Fence> fence(new Fence(std::make_unique<Impl>(config, std::move(sinks))));
  fence->impl_->facade = fence.get();
  for (const Violation& violation : CheckGeometry(config)) fence->impl_->Report(violation);
  return fence;
}

NameId Fence::Intern(std::string_view name) { return impl_->names.Intern(name); }
std::string_view Fence::NameOf(NameId id) const { return impl_->names.NameOf(id); }
IdentityId Fence::InternIdentity(std::span<const IdentityField> fields) {
  return impl_->names.InternIdentity(fields);
}
const NameLookup& Fence::names() const { return impl_->names; }
void Fence::Record(EventLogWriter* writer) { impl_->recorder = writer; }
void Fence::LogIncidents(IncidentLog* log) {
  impl_->incidents = log;
  if (impl_->stats.events == 0) impl_->LogIncidents();  // what its own geometry says
}

RequestId Fence::Latest(NameId name) const { return impl_->ranks[0].ledger->Latest(name); }

RequestId Fence::Admit(const AdmitEvent& event) {
  if (impl_->recorder != nullptr) impl_->recorder->On(event);
  const Impl::Heard heard = impl_->Begin();
  RequestId admitted;
  for (size_t r = 0; r < impl_->ranks.size(); ++r) {
    if (event.rank != kAllRanks && event.rank.value() != r) continue;
    admitted = impl_->ranks[r].ledger->Admit(event);
  }
  return admitted;
}

Status Fence::Alloc(const AllocEvent& event) {
  impl_->Note(event.pool, event.pages, PageVerb::kAlloc, event.req);
  return impl_->ToLedgers(event, event.rank, &Ledger::Alloc);
}

Status Fence::Share(const ShareEvent& event) {
  impl_->Note(event.pool, event.pages, PageVerb::kShare, event.req);
  Status status = impl_->ToLedgers(event, event.rank, &Ledger::Share);
  impl_->NoteStaleKeys(event);
  return status;
}

Status Fence::Fork(const ForkEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Fork);
}

Status Fence::Cow(const CowEvent& event) {
  impl_->Note(event.pool, {&event.page, 1}, PageVerb::kCow, event.req);
  return impl_->ToLedgers(event, event.rank, &Ledger::Cow);
}

Status Fence::Trim(const TrimEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Trim);
}

Status Fence::Drop(const DropEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Drop);
}

Status Fence::Release(const ReleaseEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Release);
}

Status Fence::Free(const FreeEvent& event) {
  impl_->Note(event.pool, event.pages, PageVerb::kFree, {});
  return impl_->ToLedgers(event, event.rank, &Ledger::Free);
}

Status Fence::Publish(const PublishEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Publish);
}

Status Fence::Unpublish(const UnpublishEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Unpublish);
}

Status Fence::Pin(const PinEvent& event) {
  impl_->Note(event.pool, event.pages, PageVerb::kPin, event.req);
  return impl_->ToLedgers(event, event.rank, &Ledger::Pin);
}

Status Fence::Unpin(const UnpinEvent& event) {
  // The copy has ended: what it wrote counts from now on, also for a step that loads layer by
  // layer.
  return impl_->ToDevices(event, event.rank, &Ledger::Unpin);
}

Status Fence::Ready(const ReadyEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Ready);
}

Status Fence::BindRow(const BindRowEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::BindRow);
}

Status Fence::Audit(const AuditEvent& event) {
  // Asked for by name, an audit answers at level full too; at level audit each retire asks.
  impl_->auditing =
      impl_->config.level >= Level::kFull && !impl_->config.disabled.Has(Reason::kConservation);
  Status status = impl_->ToLedgers(event, event.rank, &Ledger::Audit);
  impl_->auditing = false;
  return status;
}

Status Fence::Write(const WriteEvent& event) {
  impl_->Note(event.pool, {&event.page, 1}, PageVerb::kWrite, event.as.req);
  return impl_->ToDevices(event, event.rank, &Ledger::Write);
}

Status Fence::Read(const ReadEvent& event) {
  impl_->Note(event.pool, {&event.page, 1}, PageVerb::kRead, {});
  return impl_->ToLedgers(event, event.rank, &Ledger::Read);
}

Status Fence::Scale(const ScaleEvent& event) {
  return impl_->ToDevices(event, event.rank, &Ledger::Scale);
}

Status Fence::Rescale(const RescaleEvent& event) {
  return impl_->ToLedgers(event, event.rank, &Ledger::Rescale);
}

Status Fence::Copy(const CopyEvent& event) {
  impl_->Note(event.to_pool, {&event.to, 1}, PageVerb::kCopy, {});
  return impl_->ToDevices(event, event.rank, &Ledger::Copy);
}

Fence::Stats Fence::stats() const {
  Stats stats = impl_->stats;
  for (const Impl::Rank& rank : impl_->ranks) {
    const Ledger::Counts counts = rank.ledger->counts();
    stats.ownership_changes += counts.ownership_changes;
    stats.device_bytes_pages += rank.gate->page_bytes();
    stats.device_bytes_expectations += rank.gate->expectation_bytes();
    stats.live_entries += rank.gate->live_entries();
    stats.launch_ns += rank.gate->launch_ns();
  }
  return stats;
}

const FenceConfig& Fence::config() const { return impl_->config; }

}  // namespace kvfence
