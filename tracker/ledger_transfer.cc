// Asynchronous copies: pin and unpin.
//
// Idea: what a copy was told at its start (pages, tags, versions, whose content) is compared with
// what is there at its end. What an `in` copy has written counts only when it ended well.
#include <algorithm>

#include "ledger_impl.h"

namespace kvfence {
namespace {

constexpr size_t kMostEndedSides = 256;

}  // namespace

Ledger::Impl::PinRef Ledger::Impl::PinOf(NameId id, uint32_t pool, uint32_t page) const {
  const Page& p = pages_.at(pool, page);
  PinRef found;
  pins_.ForEach(p, [&](uint32_t pin, uint32_t index) {
    const bool present = TagLive(p.tag) && pins_.at(pin).pages[index].tag == p.tag;
    if (pins_.at(pin).id == id && present) found = {pin, index};
  });
  return found;
}

bool Ledger::Impl::Pinned(uint32_t pool, uint32_t page) const {
  const Page& p = pages_.at(pool, page);
  bool any = false;
  pins_.ForEach(p, [&](uint32_t pin, uint32_t index) {
    any = any || (TagLive(p.tag) && pins_.at(pin).pages[index].tag == p.tag);
  });
  return any;
}

// What launched rows still write is judged when their step settles, for the copy too.
void Ledger::Impl::NoteExport(PinRef ref, uint32_t pool, uint32_t page) {
  const ledger::Pin& pin = pins_.at(ref.pin);
  const Tag tag = pages_.at(pool, page).tag;
  for (const auto& record : steps_.records()) {
    for (const ledger::SlotWrite& w : record->writes) {
      const bool same = w.page == page && w.pool == pool && w.tag == tag;
      if (!same || w.n == 0 || !record->clean(w.row)) continue;
      record->exports.push_back({.row = w.row,
                                 .pool = pool,
                                 .page = page,
                                 .number = pin.pages[ref.index].number,
                                 .req = pin.req,
                                 .key = pin.dir == CopyDir::kOut ? pin.key : std::nullopt});
    }
  }
}

// What comes back under this copy's key later is what it really reads now.
void Ledger::Impl::NoteRead(NameId id, uint32_t pool, uint32_t page, NameId sum) {
  if (const PinRef ref = PinOf(id, pool, page)) NoteExport(ref, pool, page);
  Stamp stamp = pages_.at(pool, page).stamp;
  // What steps leave in such pools is known to the device only: it's what the holder expects.
  if (config_.pools[pool].kind != PoolKind::kKv && stamp == kNoStamp) {
    stamp = WithoutKey(pool, page).stamp;
  }
  ledger::KeyContent content{.stamp = stamp};
  if (config_.pools[pool].kind == PoolKind::kKv) {
    const Page& p = pages_.at(pool, page);
    content.slots = 0;
    while (content_.Valid(p, 0, content.slots + 1) && content.slots < content_.Fill(p)) {
      ++content.slots;
    }
    content.sum = sum.value();
    content.pool = pool;
  }
  // What is known to be wrong doesn't get better by being moved.
  const bool suspect = pages_.at(pool, page).suspect != 0 && !config_.judge_afresh;
  if (stamp == kNoStamp || stamp == kFailedStamp || suspect) content = {.stamp = kNobodyStamp};
  // A page that the copy takes for several places is what it read of each of them; one that is in
  // another generation by now, too: a copy goes on with the page that it was told.
  pins_.ForEach(pages_.at(pool, page), [&](uint32_t at, uint32_t index) {
    const ledger::Pin& pin = pins_.at(at);
    if (pin.id != id || !pin.key || pin.dir != CopyDir::kOut) return;
    index_.NoteRead(*pin.key, pool, pin.pages[index].number, content);
  });
}

void Ledger::Impl::JudgePinKey(const PinEvent& event, const Incarnation* inc) {
  const uint32_t pool = event.pool.value();
  const uint32_t entry = index_.Find(*event.key, pool);
  const int64_t page = event.pages.empty() ? -1 : event.pages.front().value();
  const RequestId id = inc == nullptr ? RequestId() : inc->id;
  if (event.dir == CopyDir::kIn) {
    // Any page may receive what a key stood for once.
    if (entry != kNone && !index_.at(entry).stamps.empty()) return;
    ReportPage(Reason::kStaleIndexEntry, id, pool, page);
    return;
  }
  if (inc != nullptr || event.pages.empty() || !pages_.InRange(pool, event.pages.front())) return;
  // Out of the index: the key must name this page, in its present generation; or what lies there
  // is what the key stands for, as in a tier that was filled from the page the key once named.
  const Stamp there = pages_.at(pool, static_cast<uint32_t>(page)).stamp;
  const bool same = StampIsReal(there) && entry != kNone && index_.Expected(entry, 0) == there;
  const bool names = entry != kNone && index_.at(entry).linked &&
                     static_cast<int64_t>(index_.at(entry).page) == page &&
                     pages_.space_of(index_.at(entry).pool) == pages_.space_of(pool);
  if (!names && !same) ReportPage(Reason::kStaleIndexEntry, id, pool, page);
}

void Ledger::Impl::JudgePinPage(const PinEvent& event, uint32_t slot, size_t i) {
  const uint32_t pool = event.pool.value();
  const PageId page = event.pages[i];
  const bool named = slot != kNone && event.at.has_value();
  const uint64_t at = event.at.value_or(0) + i;
  const RequestId id = slot == kNone ? RequestId() : requests_.at(slot).id;
  const Held* held = named ? HeldAt(requests_.at(slot), pool, at) : nullptr;
  if (named && (held == nullptr || held->page != page.value() || held->node == kNone)) {
    ReportPage(Reason::kPageMismatch, id, pool, page.value(), static_cast<int64_t>(at),
               held == nullptr ? ~uint64_t{0} : held->page, static_cast<uint64_t>(page.value()));
  } else if (IsNull(pool, page)) {
    if (event.key) ReportPage(Reason::kPageMismatch, id, pool, page.value());
  } else if (event.dir == CopyDir::kIn &&
             FailUsers(pool, static_cast<uint32_t>(page.value()), true, event.id)) {
    ReportPage(Reason::kInFlight, id, pool, page.value());
    const auto taken = static_cast<uint32_t>(page.value());
    if (RunningWrites(pool, taken)) SuspectPage(pool, taken, Reason::kInFlight);
  }
  if (event.dir != CopyDir::kIn || slot == kNone || !event.key) return;
  // What is loaded under a key is a hit of it. Who has no identity may be but a copy's own name.
  const uint32_t entry = index_.Find(*event.key, pool);
  const IdentityId identity = requests_.at(slot).identity;
  if (entry == kNone || index_.at(entry).stamps.empty() || identity == IdentityId()) return;
  if (index_.at(entry).identity == identity) return;
  ReportPage(Reason::kKeyMismatch, id, pool, page.value(), named ? static_cast<int64_t>(at) : -1,
             identity.value(), index_.at(entry).identity.value());
}

Status Ledger::Impl::Pin(const PinEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  BeginEvent();
  const uint32_t pool = event.pool.value();
  const uint32_t slot = event.req ? Living(event.req) : kNone;
  if (event.req && slot == kNone) return {};
  for (uint32_t p = pins_.Find(event.id); p != kNone; p = pins_.at(p).next_same_id) {
    // One copy may pin its source and its target; the same side twice is another copy.
    if (pins_.at(p).dir != event.dir || pins_.at(p).pool != pool) continue;
    Report(Reason::kIdentityReused, {.req = event.req});
    break;
  }
  if (event.key) JudgePinKey(event, slot == kNone ? nullptr : &requests_.at(slot));
  std::erase_if(ended_sides_, [&](const auto& ended) { return ended.first == event.id; });
  const uint32_t pin_slot = pins_.Begin(event.id);
  {
    ledger::Pin& pin = pins_.at(pin_slot);
    pin.dir = event.dir;
    pin.pool = pool;
    pin.req = slot == kNone ? RequestId() : requests_.at(slot).id;
    pin.at = event.at;
    pin.key = event.key;
    if (event.lease) pins_.Lease(pin_slot, steps_.launch_count() + *event.lease);
  }
  for (size_t i = 0; i < event.pages.size(); ++i) {
    if (SayOutOfRange(pool, event.pages[i], pins_.at(pin_slot).req)) continue;
    JudgePinPage(event, slot, i);
    if (!IsNull(pool, event.pages[i])) PinPage(event, pin_slot, slot, i);
  }
  return {};
}

void Ledger::Impl::PinPage(const PinEvent& event, uint32_t pin_slot, uint32_t slot, size_t i) {
  const uint32_t pool = event.pool.value();
  const auto page = static_cast<uint32_t>(event.pages[i].value());
  const uint64_t at = event.at.value_or(0) + i;
  const uint64_t page_size = config_.pools[pool].page_size;
  Page& p = pages_.at(pool, page);
  ledger::Pin& pin = pins_.at(pin_slot);
  ledger::PinPage& part = pin.pages.emplace_back();
  part.page = page;
  part.tag = p.tag;
  part.version = p.version;
  part.number = static_cast<uint32_t>(i);
  pins_.ForEach(p, [&](uint32_t other, uint32_t index) {
    if (other == pin_slot) part.twice = pin.pages[index].twice = true;
  });
  pins_.Attach(p, pin_slot, static_cast<uint32_t>(pin.pages.size() - 1));
  const Held* held = slot != kNone && event.at ? HeldAt(requests_.at(slot), pool, at) : nullptr;
  const bool theirs = held != nullptr && held->page == page && held->node != kNone;
  if (event.dir == CopyDir::kOut) {
    if (TagLive(p.tag)) ++p.out_pins;
    UpdateFlags(pool, page);
    if (!theirs) return;
    const uint64_t length = requests_.at(slot).length;
    part.need = length > at * page_size ? std::min(page_size, length - at * page_size) : 0;
    // What the request may not read itself isn't promised to come back.
    const Stamp stamp = held->suspect != 0 ? kNobodyStamp : held->stamp;
    if (event.key) RememberOut(*event.key, pool, i, stamp, requests_.at(slot).identity);
  } else if (theirs && event.key) {
    const uint32_t entry = index_.Find(*event.key, pool);
    if (entry == kNone || index_.at(entry).stamps.empty()) return;
    // Of a page that wasn't the request's when it was copied out nothing is promised: what comes
    // back of it is nobody's, and must not be what is expected.
    const Stamp promised = index_.Expected(entry, i);
    if (promised != kNobodyStamp) SetExpected(slot, pool, static_cast<uint32_t>(at), promised);
    const IdentityId identity = requests_.at(slot).identity;
    if (identity != IdentityId() && index_.at(entry).identity != identity) {
      Suspect(slot, pool, static_cast<uint32_t>(at), Reason::kKeyMismatch);
    }
  }
}

// A key that names no index entry stands for what is copied out under it.
void Ledger::Impl::RememberOut(KeyId key, uint32_t pool, size_t i, Stamp stamp,
                               IdentityId identity) {
  const uint32_t entry = index_.FindOrMake(key, pool);
  ledger::IndexEntry& e = index_.at(entry);
  if (e.published) return;
  if (i == 0) {
    e.identity = identity;
    e.stamps.clear();
    index_.Remember(entry);
  }
  e.stamps.resize(i, kNobodyStamp);
  e.stamps.push_back(stamp);
}

Status Ledger::Impl::Unpin(const UnpinEvent& event) {
  BeginEvent();
  if (pins_.Find(event.id) == kNone) {
    const auto ended =
        std::ranges::find(ended_sides_, event.id, &std::pair<NameId, uint32_t>::first);
    if (ended != ended_sides_.end()) {
      if (--ended->second == 0) ended_sides_.erase(ended);
      return {};
    }
    Report(Reason::kIdentityReused, {});
    return {};
  }
  // A second copy under the same id ends first: the older one is still to come.
  const uint32_t newest = pins_.Find(event.id);
  const CopyDir dir = pins_.at(newest).dir;
  const uint32_t pool = pins_.at(newest).pool;
  uint32_t next = pins_.at(newest).next_same_id;
  uint32_t others = 0;
  EndPin(newest, event.ok);
  while (next != kNone && (pins_.at(next).dir != dir || pins_.at(next).pool != pool)) {
    const uint32_t part = next;
    next = pins_.at(part).next_same_id;
    EndPin(part, event.ok);
    ++others;
  }
  // A copy with two sides ends with the first word of it; one may be said for each.
  if (others > 0) ended_sides_.emplace_back(event.id, others);
  if (ended_sides_.size() > kMostEndedSides) ended_sides_.pop_front();
  return {};
}

void Ledger::Impl::EndPin(uint32_t pin_slot, bool ok) {
  const uint32_t pool = pins_.at(pin_slot).pool;
  const CopyDir dir = pins_.at(pin_slot).dir;
  const RequestId req = pins_.at(pin_slot).req;
  for (uint32_t i = 0; i < pins_.at(pin_slot).pages.size(); ++i) {
    pins_.Detach(pages_.at(pool, pins_.at(pin_slot).pages[i].page), pin_slot, i);
  }
  const std::vector<ledger::PinPage> parts = std::move(pins_.at(pin_slot).pages);
  pins_.End(pin_slot);
  // All is compared before anything goes back: a page may stand in the copy twice.
  for (const ledger::PinPage& part : parts) LandCopy(part, pool, ok, dir, req);
  for (const ledger::PinPage& part : parts) MaybeGiveBack(pool, part.page);
}

void Ledger::Impl::LandCopy(const ledger::PinPage& part, uint32_t pool, bool ok, CopyDir dir,
                            RequestId req) {
  Page& p = pages_.at(pool, part.page);
  const bool present = TagLive(p.tag) && p.tag == part.tag;
  if (dir == CopyDir::kOut) {
    if (p.tag != part.tag || p.version != part.version) {
      ReportPage(Reason::kCopyRaced, req, pool, part.page, -1, part.tag, p.tag);
    }
    if (present && p.out_pins > 0) {
      --p.out_pins;
      UpdateFlags(pool, part.page);
    }
    return;
  }
  if (!present) return;
  if (!ok && config_.pools[pool].kind != PoolKind::kKv && !p.ran) {
    p.failed = BirthOf(p, kNoStamp, kNoStamp) == kNoStamp;
    if (p.failed && part.runs.empty()) ShowContent(pool, part.page);
  }
  if (part.runs.empty()) return;
  for (const ledger::LoadedRun& run : part.runs) {
    const uint64_t last = run.first + run.n;
    for (uint64_t i = run.first, end = i; ok && i < last; i = end + 1) {
      end = i;
      while (end < last && !content_.Valid(p, end, end + 1)) ++end;
      content_.Commit(p, i, end - i, run.birth);
    }
  }
  ShowContent(pool, part.page);
}

}  // namespace kvfence
