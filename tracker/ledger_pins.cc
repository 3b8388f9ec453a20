#include "ledger_pins.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence::ledger {

uint32_t PinBook::Begin(NameId id) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t slot = unused_.back();
  unused_.pop_back();
  const auto [it, fresh] = ids_.try_emplace(id.value(), slot);
  slots_[slot].id = id;
  slots_[slot].next_same_id = fresh ? kNone : it->second;
  it->second = slot;
  return slot;
}

uint32_t PinBook::Find(NameId id) const {
  const auto it = ids_.find(id.value());
  return it == ids_.end() ? kNone : it->second;
}

void PinBook::End(uint32_t slot) {
  const auto it = ids_.find(slots_[slot].id.value());
  KVF_CHECK(it != ids_.end(), "I-32: a pin ends once");
  if (it->second == slot) {
    if (slots_[slot].next_same_id == kNone) {
      ids_.erase(it);
    } else {
      it->second = slots_[slot].next_same_id;
    }
  } else {
    uint32_t before = it->second;
    while (slots_[before].next_same_id != slot) before = slots_[before].next_same_id;
    slots_[before].next_same_id = slots_[slot].next_same_id;
  }
  EndLease(slot);
  Pin& pin = slots_[slot];
  pin.pages.clear();
  pin.req = {};
  pin.at.reset();
  pin.key.reset();
  pin.lease_end = ~uint64_t{0};
  pin.next_same_id = kNone;
  unused_.push_back(slot);
}

void PinBook::Attach(Page& page, uint32_t slot, uint32_t i) {
  if (unused_nodes_.empty()) {
    unused_nodes_.push_back(static_cast<uint32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const uint32_t node = unused_nodes_.back();
  unused_nodes_.pop_back();
  nodes_[node] = {.pin = slot, .index = i, .prev = kNone, .next = page.pins};
  if (page.pins != kNone) nodes_[page.pins].prev = node;
  page.pins = node;
  slots_[slot].pages[i].node = node;
}

void PinBook::Detach(Page& page, uint32_t slot, uint32_t i) {
  const uint32_t node = slots_[slot].pages[i].node;
  if (node == kNone) return;
  const Node n = nodes_[node];
  if (n.prev != kNone) {
    nodes_[n.prev].next = n.next;
  } else {
    KVF_CHECK(page.pins == node, "I-32: a pin stands on its own page's list");
    page.pins = n.next;
  }
  if (n.next != kNone) nodes_[n.next].prev = n.prev;
  nodes_[node] = {};
  unused_nodes_.push_back(node);
  slots_[slot].pages[i].node = kNone;
}

void PinBook::EndLease(uint32_t slot) {
  if (slots_[slot].lease_end == ~uint64_t{0}) return;
  slots_[slot].lease_end = ~uint64_t{0};
  std::erase(leased_, slot);
}

}  // namespace kvfence::ledger
