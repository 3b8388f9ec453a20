// The ledger's face: every call goes to its inside as it is.
#include "kvfence/ledger.h"

#include <utility>

#include "ledger_impl.h"

namespace kvfence {

Ledger::Ledger(const FenceConfig& config, RankId rank, DeltaSink* deltas,
               std::function<void(const Violation&)> report)
    : impl_(std::make_unique<Impl>(config, rank, deltas, std::move(report))) {}
Ledger::~Ledger() = default;

RequestId Ledger::Admit(const AdmitEvent& event) { return impl_->Admit(event); }
RequestId Ledger::Latest(NameId name) const { return impl_->requests().Latest(name); }
Status Ledger::Alloc(const AllocEvent& event) { return impl_->Alloc(event); }
Status Ledger::Share(const ShareEvent& event) { return impl_->Share(event); }
Status Ledger::Fork(const ForkEvent& event) { return impl_->Fork(event); }
Status Ledger::Cow(const CowEvent& event) { return impl_->Cow(event); }
Status Ledger::Trim(const TrimEvent& event) { return impl_->Trim(event); }
Status Ledger::Drop(const DropEvent& event) { return impl_->Drop(event); }
Status Ledger::Release(const ReleaseEvent& event) { return impl_->Release(event); }
Status Ledger::Free(const FreeEvent& event) { return impl_->Free(event); }
Status Ledger::Publish(const PublishEvent& event) { return impl_->Publish(event); }
Status Ledger::Unpublish(const UnpublishEvent& event) { return impl_->Unpublish(event); }
Status Ledger::Pin(const PinEvent& event) { return impl_->Pin(event); }
Status Ledger::Unpin(const UnpinEvent& event) { return impl_->Unpin(event); }
Status Ledger::Ready(const ReadyEvent& event) { return impl_->Ready(event); }
Status Ledger::BindRow(const BindRowEvent& event) { return impl_->BindRow(event); }
Status Ledger::Audit(const AuditEvent& event) { return impl_->Audit(event); }
Status Ledger::Write(const WriteEvent& event) { return impl_->Write(event); }
Status Ledger::Read(const ReadEvent& event) { return impl_->Read(event); }
Status Ledger::Scale(const ScaleEvent& event) { return impl_->Scale(event); }
Status Ledger::Rescale(const RescaleEvent& event) { return impl_->Rescale(event); }
Status Ledger::Copy(const CopyEvent& event) { return impl_->Copy(event); }

Status Ledger::Launch(const StepEvent& event, const StepPlan** plan) {
  return impl_->Launch(event, plan);
}
std::vector<uint32_t> Ledger::Judge(StepId step, std::span<const uint32_t> reasons) {
  return impl_->Judge(step, reasons);
}
Status Ledger::Confirm(StepId step) { return impl_->Confirm(step); }
Status Ledger::Retire(StepId step, std::vector<LaunchedRow>* rows) {
  return impl_->Retire(step, rows);
}
void Ledger::Fail(StepId step, Row row, Reason reason) { impl_->Fail(step, row, reason); }

bool Ledger::Knows(RequestId req) const {
  const RequestId latest = impl_->requests().Latest(req.name());
  return latest && req.incarnation() <= latest.incarnation();
}
bool Ledger::IsLaunched(StepId step) const { return impl_->steps().Find(step.value()) != nullptr; }
std::span<const LaunchedRow> Ledger::Launched(StepId step) const {
  const ledger::StepRecord* record = impl_->steps().Find(step.value());
  if (record == nullptr) return {};
  return record->launched;
}
Status Ledger::Snapshot(DeltaSink* to) const { return impl_->Snapshot(to); }
Ledger::Counts Ledger::counts() const { return impl_->counts(); }
std::vector<RequestId> Ledger::HoldersOf(PoolId pool, PageId page) const {
  return impl_->HoldersOf(pool, page);
}
std::vector<KeyId> Ledger::KeysOf(PoolId pool, PageId page) const {
  return impl_->KeysOf(pool, page);
}
bool Ledger::IsSuspect(PoolId pool, PageId page) const { return impl_->IsSuspect(pool, page); }
bool Ledger::IsCurrent(PoolId pool, PageId page, uint64_t tag) const {
  return impl_->IsCurrent(pool, page, tag);
}
std::vector<std::pair<PoolId, PageId>> Ledger::WrittenPages(StepId step, Row row) const {
  return impl_->WrittenPages(step, row);
}
LedgerView Ledger::View(RequestId req) const { return impl_->View(req); }
LedgerPageView Ledger::ViewPage(PoolId pool, PageId page) const {
  return impl_->ViewPage(pool, page);
}

}  // namespace kvfence
