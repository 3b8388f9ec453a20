#include "ledger_index.h"

#include "kvfence/check.h"

namespace kvfence::ledger {
namespace {

constexpr size_t kMaxRemembered = size_t{1} << 20;

}  // namespace

uint32_t IndexBook::Find(KeyId key) const {
  const auto it = keys_.find(key.value());
  return it == keys_.end() ? kNone : it->second;
}

uint32_t IndexBook::FindOrMake(KeyId key) {
  const auto [it, fresh] = keys_.try_emplace(key.value(), kNone);
  if (!fresh) return it->second;
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  it->second = unused_.back();
  unused_.pop_back();
  slots_[it->second].key = key;
  return it->second;
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
  remembered_.emplace_back(remembered_count_, slots_[slot].key.value());
  while (remembered_.size() > kMaxRemembered) {
    const auto [number, key] = remembered_.front();
    remembered_.pop_front();
    const uint32_t old = Find(KeyId(key));
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
  if (last == kNoStamp || last == kNobodyStamp) return last;
  // Pages behind the last one that was named are the same lineage's next ones.
  return last + (i - (stamps.size() - 1));
}

Stamp IndexBook::Content(uint32_t slot, uint64_t i) const {
  const auto& read = slots_[slot].read;
  if (i < read.size() && read[i] != kNoStamp) return read[i];
  return Expected(slot, i);
}

}  // namespace kvfence::ledger
