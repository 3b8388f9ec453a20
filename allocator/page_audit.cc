// The conservation audit of a page space: walks lists and records, and compares what they say.
//
// It trusts no counter and no link: lists are walked with a bound, so a cycle ends as a breach.
#include <string>
#include <vector>

#include "page_space.h"

namespace kvfence {
namespace {

AuditBreach Breach(uint32_t page, std::string what) {
  return AuditBreach{PageId(page == kNoPageIndex ? int64_t{-1} : int64_t{page}), std::move(what)};
}

// Walks one list; every page on it must say that it's there, once, and link back.
std::optional<AuditBreach> AuditList(const PageSpace& space, const PageListEnds& ends,
                                     PageList list, uint8_t pool, const char* name,
                                     std::vector<bool>& seen) {
  const std::string in = std::string(" in the ") + name + " list";
  uint64_t walked = 0;
  uint32_t prev = kNoPageIndex;
  for (uint32_t page = ends.head; page != kNoPageIndex; page = space.records[page].next) {
    if (page >= space.records.size()) return Breach(prev, "links beyond the pool" + in);
    if (seen[page]) return Breach(page, "stands twice" + in);
    seen[page] = true;
    const PageFacts& record = space.records[page];
    if (space.Where(page).list != list) return Breach(page, "doesn't belong, but is" + in);
    if (record.pool != pool) return Breach(page, "of another pool is" + in);
    if (record.prev != prev) return Breach(page, "has a broken backward link" + in);
    prev = page;
    ++walked;
  }
  if (ends.tail != prev) return Breach(prev, "ends before its tail" + in);
  if (ends.size != walked) {
    return Breach(kNoPageIndex, std::to_string(walked) + " pages" + in + ", counted " +
                                    std::to_string(ends.size));
  }
  return std::nullopt;
}

// One page's record against its own facts.
std::optional<AuditBreach> AuditRecord(const PageSpace& space, uint32_t page) {
  const PageFacts& record = space.records[page];
  const bool live = space.tags.Live(PageId(page));
  if (page == space.null_page && (live || record.held() || record.pinned() || record.quarantined)) {
    return Breach(page, "is the null page, but somebody has it (I-6)");
  }
  if (live && record.pool >= space.pools.size()) return Breach(page, "is issued to no pool");
  if (!live && record.pool != kNoPool) return Breach(page, "belongs to a pool, but went back");
  if (!live && (record.held() || record.pinned())) {
    return Breach(page, "went back while held or pinned (I-51)");
  }
  if (live && !record.held() && !record.pinned()) {
    return Breach(page, "is had by nobody, but didn't go back: a leak (I-51)");
  }
  return std::nullopt;
}

std::optional<AuditBreach> AuditCounts(const PageSpace& space) {
  std::vector<PoolBooks> counted(space.pools.size() + 1);  // the last: of no pool
  uint64_t pinned = 0;
  for (uint32_t page = 0; page < space.records.size(); ++page) {
    const PagePlace place = space.Where(page);
    PoolBooks& books = place.pool == kNoPool ? counted.back() : counted[place.pool];
    ++books.by_state[static_cast<size_t>(place.state)];
    pinned += space.records[page].pinned() ? 1 : 0;
  }
  for (size_t pool = 0; pool < counted.size(); ++pool) {
    const uint64_t* said = pool == space.pools.size() ? space.by_state : space.pools[pool].by_state;
    for (int state = 0; state < kPageStateCount; ++state) {
      if (said[state] == counted[pool].by_state[state]) continue;
      return Breach(kNoPageIndex, std::to_string(counted[pool].by_state[state]) + " pages are " +
                                      std::string(PageStateName(static_cast<PageState>(state))) +
                                      ", counted " + std::to_string(said[state]) + " (I-54)");
    }
  }
  if (pinned != space.pinned_pages) {
    return Breach(kNoPageIndex, std::to_string(pinned) + " pages are pinned, counted " +
                                    std::to_string(space.pinned_pages));
  }
  return std::nullopt;
}

}  // namespace

std::optional<AuditBreach> AuditSpace(const PageSpace& space) {
  std::vector<bool> seen(space.records.size());
  auto breach = AuditList(space, space.free_list, PageList::kFree, kNoPool, "free", seen);
  if (breach) return breach;
  for (size_t pool = 0; pool < space.pools.size(); ++pool) {
    breach = AuditList(space, space.pools[pool].evictable, PageList::kEvictable,
                       static_cast<uint8_t>(pool), "eviction", seen);
    if (breach) return breach;
  }
  for (uint32_t page = 0; page < space.records.size(); ++page) {
    if ((breach = AuditRecord(space, page))) return breach;
    if (!seen[page] && space.Where(page).list != PageList::kNone) {
      return Breach(page, "belongs in a list, but isn't there (I-52)");
    }
  }
  return AuditCounts(space);
}

}  // namespace kvfence
