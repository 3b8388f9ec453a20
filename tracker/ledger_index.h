// The index book: which page each prefix-index key names, in which generation, with which stamp.
//
// Idea: an entry keeps the tag and the stamp of the moment it was published, never looked up again,
// so that a hit on a recycled page shows. Entries whose tag is still the page's are on the page's
// list: they hold it. A key's stamp outlives its entry, in a bounded memory.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvfence/types.h"
#include "ledger_pages.h"

namespace kvfence::ledger {

// Content under a key: whose it is, and how many slots of it there are.
struct KeyContent {
  Stamp stamp = kNoStamp;
  uint64_t slots = ~uint64_t{0};
  uint32_t sum = 0;  // of these slots, as they were read in `pool`; 0: none was given
  uint32_t pool = 0;
};

struct IndexEntry {
  KeyId key;
  uint32_t pool = 0;
  uint32_t page = kNoPage;
  Tag tag = 0;
  IdentityId identity;
  NameId digest;
  bool published = false;  // the entry is there; else only the key's stamps are remembered
  bool linked = false;     // on the page's list: its tag is the page's
  uint32_t prev = kNone;
  uint32_t next = kNone;
  std::vector<Stamp> stamps;     // expected, of the key's first page and those behind it
  std::vector<KeyContent> read;  // what an `out` copy under the key last read; kNoStamp: nothing
  uint64_t read_when = 0;        // number of that read among all
  uint64_t remembered = 0;       // number of its place among the unpublished ones
};

class IndexBook {
 public:
  explicit IndexBook(uint32_t pools) : pools_(pools) {}

  // The record of a key, published or remembered; kNone when unknown. A key has an entry in each
  // pool that it's published in; where `pool` has none, another pool's is meant.
  uint32_t Find(KeyId key, uint32_t pool) const;
  uint32_t FindIn(KeyId key, uint32_t pool) const;  // this pool's only
  uint32_t FindOrMake(KeyId key, uint32_t pool);    // likewise
  // An `out` copy under the key has read content of this birth as the key's page number `i`.
  void NoteRead(KeyId key, uint32_t pool, uint64_t i, KeyContent content);
  IndexEntry& at(uint32_t slot) { return slots_[slot]; }
  const IndexEntry& at(uint32_t slot) const { return slots_[slot]; }
  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }

  void Link(Page& page, uint32_t slot);
  void Unlink(Page& page, uint32_t slot);
  // The key has no entry (any more): keep what it stood for, as long as there is room.
  void Remember(uint32_t slot);

  // The stamp expected of the key's page number `i`, and what content under the key is.
  Stamp Expected(uint32_t slot, uint64_t i) const;
  KeyContent Content(KeyId key, uint32_t pool, uint64_t i) const;

 private:
  using PoolKey = std::pair<uint64_t, uint32_t>;
  template <class F>
  void ForPools(KeyId key, F f) const {  // f(slot)
    for (uint32_t pool = 0; pool < pools_; ++pool) {
      const uint32_t slot = FindIn(key, pool);
      if (slot != kNone) f(slot);
    }
  }

  const uint32_t pools_;
  std::vector<IndexEntry> slots_;
  std::vector<uint32_t> unused_;
  absl::flat_hash_map<PoolKey, uint32_t> keys_;
  std::deque<std::pair<uint64_t, PoolKey>> remembered_;  // by number
  uint64_t remembered_count_ = 0;
  uint64_t reads_ = 0;
};

}  // namespace kvfence::ledger
