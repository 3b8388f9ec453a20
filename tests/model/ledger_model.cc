// Ownership, reliance, index and pins of the naive ledger.
#include "tests/model/ledger_model.h"

#include <algorithm>

namespace kvfence::testing {

LedgerModel::LedgerModel(const FenceConfig& config) : config_(config) {
  for (const PoolConfig& pool : config.pools) {
    Page empty;
    empty.slots.resize(pool.page_size);
    pages.emplace_back(pool.pages, empty);
  }
}

std::string LedgerModel::Text(const Violation& v) {
  return std::string(ReasonName(v.reason)) + " req " + std::to_string(v.req.word()) + " row " +
         std::to_string(v.row) + " pool " + std::to_string(v.pool) + " at " + std::to_string(v.at) +
         " page " + std::to_string(v.page) + " step " + std::to_string(v.step);
}

void LedgerModel::Begin() {
  Tidy();
  ++now_;
  findings.clear();
  said_.clear();
}

void LedgerModel::Say(Reason reason, RequestId req, uint32_t pool, int64_t page, int64_t at) {
  if (page >= 0 && !said_.insert({pool, page}).second) return;
  Violation v;
  v.reason = reason;
  v.req = req;
  v.pool = pool;
  v.page = page;
  v.at = at;
  findings.insert(Text(v));
}

RequestId LedgerModel::Named(RequestId req) const {
  const auto it = latest.find(req.name());
  if (req.incarnation() != 0 || it == latest.end()) return req;
  return RequestId(req.name(), it->second);
}

std::optional<RequestId> LedgerModel::Alive(RequestId req, bool say) {
  const RequestId id = Named(req);
  if (requests.count(id) != 0) return id;
  if (say) {
    Violation v;
    v.reason = Reason::kIdentityReused;
    v.req = id;
    findings.insert(Text(v));
  }
  return std::nullopt;
}

bool LedgerModel::Exists(uint32_t pool, PageId page) const {
  return page.value() >= 0 && page.value() < static_cast<int64_t>(config_.pools[pool].pages);
}

bool LedgerModel::Null(uint32_t pool, PageId page) const {
  return page.value() == static_cast<int64_t>(config_.pools[pool].null_page);
}

std::vector<LedgerModel::Holder> LedgerModel::Holders(uint32_t pool, int64_t page) const {
  std::vector<Holder> holders;
  const Tag tag = pages[pool][page].tag;
  for (const auto& [id, request] : requests) {
    for (uint64_t at = 0; at < request.lists[pool].size(); ++at) {
      const Entry& e = request.lists[pool][at];
      if (e.page == page && e.tag == tag && TagLive(tag)) holders.emplace_back(id, pool, at);
    }
  }
  return holders;
}

std::set<RequestId> LedgerModel::Requests(uint32_t pool, int64_t page) const {
  std::set<RequestId> ids;
  for (const Holder& h : Holders(pool, page)) ids.insert(std::get<0>(h));
  return ids;
}

uint32_t LedgerModel::Entries(uint32_t pool, int64_t page) const {
  uint32_t n = 0;
  const Tag tag = pages[pool][page].tag;
  for (const auto& [id, key] : keys) {
    n += key.published && key.pool == pool && key.page == page && key.tag == tag && TagLive(tag);
  }
  return n;
}

uint32_t LedgerModel::Pins(uint32_t pool, int64_t page) const {
  uint32_t n = 0;
  for (const Copying& c : copying) {
    for (const Pinned& p : c.pages) n += c.pool == pool && p.page == page;
  }
  return n;
}

uint32_t LedgerModel::OutPins(uint32_t pool, int64_t page) const {
  uint32_t n = 0;
  const Tag tag = pages[pool][page].tag;
  for (const Copying& c : copying) {
    for (const Pinned& p : c.pages) {
      n += c.dir == CopyDir::kOut && c.pool == pool && p.page == page && p.tag == tag &&
           TagLive(tag);
    }
  }
  return n;
}

bool LedgerModel::MayIssue(RequestId req, uint32_t pool, PageId page, uint64_t at) {
  const auto logical = static_cast<int64_t>(at);
  if (!Exists(pool, page)) {
    Say(Reason::kPageOutOfRange, req, pool, page.value());
    return false;
  }
  if (Null(pool, page)) {
    Say(Reason::kIssuedWhileHeld, req, pool, page.value(), logical);
    return false;
  }
  const int64_t p = page.value();
  const bool held = !Holders(pool, p).empty() || Entries(pool, p) > 0;
  const bool used = config_.reuse == Reuse::kRetired && FailUsers(pool, p, false);
  if (held) {
    Say(Reason::kIssuedWhileHeld, req, pool, p, logical);
  } else if (used || Pins(pool, p) > 0) {
    Say(Reason::kInFlight, req, pool, p, logical);
  }
  return true;
}

void LedgerModel::Issue(uint32_t pool, int64_t page) {
  Page& p = pages[pool][page];
  p.tag = p.tag % 2 == 1 ? p.tag + 2 : p.tag + 1;
  ++p.changes;
  p.slots.assign(p.slots.size(), Slot{});
}

void LedgerModel::GiveBack(uint32_t pool, int64_t page) {
  Page& p = pages[pool][page];
  p.tag += 1;
  ++p.changes;
  p.slots.assign(p.slots.size(), Slot{});
}

void LedgerModel::MaybeGiveBack(uint32_t pool, int64_t page) {
  if (config_.frees == Frees::kExplicit || !TagLive(pages[pool][page].tag)) return;
  if (kept_.count({pool, page}) != 0) return;
  if (Holders(pool, page).empty() && Entries(pool, page) == 0 && Pins(pool, page) == 0) {
    GiveBack(pool, page);
  }
}

void LedgerModel::LetGo(RequestId req, uint32_t pool, uint64_t at) {
  Entry& e = requests.at(req).lists[pool][at];
  const Entry old = e;
  e = Entry{};
  if (old.page < 0 || old.tag != pages[pool][old.page].tag || !TagLive(old.tag)) return;
  pages[pool][old.page].last_expected = old.stamp;
  MaybeGiveBack(pool, old.page);
}

void LedgerModel::Put(RequestId req, uint32_t pool, uint64_t at, Entry entry) {
  spared_.erase({req, pool, at});
  requests.at(req).lists[pool][at] = entry;
}

void LedgerModel::On(const AdmitEvent& event) {
  Begin();
  uint32_t& n = latest[event.name];
  if (n != 0 && requests.count(RequestId(event.name, n)) != 0) {
    Violation v;
    v.reason = Reason::kIdentityReused;
    v.req = RequestId(event.name, n);
    findings.insert(Text(v));
  }
  ++n;
  Request& request = requests[RequestId(event.name, n)];
  request.serial = ++serials_;
  request.identity = event.identity;
  request.lists.resize(config_.pools.size());
}

void LedgerModel::On(const AllocEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  const uint32_t pool = event.pool.value();
  auto& list = requests.at(*req).lists[pool];
  const uint64_t at = event.at.value_or(list.size());
  list.resize(std::max<size_t>(list.size(), at + event.pages.size()));
  for (size_t i = 0; i < event.pages.size(); ++i) {
    if (!MayIssue(*req, pool, event.pages[i], at + i)) {
      LetGo(*req, pool, at + i);
      continue;
    }
    const int64_t page = event.pages[i].value();
    LetGo(*req, pool, at + i);
    Issue(pool, page);
    Put(*req, pool, at + i,
        {page, pages[pool][page].tag, MakeStamp(requests.at(*req).serial, at + i)});
  }
}

bool LedgerModel::Complete(uint32_t pool, int64_t page, uint64_t first, uint64_t last) const {
  for (uint64_t i = first; i < last; ++i) {
    const Slot& slot = pages[pool][page].slots[i];
    if (!(config_.reuse == Reuse::kStream ? slot.valid : slot.committed)) return false;
  }
  return true;
}

void LedgerModel::On(const ShareEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  const uint32_t pool = event.pool.value();
  const uint64_t size = config_.pools[pool].page_size;
  auto& list = requests.at(*req).lists[pool];
  const uint64_t at = event.at.value_or(list.size());
  list.resize(std::max<size_t>(list.size(), at + event.pages.size()));
  for (const PageId page : event.pages) kept_.insert({pool, page.value()});
  for (size_t i = 0; i < event.pages.size(); ++i) {
    const auto logical = static_cast<int64_t>(at + i);
    if (!Exists(pool, event.pages[i])) {
      Say(Reason::kPageOutOfRange, *req, pool, event.pages[i].value());
      continue;
    }
    if (Null(pool, event.pages[i])) {
      LetGo(*req, pool, at + i);
      continue;
    }
    const int64_t page = event.pages[i].value();
    const Page& p = pages[pool][page];
    Entry want{page, TagLive(p.tag) ? p.tag : p.tag - 1, p.last_expected};
    // What the page's holder (or entry) expects; of several with different ideas, any.
    if (TagLive(p.tag)) want.stamp = kAnyHolders;
    if (!event.keys.empty()) {
      const Key* const key = Lookup(event.keys[i], pool);
      if (key == nullptr || !key->published) {
        Say(Reason::kStaleIndexEntry, *req, pool, page, logical);
        want.tag = p.tag - 1;  // an earlier generation: nobody vouches for the hit
      } else {
        const Key& k = *key;
        if (k.page != page || k.pool != pool || k.tag != p.tag) {
          Say(Reason::kStaleIndexEntry, *req, pool, page, logical);
        }
        if (k.identity != requests.at(*req).identity) {
          Say(Reason::kKeyMismatch, *req, pool, page, logical);
        }
        const bool elsewhere = k.page != page || k.pool != pool;
        want.tag = elsewhere && k.tag > p.tag ? 0xFFFFFFFFu : k.tag;
        want.stamp = k.stamp;
      }
    }
    const uint64_t need = std::min(size, event.tokens > i * size ? event.tokens - i * size : 0);
    if (!TagLive(p.tag) || !Complete(pool, page, 0, need)) {
      Say(Reason::kNotCommitted, *req, pool, page, logical);
    }
    LetGo(*req, pool, at + i);
    Put(*req, pool, at + i, want);
  }
  kept_.clear();
  for (const PageId page : event.pages) {
    if (Exists(pool, page)) MaybeGiveBack(pool, page.value());
  }
  Request& request = requests.at(*req);
  if (event.tokens > 0 && at * size + event.tokens > request.lists[pool].size() * size) {
    Say(Reason::kNotCommitted, *req, pool, -1, static_cast<int64_t>(request.lists[pool].size()));
  }
  request.length = std::max(request.length, at * size + event.tokens);
}

void LedgerModel::On(const ForkEvent& event) {
  Begin();
  const auto from = Alive(event.from);
  const auto to = Alive(event.to);
  if (!from || !to || *from == *to) return;
  for (uint32_t pool = 0; pool < pages.size(); ++pool) {
    const std::vector<Entry> source = requests.at(*from).lists[pool];
    auto& list = requests.at(*to).lists[pool];
    list.resize(std::max(list.size(), source.size()));
    for (uint64_t at = 0; at < requests.at(*to).lists[pool].size(); ++at) {
      LetGo(*to, pool, at);
      if (at >= source.size()) continue;
      Put(*to, pool, at, source[at]);
      const auto spared = spared_.find({*from, pool, at});
      if (spared != spared_.end()) spared_[{*to, pool, at}] = spared->second;
    }
    requests.at(*to).lists[pool].resize(source.size());
  }
  requests.at(*to).length = requests.at(*from).length;
}

void LedgerModel::On(const CowEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  const uint32_t pool = event.pool.value();
  auto& list = requests.at(*req).lists[pool];
  const bool held = event.at < list.size() && list[event.at].page >= 0;
  if (!Exists(pool, event.page)) {
    MayIssue(*req, pool, event.page, event.at);  // says so
    if (held) LetGo(*req, pool, event.at);
    return;
  }
  if (!held) {
    Say(Reason::kPageOutOfRange, *req, pool, -1, static_cast<int64_t>(event.at));
    return;
  }
  if (!MayIssue(*req, pool, event.page, event.at)) {
    LetGo(*req, pool, event.at);
    return;
  }
  const Entry old = list[event.at];
  const auto spared = spared_.find({*req, pool, event.at});
  const uint64_t void_from = spared == spared_.end() ? ~uint64_t{0} : spared->second;
  const int64_t page = event.page.value();
  if (old.page == page) {
    LetGo(*req, pool, event.at);
    Issue(pool, page);
  } else {
    Issue(pool, page);
    CopyContent(pool, old.page, pool, page);
    LetGo(*req, pool, event.at);
  }
  Put(*req, pool, event.at, {page, pages[pool][page].tag, old.stamp});
  if (void_from != ~uint64_t{0}) {
    spared_[{*req, pool, event.at}] = void_from;
    CutPage(*req, pool, event.at);
  }
}

void LedgerModel::On(const DropEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  const uint32_t pool = event.pool.value();
  const uint64_t size = requests.at(*req).lists[pool].size();
  for (uint64_t at = event.at; at < size && at - event.at < event.n; ++at) LetGo(*req, pool, at);
  if (event.at < size && event.n >= size - event.at) {
    requests.at(*req).lists[pool].resize(event.at);
  }
}

void LedgerModel::On(const ReleaseEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  ended[*req] = requests.at(*req);
  for (uint32_t pool = 0; pool < pages.size(); ++pool) {
    for (uint64_t at = 0; at < ended[*req].lists[pool].size(); ++at) LetGo(*req, pool, at);
  }
  requests.erase(*req);
}

void LedgerModel::On(const FreeEvent& event) {
  Begin();
  const uint32_t pool = event.pool.value();
  for (const PageId id : event.pages) {
    const int64_t page = id.value();
    if (!Exists(pool, id)) {
      Say(Reason::kPageOutOfRange, {}, pool, page);
      continue;
    }
    if (Null(pool, id) || !TagLive(pages[pool][page].tag)) {
      Say(Reason::kDoubleFree, {}, pool, page);
      continue;
    }
    const auto holders = Holders(pool, page);
    if (!holders.empty()) {
      // Which of several holders is named isn't told here: see the comparison.
      Say(Reason::kFreedWhileHeld, {}, pool, page);
    } else if (Entries(pool, page) > 0) {
      Say(Reason::kFreedWhileHeld, {}, pool, page);
    }
    GiveBack(pool, page);
  }
}

void LedgerModel::On(const PublishEvent& event) {
  Begin();
  const uint32_t pool = event.pool.value();
  Key made;
  made.pool = pool;
  made.published = true;
  Key* moved = nullptr;
  if (event.page) {
    if (!Exists(pool, *event.page)) {
      Say(Reason::kPageOutOfRange, {}, pool, event.page->value());
      return;
    }
    Key* const from = Lookup(*event.from_key, pool);
    if (from == nullptr) {
      Say(Reason::kStaleIndexEntry, {}, pool, event.page->value());
      return;
    }
    made.page = event.page->value();
    made.tag = pages[pool][made.page].tag;
    if (!TagLive(made.tag)) --made.tag;
    made.stamp = from->stamp;
    made.identity = event.identity.value_or(from->identity);
    if (from->published) moved = from;
  } else {
    const auto req = Alive(event.req);
    if (!req) return;
    const Request& request = requests.at(*req);
    if (event.at >= request.lists[pool].size() || request.lists[pool][event.at].page < 0) {
      Say(Reason::kPageOutOfRange, *req, pool, -1, static_cast<int64_t>(event.at));
      return;
    }
    const Entry& e = request.lists[pool][event.at];
    made.page = e.page;
    made.tag = TagLive(pages[pool][e.page].tag) ? pages[pool][e.page].tag : e.tag;
    made.stamp = e.stamp;
    made.identity = event.identity.value_or(request.identity);
  }
  kept_ = {{pool, made.page}};
  const auto old = keys.find({event.key, pool});
  for (Key* const gone : {moved, old == keys.end() ? nullptr : &old->second}) {
    if (gone != nullptr && gone->published) Unpublish(*gone);
  }
  keys[{event.key, pool}] = made;
  kept_.clear();
  MaybeGiveBack(pool, made.page);
}

LedgerModel::Key* LedgerModel::Lookup(KeyId key, uint32_t pool) {
  Key* best = nullptr;
  int rank = 0;  // own published, published, own, any
  for (auto& [id, entry] : keys) {
    if (id.first != key) continue;
    const int r = (entry.published ? 4 : 1) + (id.second == pool ? 1 : 0);
    if (r > rank) {
      best = &entry;
      rank = r;
    }
  }
  return best;
}

void LedgerModel::On(const UnpublishEvent& event) {
  Begin();
  Key* const key = Lookup(event.key, event.pool.value());
  if (key != nullptr && key->published) {
    Unpublish(*key);
    return;
  }
  Violation v;
  v.reason = Reason::kStaleIndexEntry;
  findings.insert(Text(v));
}

void LedgerModel::Unpublish(Key& key) {
  const Page& p = pages[key.pool][key.page];
  const bool held = key.tag == p.tag && TagLive(p.tag);
  key.published = false;
  if (!held) return;
  pages[key.pool][key.page].last_expected = key.stamp;
  MaybeGiveBack(key.pool, key.page);
}

void LedgerModel::On(const ReadyEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  Request& request = requests.at(*req);
  for (uint32_t pool = 0; pool < pages.size(); ++pool) {
    const PoolConfig& c = config_.pools[pool];
    const uint64_t reads = c.window == 0 ? event.tokens : c.window - 1;
    const uint64_t begin = event.tokens > reads ? event.tokens - reads : 0;
    for (uint64_t at = 0; at < request.lists[pool].size(); ++at) {
      const Entry& e = request.lists[pool][at];
      if (e.page < 0 || (at + 1) * c.page_size <= begin) continue;
      const uint64_t start = at * c.page_size;
      const uint64_t first = begin > start ? begin - start : 0;
      const uint64_t last = event.tokens > start ? std::min(c.page_size, event.tokens - start) : 0;
      if (!Complete(pool, e.page, first, last)) {
        Say(Reason::kNotCommitted, *req, pool, e.page, static_cast<int64_t>(at));
      }
    }
  }
  bool anywhere = false;
  for (uint32_t pool = 0; pool < pages.size(); ++pool) {
    anywhere =
        anywhere || event.tokens <= request.lists[pool].size() * config_.pools[pool].page_size;
  }
  if (!anywhere) {
    Say(Reason::kNotCommitted, *req, 0, -1, static_cast<int64_t>(request.lists[0].size()));
  }
  std::erase_if(spared_, [&](const auto& spared) {
    const auto& [id, pool, at] = spared.first;
    return id == *req && at * config_.pools[pool].page_size < event.tokens;
  });
  request.length = std::max(request.length, event.tokens);
}

void LedgerModel::On(const AuditEvent& event) {
  Begin();
  for (uint32_t pool = 0; pool < pages.size(); ++pool) {
    for (int64_t page = 0; page < static_cast<int64_t>(pages[pool].size()); ++page) {
      const bool live = TagLive(pages[pool][page].tag);
      if (!live || Entries(pool, page) > 0 || Pins(pool, page) > 0) continue;
      const auto holders = Holders(pool, page);
      if (!event.idle && (!holders.empty() || config_.frees == Frees::kExplicit)) continue;
      Violation v;
      v.reason = Reason::kConservation;
      v.pool = pool;
      v.page = page;
      findings.insert(Text(v));
    }
  }
}

}  // namespace kvfence::testing
