// PrefixIndex: finds pages that already hold the KV of a token prefix.
//
// Idea: a key (the chained hash of a block's tokens, its predecessors' and the identity) names one
// page, with the tag that the page had when it was published. Each entry holds its page in the
// PagePool; pages that only entries hold wait in the pool's eviction order and may be hit again.
// Invariant: an entry answers a lookup only while its page has the tag of publication (I-55), so an
// entry that outlived its page is refused and told apart from a miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvfence/page_pool.h"
#include "kvfence/status.h"
#include "kvfence/tag.h"
#include "kvfence/types.h"

namespace kvfence {

// The key of a block: its predecessor's key (KeyId() for the first block), its tokens in order, and
// what else the KV depends on (adapter, media, salt, weights). Same input, same key, on every
// machine; never KeyId(). Chain of splitmix64 steps: different chains collide as 64-bit hashes do.
KeyId ChainKey(KeyId parent, std::span<const uint32_t> tokens, IdentityId identity);

struct PrefixEntry {
  KeyId key;
  PageId page{-1};
  Tag tag = 0;             // of the page, when published
  Stamp stamp = kNoStamp;  // of the content that the publisher expects there
  IdentityId identity;
};

enum class LookupOutcome : uint8_t {
  kHit,
  kMiss,
  kStale,        // the page has been returned or issued again since: reason stale_index_entry
  kQuarantined,  // the page is suspect
};

struct LookupResult {
  LookupOutcome outcome = LookupOutcome::kMiss;
  PrefixEntry entry;  // nothing meaningful at a miss; at kStale what the entry claims
};

// hits: entries of keys[0..hits.size()); stop: why the next key isn't among them, kHit if all are.
struct PrefixMatch {
  std::vector<PrefixEntry> hits;
  LookupResult stop;
};

enum class PublishOutcome : uint8_t {
  kPublished,
  kPresent,       // the key names a page already; the entry stays as it is
  kReplacedStale  // the key's stale entry was removed (its listener heard), the new one stands
};

struct Eviction {
  PageId page;
  PageState state;  // kFree, or kRetired when that was its last generation
  size_t keys;      // entries that named it
};

// Hears what leaves, in the order in which it happens: each entry of a page, then the page. Called
// from within index calls; must not call the index or its pool.
class IndexListener {
 public:
  virtual ~IndexListener() = default;
  virtual void OnUnpublish(const PrefixEntry& entry) = 0;  // event `unpublish`
  virtual void OnReturn(PageId page) = 0;                  // event `free`
};

struct PrefixEntries;  // the entries

// Not thread-safe; on its pool's thread. Publish, Lookup, Unpublish and EvictOne take constant time
// (per entry of the page), amortised over growth of the table.
class PrefixIndex {
 public:
  // Neither is owned; both must outlive the index. One PrefixIndex per pool. On destruction the
  // remaining entries are dropped without a word to the listener, and their holds with them.
  explicit PrefixIndex(PagePool* pool, IndexListener* listener = nullptr);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // `key` names `page` from now on, with the page's present tag. A page may have several keys.
  // Refused as PagePool::HoldForIndex is: the page must be held in this pool and not quarantined.
  Result<PublishOutcome> Publish(KeyId key, PageId page, Stamp stamp, IdentityId identity);

  // Doesn't hold the page and doesn't change the eviction order: AddReference a hit before the next
  // EvictOne. The caller compares entry.identity with the request's (reason key_mismatch).
  LookupResult Lookup(KeyId key) const;
  // The longest prefix of `keys` that hits.
  PrefixMatch MatchPrefix(std::span<const KeyId> keys) const;

  // Takes the entry out and drops its hold; a page that nobody else has goes back. Refused
  // (kInvalidArgument) for an unknown key. A stale entry goes without touching the pool. If the
  // hold had been dropped behind the index's back: the entry goes, and kFailedPrecondition says so.
  Status Unpublish(KeyId key);
  // Takes out every entry of the page, oldest first (a suspect page leaves the index). No entry:
  // ok.
  Status UnpublishPage(PageId page);
  // Takes out everything, oldest entry first.
  Status Clear();

  // Takes the entries of OldestEvictable() out, by which that page goes back.
  // kResourceExhausted: nothing is evictable. kFailedPrecondition: the page is held in the index's
  // name by something else.
  Result<Eviction> EvictOne();

  size_t size() const;  // entries, stale ones included
  // Compares entries, their lists by page, and the pool's holds; O(pages + entries). Nothing: in
  // order. Stale entries aren't a breach (stale_entries counts them), holds that disagree are.
  std::optional<AuditBreach> Audit() const;
  uint64_t stale_entries() const;  // O(entries)

 private:
  friend struct PrefixIndexPeer;  // tests, to damage the entries and see Audit find it
  std::unique_ptr<PrefixEntries> table_;
};

// Issues a page, evicting as long as none is free. Nothing: the pool is full of held pages.
std::optional<PageId> IssueEvicting(PagePool& pool, PrefixIndex& index);

}  // namespace kvfence
