// PagePool: the paged-block allocator: free list, references, pins, quarantine, tags.
//
// Idea: each page has one state, and the state follows from four facts: its tag (odd = issued), the
// request references, the index holds and the pins. Every operation changes one fact and
// reclassifies the page, so lists and counts can't drift from it. Several pools may draw from one
// page space (one numbering, one free list, one tag per page; a page belongs to one pool at a
// time).
//
// Invariants: a page goes back, and its tag grows, only when nobody refers to it and no pin is left
// (I-51); a page is in at most one list, and only a page in the free list is issued (I-52); a
// quarantined page gains no holder and is never issued (I-53); the null page never is (I-6); the
// counts by state add up to the pages of the space (I-54).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvfence/status.h"
#include "kvfence/tag.h"
#include "kvfence/types.h"

namespace kvfence {

// Which free page is issued next: the one returned last (finds bugs, warm caches) or first.
enum class ReuseOrder : uint8_t { kLifo, kFifo };

// What a copy does with the page that it pins.
enum class PinDir : uint8_t { kIn, kOut };

// Where a page is. When several apply the earlier in this order does:
//   kNull        the page that nobody owns; never issued
//   kRetired     returned, and its tags are used up; never issued again
//   kQuarantined suspect: whoever still holds it, nobody else gets it
//   kLive        a request refers to it
//   kCached      only the prefix index refers to it
//   kDraining    nobody refers to it, a pin is left; it goes back at the last Unpin
//   kFree        may be issued
enum class PageState : uint8_t {
  kNull,
  kRetired,
  kQuarantined,
  kLive,
  kCached,
  kDraining,
  kFree,
};
inline constexpr int kPageStateCount = 7;
std::string_view PageStateName(PageState state);

struct PoolOptions {
  PoolId id{0};                          // named in messages, and the owner in PageInfo
  int64_t pages = 0;                     // of the space, the null page counted; 2 .. 2^31-1
  PageId null_page{0};                   // never issued
  ReuseOrder order = ReuseOrder::kLifo;  // of the space
  Tag first_tag = 0;                     // every page's tag at the start (even)
};

// What a call made of its page.
struct PageChange {
  PageState state;        // after the call
  bool returned = false;  // the page went back in this call: its tag has grown, say `free` now
};

struct PageInfo {
  PageState state;
  Tag tag;
  uint32_t references;   // by requests
  uint32_t index_holds;  // by index entries
  uint32_t pins_in, pins_out;
  bool quarantined;
  std::optional<PoolId> pool;  // to whom it is issued
};

// Live, cached, draining and held quarantined pages are this pool's; free, retired, idle
// quarantined and null pages belong to the space and show in every pool of it.
struct PoolCounts {
  uint64_t pages = 0;  // of the space
  uint64_t free = 0;
  uint64_t live = 0;
  uint64_t cached = 0;
  uint64_t evictable = 0;  // the cached ones that no pin keeps
  uint64_t draining = 0;
  uint64_t quarantined = 0;
  uint64_t retired = 0;
  uint64_t pinned = 0;  // pages of the space with a pin, in whatever state
};

// The first thing that an audit found wrong with our own books.
struct AuditBreach {
  PageId page{-1};  // -1: not about one page
  std::string what;
};

struct PageSpace;  // the pages, shared by the pools that draw from them

// Not thread-safe: all pools of a space belong to one thread (the scheduler's). All calls but Audit
// take constant time; none but Create and refusals allocates. Refusals leave everything as it was:
// kInvalidArgument for a page beyond the space or the null page, kFailedPrecondition for a page in
// the wrong state (double return, another pool's page, quarantine), kResourceExhausted when a count
// would overflow (65,535 references or pins of a direction, 255 index holds, on one page).
class PagePool {
 public:
  static Result<std::unique_ptr<PagePool>> Create(const PoolOptions& options);
  // Another pool on the same pages (vLLM's cache groups). Shares ownership of the space.
  Result<std::unique_ptr<PagePool>> CreateSibling(PoolId id);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Takes the next free page; it's live with one reference and a new tag. None: the free list is
  // empty (evict, then ask again; see PrefixIndex::EvictOne).
  std::optional<PageId> Issue();
  // Fills `out` with issued pages, or issues nothing and returns false when fewer are free.
  bool IssueAll(std::span<PageId> out);
  // Takes this very page from the free list (replay of a log).
  Status IssuePage(PageId page);

  // One more request refers to a page that is live or cached in this pool.
  Result<PageChange> AddReference(PageId page);
  // One request gives its reference back. With no other reference, hold or pin the page goes back.
  // Release a request's pages last logical page first: then a chain is evicted from its tail.
  Result<PageChange> Return(PageId page);

  // A copy into or out of a held page has begun, or has ended. A pinned page is neither reused nor
  // evicted; the last Unpin of a page that nobody refers to sends it back.
  Result<PageChange> Pin(PageId page, PinDir dir);
  Result<PageChange> Unpin(PageId page, PinDir dir);

  // An index entry names the page, or no longer does. For PrefixIndex and for an engine's own
  // index; dropping a hold behind an index's back leaves a stale entry.
  Result<PageChange> HoldForIndex(PageId page);
  Result<PageChange> DropIndexHold(PageId page);
  // A cached page was looked at: it becomes the last to be evicted.
  Status Touch(PageId page);
  // The cached, unpinned page that has waited longest since it was held or touched.
  std::optional<PageId> OldestEvictable() const;

  // Sets a page apart, held or free; already quarantined: nothing changes. Holders keep their
  // references, but no one gains one. Refused for retired pages.
  Result<PageChange> Quarantine(PageId page);
  // Ends it, for a page without references, holds and pins: it's free again (or retired).
  Result<PageChange> EndQuarantine(PageId page);

  PoolId id() const { return id_; }
  int64_t pages() const;  // of the space
  PageId null_page() const;
  // The page's present tag; kTagRetired, which no expectation holds, beyond the space.
  Tag tag(PageId page) const;
  // All tags of the space by page; valid as long as a pool of the space.
  std::span<const Tag> tags() const;
  // Nothing for a page beyond the space.
  std::optional<PageInfo> Describe(PageId page) const;
  PoolCounts counts() const;
  // Compares lists, states, tags and counts of the whole space with one another, O(pages). Nothing:
  // the books are in order.
  std::optional<AuditBreach> Audit() const;

 private:
  friend struct PagePoolPeer;  // tests, to damage the books and see Audit find it
  PagePool(std::shared_ptr<PageSpace> space, PoolId id, uint8_t index);
  // Why no pool could work on this page: beyond the space, or the null page.
  Status RefuseIndex(PageId page, const char* verb) const;
  // Why this page can't be worked on in this pool's name; ok if it's issued to this pool.
  Status Refuse(PageId page, const char* verb) const;
  Status Wrong(PageId page, const char* verb, const char* why) const;

  std::shared_ptr<PageSpace> space_;
  PoolId id_;
  uint8_t index_;  // among the pools of the space
};

}  // namespace kvfence
