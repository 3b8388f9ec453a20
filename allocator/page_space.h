// The books of one page space, shared by the pools that draw from it. Private to the allocator.
//
// Idea: one record per page; a page waits in the free list, in its pool's eviction list, or in
// none. Both lists run through the records, so that putting in and taking out cost no memory. State
// and list follow from the facts (Classify, ListFor), and Place() is the only writer of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvfence/page_pool.h"
#include "kvfence/tag_table.h"

namespace kvfence {

inline constexpr uint32_t kNoPage = 0xFFFFFFFFu;
inline constexpr uint32_t kNoPool = 0xFFFFu;
inline constexpr uint32_t kMaxPools = 0xFFFFu;

enum class PageList : uint8_t { kNone, kFree, kEvictable };

struct PageRecord {
  uint32_t next = kNoPage;  // in the list that the page waits in
  uint32_t prev = kNoPage;
  uint32_t references = 0;
  uint32_t index_holds = 0;
  uint16_t pins_in = 0;
  uint16_t pins_out = 0;
  uint16_t pool = kNoPool;  // index of the pool that it's issued to
  bool quarantined = false;
  PageState state = PageState::kNull;
  PageList list = PageList::kNone;

  bool pinned() const { return pins_in != 0 || pins_out != 0; }
  bool held() const { return references != 0 || index_holds != 0; }
};

// Head is what is taken next.
struct PageListEnds {
  uint32_t head = kNoPage;
  uint32_t tail = kNoPage;
  uint64_t size = 0;
};

struct PoolBooks {
  PoolId id;
  PageListEnds evictable;
  uint64_t by_state[kPageStateCount] = {};
};

struct PageSpace {
  explicit PageSpace(const PoolOptions& options);

  // The state and list that a page's facts imply.
  PageState Classify(uint32_t page) const;
  static PageList ListFor(PageState state, const PageRecord& record);

  // After a change of facts: sends the page back if nobody has it any more, then moves it to the
  // state, count and list that fit. True if the page went back.
  bool Place(uint32_t page);
  // Takes a page off the free list and issues it to pool `pool`.
  void IssueFree(uint32_t page, uint32_t pool);
  // Puts an evictable page at the end of its list.
  void MoveToTail(uint32_t page);

  void Append(PageListEnds& ends, uint32_t page);
  void Prepend(PageListEnds& ends, uint32_t page);
  void Remove(PageListEnds& ends, uint32_t page);

  // Where pages of this state and owner are counted: in their pool, or in the space.
  uint64_t& Count(PageState state, uint16_t pool);

  std::vector<PageRecord> records;
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
