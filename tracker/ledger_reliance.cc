// Reliance: what a request takes for granted (share, ready), and how long it is (trim).
//
// Idea: a hit's expectation is the index entry's of publish time, never the page's of now. Whatever
// is relied on must have been written completely by work that counts: clean retired steps or copies
// that ended well; where pages are reused in stream order, clean launched steps count too.
#include <algorithm>

#include "ledger_impl.h"

namespace kvfence {
namespace {

// No page ever has it (I-2).
constexpr Tag kNeverTag = 0xFFFFFFFFu;

// The slots [first, last) of logical page `at` that tokens [begin, end) lie in.
SlotRange SlotsIn(uint64_t at, uint64_t page_size, uint64_t begin, uint64_t end) {
  const uint64_t start = at * page_size;
  const uint64_t first = std::clamp<uint64_t>(begin, start, start + page_size) - start;
  const uint64_t last = std::clamp<uint64_t>(end, start, start + page_size) - start;
  return {first, std::max(first, last)};
}

}  // namespace

Ledger::Impl::Hit Ledger::Impl::WithoutKey(uint32_t pool, uint32_t page) const {
  const Page& p = pages_.at(pool, page);
  // A page that isn't live was let go: what it was last is what can be expected of it, in vain.
  if (!TagLive(p.tag)) return {.tag = p.tag - 1, .stamp = p.last_expected};
  if (p.mappings != kNone) {
    const ledger::Mapping& m = pages_.mapping(p.mappings);
    return {.tag = p.tag, .stamp = requests_.at(m.inc).lists[m.pool][m.at].stamp};
  }
  if (p.entries != kNone) return {.tag = p.tag, .stamp = index_.Expected(p.entries, 0)};
  return {.tag = p.tag, .stamp = p.last_expected};
}

// Without a key any entry of the page may have been meant: is each that has a digest of another
// one?
bool Ledger::Impl::OtherDigest(uint32_t pool, uint32_t page, NameId digest) const {
  bool other = false;
  for (uint32_t e = pages_.at(pool, page).entries; e != kNone; e = index_.at(e).next) {
    if (index_.at(e).digest == NameId()) continue;
    if (index_.at(e).digest == digest) return false;
    other = digest != NameId();
  }
  return other;
}

Ledger::Impl::Hit Ledger::Impl::Find(const ShareEvent& event, const Incarnation& inc, size_t i,
                                     uint64_t at) {
  const uint32_t pool = event.pool.value();
  const auto page = static_cast<uint32_t>(event.pages[i].value());
  const auto logical = static_cast<int64_t>(at);
  if (event.keys.empty()) {
    Hit hit = WithoutKey(pool, page);
    hit.other_identity = !event.digests.empty() && OtherDigest(pool, page, event.digests[i]);
    if (hit.other_identity) ReportPage(Reason::kKeyMismatch, inc.id, pool, page, logical);
    return hit;
  }
  const uint32_t slot = index_.Find(event.keys[i], pool);
  if (slot == kNone || !index_.at(slot).published) {
    ReportPage(Reason::kStaleIndexEntry, inc.id, pool, page, logical);
    // No entry promises anything: the page's present generation must not be taken for what was
    // found, or whoever has it now would vouch for the hit. An earlier one is expected, in vain.
    Hit hit = WithoutKey(pool, page);
    hit.tag = pages_.at(pool, page).tag - 1;
    return hit;
  }
  const ledger::IndexEntry& entry = index_.at(slot);
  const bool elsewhere = entry.page != page || pages_.space_of(entry.pool) != pages_.space_of(pool);
  const Tag now = pages_.at(pool, page).tag;
  if (elsewhere || entry.tag != now) {
    ReportPage(Reason::kStaleIndexEntry, inc.id, pool, page, logical,
               elsewhere ? entry.page : entry.tag, elsewhere ? page : now);
  }
  const NameId digest = event.digests.empty() ? NameId() : event.digests[i];
  const bool other = digest != NameId() && entry.digest != NameId() && digest != entry.digest;
  if (entry.identity != inc.identity || other) {
    ReportPage(Reason::kKeyMismatch, inc.id, pool, page, logical,
               other ? digest.value() : inc.identity.value(),
               other ? entry.digest.value() : entry.identity.value());
  }
  // The tag of another page may be one that this page is yet to reach: it must not match then.
  const Tag tag = elsewhere && entry.tag > now ? kNeverTag : entry.tag;
  return {.tag = tag,
          .stamp = index_.Expected(slot, 0),
          .other_identity = entry.identity != inc.identity || other};
}

bool Ledger::Impl::Reliable(uint32_t pool, const Page& page, uint32_t reader,
                            SlotRange slots) const {
  if (config_.pools[pool].kind != PoolKind::kKv) return !page.failed;
  if (slots.first >= slots.last) return true;
  const bool done = stream() ? content_.Valid(page, slots.first, slots.last)
                             : content_.Settled(page, slots.first, slots.last);
  if (done || !config_.same_step_reads) return done;
  // A copy, or another holder, is still to write it: the first step that reads it judges that.
  bool coming = false;
  pins_.ForEach(page, [&](uint32_t pin, uint32_t index) {
    const ledger::Pin& copy = pins_.at(pin);
    coming = coming || (copy.dir == CopyDir::kIn && copy.pages[index].tag == page.tag);
  });
  if (coming) return true;
  for (uint32_t n = page.mappings; n != kNone; n = pages_.mapping(n).next) {
    const ledger::Mapping& m = pages_.mapping(n);
    if (m.inc == reader) continue;
    if (requests_.at(m.inc).length < m.at * config_.pools[m.pool].page_size + slots.last) {
      return true;
    }
  }
  return false;
}

void Ledger::Impl::ShareOne(const ShareEvent& event, uint32_t slot, size_t i, uint64_t at) {
  const uint32_t pool = event.pool.value();
  const PageId page = event.pages[i];
  const RequestId id = requests_.at(slot).id;
  if (SayOutOfRange(pool, page, id)) return;
  if (IsNull(pool, page)) {  // nothing there: a hit of a hybrid model may leave pages out
    LetGo(slot, pool, static_cast<uint32_t>(at + i));
    return;
  }
  const auto index = static_cast<uint32_t>(page.value());
  const Hit hit = Find(event, requests_.at(slot), i, at + i);
  const Page& p = pages_.at(pool, index);
  const SlotRange slots = SlotsIn(i, config_.pools[pool].page_size, 0, event.tokens);
  // Also a page of no token must be live: mapping one that isn't relies on what is gone.
  if (!TagLive(p.tag) || !Reliable(pool, p, slot, slots)) {
    ReportPage(Reason::kNotCommitted, id, pool, page.value(), static_cast<int64_t>(at + i),
               slots.last, content_.Fill(p));
  }
  LetGo(slot, pool, static_cast<uint32_t>(at + i));
  Take(slot, pool, static_cast<uint32_t>(at + i), index, hit.tag, hit.stamp);
  if (hit.other_identity) Suspect(slot, pool, static_cast<uint32_t>(at + i), Reason::kKeyMismatch);
}

Status Ledger::Impl::Share(const ShareEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  if (!event.keys.empty() && event.keys.size() != event.pages.size()) {
    return Status::Invalid("share: as many keys as pages, or none");
  }
  if (!event.digests.empty() && event.digests.size() != event.pages.size()) {
    return Status::Invalid("share: as many digests as pages, or none");
  }
  if (Status s = CheckTokens(event.tokens); !s.ok()) return s;
  const uint32_t pool = event.pool.value();
  const uint32_t known = requests_.Find(event.req);
  if (known != kNone) {
    const Incarnation& inc = requests_.at(known);
    const uint64_t at = event.at.value_or(inc.lists[pool].size());
    if (Status s = CheckGrowth(inc, pool, at, event.pages.size()); !s.ok()) return s;
  }
  BeginEvent();
  const uint32_t slot = Living(event.req);
  if (slot == kNone) return {};
  const uint64_t at = event.at.value_or(requests_.at(slot).lists[pool].size());
  if (at + event.pages.size() > requests_.at(slot).lists[pool].size()) {
    Resize(slot, pool, at + event.pages.size());
  }
  {
    const Keeping keeping(this, pool, event.pages);
    for (size_t i = 0; i < event.pages.size(); ++i) ShareOne(event, slot, i, at);
  }
  Incarnation& inc = requests_.at(slot);
  const uint64_t length = at * config_.pools[pool].page_size + event.tokens;
  const uint64_t pages = inc.lists[pool].size();
  const bool kv = config_.pools[pool].kind == PoolKind::kKv;
  if (kv && event.tokens > 0 && length > pages * config_.pools[pool].page_size) {
    ReportPage(Reason::kNotCommitted, inc.id, pool, -1, static_cast<int64_t>(pages));
  }
  inc.length = std::max(inc.length, length);
  return {};
}

// Pages that aren't filled by length are relied on as a whole: a failed copy must not be the last
// word.
void Ledger::Impl::JudgeFailedPages(const Incarnation& inc, uint32_t pool) {
  const std::vector<Held>& list = inc.lists[pool];
  for (size_t at = 0; at < list.size(); ++at) {
    if (list[at].node == kNone || !pages_.at(pool, list[at].page).failed) continue;
    ReportPage(Reason::kNotCommitted, inc.id, pool, list[at].page, static_cast<int64_t>(at));
  }
}

Status Ledger::Impl::Ready(const ReadyEvent& event) {
  if (Status s = CheckTokens(event.tokens); !s.ok()) return s;
  BeginEvent();
  const uint32_t slot = Living(event.req);
  if (slot == kNone) return {};
  Incarnation& inc = requests_.at(slot);
  for (uint32_t pool = 0; pool < config_.pools.size(); ++pool) {
    const PoolConfig& c = config_.pools[pool];
    if (c.kind != PoolKind::kKv) {
      if (event.tokens > 0) JudgeFailedPages(inc, pool);
      continue;
    }
    // The next token's window is what may be read from now on.
    const uint64_t begin =
        c.window != 0 && event.tokens + 1 > c.window ? event.tokens + 1 - c.window : 0;
    const uint64_t pages =
        std::min<uint64_t>((event.tokens + c.page_size - 1) / c.page_size, inc.lists[pool].size());
    // What a trim voided counts again where it still stands.
    for (uint64_t at = 0; at < pages; ++at) inc.lists[pool][at].void_from = kNone;
    for (uint64_t at = begin / c.page_size; at < pages; ++at) {
      const Held* held = HeldAt(inc, pool, at);
      if (held == nullptr) continue;  // a hole: whoever reads it will find it null
      const Page& p = pages_.at(pool, held->page);
      const SlotRange slots = SlotsIn(at, c.page_size, begin, event.tokens);
      if (Reliable(pool, p, slot, slots)) continue;
      ReportPage(Reason::kNotCommitted, inc.id, pool, held->page, static_cast<int64_t>(at),
                 slots.last, content_.Fill(p));
    }
  }
  JudgeMissingPages(inc, event.tokens);
  inc.length = std::max(inc.length, event.tokens);
  return {};
}

// Tokens that no pool has a page for. One pool may get its pages later than another, but where none
// has them yet there's nothing to rely on.
void Ledger::Impl::JudgeMissingPages(const Incarnation& inc, uint64_t tokens) {
  uint32_t first = kNone;
  for (auto pool = static_cast<uint32_t>(config_.pools.size()); pool-- > 0;) {
    if (config_.pools[pool].kind != PoolKind::kKv) continue;
    if (tokens <= inc.lists[pool].size() * config_.pools[pool].page_size) return;
    first = pool;
  }
  if (first == kNone) return;
  ReportPage(Reason::kNotCommitted, inc.id, first, -1,
             static_cast<int64_t>(inc.lists[first].size()));
}

Status Ledger::Impl::Trim(const TrimEvent& event) {
  if (Status s = CheckTokens(event.tokens); !s.ok()) return s;
  BeginEvent();
  const uint32_t slot = Living(event.req);
  if (slot == kNone) return {};
  Incarnation& inc = requests_.at(slot);
  // A base that was no news needs no trim: one that says another length, or comes after its step,
  // is about something else.
  while (!inc.bases.empty() && !inc.bases.front().news &&
         (inc.bases.front().tokens != event.tokens || inc.bases.front().step < steps_.retired())) {
    inc.bases.erase(inc.bases.begin());
  }
  if (!inc.bases.empty()) {
    // Only the device knew the length on which a launched step was built: this trim says it.
    const uint64_t base = inc.bases.front().tokens;
    inc.bases.erase(inc.bases.begin());
    if (base != event.tokens) {
      Report(Reason::kLengthMismatch, {.req = inc.id, .expected = event.tokens, .found = base});
    }
  } else {
    inc.length = event.tokens;
    for (const ledger::LaunchNote& note : inc.launches) {
      if (event.step && note.step > event.step->value()) inc.length += note.new_tokens;
    }
  }
  CutContent(slot);
  return {};
}

void Ledger::Impl::CutContent(uint32_t slot) {
  const Incarnation& inc = requests_.at(slot);
  for (uint32_t pool = 0; pool < config_.pools.size(); ++pool) {
    const PoolConfig& c = config_.pools[pool];
    if (c.kind != PoolKind::kKv) continue;
    for (uint64_t at = inc.length / c.page_size; at < inc.lists[pool].size(); ++at) {
      CutPage(slot, pool, static_cast<uint32_t>(at));
    }
  }
}

// Does nobody but one request rely on what the page holds?
bool Ledger::Impl::Alone(const Page& p) const {
  return p.entries == kNone && p.out_pins == 0 && p.mappings != kNone && !pages_.Shared(p);
}

bool Ledger::Impl::HasSpared(const Page& p) const {
  for (uint32_t node = p.mappings; node != kNone; node = pages_.mapping(node).next) {
    const ledger::Mapping& m = pages_.mapping(node);
    if (requests_.at(m.inc).lists[m.pool][m.at].void_from != kNone) return true;
  }
  return false;
}

// What a trim spared for others goes with the last of them. Between events: within one, a page may
// be let go and taken again.
void Ledger::Impl::CutSpared() {
  for (const auto& [pool, page] : thinned_) {
    const Page& p = pages_.at(pool, page);
    if (!Alone(p)) continue;
    for (uint32_t node = p.mappings; node != kNone; node = pages_.mapping(node).next) {
      const ledger::Mapping m = pages_.mapping(node);
      if (requests_.at(m.inc).lists[m.pool][m.at].void_from == kNone) continue;
      CutPage(m.inc, m.pool, m.at);
    }
  }
  thinned_.clear();
}

// What lies beyond the request's length in a page that is its alone isn't content any more.
void Ledger::Impl::CutPage(uint32_t slot, uint32_t pool, uint32_t at) {
  Incarnation& inc = requests_.at(slot);
  const uint64_t page_size = config_.pools[pool].page_size;
  Held& held = inc.lists[pool][at];
  if (held.node == kNone) return;
  Page& p = pages_.at(pool, held.page);
  const uint64_t beyond = inc.length > at * page_size ? inc.length - at * page_size : 0;
  const uint64_t first = std::min<uint64_t>(beyond, held.void_from);
  const bool content = first < content_.Fill(p), alone = Alone(p);
  held.void_from = content && !alone ? static_cast<uint32_t>(first) : kNone;
  if (!content || !alone) return;
  VoidSlots(p, {first, page_size});
  // Launched rows wrote less of it than they thought.
  for (const auto& record : steps_.records()) {
    for (std::vector<ledger::SlotWrite>* writes : {&record->writes, &record->copies}) {
      for (ledger::SlotWrite& w : *writes) {
        if (w.page != held.page || w.tag != p.tag || w.pool != pool || w.first + w.n <= first) {
          continue;
        }
        w.n = static_cast<uint32_t>(first > w.first ? first - w.first : 0);
      }
    }
  }
  ShowContent(pool, held.page);
}

}  // namespace kvfence
