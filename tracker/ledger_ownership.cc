// Ownership verbs: who takes, forks, moves, gives up and returns pages.
//
// Idea: each verb is a few moves of ledger_impl; what is judged here is only what the allocator did
// wrong (issued_while_held, freed_while_held, double_free, in_flight) and which request is meant.
#include <algorithm>
#include <string>

#include "kvfence/check.h"
#include "kvfence/validate.h"
#include "ledger_impl.h"

namespace kvfence {

RequestId Ledger::Impl::Admit(const AdmitEvent& event) {
  BeginEvent();
  if (requests_.LatestLives(event.name)) {
    Report(Reason::kIdentityReused, {.req = requests_.Latest(event.name)});
  }
  const uint32_t slot = requests_.Admit(event.name, event.identity);
  return requests_.at(slot).id;
}

Status Ledger::Impl::Alloc(const AllocEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  const uint32_t pool = event.pool.value();
  for (const PageId page : event.pages) {
    if (!pages_.InRange(pool, page)) continue;
    if (!TagExhausted(pages_.at(pool, static_cast<uint32_t>(page.value())).tag)) continue;
    return Status(StatusCode::kResourceExhausted,  // I-2
                  "page " + std::to_string(page.value()) + " has used up its tags: it is retired");
  }
  const uint32_t slot = requests_.Find(event.req);
  if (slot != kNone) {
    const Incarnation& inc = requests_.at(slot);
    const uint64_t at = event.at.value_or(inc.lists[pool].size());
    if (Status s = CheckGrowth(inc, pool, at, event.pages.size()); !s.ok()) return s;
  }
  BeginEvent();
  if (Living(event.req) == kNone) return {};
  const uint64_t at = event.at.value_or(requests_.at(slot).lists[pool].size());
  if (at + event.pages.size() > requests_.at(slot).lists[pool].size()) {
    Resize(slot, pool, at + event.pages.size());
  }
  const RequestId id = requests_.at(slot).id;
  const uint64_t serial = requests_.at(slot).serial;
  for (size_t i = 0; i < event.pages.size(); ++i) {
    const auto k = static_cast<uint32_t>(at + i);
    if (!JudgeIssue(id, pool, event.pages[i], k)) {  // nothing stands there now
      LetGo(slot, pool, k);
      continue;
    }
    const auto page = static_cast<uint32_t>(event.pages[i].value());
    LetGo(slot, pool, k);
    Issue(pool, page);
    Take(slot, pool, k, page, pages_.at(pool, page).tag, MakeStamp(serial, k));
    if (raced_) SuspectPage(pool, page, Reason::kInFlight);
  }
  return {};
}

Status Ledger::Impl::Fork(const ForkEvent& event) {
  BeginEvent();
  const uint32_t from = Living(event.from);
  const uint32_t to = Living(event.to);
  if (from == kNone || to == kNone || from == to) return {};
  for (uint32_t pool = 0; pool < config_.pools.size(); ++pool) {
    // What `to` held before is let go last: the same page may be among what it gets.
    std::vector<Held> held = requests_.at(from).lists[pool];
    const auto before = static_cast<uint32_t>(requests_.at(to).lists[pool].size());
    if (before < held.size()) Resize(to, pool, held.size());
    for (uint32_t at = 0; at < std::max<size_t>(before, held.size()); ++at) {
      LetGo(to, pool, at);
      if (at >= held.size() || held[at].page == kNoPage) continue;
      Take(to, pool, at, held[at].page, held[at].tag, held[at].stamp);
      if (held[at].suspect != 0) Suspect(to, pool, at, static_cast<Reason>(held[at].suspect - 1));
      requests_.at(to).lists[pool][at].void_from = held[at].void_from;
    }
    Resize(to, pool, held.size());
  }
  requests_.at(to).length = requests_.at(from).length;
  return {};
}

Status Ledger::Impl::Cow(const CowEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  const uint32_t pool = event.pool.value();
  if (pages_.InRange(pool, event.page) &&
      TagExhausted(pages_.at(pool, static_cast<uint32_t>(event.page.value())).tag)) {
    return Status(StatusCode::kResourceExhausted, "the page has used up its tags: it is retired");
  }
  BeginEvent();
  const uint32_t slot = Living(event.req);
  if (slot == kNone) return {};
  const RequestId id = requests_.at(slot).id;
  const Held* old = HeldAt(requests_.at(slot), pool, event.at);
  if (SayOutOfRange(pool, event.page, id)) {
    if (old != nullptr) LetGo(slot, pool, static_cast<uint32_t>(event.at));
    return {};
  }
  if (old == nullptr) {
    ReportPage(Reason::kPageOutOfRange, id, pool, -1, static_cast<int64_t>(event.at));
    return {};
  }
  const auto at = static_cast<uint32_t>(event.at);
  if (!JudgeIssue(id, pool, event.page, event.at)) {
    LetGo(slot, pool, at);
    return {};
  }
  const auto page = static_cast<uint32_t>(event.page.value());
  const uint32_t source = old->page;
  const Stamp stamp = old->stamp;
  const uint32_t suspect = source == page ? 0 : old->suspect;  // the copy is no better
  const uint32_t void_from = old->void_from;
  if (source == page) {  // onto itself: a page issued while it was held, and what it held is gone
    LetGo(slot, pool, at);
    Issue(pool, page);
  } else {
    Issue(pool, page);
    Page& to = pages_.at(pool, page);
    const Page& from = pages_.at(pool, source);
    content_.Copy(from, to, config_.pools[pool].page_size);
    CarryWrites(pool, source, pool, page, config_.pools[pool].page_size);
    to.failed = from.failed;
    CopyScale(pool, from, pool, &to);
    Derive(pool, page);
    Tell(pool, page, kApplyTag | kApplyFlags | kApplyContent);
    LetGo(slot, pool, at);
  }
  Take(slot, pool, at, page, pages_.at(pool, page).tag, stamp);
  if (suspect != 0) Suspect(slot, pool, at, static_cast<Reason>(suspect - 1));
  if (raced_) SuspectPage(pool, page, Reason::kInFlight);
  requests_.at(slot).lists[pool][at].void_from = void_from;
  if (void_from != kNone) CutPage(slot, pool, at);
  return {};
}

Status Ledger::Impl::Drop(const DropEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  BeginEvent();
  const uint32_t slot = Living(event.req);
  if (slot == kNone) return {};
  const uint32_t pool = event.pool.value();
  const uint64_t size = requests_.at(slot).lists[pool].size();
  if (event.at >= size) return {};
  const bool tail = event.n >= size - event.at;
  const uint64_t end = tail ? size : event.at + event.n;
  for (uint64_t at = event.at; at < end; ++at) LetGo(slot, pool, static_cast<uint32_t>(at));
  // A rollback: what is taken next goes where the dropped pages were.
  if (tail) Resize(slot, pool, event.at);
  return {};
}

Status Ledger::Impl::Release(const ReleaseEvent& event) {
  BeginEvent();
  const uint32_t slot = Living(event.req);
  if (slot == kNone) return {};
  // The end comes first, with the expectations still in place: they're what late writes name.
  Incarnation& inc = requests_.at(slot);
  const RequestId id = inc.id;
  for (uint32_t pool = 0; pool < config_.pools.size(); ++pool) {
    for (uint32_t at = 0; at < inc.lists[pool].size(); ++at) {
      const Held held = inc.lists[pool][at];
      if (held.page == kNoPage) continue;
      --live_entries_;
      ++changes_;
      if (held.node == kNone) continue;
      Page& p = pages_.at(pool, held.page);
      p.last_expected = held.stamp;
      NoteLetGo(inc, pool, at, held.page, pages_.mapping(held.node).since);
      pages_.Unmap(p, held.node);
      UpdateFlags(pool, held.page);
      MaybeGiveBack(pool, held.page);
    }
  }
  requests_.End(slot);
  if (deltas_ != nullptr) deltas_->End(id);
  return {};
}

Status Ledger::Impl::Free(const FreeEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  if (!explicit_frees()) {
    return Status(StatusCode::kFailedPrecondition,
                  "`free` in a log whose pages go back by themselves (frees: implicit)");
  }
  BeginEvent();
  const uint32_t pool = event.pool.value();
  for (const PageId page : event.pages) {
    if (SayOutOfRange(pool, page)) continue;
    const auto index = static_cast<uint32_t>(page.value());
    const Page& p = pages_.at(pool, index);
    if (IsNull(pool, page) || !TagLive(p.tag)) {
      ReportPage(Reason::kDoubleFree, {}, pool, page.value(), -1, 0, p.tag);
      continue;
    }
    if (p.mappings != kNone) {
      const ledger::Mapping& m = pages_.mapping(p.mappings);
      ReportPage(Reason::kFreedWhileHeld, requests_.at(m.inc).id, pool, page.value(), m.at, 0,
                 p.tag);
    } else if (p.entries != kNone) {
      ReportPage(Reason::kFreedWhileHeld, {}, pool, page.value(), -1, 0, p.tag);
    }
    GiveBack(pool, index);
  }
  return {};
}

}  // namespace kvfence
