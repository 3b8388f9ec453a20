// The pin book: asynchronous copies that have begun and not ended.
//
// Idea: a pin remembers each page's tag and version at its start; what is different at its end
// raced. A pin is on the list of each of its pages until its end, whatever generation the page has
// gone to: the copy still touches the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvfence/event.h"
#include "ledger_pages.h"

namespace kvfence::ledger {

// Slots [first, first + n) that a copy has written, and of what birth: they count when it has ended
// well, unless they're valid by then, through somebody who wrote them later.
struct LoadedRun {
  uint64_t first = 0;
  uint64_t n = 0;
  Stamp birth = kNoStamp;
};

struct PinPage {
  uint32_t page = 0;
  Tag tag = 0;           // when the copy began
  uint32_t version = 0;  // likewise
  uint32_t number = 0;   // its place in the event: which of the key's pages it is
  bool twice = false;    // it stands in the copy again: whose its content is can't be told
  uint64_t need = 0;     // slots that the request's length asked of it then
  uint32_t node = kNone;
  std::vector<LoadedRun> runs;  // what the copy has written, where nobody has since
};

struct Pin {
  NameId id;
  CopyDir dir = CopyDir::kIn;
  uint32_t pool = 0;
  RequestId req;
  std::optional<uint64_t> at;
  std::optional<KeyId> key;
  std::vector<PinPage> pages;
  uint64_t lease_end = ~uint64_t{0};  // steps launched until which it may last
  uint32_t next_same_id = kNone;      // another part of the same copy
};

class PinBook {
 public:
  uint32_t Begin(NameId id);
  // The newest part of the copy, kNone when none is outstanding.
  uint32_t Find(NameId id) const;
  Pin& at(uint32_t slot) { return slots_[slot]; }
  const Pin& at(uint32_t slot) const { return slots_[slot]; }
  void End(uint32_t slot);  // this part; the others stay

  // The pin's page i goes on the page's list, or off it.
  void Attach(Page& page, uint32_t slot, uint32_t i);
  void Detach(Page& page, uint32_t slot, uint32_t i);
  // Calls f(pin slot, index of the page in it) for each pin on the page.
  template <class F>
  void ForEach(const Page& page, F f) const {
    for (uint32_t n = page.pins; n != kNone; n = nodes_[n].next) f(nodes_[n].pin, nodes_[n].index);
  }

  // Pins with a lease, in the order in which they began.
  const std::vector<uint32_t>& leased() const { return leased_; }
  void Lease(uint32_t slot, uint64_t end) {
    slots_[slot].lease_end = end;
    leased_.push_back(slot);
  }
  void EndLease(uint32_t slot);

 private:
  struct Node {
    uint32_t pin = kNone;
    uint32_t index = 0;
    uint32_t prev = kNone;
    uint32_t next = kNone;
  };
  std::vector<Pin> slots_;
  std::vector<uint32_t> unused_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> unused_nodes_;
  std::vector<uint32_t> leased_;
  absl::flat_hash_map<uint32_t, uint32_t> ids_;
};

}  // namespace kvfence::ledger
