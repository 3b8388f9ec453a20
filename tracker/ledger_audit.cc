// The audit, and what people ask of the ledger.
//
// Idea: two different questions. Whether the engine's books add up (a page that nobody accounts for
// is a leak: `conservation`), and whether ours do (a broken count of our own stops the process).
#include <algorithm>

#include "kvfence/check.h"
#include "ledger_impl.h"

namespace kvfence {

Status Ledger::Impl::Audit(const AuditEvent& event) {
  BeginEvent();
  AuditPages(event.idle);
  return {};
}

void Ledger::Impl::AuditPages(bool idle) {
  AuditBooks();
  // Asked for by an event it runs at every level that has host checks.
  if (config_.level < Level::kFull || config_.disabled.Has(Reason::kConservation)) return;
  for (uint32_t space = 0; space < pages_.spaces(); ++space) {
    const auto& pages = pages_.pages_of_space(space);
    for (uint32_t i = 0; i < pages.size(); ++i) {
      const Page& p = pages[i];
      if (!TagLive(p.tag) || p.entries != kNone || p.pins != kNone) continue;
      const bool held = p.mappings != kNone;
      // Where pages are freed by their own event, one may wait for it, but not when all is idle.
      if (!idle && (held || explicit_frees())) continue;
      Violation v{
          .reason = Reason::kConservation, .req = {}, .pool = p.owner, .page = i, .found = p.tag};
      v.rank = rank_.value();
      if (held) {
        const ledger::Mapping& m = pages_.mapping(p.mappings);
        v.req = requests_.at(m.inc).id;
        v.at = m.at;
      }
      if (report_) report_(v);
    }
  }
}

void Ledger::Impl::AuditBooks() const {
  uint64_t entries = 0;
  uint64_t mapped = 0;
  for (uint32_t slot = 0; slot < requests_.slots(); ++slot) {
    const Incarnation& inc = requests_.at(slot);
    if (!inc.live) continue;
    for (uint32_t pool = 0; pool < inc.lists.size(); ++pool) {
      for (uint32_t at = 0; at < inc.lists[pool].size(); ++at) {
        const Held& held = inc.lists[pool][at];
        if (held.page == kNoPage) continue;
        ++entries;
        if (held.node == kNone) continue;
        ++mapped;
        const ledger::Mapping& m = pages_.mapping(held.node);
        KVF_CHECK(m.inc == slot && m.pool == pool && m.at == at, "I-5: mapping and entry agree");
        KVF_CHECK(pages_.at(pool, held.page).tag == held.tag, "I-5: holders have the current tag");
      }
    }
  }
  KVF_CHECK(entries == live_entries_, "I-34: live entries are counted");
  uint64_t live = 0;
  uint64_t cached = 0;
  for (uint32_t space = 0; space < pages_.spaces(); ++space) {
    for (const Page& p : pages_.pages_of_space(space)) {
      live += TagLive(p.tag) ? 1 : 0;
      cached += p.entries != kNone ? 1 : 0;
      KVF_CHECK(TagLive(p.tag) || (p.mappings == kNone && p.entries == kNone),
                "I-7: nobody holds a free page");
      KVF_CHECK(p.irregular != kNone || p.settled <= p.fill, "I-30: committed slots are valid");
      for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) --mapped;
    }
  }
  KVF_CHECK(mapped == 0, "I-5: each mapping stands on one page's list");
  KVF_CHECK(live == live_pages_ && cached == cached_pages_, "I-7: live and cached are counted");
}

Ledger::Counts Ledger::Impl::counts() const {
  uint64_t pages = 0;
  for (uint32_t space = 0; space < pages_.spaces(); ++space) {
    pages += pages_.pages_of_space(space).size() - 1;  // the null page is never issued
  }
  return {.ownership_changes = changes_,
          .live_entries = live_entries_,
          .pages_free = pages - live_pages_,
          .pages_live = live_pages_,
          .pages_cached = cached_pages_};
}

std::vector<RequestId> Ledger::Impl::HoldersOf(PoolId pool, PageId page) const {
  std::vector<RequestId> holders;
  if (pool.value() >= config_.pools.size() || !pages_.InRange(pool.value(), page)) return holders;
  const Page& p = pages_.at(pool.value(), static_cast<uint32_t>(page.value()));
  for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
    holders.push_back(requests_.at(pages_.mapping(n).inc).id);
  }
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  return holders;
}

std::vector<KeyId> Ledger::Impl::KeysOf(PoolId pool, PageId page) const {
  std::vector<KeyId> keys;
  if (pool.value() >= config_.pools.size() || !pages_.InRange(pool.value(), page)) return keys;
  const Page& p = pages_.at(pool.value(), static_cast<uint32_t>(page.value()));
  for (uint32_t e = p.entries; e != kNone; e = index_.at(e).next) keys.push_back(index_.at(e).key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

bool Ledger::Impl::IsSuspect(PoolId pool, PageId page) const {
  if (pool.value() >= config_.pools.size() || !pages_.InRange(pool.value(), page)) return false;
  return pages_.at(pool.value(), static_cast<uint32_t>(page.value())).suspect != 0;
}

bool Ledger::Impl::IsCurrent(PoolId pool, PageId page, uint64_t tag) const {
  if (pool.value() >= config_.pools.size() || !pages_.InRange(pool.value(), page)) return false;
  return pages_.at(pool.value(), static_cast<uint32_t>(page.value())).tag == tag;
}

std::vector<std::pair<PoolId, PageId>> Ledger::Impl::WrittenPages(StepId step, Row row) const {
  std::vector<std::pair<PoolId, PageId>> pages;
  const StepRecord* record = steps_.FindOrLast(step.value());
  if (record == nullptr) return pages;
  for (const ledger::SlotWrite& w : record->writes) {
    if (record->launched[w.row].row != row) continue;
    pages.emplace_back(PoolId(w.pool), PageId(w.page));
  }
  // What is promised ahead of a row that had failed when it was launched never comes either.
  for (const ledger::Unwritten& u : record->unwritten) {
    if (record->launched[u.row].row != row || pages_.at(u.pool, u.page).tag != u.tag) continue;
    pages.emplace_back(PoolId(u.pool), PageId(u.page));
  }
  return pages;
}

LedgerView Ledger::Impl::View(RequestId req) const {
  LedgerView view;
  const uint32_t slot = requests_.Find(req);
  if (slot == kNone) return view;
  const Incarnation& inc = requests_.at(slot);
  view.live = true;
  view.length = inc.length;
  for (const auto& list : inc.lists) {
    auto& pool = view.expectations.emplace_back();
    for (const Held& held : list) {
      pool.push_back({.page = held.page, .tag = held.tag, .stamp = held.stamp});
    }
  }
  return view;
}

LedgerPageView Ledger::Impl::ViewPage(PoolId pool, PageId page) const {
  LedgerPageView view;
  if (pool.value() >= config_.pools.size() || !pages_.InRange(pool.value(), page)) return view;
  const Page& p = pages_.at(pool.value(), static_cast<uint32_t>(page.value()));
  view.record = RecordOf(p);
  for (uint64_t i = 0; i < config_.pools[pool.value()].page_size; ++i) {
    view.valid.push_back(content_.Valid(p, i, i + 1));
    view.committed.push_back(content_.Settled(p, i, i + 1));
  }
  view.holders = HoldersOf(pool, page);
  for (uint32_t e = p.entries; e != kNone; e = index_.at(e).next) ++view.index_entries;
  pins_.ForEach(p, [&](uint32_t, uint32_t) { ++view.pins; });
  return view;
}

}  // namespace kvfence
