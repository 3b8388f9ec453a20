// The books of one page space, shared by the pools that draw from it. Private to the allocator.
//
// Idea: one record of 16 bytes per page holds facts only: who has the page, and its neighbours in
// the list that it waits in (the free list, its pool's eviction list, or none). State and list
// follow from the facts (Where); whoever changes a fact asks Where() before and calls Settle()
// after, and that is the only writer of lists and counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvfence/page_pool.h"
#include "kvfence/tag_table.h"

namespace kvfence {

inline constexpr uint32_t kNoPageIndex = 0xFFFFFFFFu;
inline constexpr uint8_t kNoPool = 0x7F;
inline constexpr size_t kMaxPools = kNoPool;

// At 1M pages a call costs what its cache misses cost: the record is as small as it can be, and the
// links are words of their own, so that storing one never waits for the rest of a record to arrive.
struct PageFacts {
  uint32_t next = kNoPageIndex;  // in the list that the page waits in
  uint32_t prev = kNoPageIndex;
  uint16_t references = 0;
  uint16_t pins_in = 0;
  uint16_t pins_out = 0;
  uint8_t index_holds = 0;
  uint8_t pool : 7 = kNoPool;  // index of the pool that it's issued to
  uint8_t quarantined : 1 = 0;

  bool pinned() const { return pins_in != 0 || pins_out != 0; }
  bool held() const { return references != 0 || index_holds != 0; }
};
static_assert(sizeof(PageFacts) == 16);

enum class PageList : uint8_t { kNone, kFree, kEvictable };

// Where a page is: what it's counted as, and where it waits.
struct PagePlace {
  PageState state;
  PageList list;
  uint8_t pool;
};

// Head is what is taken next.
struct PageListEnds {
  uint32_t head = kNoPageIndex;
  uint32_t tail = kNoPageIndex;
  uint64_t size = 0;
};

struct PoolBooks {
  PoolId id;
  PageListEnds evictable;
  uint64_t by_state[kPageStateCount] = {};
};

struct PageSpace {
  explicit PageSpace(const PoolOptions& options);

  // What the page's facts imply.
  PagePlace Where(uint32_t page) const {
    const PageFacts& record = records[page];
    const Tag tag = tags.tag(PageId(page));
    auto place = [&](PageState state, PageList list = PageList::kNone) {
      return PagePlace{state, list, record.pool};
    };
    if (page == null_page) return place(PageState::kNull);
    if (!TagLive(tag) && TagExhausted(tag)) return place(PageState::kRetired);
    if (record.quarantined) return place(PageState::kQuarantined);
    if (!TagLive(tag)) return place(PageState::kFree, PageList::kFree);
    if (record.references != 0) return place(PageState::kLive);
    if (record.index_holds == 0) return place(PageState::kDraining);
    if (record.pinned()) return place(PageState::kCached);
    return place(PageState::kCached, PageList::kEvictable);
  }
  // After a change of facts: sends the page back if nobody has it any more, then moves it from
  // where it was to the list and count that fit. Says what became of the page.
  PageChange Settle(uint32_t page, const PagePlace& before);
  // Takes a page off the free list and issues it to pool `pool`.
  void IssueFree(uint32_t page, uint8_t pool);
  // Puts an evictable page at the end of its list.
  void MoveToTail(uint32_t page);

  void Append(PageListEnds& ends, uint32_t page);
  void Prepend(PageListEnds& ends, uint32_t page);
  void Remove(PageListEnds& ends, uint32_t page);

  // Where pages of this state and owner are counted: in their pool, or in the space.
  uint64_t& Count(const PagePlace& place) {
    const auto state = static_cast<size_t>(place.state);
    return place.pool == kNoPool ? by_state[state] : pools[place.pool].by_state[state];
  }

  std::vector<PageFacts> records;
  TagTable tags;
  uint32_t null_page;
  ReuseOrder order;
  PageListEnds free_list;
  uint64_t by_state[kPageStateCount] = {};  // of pages that belong to no pool
  uint64_t pinned_pages = 0;
  std::vector<PoolBooks> pools;
};

// Compares the books with one another (page_audit.cc).
std::optional<AuditBreach> AuditSpace(const PageSpace& space);

}  // namespace kvfence
