// The ledger's whole state as deltas: what a gate that lost the journal begins anew from.
//
// Idea: the same calls that told the state bit by bit tell it at once, so a gate needs no second
// way to understand them. I-91: only while nothing is in flight, since a launched row's writes
// stand in the books from its launch on, and a gate takes them over only at confirm.
#include "kvfence/validate.h"
#include "ledger_impl.h"

namespace kvfence {
namespace {

// As a gate begins. A page that was never issued may have content all the same: somebody's mistake.
bool Untouched(const PageRecord& record) {
  return record.tag == 0 && record.fill_flags == 0 && record.scale == 0 && record.stamp == kNoStamp;
}

}  // namespace

Status Ledger::Impl::Snapshot(DeltaSink* to) const {
  if (!steps_.empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "a snapshot needs all launched steps to be retired");
  }
  for (uint32_t p = 0; p < config_.pools.size(); ++p) {
    if (scale_epochs_[p] != 0) to->ScaleEpoch(PoolId(p), scale_epochs_[p]);
    const std::vector<Page>& pages = pages_.pages_of_space(pages_.space_of(p));
    for (uint32_t i = 0; i < pages.size(); ++i) {
      const PageRecord record = RecordOf(pages[i]);
      if (Untouched(record)) continue;
      to->Page(PoolId(p), i, kApplyTag | kApplyFlags | kApplyContent, record);
    }
  }
  for (uint32_t slot = 0; slot < requests_.slots(); ++slot) {
    const Incarnation& inc = requests_.at(slot);
    if (!inc.live) continue;
    for (uint32_t p = 0; p < inc.lists.size(); ++p) {
      const std::vector<Held>& list = inc.lists[p];
      if (!list.empty()) to->Resize(inc.id, PoolId(p), static_cast<uint32_t>(list.size()));
      for (uint32_t at = 0; at < list.size(); ++at) {
        const Held& held = list[at];
        if (held.page == kNoPage) continue;
        to->Expect(inc.id, PoolId(p), at,
                   {.page = held.page, .tag = held.tag, .stamp = held.stamp});
      }
    }
  }
  for (uint32_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].req) to->Bind(Row(r), rows_[r].req);
  }
  return {};
}

}  // namespace kvfence
