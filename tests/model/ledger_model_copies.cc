// Pins and content outside steps of the naive ledger.
#include <algorithm>

#include "tests/model/ledger_model.h"

namespace kvfence::testing {

bool LedgerModel::Any(const Page& page) const {
  return std::any_of(page.slots.begin(), page.slots.end(), [](const Slot& s) { return s.valid; });
}

void LedgerModel::Void(Page& page, uint64_t slot) {
  if (!page.slots[slot].valid) return;
  page.slots[slot] = Slot{};
  ++page.changes;
}

void LedgerModel::Erase(Page& page, uint64_t slot) {
  Void(page, slot);
  page.slots[slot] = Slot{};
}

bool LedgerModel::ReliedOn(uint32_t pool, int64_t page, uint64_t slot) const {
  if (Entries(pool, page) > 0 || OutPins(pool, page) > 0) return true;
  for (const auto& [id, held_in, at] : Holders(pool, page)) {
    const uint64_t position = at * config_.pools[held_in].page_size + slot;
    if (position < requests.at(id).length) return true;
  }
  return false;
}

Stamp LedgerModel::Births(const Page& page, Stamp taken, Stamp as) const {
  std::set<Stamp> births;
  for (const Slot& slot : page.slots) {
    if (!slot.valid && slot.copy == 0) continue;
    const Stamp birth = slot.valid ? slot.birth : slot.brought;
    births.insert(birth == taken ? as : birth);
  }
  if (births.empty()) return kNoStamp;
  return births.size() == 1 ? *births.begin() : kMixedStamp;
}

bool LedgerModel::MadeOwn(const Page& page, const Written& w) {
  if (w.copied || w.slots.empty() || w.old_expected == w.new_stamp) return false;
  return std::none_of(w.slots.begin(), w.slots.end(), [&](uint64_t i) {
    return page.slots[i].valid && page.slots[i].birth == w.old_expected;
  });
}

Stamp LedgerModel::Shown(uint32_t pool, int64_t page) const {
  const Page& p = pages[pool][page];
  const Stamp plain = Births(p, kNoStamp, kNoStamp);
  if (plain != kMixedStamp) return plain;
  // What a row wrote counts as what the page was promised as, until its step is confirmed.
  for (const LaunchedStep& step : steps) {
    for (const LaunchedRow& row : step.rows) {
      if (step.confirmed || !row.reasons.empty()) continue;
      for (const Written& w : row.written) {
        if (w.pool != pool || w.page != page || w.tag != p.tag || !MadeOwn(p, w)) continue;
        const Stamp stamp = Births(p, w.new_stamp, w.old_expected);
        if (stamp != kMixedStamp) return stamp;
      }
    }
  }
  return kMixedStamp;
}

// --- pins ----------------------------------------------------------------------------------------

void LedgerModel::JudgePinKey(const PinEvent& event, RequestId req) {
  const uint32_t pool = event.pool.value();
  const Key* const key = Lookup(*event.key, pool);
  const int64_t first = event.pages.empty() ? -1 : event.pages.front().value();
  const bool named = key != nullptr && key->published && key->page == first && key->pool == pool &&
                     Exists(pool, event.pages.front()) && key->tag == pages[pool][first].tag &&
                     TagLive(key->tag);
  if (event.dir == CopyDir::kIn && key == nullptr) {
    Say(Reason::kStaleIndexEntry, req, pool, first);
  }
  if (event.dir == CopyDir::kOut && !req && !event.pages.empty() &&
      Exists(pool, event.pages.front()) && !named) {
    const Stamp there = Shown(pool, first);
    if (key != nullptr && key->stamp == there && StampIsReal(there)) return;
    Say(Reason::kStaleIndexEntry, req, pool, first);
  }
}

void LedgerModel::On(const PinEvent& event) {
  Begin();
  const uint32_t pool = event.pool.value();
  std::optional<RequestId> req;
  if (event.req) {
    req = Alive(event.req);
    if (!req) return;
  }
  for (const Copying& c : copying) {
    if (c.id == event.id && c.dir == event.dir && c.pool == pool) {
      Violation v;
      v.reason = Reason::kIdentityReused;
      v.req = event.req;
      findings.insert(Text(v));
      break;
    }
  }
  sides_ended.erase(event.id);
  Copying c{.number = ++copies_,
            .id = event.id,
            .dir = event.dir,
            .pool = pool,
            .req = {},
            .key = event.key,
            .pages = {}};
  if (req) c.req = *req;
  if (event.key) JudgePinKey(event, c.req);
  for (size_t i = 0; i < event.pages.size(); ++i) {
    const int64_t page = event.pages[i].value();
    const uint64_t at = event.at.value_or(0) + i;
    if (!Exists(pool, event.pages[i])) {
      Say(Reason::kPageOutOfRange, c.req, pool, page);
      continue;
    }
    const Page& p = pages[pool][page];
    bool theirs = false;
    if (req && event.at) {
      const auto& list = requests.at(*req).lists[pool];
      theirs = at < list.size() && list[at].page == page && list[at].tag == p.tag && TagLive(p.tag);
      if (!theirs) {
        Say(Reason::kPageMismatch, *req, pool, page, static_cast<int64_t>(at));
      }
    } else if (Null(pool, event.pages[i]) && event.key) {
      Say(Reason::kPageMismatch, c.req, pool, page);
    }
    const bool ok = !(req && event.at) || theirs;
    if (ok && !Null(pool, event.pages[i]) && event.dir == CopyDir::kIn &&
        FailUsers(pool, page, true)) {
      Say(Reason::kInFlight, c.req, pool, page);
    }
    if (req && event.dir == CopyDir::kIn && event.key && Lookup(*event.key, pool) != nullptr &&
        requests.at(*req).identity != IdentityId() &&
        Lookup(*event.key, pool)->identity != requests.at(*req).identity) {
      Say(Reason::kKeyMismatch, *req, pool, page, event.at ? static_cast<int64_t>(at) : -1);
    }
    if (Null(pool, event.pages[i])) continue;
    Pinned part{.page = page, .tag = p.tag, .changes = p.changes, .need = 0};
    const uint64_t size = config_.pools[pool].page_size;
    if (theirs && event.dir == CopyDir::kOut) {
      const uint64_t length = requests.at(*req).length;
      part.need = length > at * size ? std::min(size, length - at * size) : 0;
    }
    if (theirs && event.dir == CopyDir::kIn && event.key && Lookup(*event.key, pool) != nullptr) {
      requests.at(*req).lists[pool][at].stamp = Lookup(*event.key, pool)->stamp + i;
    }
    c.pages.push_back(part);
  }
  copying.push_back(c);
}

void LedgerModel::On(const UnpinEvent& event) {
  Begin();
  std::vector<Copying> ending;
  for (size_t i = copying.size(); i-- > 0;) {
    if (copying[i].id != event.id) continue;
    // The newest one, with its other side, if it has one.
    if (!ending.empty() && copying[i].dir == ending[0].dir && copying[i].pool == ending[0].pool) {
      break;
    }
    ending.push_back(copying[i]);
    copying.erase(copying.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (ending.empty() && sides_ended[event.id] > 0) {
    --sides_ended[event.id];
    return;
  }
  sides_ended[event.id] = ending.empty() ? 0 : sides_ended[event.id] + ending.size() - 1;
  if (ending.empty()) {
    Violation v;
    v.reason = Reason::kIdentityReused;
    findings.insert(Text(v));
    return;
  }
  for (const Copying& c : ending) {
    for (const Pinned& part : c.pages) {
      Page& p = pages[c.pool][part.page];
      const bool present = p.tag == part.tag && TagLive(p.tag);
      if (c.dir == CopyDir::kOut && (p.tag != part.tag || p.changes != part.changes)) {
        Say(Reason::kCopyRaced, c.req, c.pool, part.page);
      }
      if (c.dir == CopyDir::kIn && present) {
        for (Slot& slot : p.slots) {
          if (slot.copy != c.number) continue;
          slot.copy = 0;
          if (slot.valid || !event.ok) continue;  // written since, by somebody else
          slot = {.valid = true, .committed = true, .birth = slot.brought};
          ++p.changes;
        }
      }
    }
  }
  for (const Copying& c : ending) {
    for (const Pinned& part : c.pages) MaybeGiveBack(c.pool, part.page);
  }
}

LedgerModel::Copying* LedgerModel::CopyOf(NameId id, uint32_t pool, int64_t page, Pinned** part) {
  const Tag tag = pages[pool][page].tag;
  // The copy that began first, where several have the page.
  for (Copying& c : copying) {
    for (Pinned& p : c.pages) {
      if (c.id != id || c.pool != pool || p.page != page || p.tag != tag || !TagLive(tag)) continue;
      *part = &p;
      return &c;
    }
  }
  return nullptr;
}

// --- content -------------------------------------------------------------------------------------

Stamp LedgerModel::StampOf(RequestId req, uint32_t pool, uint64_t at) const {
  const auto living = requests.find(req);
  const Request& r = living != requests.end() ? living->second : ended.at(req);
  if (at < r.lists[pool].size() && r.lists[pool][at].page >= 0) return r.lists[pool][at].stamp;
  return MakeStamp(r.serial, at);
}

void LedgerModel::On(const WriteEvent& event) {
  Begin();
  const uint32_t pool = event.pool.value();
  const uint64_t size = config_.pools[pool].page_size;
  const RequestId as = Named(event.as.req);
  if (!Exists(pool, event.page)) {
    Say(Reason::kPageOutOfRange, event.as.req, pool, event.page.value());
    return;
  }
  if (event.first + event.n > size) {
    Say(Reason::kPageOutOfRange, event.as.req, pool, event.page.value());
    return;
  }
  const int64_t page = event.page.value();
  Page& p = pages[pool][page];
  Pinned* part = nullptr;
  const Copying* copy = event.xfer == NameId() ? nullptr : CopyOf(event.xfer, pool, page, &part);
  if (copy != nullptr && copy->dir == CopyDir::kOut) copy = nullptr;  // it may only read
  Stamp stamp = kNobodyStamp;
  if (event.as.req) {
    if (requests.count(as) == 0 && ended.count(as) == 0) {
      Violation v;
      v.reason = Reason::kIdentityReused;
      v.req = as;
      findings.insert(Text(v));
      return;
    }
    stamp = StampOf(as, pool, *event.as.at);
    if (stamp == kNoStamp) stamp = kNobodyStamp;
  }
  if (Null(pool, event.page)) return;
  const bool used = config_.reuse == Reuse::kStream && FailUsers(pool, page, true);
  if ((event.xfer != NameId() && copy == nullptr) || used) Say(Reason::kInFlight, as, pool, page);
  if (event.n == 0) return;
  std::set<uint64_t> slots;
  std::set<uint64_t> ruined;
  for (uint64_t i = event.first; i < event.first + event.n; ++i) {
    slots.insert(i);
    if (p.slots[i].valid && ReliedOn(pool, page, i)) ruined.insert(i);
  }
  for (const uint64_t i : slots) Erase(p, i);
  // Beside somebody's content nobody's is none, except over what somebody relies on.
  const Stamp rest = Births(p, kNoStamp, kNoStamp);
  if (stamp == kNobodyStamp && rest != kNoStamp && rest != kNobodyStamp) {
    slots = ruined;
    if (slots.empty()) return;
  }
  if (stamp != kNobodyStamp && rest == kNobodyStamp) {
    for (uint64_t i = 0; i < size; ++i) Erase(p, i);
  }
  for (const uint64_t i : slots) {
    if (copy != nullptr) {
      p.slots[i] = {.copy = copy->number, .brought = stamp};
    } else {
      p.slots[i] = {.valid = true, .committed = true, .birth = stamp};
    }
  }
  if (copy == nullptr) ++p.changes;
}

void LedgerModel::On(const ReadEvent& event) {
  Begin();
  const uint32_t pool = event.pool.value();
  const int64_t page = event.page.value();
  if (!Exists(pool, event.page)) {
    Say(Reason::kPageOutOfRange, {}, pool, page);
    return;
  }
  Pinned* part = nullptr;
  const Copying* copy = CopyOf(event.xfer, pool, page, &part);
  if (copy == nullptr) {
    Say(Reason::kInFlight, {}, pool, page);
    return;
  }
  const Page& p = pages[pool][page];
  bool there = Any(p);
  for (uint64_t i = 0; i < part->need; ++i) there = there && p.slots[i].valid;
  if (!there) Say(Reason::kNotCommitted, copy->req, pool, page);
  for (LaunchedStep& step : steps) {
    for (LaunchedRow& row : step.rows) {
      for (const Written& w : row.written) {
        const bool same = w.pool == pool && w.page == page && w.tag == p.tag && !w.copied;
        if (!same || w.slots.empty() || !row.reasons.empty()) continue;
        row.exported.emplace_back(pool, page, copy->req);
      }
    }
  }
}

void LedgerModel::CopyContent(uint32_t from_pool, int64_t from, uint32_t to_pool, int64_t to) {
  const Page source = pages[from_pool][from];
  Page& target = pages[to_pool][to];
  if (from == to && from_pool == to_pool) return;
  const size_t size = std::min(source.slots.size(), target.slots.size());
  ++target.changes;
  target.slots.assign(target.slots.size(), Slot{});
  for (size_t i = 0; i < size; ++i) {
    if (source.slots[i].valid) target.slots[i] = source.slots[i];
    target.slots[i].copy = 0;
  }
  for (LaunchedStep& step : steps) {
    for (LaunchedRow& row : step.rows) {
      if (!row.reasons.empty()) continue;
      const std::vector<Written> written = row.written;
      for (Written w : written) {
        if (w.pool != from_pool || w.page != from || w.tag != source.tag) continue;
        w.pool = to_pool;
        w.page = to;
        w.tag = target.tag;
        w.copied = true;
        w.old_stamp = w.new_stamp = Shown(to_pool, to);
        std::erase_if(w.slots, [&](uint64_t s) { return s >= size; });
        row.written.push_back(w);
      }
    }
  }
}

void LedgerModel::On(const CopyEvent& event) {
  Begin();
  const uint32_t from = event.from_pool.value();
  const uint32_t to = event.to_pool.value();
  if (!Exists(from, event.from)) Say(Reason::kPageOutOfRange, {}, from, event.from.value());
  if (!Exists(to, event.to)) Say(Reason::kPageOutOfRange, {}, to, event.to.value());
  if (!Exists(from, event.from) || !Exists(to, event.to) || Null(to, event.to)) return;
  if (config_.reuse == Reuse::kStream && FailUsers(to, event.to.value(), true)) {
    Say(Reason::kInFlight, {}, to, event.to.value());
  }
  if (!Null(from, event.from) && !Any(pages[from][event.from.value()])) {
    Say(Reason::kNotCommitted, {}, from, event.from.value());
  }
  CopyContent(from, event.from.value(), to, event.to.value());
}

}  // namespace kvfence::testing
