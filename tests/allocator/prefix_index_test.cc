// PrefixIndex by example: keys, hits, stale and quarantined entries, eviction order, what it says.
#include "kvfence/prefix_index.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kvfence {
namespace {

struct Ear : IndexListener {
  void OnUnpublish(const PrefixEntry& entry) override {
    heard.push_back("unpublish " + std::to_string(entry.key.value()));
  }
  void OnReturn(PageId page) override { heard.push_back("free " + std::to_string(page.value())); }
  std::vector<std::string> heard;
};

class PrefixIndexTest : public ::testing::Test {
 protected:
  // A page that one request holds, published under `key`.
  PageId Publish(uint64_t key) {
    const PageId page = *pool->Issue();
    Result<PublishOutcome> done = index.Publish(KeyId(key), page, MakeStamp(key, 2), IdentityId(9));
    EXPECT_TRUE(done.ok() && *done == PublishOutcome::kPublished);
    return page;
  }
  // The same after the request has ended.
  PageId Cache(uint64_t key) {
    const PageId page = Publish(key);
    EXPECT_TRUE(pool->Return(page).ok());
    return page;
  }
  LookupOutcome Look(uint64_t key) const { return index.Lookup(KeyId(key)).outcome; }

  std::unique_ptr<PagePool> pool = PagePool::Create(PoolOptions{.pages = 5}).value();
  Ear ear;
  PrefixIndex index{pool.get(), &ear};
};

TEST(ChainKey, DependsOnEverythingThatTheKvDependsOn) {
  const std::vector<uint32_t> tokens = {1, 2, 3, 4};
  const KeyId base = ChainKey(KeyId(), tokens, IdentityId(0));
  EXPECT_EQ(base, ChainKey(KeyId(), tokens, IdentityId(0)));
  std::set<uint64_t> keys = {base.value()};
  auto differs = [&](KeyId key) { return keys.insert(key.value()).second; };
  EXPECT_TRUE(differs(ChainKey(KeyId(1), tokens, IdentityId(0))));
  EXPECT_TRUE(differs(ChainKey(base, tokens, IdentityId(0))));
  EXPECT_TRUE(differs(ChainKey(KeyId(), tokens, IdentityId(1))));
  EXPECT_TRUE(differs(ChainKey(KeyId(1), tokens, IdentityId(1))));
  EXPECT_TRUE(differs(ChainKey(KeyId(), std::vector<uint32_t>{2, 1, 3, 4}, IdentityId(0))));
  EXPECT_TRUE(differs(ChainKey(KeyId(), std::vector<uint32_t>{1, 2, 3}, IdentityId(0))));
  EXPECT_TRUE(differs(ChainKey(KeyId(), std::vector<uint32_t>{1, 2, 3, 4, 0}, IdentityId(0))));
  EXPECT_TRUE(differs(ChainKey(KeyId(), {}, IdentityId(0))));
}

TEST(ChainKey, IsTheSameOnEveryMachine) {  // I-20
  const std::vector<uint32_t> tokens = {7, 8, 9};
  EXPECT_EQ(ChainKey(KeyId(42), tokens, IdentityId(3)).value(), 10297276314684864930u);
}

TEST_F(PrefixIndexTest, ALookupTellsWhatWasPublished) {
  const PageId page = Publish(7);
  const LookupResult found = index.Lookup(KeyId(7));
  EXPECT_EQ(found.outcome, LookupOutcome::kHit);
  EXPECT_EQ(found.entry.page, page);
  EXPECT_EQ(found.entry.tag, pool->tag(page));
  EXPECT_EQ(found.entry.stamp, MakeStamp(7, 2));
  EXPECT_EQ(found.entry.identity, IdentityId(9));
  EXPECT_EQ(Look(8), LookupOutcome::kMiss);
  EXPECT_EQ(index.size(), 1u);
}

TEST_F(PrefixIndexTest, AnEntryHoldsItsPageWhenTheRequestHasGone) {
  const PageId page = Cache(7);
  EXPECT_EQ(pool->Describe(page)->state, PageState::kCached);
  EXPECT_EQ(pool->tag(page), 1u);
  EXPECT_EQ(Look(7), LookupOutcome::kHit);
  ASSERT_TRUE(pool->AddReference(page).ok());
  EXPECT_EQ(pool->Describe(page)->state, PageState::kLive);
  EXPECT_EQ(index.EvictOne().status().code(), StatusCode::kResourceExhausted);
}

TEST_F(PrefixIndexTest, APresentKeyKeepsItsPage) {
  const PageId first = Publish(7);
  const PageId second = *pool->Issue();
  Result<PublishOutcome> again = index.Publish(KeyId(7), second, kNoStamp, IdentityId(0));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, PublishOutcome::kPresent);
  EXPECT_EQ(index.Lookup(KeyId(7)).entry.page, first);
  EXPECT_EQ(pool->Describe(second)->index_holds, 0u);
}

TEST_F(PrefixIndexTest, RefusesToPublishWhatNobodyHolds) {
  auto code = [&](int64_t page) {
    return index.Publish(KeyId(1), PageId(page), kNoStamp, IdentityId(0)).status().code();
  };
  EXPECT_EQ(code(0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(-1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(5), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(3), StatusCode::kFailedPrecondition);
  EXPECT_EQ(index.size(), 0u);
}

TEST_F(PrefixIndexTest, AnEntryThatOutlivedItsPageIsStaleNotAHit) {  // I-55
  const PageId page = Cache(7);
  ASSERT_TRUE(pool->DropIndexHold(page).ok());  // evicted without unpublish
  EXPECT_EQ(Look(7), LookupOutcome::kStale);
  EXPECT_EQ(pool->Issue(), page);
  EXPECT_EQ(Look(7), LookupOutcome::kStale);  // now it's another's private page
  EXPECT_EQ(index.stale_entries(), 1u);
  EXPECT_EQ(index.Lookup(KeyId(7)).entry.tag, 1u);

  EXPECT_TRUE(index.Unpublish(KeyId(7)).ok());
  EXPECT_EQ(ear.heard, std::vector<std::string>{"unpublish 7"});
  EXPECT_EQ(pool->Describe(page)->state, PageState::kLive);
  EXPECT_EQ(pool->Describe(page)->references, 1u);
}

TEST_F(PrefixIndexTest, AStaleEntryGivesWayToANewOne) {
  const PageId page = Cache(7);
  ASSERT_TRUE(pool->DropIndexHold(page).ok());
  ASSERT_EQ(pool->Issue(), page);
  Result<PublishOutcome> done = index.Publish(KeyId(7), page, MakeStamp(8, 0), IdentityId(9));
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(*done, PublishOutcome::kReplacedStale);
  EXPECT_EQ(ear.heard, std::vector<std::string>{"unpublish 7"});
  EXPECT_EQ(Look(7), LookupOutcome::kHit);
  EXPECT_EQ(index.Lookup(KeyId(7)).entry.stamp, MakeStamp(8, 0));
  EXPECT_EQ(pool->Describe(page)->index_holds, 1u);
  EXPECT_FALSE(index.Audit().has_value());
}

TEST_F(PrefixIndexTest, AQuarantinedPageIsNoHit) {  // I-53
  const PageId page = Cache(7);
  ASSERT_TRUE(pool->Quarantine(page).ok());
  EXPECT_EQ(Look(7), LookupOutcome::kQuarantined);
  EXPECT_TRUE(index.UnpublishPage(page).ok());
  EXPECT_EQ(Look(7), LookupOutcome::kMiss);
  EXPECT_EQ(ear.heard, (std::vector<std::string>{"unpublish 7", "free 1"}));
  EXPECT_EQ(pool->Describe(page)->state, PageState::kQuarantined);
}

TEST_F(PrefixIndexTest, MatchesTheLongestPrefixAndSaysWhyItStops) {
  Publish(1);
  Publish(2);
  const PageId third = Cache(3);
  const std::vector<KeyId> keys = {KeyId(1), KeyId(2), KeyId(3)};
  PrefixMatch match = index.MatchPrefix(keys);
  EXPECT_EQ(match.hits.size(), 3u);
  EXPECT_EQ(match.stop.outcome, LookupOutcome::kHit);

  ASSERT_TRUE(pool->DropIndexHold(third).ok());
  match = index.MatchPrefix(keys);
  EXPECT_EQ(match.hits.size(), 2u);
  EXPECT_EQ(match.stop.outcome, LookupOutcome::kStale);
  EXPECT_EQ(match.stop.entry.key, KeyId(3));

  match = index.MatchPrefix(std::vector<KeyId>{KeyId(1), KeyId(4), KeyId(2)});
  EXPECT_EQ(match.hits.size(), 1u);
  EXPECT_EQ(match.stop.outcome, LookupOutcome::kMiss);
}

TEST_F(PrefixIndexTest, EvictsWhatWaitedLongestAndSaysUnpublishBeforeFree) {
  const PageId first = Cache(1);
  const PageId second = Cache(2);
  ASSERT_TRUE(pool->AddReference(first).ok());  // hit again
  ASSERT_TRUE(pool->Return(first).ok());
  Result<Eviction> evicted = index.EvictOne();
  ASSERT_TRUE(evicted.ok());
  EXPECT_EQ(evicted->page, second);
  EXPECT_EQ(evicted->state, PageState::kFree);
  EXPECT_EQ(evicted->keys, 1u);
  EXPECT_EQ(ear.heard, (std::vector<std::string>{"unpublish 2", "free 2"}));
  EXPECT_EQ(index.EvictOne().value().page, first);
  EXPECT_EQ(index.EvictOne().status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->counts().free, 4u);
}

TEST_F(PrefixIndexTest, APageWithSeveralKeysLeavesWithAllOfThem) {
  const PageId page = Publish(5);
  ASSERT_TRUE(index.Publish(KeyId(4), page, kNoStamp, IdentityId(0)).ok());
  ASSERT_TRUE(index.Publish(KeyId(6), page, kNoStamp, IdentityId(0)).ok());
  ASSERT_TRUE(pool->Return(page).ok());
  ASSERT_TRUE(index.Unpublish(KeyId(4)).ok());
  EXPECT_EQ(pool->Describe(page)->state, PageState::kCached);
  Result<Eviction> evicted = index.EvictOne();
  ASSERT_TRUE(evicted.ok());
  EXPECT_EQ(evicted->keys, 2u);
  EXPECT_EQ(ear.heard,
            (std::vector<std::string>{"unpublish 4", "unpublish 5", "unpublish 6", "free 1"}));
}

TEST_F(PrefixIndexTest, ClearsOldestFirstAndKeepsWhatRequestsHold) {
  const PageId live = Publish(9);
  Cache(3);
  Cache(8);
  ASSERT_TRUE(index.Unpublish(KeyId(3)).ok());
  Cache(1);  // in the place of 3, but younger than 8
  ear.heard.clear();
  EXPECT_TRUE(index.Clear().ok());
  EXPECT_EQ(ear.heard, (std::vector<std::string>{"unpublish 9", "unpublish 8", "free 3",
                                                 "unpublish 1", "free 2"}));
  EXPECT_EQ(index.size(), 0u);
  EXPECT_EQ(pool->Describe(live)->state, PageState::kLive);
  EXPECT_EQ(pool->counts().live, 1u);
}

TEST_F(PrefixIndexTest, RefusesUnknownKeysAndPages) {
  EXPECT_EQ(index.Unpublish(KeyId(7)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(index.UnpublishPage(PageId(-1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(index.UnpublishPage(PageId(5)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(index.UnpublishPage(PageId(1)).ok());
}

TEST_F(PrefixIndexTest, SaysSoWhenItsHoldWasDropped) {
  const PageId page = Publish(7);
  ASSERT_TRUE(pool->DropIndexHold(page).ok());  // still live, so the entry isn't stale
  EXPECT_TRUE(index.Audit().has_value());
  EXPECT_EQ(index.Unpublish(KeyId(7)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(index.size(), 0u);
}

TEST_F(PrefixIndexTest, SaysSoWhenSomethingElseHoldsInItsName) {
  const PageId page = Cache(7);
  ASSERT_TRUE(pool->HoldForIndex(page).ok());
  EXPECT_TRUE(index.Audit().has_value());
  EXPECT_EQ(index.EvictOne().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(IssueEvicting(*pool, index).has_value(), true);  // three pages are free
}

TEST_F(PrefixIndexTest, IssueEvictingTakesFreePagesThenTheOldestCached) {
  const PageId oldest = Cache(1);
  const PageId younger = Cache(2);
  EXPECT_EQ(IssueEvicting(*pool, index), PageId(3));
  EXPECT_EQ(IssueEvicting(*pool, index), PageId(4));
  EXPECT_TRUE(ear.heard.empty());
  EXPECT_EQ(IssueEvicting(*pool, index), oldest);
  EXPECT_EQ(Look(1), LookupOutcome::kMiss);
  EXPECT_EQ(Look(2), LookupOutcome::kHit);
  EXPECT_EQ(IssueEvicting(*pool, index), younger);
  EXPECT_FALSE(IssueEvicting(*pool, index).has_value());
}

TEST(PrefixIndex, IssueEvictingGoesOnPastAPageThatRetires) {  // I-2
  auto pool = PagePool::Create(PoolOptions{.pages = 3, .first_tag = kTagRetired - 6}).value();
  PrefixIndex index(pool.get());
  ASSERT_TRUE(pool->IssuePage(PageId(1)).ok());
  ASSERT_TRUE(pool->Return(PageId(1)).ok());
  for (const int64_t page : {1, 2}) {
    ASSERT_TRUE(pool->IssuePage(PageId(page)).ok());
    ASSERT_TRUE(index.Publish(KeyId(page), PageId(page), kNoStamp, IdentityId(0)).ok());
    ASSERT_TRUE(pool->Return(PageId(page)).ok());
  }
  EXPECT_EQ(IssueEvicting(*pool, index), PageId(2));
  EXPECT_EQ(pool->counts().retired, 1u);
}

TEST(PrefixIndex, LeavesNoHoldsBehind) {
  auto pool = PagePool::Create(PoolOptions{.pages = 3}).value();
  {
    Ear ear;
    auto index = std::make_unique<PrefixIndex>(pool.get(), &ear);
    const PageId page = *pool->Issue();
    ASSERT_TRUE(index->Publish(KeyId(1), page, kNoStamp, IdentityId(0)).ok());
    ASSERT_TRUE(pool->Return(page).ok());
    EXPECT_EQ(pool->counts().cached, 1u);
    index.reset();
    EXPECT_TRUE(ear.heard.empty());
  }
  EXPECT_EQ(pool->counts().free, 2u);
}

}  // namespace
}  // namespace kvfence
