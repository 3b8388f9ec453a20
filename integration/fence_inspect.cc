// Looking into a fence from outside: incident records for people, device records for fault
// campaigns. Nothing here takes part in a decision (I-16).
#include "fence_impl.h"
#include "kvfence/fence.h"

namespace kvfence {

void Fence::Impl::LogIncidents() const {
  if (incidents == nullptr) return;
  for (const Violation& violation : event_findings) {
    incidents->Add(facade->IncidentJson(violation));
  }
}

std::string Fence::IncidentJson(const Violation& violation) const {
  IncidentRecord record;
  record.violation = violation;
  record.event = impl_->stats.events;
  const auto rank = static_cast<size_t>(violation.rank);
  if (violation.pool >= 0 && violation.page >= 0 && rank < impl_->ranks.size()) {
    const PoolId pool(static_cast<uint32_t>(violation.pool));
    const PageId page(violation.page);
    const auto pages = impl_->config.pools[pool.value()].pages;
    if (static_cast<uint64_t>(violation.page) < pages) {
      record.holders = impl_->ranks[rank].ledger->HoldersOf(pool, page);
    }
    record.history = impl_->history.Of(pool, page);
  }
  const IncidentNames names{
      .request = [this](NameId id) { return NameOf(id); },
      .pool = [this](uint32_t pool) { return std::string_view(impl_->config.pools[pool].name); }};
  return ToJson(record, names);
}

PageRecord* Fence::DeviceRecord(RankId rank, PoolId pool, PageId page) {
  if (rank.value() >= impl_->ranks.size() || pool.value() >= impl_->config.pools.size()) {
    return nullptr;
  }
  if (page.value() < 0 ||
      static_cast<uint64_t>(page.value()) >= impl_->config.pools[pool.value()].pages) {
    return nullptr;
  }
  return &impl_->ranks[rank.value()].gate->RecordForTest(pool, static_cast<uint32_t>(page.value()));
}

}  // namespace kvfence
