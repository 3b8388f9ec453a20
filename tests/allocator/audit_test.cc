// Damages the books by hand, one field at a time; the audits must say what is wrong (I-51 to I-55).
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "allocator/page_space.h"
#include "allocator/prefix_table.h"
#include "kvfence/page_pool.h"
#include "kvfence/prefix_index.h"

namespace kvfence {

struct PagePoolPeer {
  static PageSpace& Space(PagePool& pool) { return *pool.space_; }
};
struct PrefixIndexPeer {
  static PrefixEntries& Table(PrefixIndex& index) { return *index.table_; }
};

namespace {

// Page 0 null; 1 live; 2, 3 cached and evictable (keys 2, 3); 4 draining; 5 quarantined; 6 to 8
// free.
struct Fixture {
  Fixture() {
    for (int64_t page = 1; page <= 5; ++page) Expect(pool->IssuePage(PageId(page)).ok());
    for (int64_t page = 2; page <= 3; ++page) {
      Expect(index.Publish(KeyId(page), PageId(page), kNoStamp, IdentityId()).ok());
      Expect(pool->Return(PageId(page)).ok());
    }
    Expect(pool->Pin(PageId(4), PinDir::kOut).ok());
    Expect(pool->Return(PageId(4)).ok());
    Expect(pool->Return(PageId(5)).ok());
    Expect(pool->Quarantine(PageId(5)).ok());
  }
  static void Expect(bool ok) { EXPECT_TRUE(ok); }
  PageSpace& space() { return PagePoolPeer::Space(*pool); }

  std::unique_ptr<PagePool> pool = PagePool::Create(PoolOptions{.pages = 9}).value();
  PrefixIndex index{pool.get()};
};

// The damage must be found, about this page, in words that contain `what`.
void ExpectFound(int64_t page, const std::string& what,
                 const std::function<void(PageSpace&)>& damage) {
  Fixture fixture;
  ASSERT_FALSE(fixture.pool->Audit().has_value());
  const PageSpace saved = fixture.space();
  damage(fixture.space());
  const auto breach = fixture.pool->Audit();
  fixture.space() = saved;
  ASSERT_TRUE(breach.has_value()) << "not found: " << what;
  EXPECT_EQ(breach->page.value(), page) << breach->what;
  EXPECT_NE(breach->what.find(what), std::string::npos) << breach->what;
}

TEST(PoolAudit, FindsDamagedLinks) {  // I-52
  ExpectFound(6, "stands twice in the free list", [](PageSpace& s) { s.records[8].next = 6; });
  ExpectFound(8, "links beyond the pool", [](PageSpace& s) { s.records[8].next = 1000; });
  ExpectFound(7, "broken backward link", [](PageSpace& s) { s.records[7].prev = 8; });
  ExpectFound(8, "ends before its tail", [](PageSpace& s) { s.free_list.tail = 7; });
  ExpectFound(3, "backward link in the eviction list",
              [](PageSpace& s) { s.pools[0].evictable.head = 3; });
}

TEST(PoolAudit, FindsPagesInTheWrongPlace) {  // I-52
  ExpectFound(7, "doesn't belong, but is in the free list",
              [](PageSpace& s) { s.records[7].quarantined = 1; });
  ExpectFound(2, "doesn't belong, but is in the eviction list",
              [](PageSpace& s) { s.records[2].pins_out = 1; });
  ExpectFound(6, "of another pool", [](PageSpace& s) { s.records[6].pool = 0; });
  ExpectFound(7, "but isn't there", [](PageSpace& s) { s.Remove(s.free_list, 7); });
}

TEST(PoolAudit, FindsHoldersThatDontFitTheTag) {  // I-6, I-51
  ExpectFound(0, "is the null page", [](PageSpace& s) { s.records[0].references = 1; });
  ExpectFound(6, "went back while held", [](PageSpace& s) { s.records[6].references = 1; });
  ExpectFound(6, "went back while held or pinned", [](PageSpace& s) { s.records[6].pins_in = 1; });
  ExpectFound(4, "a leak", [](PageSpace& s) { s.records[4].pins_out = 0; });
  ExpectFound(1, "is issued to no pool", [](PageSpace& s) { s.records[1].pool = 7; });
  ExpectFound(5, "belongs to a pool, but went back", [](PageSpace& s) { s.records[5].pool = 0; });
  ExpectFound(5, "is issued to no pool",
              [](PageSpace& s) { EXPECT_TRUE(s.tags.Issue(PageId(5)).ok()); });
}

TEST(PoolAudit, FindsWrongCounts) {  // I-54
  ExpectFound(-1, "3 pages in the free list, counted 2",
              [](PageSpace& s) { s.free_list.size = 2; });
  ExpectFound(-1, "1 pages are live, counted 0",
              [](PageSpace& s) { s.pools[0].by_state[static_cast<size_t>(PageState::kLive)] = 0; });
  ExpectFound(-1, "3 pages are free, counted 9",
              [](PageSpace& s) { s.by_state[static_cast<size_t>(PageState::kFree)] = 9; });
  ExpectFound(-1, "1 pages are pinned, counted 5", [](PageSpace& s) { s.pinned_pages = 5; });
}

void ExpectIndexFound(int64_t page, const std::string& what,
                      const std::function<void(PrefixEntries&)>& damage, bool stale = false) {
  Fixture fixture;
  if (stale) Fixture::Expect(fixture.pool->DropIndexHold(PageId(3)).ok());
  ASSERT_FALSE(fixture.index.Audit().has_value());
  PrefixEntries& table = PrefixIndexPeer::Table(fixture.index);
  const PrefixEntries saved = table;
  damage(table);
  const auto breach = fixture.index.Audit();
  table = saved;
  ASSERT_TRUE(breach.has_value()) << "not found: " << what;
  EXPECT_EQ(breach->page.value(), page) << breach->what;
  EXPECT_NE(breach->what.find(what), std::string::npos) << breach->what;
}

TEST(IndexAudit, FindsDamagedEntries) {  // I-55; node 0 is key 2 on page 2, node 1 key 3 on page 3
  ExpectIndexFound(2, "isn't found by its key", [](PrefixEntries& t) { t.by_key[2] = 1; });
  ExpectIndexFound(2, "isn't found by its key", [](PrefixEntries& t) { t.by_key.erase(2); });
  ExpectIndexFound(-1, "2 entries by age, 3 by key", [](PrefixEntries& t) { t.by_key[99] = 0; });
  ExpectIndexFound(-1, "by age is a circle", [](PrefixEntries& t) { t.nodes[1].by_age.next = 0; });
  ExpectIndexFound(2, "run in a circle", [](PrefixEntries& t) { t.nodes[0].by_page.next = 0; });
  ExpectIndexFound(2, "lists another page's entry",
                   [](PrefixEntries& t) { t.nodes[0].entry.page = PageId(3); });
  ExpectIndexFound(3, "0 entries name it, the pool counts 1",
                   [](PrefixEntries& t) { t.pages[3].head = kNoEntry; });
  ExpectIndexFound(
      -1, "stands on no page", [](PrefixEntries& t) { t.pages[3].head = kNoEntry; },
      /*stale=*/true);
}

// Issuing from damaged books must stop the process, not hand out the page.
TEST(PoolDeathTest, ANullPageInTheFreeListStopsTheProcess) {  // I-6
  Fixture fixture;
  fixture.space().Prepend(fixture.space().free_list, 0);
  EXPECT_DEATH(fixture.pool->Issue(), "I-6");
  fixture.space().Remove(fixture.space().free_list, 0);
}

TEST(PoolDeathTest, AHeldPageInTheFreeListStopsTheProcess) {  // I-52
  Fixture fixture;
  fixture.space().records[6].references = 1;
  EXPECT_DEATH(fixture.pool->Issue(), "I-52");
  fixture.space().records[6].references = 0;
  fixture.space().records[6].pins_out = 1;
  EXPECT_DEATH(fixture.pool->Issue(), "I-52");
  fixture.space().records[6].pins_out = 0;
}

TEST(PoolDeathTest, AQuarantinedPageInTheFreeListStopsTheProcess) {  // I-53
  Fixture fixture;
  fixture.space().records[6].quarantined = 1;
  EXPECT_DEATH(fixture.pool->Issue(), "I-52");
  fixture.space().records[6].quarantined = 0;
}

}  // namespace
}  // namespace kvfence
