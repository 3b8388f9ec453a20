// PagePool by example: reuse order, references, pins, quarantine, retirement, refusals.
#include "kvfence/page_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kvfence {
namespace {

std::unique_ptr<PagePool> MakePool(int64_t pages, ReuseOrder order = ReuseOrder::kLifo,
                                   Tag first_tag = 0) {
  return PagePool::Create(PoolOptions{PoolId(0), pages, PageId(0), order, first_tag}).value();
}

StatusCode Code(const Result<PageChange>& result) { return result.status().code(); }

PageState StateOf(const PagePool& pool, PageId page) { return pool.Describe(page)->state; }

// The state after a call that must succeed; `returned` compared as well.
void ExpectChange(Result<PageChange> change, PageState state, bool returned) {
  ASSERT_TRUE(change.ok()) << change.status().message();
  EXPECT_EQ(PageStateName(change->state), PageStateName(state));
  EXPECT_EQ(change->returned, returned);
}

std::vector<int64_t> IssueAllPages(PagePool& pool) {
  std::vector<int64_t> pages;
  while (const auto page = pool.Issue()) pages.push_back(page->value());
  return pages;
}

TEST(PagePool, RefusesImpossibleOptions) {
  EXPECT_FALSE(PagePool::Create(PoolOptions{}).ok());
  EXPECT_FALSE(PagePool::Create(PoolOptions{.pages = 1}).ok());
  EXPECT_FALSE(PagePool::Create(PoolOptions{.pages = int64_t{1} << 31}).ok());
  EXPECT_FALSE(PagePool::Create(PoolOptions{.pages = 4, .null_page = PageId(4)}).ok());
  EXPECT_FALSE(PagePool::Create(PoolOptions{.pages = 4, .null_page = PageId(-1)}).ok());
  EXPECT_FALSE(PagePool::Create(PoolOptions{.pages = 4, .first_tag = 1}).ok());
  EXPECT_TRUE(PagePool::Create(PoolOptions{.pages = 4, .null_page = PageId(3)}).ok());
}

TEST(PagePool, IssuesEachPageOnceAndNeverTheNullPage) {  // I-6, I-52
  auto pool = PagePool::Create(PoolOptions{.pages = 8, .null_page = PageId(5)}).value();
  const std::vector<int64_t> pages = IssueAllPages(*pool);
  EXPECT_EQ(std::set<int64_t>(pages.begin(), pages.end()),
            (std::set<int64_t>{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(pages.size(), 7u);
  EXPECT_EQ(StateOf(*pool, PageId(5)), PageState::kNull);
  EXPECT_EQ(pool->IssuePage(PageId(5)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Code(pool->Return(PageId(5))), StatusCode::kInvalidArgument);
  EXPECT_EQ(Code(pool->Quarantine(PageId(5))), StatusCode::kInvalidArgument);
  EXPECT_EQ(Code(pool->EndQuarantine(PageId(5))), StatusCode::kInvalidArgument);
}

TEST(PagePool, LifoIssuesWhatCameBackLastFifoWhatCameBackFirst) {
  for (const ReuseOrder order : {ReuseOrder::kLifo, ReuseOrder::kFifo}) {
    auto pool = MakePool(5, order);
    EXPECT_EQ(IssueAllPages(*pool), (std::vector<int64_t>{1, 2, 3, 4}));
    for (const int64_t page : {2, 4, 1}) ASSERT_TRUE(pool->Return(PageId(page)).ok());
    const bool lifo = order == ReuseOrder::kLifo;
    EXPECT_EQ(IssueAllPages(*pool),
              lifo ? (std::vector<int64_t>{1, 4, 2}) : (std::vector<int64_t>{2, 4, 1}));
  }
}

TEST(PagePool, IssuesAllOrNothing) {
  auto pool = MakePool(5);
  std::vector<PageId> five(5);
  EXPECT_FALSE(pool->IssueAll(five));
  EXPECT_EQ(pool->counts().free, 4u);
  std::vector<PageId> four(4);
  EXPECT_TRUE(pool->IssueAll(four));
  EXPECT_EQ(pool->counts().free, 0u);
  EXPECT_EQ(pool->counts().live, 4u);
  EXPECT_TRUE(pool->IssueAll({}));
}

TEST(PagePool, IssuesAPageByNameFromTheMiddleOfTheFreeList) {
  auto pool = MakePool(5);
  EXPECT_TRUE(pool->IssuePage(PageId(3)).ok());
  EXPECT_EQ(pool->IssuePage(PageId(3)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(pool->IssuePage(PageId(5)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(IssueAllPages(*pool), (std::vector<int64_t>{1, 2, 4}));
}

TEST(PagePool, ASharedPageGoesBackWithItsLastReference) {  // I-51
  auto pool = MakePool(3);
  const PageId page = *pool->Issue();
  EXPECT_EQ(pool->tag(page), 1u);
  ExpectChange(pool->AddReference(page), PageState::kLive, false);
  ExpectChange(pool->Return(page), PageState::kLive, false);
  EXPECT_EQ(pool->tag(page), 1u);
  ExpectChange(pool->Return(page), PageState::kFree, true);
  EXPECT_EQ(pool->tag(page), 2u);
  EXPECT_EQ(pool->tags()[static_cast<size_t>(page.value())], 2u);
}

TEST(PagePool, ASecondReturnIsRefusedAndChangesNothing) {
  auto pool = MakePool(4);
  const PageId page = *pool->Issue();
  ASSERT_TRUE(pool->Return(page).ok());
  Result<PageChange> again = pool->Return(page);
  EXPECT_EQ(Code(again), StatusCode::kFailedPrecondition);
  EXPECT_NE(again.status().message().find("page 1"), std::string::npos) << again.status().message();
  EXPECT_EQ(pool->tag(page), 2u);
  EXPECT_EQ(pool->counts().free, 3u);
  EXPECT_EQ(IssueAllPages(*pool).size(), 3u);
}

TEST(PagePool, AReturnTooManyOfACachedPageIsRefused) {
  auto pool = MakePool(4);
  const PageId page = *pool->Issue();
  ExpectChange(pool->HoldForIndex(page), PageState::kLive, false);
  ExpectChange(pool->Return(page), PageState::kCached, false);
  EXPECT_EQ(Code(pool->Return(page)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(StateOf(*pool, page), PageState::kCached);
  ExpectChange(pool->DropIndexHold(page), PageState::kFree, true);
  EXPECT_EQ(Code(pool->DropIndexHold(page)), StatusCode::kFailedPrecondition);
}

TEST(PagePool, RefusesPagesBeyondTheSpaceInEveryCall) {
  auto pool = MakePool(4);
  for (const int64_t value : {int64_t{-1}, int64_t{4}, int64_t{1} << 32, INT64_MIN, INT64_MAX}) {
    const PageId page(value);
    EXPECT_EQ(Code(pool->AddReference(page)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->Return(page)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->Pin(page, PinDir::kIn)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->Unpin(page, PinDir::kOut)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->HoldForIndex(page)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->DropIndexHold(page)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->Quarantine(page)), StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(pool->EndQuarantine(page)), StatusCode::kInvalidArgument);
    EXPECT_EQ(pool->Touch(page).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(pool->IssuePage(page).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(pool->tag(page), kTagRetired);
    EXPECT_FALSE(pool->Describe(page).has_value());
  }
}

TEST(PagePool, AReturnedPageWithAPinDrainsAndKeepsItsTagUntilTheLastUnpin) {  // I-51
  auto pool = MakePool(2);
  const PageId page = *pool->Issue();
  ExpectChange(pool->Pin(page, PinDir::kIn), PageState::kLive, false);
  ExpectChange(pool->Pin(page, PinDir::kOut), PageState::kLive, false);
  EXPECT_EQ(pool->counts().pinned, 1u);
  ExpectChange(pool->Return(page), PageState::kDraining, false);
  EXPECT_EQ(pool->tag(page), 1u);
  EXPECT_FALSE(pool->Issue().has_value());
  EXPECT_EQ(pool->counts().draining, 1u);
  EXPECT_EQ(Code(pool->AddReference(page)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(pool->Pin(page, PinDir::kOut)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(pool->HoldForIndex(page)), StatusCode::kFailedPrecondition);
  ExpectChange(pool->Unpin(page, PinDir::kIn), PageState::kDraining, false);
  EXPECT_EQ(Code(pool->Unpin(page, PinDir::kIn)), StatusCode::kFailedPrecondition);
  ExpectChange(pool->Unpin(page, PinDir::kOut), PageState::kFree, true);
  EXPECT_EQ(pool->tag(page), 2u);
  EXPECT_EQ(pool->counts().pinned, 0u);
  EXPECT_EQ(pool->Issue(), page);
}

TEST(PagePool, APinKeepsACachedPageFromEviction) {
  auto pool = MakePool(3);
  const PageId first = *pool->Issue();
  const PageId second = *pool->Issue();
  for (const PageId page : {first, second}) {
    ASSERT_TRUE(pool->HoldForIndex(page).ok());
    ASSERT_TRUE(pool->Return(page).ok());
  }
  EXPECT_EQ(pool->OldestEvictable(), first);
  ASSERT_TRUE(pool->Pin(first, PinDir::kOut).ok());
  EXPECT_EQ(pool->OldestEvictable(), second);
  EXPECT_EQ(pool->counts().cached, 2u);
  EXPECT_EQ(pool->counts().evictable, 1u);
  ASSERT_TRUE(pool->Unpin(first, PinDir::kOut).ok());
  ASSERT_TRUE(pool->Touch(second).ok());
  EXPECT_EQ(pool->OldestEvictable(), first);
  ASSERT_TRUE(pool->Touch(first).ok());
  EXPECT_EQ(pool->OldestEvictable(), second);
}

TEST(PagePool, PinsCountUpToTheirLimitAndNoFurther) {
  auto pool = MakePool(2);
  const PageId page = *pool->Issue();
  for (int i = 0; i < 65535; ++i) ASSERT_TRUE(pool->Pin(page, PinDir::kIn).ok());
  EXPECT_EQ(Code(pool->Pin(page, PinDir::kIn)), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->Describe(page)->pins_in, 65535u);
  EXPECT_TRUE(pool->Pin(page, PinDir::kOut).ok());
}

TEST(PagePool, AFreePageInQuarantineIsNotIssuedUntilItEnds) {  // I-53
  auto pool = MakePool(3);
  ExpectChange(pool->Quarantine(PageId(1)), PageState::kQuarantined, false);
  EXPECT_EQ(IssueAllPages(*pool), (std::vector<int64_t>{2}));
  EXPECT_EQ(pool->IssuePage(PageId(1)).code(), StatusCode::kFailedPrecondition);
  ExpectChange(pool->EndQuarantine(PageId(1)), PageState::kFree, false);
  EXPECT_EQ(Code(pool->EndQuarantine(PageId(1))), StatusCode::kFailedPrecondition);
  EXPECT_EQ(IssueAllPages(*pool), (std::vector<int64_t>{1}));
}

TEST(PagePool, AHeldPageInQuarantineGainsNobodyAndGoesBackWithoutBecomingFree) {  // I-53
  auto pool = MakePool(2);
  const PageId page = *pool->Issue();
  ASSERT_TRUE(pool->AddReference(page).ok());
  ExpectChange(pool->Quarantine(page), PageState::kQuarantined, false);
  ExpectChange(pool->Quarantine(page), PageState::kQuarantined, false);
  EXPECT_EQ(Code(pool->AddReference(page)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(pool->Pin(page, PinDir::kOut)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(pool->HoldForIndex(page)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(pool->EndQuarantine(page)), StatusCode::kFailedPrecondition);
  ExpectChange(pool->Return(page), PageState::kQuarantined, false);
  EXPECT_EQ(pool->tag(page), 1u);
  ExpectChange(pool->Return(page), PageState::kQuarantined, true);
  EXPECT_EQ(pool->tag(page), 2u);
  EXPECT_FALSE(pool->Issue().has_value());
  EXPECT_EQ(pool->counts().quarantined, 1u);
  ExpectChange(pool->EndQuarantine(page), PageState::kFree, false);
  EXPECT_EQ(pool->Issue(), page);
}

TEST(PagePool, QuarantineEndsOnlyWhenThePinsAreGone) {  // I-53
  auto pool = MakePool(2);
  const PageId page = *pool->Issue();
  ASSERT_TRUE(pool->Pin(page, PinDir::kIn).ok());
  ASSERT_TRUE(pool->Quarantine(page).ok());
  ExpectChange(pool->Return(page), PageState::kQuarantined, false);
  Result<PageChange> end = pool->EndQuarantine(page);
  EXPECT_EQ(Code(end), StatusCode::kFailedPrecondition);
  EXPECT_NE(end.status().message().find("pinned"), std::string::npos) << end.status().message();
  EXPECT_EQ(pool->tag(page), 1u);
  ExpectChange(pool->Unpin(page, PinDir::kIn), PageState::kQuarantined, true);
  ExpectChange(pool->EndQuarantine(page), PageState::kFree, false);
}

TEST(PagePool, ACachedPageInQuarantineIsNotEvictable) {  // I-53
  auto pool = MakePool(2);
  const PageId page = *pool->Issue();
  ASSERT_TRUE(pool->HoldForIndex(page).ok());
  ASSERT_TRUE(pool->Return(page).ok());
  ASSERT_TRUE(pool->Quarantine(page).ok());
  EXPECT_FALSE(pool->OldestEvictable().has_value());
  EXPECT_EQ(Code(pool->EndQuarantine(page)), StatusCode::kFailedPrecondition);
  ExpectChange(pool->DropIndexHold(page), PageState::kQuarantined, true);
  EXPECT_TRUE(pool->EndQuarantine(page).ok());
}

TEST(PagePool, APageWhoseTagsAreUsedUpIsNeverIssuedAgain) {  // I-2
  auto pool = MakePool(2, ReuseOrder::kLifo, kTagRetired - 6);
  std::vector<Tag> tags;
  PageChange last{PageState::kFree};
  while (const auto page = pool->Issue()) {
    tags.push_back(pool->tag(*page));
    last = pool->Return(*page).value();
    ASSERT_LT(tags.size(), 10u);
  }
  EXPECT_EQ(tags, (std::vector<Tag>{kTagRetired - 5, kTagRetired - 3}));
  EXPECT_EQ(last.state, PageState::kRetired);
  EXPECT_TRUE(last.returned);
  EXPECT_EQ(pool->counts().retired, 1u);
  EXPECT_EQ(pool->counts().free, 0u);
  EXPECT_EQ(pool->IssuePage(PageId(1)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(pool->Quarantine(PageId(1))), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(pool->Audit().has_value());
}

TEST(PagePool, APageThatRetiresInQuarantineStaysRetired) {  // I-2
  auto pool = MakePool(2, ReuseOrder::kLifo, kTagRetired - 4);
  const PageId page = *pool->Issue();
  ASSERT_TRUE(pool->Quarantine(page).ok());
  ExpectChange(pool->Return(page), PageState::kRetired, true);
  EXPECT_EQ(Code(pool->EndQuarantine(page)), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(pool->Issue().has_value());
}

TEST(PagePool, SiblingsShareThePagesButNotTheirHolders) {
  auto full = MakePool(4);
  auto window = full->CreateSibling(PoolId(1)).value();
  const PageId a = *full->Issue();
  const PageId b = *window->Issue();
  EXPECT_NE(a, b);
  EXPECT_EQ(full->counts().free, 1u);
  EXPECT_EQ(window->counts().free, 1u);
  EXPECT_EQ(full->counts().live, 1u);
  EXPECT_EQ(full->Describe(b)->pool, PoolId(1));
  EXPECT_EQ(Code(full->Return(b)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(full->Quarantine(b)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(window->AddReference(a)), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(full->Return(a).ok());
  EXPECT_EQ(window->Issue(), a);  // one free list, last in first out
  EXPECT_EQ(window->tag(a), 3u);
  full.reset();  // the space lives as long as a pool of it
  ASSERT_TRUE(window->Return(a).ok());
  EXPECT_FALSE(window->Audit().has_value());
}

TEST(PagePool, NamesItsStates) {
  std::set<std::string_view> names;
  for (int i = 0; i < kPageStateCount; ++i) {
    EXPECT_TRUE(names.insert(PageStateName(static_cast<PageState>(i))).second);
  }
}

}  // namespace
}  // namespace kvfence
