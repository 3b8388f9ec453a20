#include "ledger_index.h"

#include "kvfence/check.h"

namespace kvfence::ledger {
namespace {

constexpr size_t kMaxRemembered = size_t{1} << 20;

}  // namespace

uint32_t IndexBook::FindIn(KeyId key, uint32_t pool) const {
  const auto it = keys_.find({key.value(), pool});
  return it == keys_.end() ? kNone : it->second;
}

uint32_t IndexBook::Find(KeyId key, uint32_t pool) const {
  const uint32_t own = FindIn(key, pool);
  if (pools_ == 1 || (own != kNone && slots_[own].published)) return own;
  uint32_t other = kNone;
  ForPools(key, [&](uint32_t slot) {
    if (other == kNone || (!slots_[other].published && slots_[slot].published)) other = slot;
  });
  return own != kNone && !slots_[other].published ? own : other;
}

uint32_t IndexBook::FindOrMake(KeyId key, uint32_t pool) {
  const auto [it, fresh] = keys_.try_emplace(PoolKey{key.value(), pool}, kNone);
  if (!fresh) return it->second;
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  it->second = unused_.back();
  unused_.pop_back();
  slots_[it->second].key = key;
  slots_[it->second].pool = pool;
  return it->second;
}

void IndexBook::NoteRead(KeyId key, uint32_t pool, uint64_t i, KeyContent content) {
  IndexEntry& entry = slots_[FindOrMake(key, pool)];
  if (entry.read.size() <= i) entry.read.resize(i + 1);
  entry.read[i] = content;
  entry.read_when = ++reads_;
}

void IndexBook::Link(Page& page, uint32_t slot) {
  IndexEntry& entry = slots_[slot];
  KVF_CHECK(!entry.linked, "I-5: an entry names one page");
  entry.linked = true;
  entry.prev = kNone;
  entry.next = page.entries;
  if (page.entries != kNone) slots_[page.entries].prev = slot;
  page.entries = slot;
}

void IndexBook::Unlink(Page& page, uint32_t slot) {
  IndexEntry& entry = slots_[slot];
  if (!entry.linked) return;
  if (entry.prev != kNone) {
    slots_[entry.prev].next = entry.next;
  } else {
    KVF_CHECK(page.entries == slot, "I-5: an entry stands on its own page's list");
    page.entries = entry.next;
  }
  if (entry.next != kNone) slots_[entry.next].prev = entry.prev;
  entry.linked = false;
  entry.prev = entry.next = kNone;
}

void IndexBook::Remember(uint32_t slot) {
  slots_[slot].remembered = ++remembered_count_;
  remembered_.emplace_back(remembered_count_, PoolKey{slots_[slot].key.value(), slots_[slot].pool});
  while (remembered_.size() > kMaxRemembered) {
    const auto [number, key] = remembered_.front();
    remembered_.pop_front();
    const uint32_t old = FindIn(KeyId(key.first), key.second);
    // Published again or remembered again since: it has another place, or none.
    if (old == kNone || slots_[old].published || slots_[old].remembered != number) continue;
    slots_[old] = {};
    unused_.push_back(old);
    keys_.erase(key);
  }
}

Stamp IndexBook::Expected(uint32_t slot, uint64_t i) const {
  const auto& stamps = slots_[slot].stamps;
  if (i < stamps.size()) return stamps[i];
  if (stamps.empty()) return kNobodyStamp;
  const Stamp last = stamps.back();
  if (!StampIsReal(last)) return last;
  // Pages behind the last one that was named are the same lineage's next ones.
  return last + (i - (stamps.size() - 1));
}

KeyContent IndexBook::Content(KeyId key, uint32_t pool, uint64_t i) const {
  uint32_t last = kNone;  // whoever read it last, in whatever tier
  ForPools(key, [&](uint32_t slot) {
    const IndexEntry& entry = slots_[slot];
    if (i >= entry.read.size() || entry.read[i].stamp == kNoStamp) return;
    if (last == kNone || entry.read_when > slots_[last].read_when) last = slot;
  });
  if (last != kNone) return slots_[last].read[i];
  return {.stamp = Expected(Find(key, pool), i)};
}

}  // namespace kvfence::ledger
