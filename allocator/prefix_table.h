// The entries of a PrefixIndex. Private to the allocator.
//
// Idea: entries live in a slab and stand in two lists that run through it, all of them by age and
// those of each page. The hash map only finds a key's entry; whatever is walked is walked along the
// lists, so that no order ever depends on a hash (I-20).
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kvfence/prefix_index.h"

namespace kvfence {

inline constexpr uint32_t kNoEntry = 0xFFFFFFFFu;

struct EntryLinks {
  uint32_t next = kNoEntry;
  uint32_t prev = kNoEntry;
};

struct EntryEnds {
  uint32_t head = kNoEntry;
  uint32_t tail = kNoEntry;
};

struct EntryNode {
  PrefixEntry entry;
  EntryLinks by_age;
  EntryLinks by_page;
};

struct PrefixEntries {
  PrefixEntries(PagePool* pool, IndexListener* listener);

  // The page has been returned since the entry was published.
  bool Stale(const PrefixEntry& entry) const { return pool->tag(entry.page) != entry.tag; }
  EntryEnds& PageEnds(const PrefixEntry& entry) {
    return pages[static_cast<size_t>(entry.page.value())];
  }

  // Adds an entry whose page is held for it, youngest of all. Its key must be new.
  void Insert(const PrefixEntry& entry);
  // Takes the entry out, tells the listener, and drops the hold that the entry has.
  Result<PageChange> Erase(uint32_t node);

  void Append(EntryEnds& ends, EntryLinks EntryNode::*links, uint32_t node);
  void Unlink(EntryEnds& ends, EntryLinks EntryNode::*links, uint32_t node);

  std::optional<AuditBreach> Audit() const;
  std::optional<AuditBreach> AuditAges() const;
  // `on_pages` grows by the entries that stand on the page.
  std::optional<AuditBreach> AuditPage(PageId page, size_t& on_pages) const;

  PagePool* pool;
  IndexListener* listener;
  absl::flat_hash_map<uint64_t, uint32_t> by_key;
  std::vector<EntryNode> nodes;
  std::vector<uint32_t> spare;  // nodes that hold no entry
  EntryEnds age;
  std::vector<EntryEnds> pages;
};

}  // namespace kvfence
