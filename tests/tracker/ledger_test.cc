// The ledger by invariants and edges: what the lockstep model doesn't tell, and what it would tell
// only by chance. Numbers are those of docs/INVARIANTS.md.
#include <gtest/gtest.h>

#include "ledger_scene.h"

namespace kvfence::testing {
namespace {

FenceConfig SameStep() {
  FenceConfig config = SmallConfig(Frees::kExplicit, Reuse::kStream);
  config.same_step_reads = true;
  return config;
}

// --- I-5, I-6, I-7: holders, the null page, page states ------------------------------------------

TEST(Ledger, HoldersAreCountedByCurrentTag) {  // I-5
  Scene s;
  s.Admit("A");
  s.Admit("B");
  s.Alloc("A", {1});
  s.Share("B", {1}, 0);
  EXPECT_EQ(s.ledger.HoldersOf(PoolId(0), PageId(1)).size(), 2u);
  EXPECT_NE(s.PageOf(1).record.fill_flags & kPageShared, 0);
  s.Admit("C");
  s.Alloc("C", {1});
  EXPECT_EQ(s.Take(), (Words{"issued_while_held 1"}));
  EXPECT_EQ(s.ledger.HoldersOf(PoolId(0), PageId(1)), std::vector<RequestId>{Scene::R("C", 1)});
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kPageShared, 0);
  s.Release("A");  // of a generation that is gone: the page stays C's
  EXPECT_EQ(s.PageOf(1).record.tag, 3u);
  EXPECT_EQ(s.ledger.HoldersOf(PoolId(0), PageId(1)).size(), 1u);
}

TEST(Ledger, TheNullPageIsNeverIssued) {  // I-6
  Scene s;
  s.Admit("A");
  s.Alloc("A", {0, 1});
  EXPECT_EQ(s.Take(), Words{"issued_while_held 0"});
  EXPECT_EQ(s.ExpectationOf("A", 0).page, kNoPage);
  EXPECT_EQ(s.ExpectationOf("A", 1).page, 1u);
  EXPECT_EQ(s.PageOf(0).record.tag, 0u);
  s.Free({0});
  EXPECT_EQ(s.Take(), Words{"double_free 0"});
  ASSERT_TRUE(s.ledger.Cow({.req = Scene::R("A"), .at = 1, .page = PageId(0)}).ok());
  EXPECT_EQ(s.Take(), Words{"issued_while_held 0"});
}

TEST(Ledger, CountsFollowThePagesStates) {  // I-7
  Scene s(SmallConfig(Frees::kImplicit));
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Publish("K", "A", 0);
  EXPECT_EQ(s.ledger.counts().pages_live, 2u);
  EXPECT_EQ(s.ledger.counts().pages_free, 13u);
  EXPECT_EQ(s.ledger.counts().pages_cached, 1u);
  EXPECT_EQ(s.ledger.counts().live_entries, 2u);
  s.Release("A");
  EXPECT_EQ(s.ledger.counts().pages_live, 1u);  // the index holds one
  EXPECT_EQ(s.ledger.counts().live_entries, 0u);
  s.Unpublish("K");
  EXPECT_EQ(s.ledger.counts().pages_live, 0u);
  EXPECT_EQ(s.ledger.counts().pages_cached, 0u);
  ASSERT_TRUE(s.ledger.Audit({.idle = true}).ok());
  EXPECT_EQ(s.Take(), Words{});
}

TEST(Ledger, AFreedPageThatIsHeldMakesTheHolderStale) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  s.Free({1});
  ASSERT_EQ(s.findings.size(), 1u);
  EXPECT_EQ(s.findings[0].req, Scene::R("A", 1));
  EXPECT_EQ(s.Take(), Words{"freed_while_held 1"});
  EXPECT_NE(s.ExpectationOf("A", 0).tag, s.PageOf(1).record.tag);
  s.Free({1});
  EXPECT_EQ(s.Take(), Words{"double_free 1"});
}

TEST(Ledger, APlaceReportsOncePerEvent) {
  Scene s;
  s.Free({3, 3, 99, 99, -1});
  EXPECT_EQ(s.Take(), (Words{"double_free 3", "page_out_of_range 99", "page_out_of_range -1"}));
}

// --- incarnations --------------------------------------------------------------------------------

TEST(Ledger, AnEndedIncarnationHasNoEffect) {
  Scene s;
  const RequestId first = s.Admit("A");
  s.Release("A");
  const RequestId second = s.Admit("A");
  EXPECT_EQ(second.incarnation(), first.incarnation() + 1);
  ASSERT_TRUE(s.ledger.Alloc({.req = first, .pages = Scene::P({1})}).ok());
  EXPECT_EQ(s.Take(), Words{"identity_reused -1"});
  EXPECT_EQ(s.PageOf(1).record.tag, 0u);
  s.Admit("A");  // while the latest lives
  EXPECT_EQ(s.Take(), Words{"identity_reused -1"});
  // Both live on, by their numbers.
  EXPECT_TRUE(s.ledger.View(Scene::R("A", 2)).live);
  EXPECT_TRUE(s.ledger.View(Scene::R("A", 3)).live);
  EXPECT_EQ(s.ledger.Latest(Scene::N("A")), Scene::R("A", 3));
}

TEST(Ledger, ARowOfAnUnknownRequestIsDoomed) {  // I-9
  Scene s;
  const StepPlan& plan = s.Launch(1, {{0, "ghost", 3}});
  EXPECT_EQ(plan.rows[0].doomed, static_cast<int>(Reason::kIdentityReused) + 1);
  EXPECT_EQ(plan.pool_tasks[0].expected, 0u);
  EXPECT_EQ(s.Take(), Words{"identity_reused -1"});
  s.Confirm(1);
  EXPECT_EQ(s.Retire(1)[0].reasons, CheckSet(Reason::kIdentityReused));
}

TEST(Ledger, MemoryStaysFlatOverManyRequests) {
  Scene s(SmallConfig(Frees::kImplicit));
  for (uint32_t i = 1; i <= 70000; ++i) {
    const RequestId id = s.ledger.Admit({.name = NameId(i)});
    const std::vector<PageId> pages = Scene::P({1, 2});
    ASSERT_TRUE(s.ledger.Alloc({.req = id, .pages = pages}).ok());
    ASSERT_TRUE(s.ledger.Release({.req = id}).ok());
  }
  // What has ended long ago is forgotten, what ended lately is not.
  EXPECT_FALSE(s.ledger.Latest(NameId(1)));
  EXPECT_TRUE(s.ledger.Latest(NameId(70000)));
  EXPECT_EQ(s.Take(), Words{});
}

// --- lengths, windows, plans ---------------------------------------------------------------------

TEST(Ledger, ThePlanOfAWindowPoolBeginsWhereTheWindowDoes) {
  FenceConfig config = SmallConfig();
  config.pools[0].page_size = 4;
  config.pools.push_back({.name = "window", .pages = 16, .page_size = 4, .window = 6, .space = ""});
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1, 2, 3, 4, 5});
  s.Alloc("A", {1, 2, 3, 4, 5}, {}, 1);
  s.Bind(0, "A");
  s.Run(1, {{0, "A", 16}});
  const StepPlan& plan = s.Launch(2, {{0, "A", 2}});
  ASSERT_EQ(plan.pool_tasks.size(), 2u);
  EXPECT_EQ(plan.pool_tasks[0].first_page, 0u);
  EXPECT_EQ(plan.pool_tasks[0].covered, 5u);
  // 18 tokens, of which the last 6 + 2 - 1 are read: positions from 11 on.
  EXPECT_EQ(plan.pool_tasks[1].first_page, 2u);
  EXPECT_EQ(plan.pool_tasks[1].write_first, 4u);
  EXPECT_EQ(plan.pool_tasks[1].write_pages, 1u);
  EXPECT_EQ(plan.work, 5u + 3u);
  EXPECT_EQ(plan.pool_tasks[1].work_begin, 5u);
}

TEST(Ledger, ATrimMustConfirmTheBaseThatOnlyTheDeviceKnew) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Bind(0, "A");
  s.Launch(1, {{0, "A", 10}});
  s.Launch(2, {{0, "A", 4, 7}});  // three of ten were rejected, the host doesn't know yet
  EXPECT_EQ(s.ledger.View(Scene::R("A")).length, 11u);
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 7, .step = StepId(1)}).ok());
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(s.ledger.View(Scene::R("A")).length, 11u);
  s.Launch(3, {{0, "A", 2, 9}});
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 8, .step = StepId(2)}).ok());
  EXPECT_EQ(s.Take(), Words{"length_mismatch -1"});
}

TEST(Ledger, ATrimByStepKeepsWhatLaterStepsAdded) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Bind(0, "A");
  s.Launch(1, {{0, "A", 10}});
  s.Launch(2, {{0, "A", 3}});
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 8, .step = StepId(1)}).ok());
  EXPECT_EQ(s.ledger.View(Scene::R("A")).length, 11u);
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 11);
}

TEST(Ledger, ATrimCutsOnlyWhatIsTheRequestsAlone) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  s.Bind(0, "A");
  s.Run(1, {{0, "A", 10}});
  s.Admit("B");
  s.Share("B", {1}, 10);
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 4}).ok());
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 10);
  s.Release("B");
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 4}).ok());
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 4);
  EXPECT_EQ((s.gate.pages[{0, 1}].fill_flags & kFillMask), 4);
}

TEST(Ledger, TableChangesAreNumberedByTheFirstStepThatSeesThem) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Bind(0, "A");
  s.Run(3, {{0, "A", 1}});
  EXPECT_EQ(s.Launch(5, {{0, "A", 1}}).rows[0].table_changed, 0u);
  s.Alloc("A", {3});
  EXPECT_EQ(s.Launch(9, {{0, "A", 1}}).rows[0].table_changed, 6u);  // after 5, so not built for 5
  s.Bind(0, "");
  s.Bind(0, "A");
  EXPECT_EQ(s.Launch(10, {{0, "A", 1}}).rows[0].table_changed, 10u);
}

TEST(Ledger, PaddedRowsStandBehindLiveOnesOverTheWholeTable) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  const StepPlan& plan = s.Launch(1, {{0, "A", 1}}, {2, 3});
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(plan.rows[1].kind, RowKind::kPad);
  EXPECT_EQ(plan.rows[1].request, 0u);
  EXPECT_EQ(plan.pool_tasks[1].end_page, 8u);
  EXPECT_EQ(plan.pool_tasks[1].covered, 0u);
  EXPECT_EQ(plan.group_count, 3u);
  s.Confirm(1);
  EXPECT_EQ(s.Retire(1).size(), 1u);
}

TEST(Ledger, RowsOfOneSharedPrefixAreOneGroup) {
  Scene s;
  s.Admit("A");
  s.Admit("B");
  s.Admit("C");
  std::vector<RowPlan> rows(3);
  for (uint32_t i = 0; i < 3; ++i) {
    rows[i].row = Row(i);
    rows[i].req = Scene::R(std::string(1, static_cast<char>('A' + i)));
  }
  const std::vector<Row> grouped{Row(0), Row(2)};
  const std::vector<PrefixPlan> prefix{{.rows = grouped, .table = {}, .pool = PoolId(0)}};
  std::vector<PoolBuffers> pools(1);
  StepEvent event;
  event.step = StepId(1);
  event.rows = rows;
  event.prefix = prefix;
  event.pools = pools;
  const StepPlan* plan = nullptr;
  ASSERT_TRUE(s.ledger.Launch(event, &plan).ok());
  EXPECT_EQ(plan->group_count, 2u);
  EXPECT_EQ(plan->rows[0].group, plan->rows[2].group);
  EXPECT_NE(plan->rows[0].group, plan->rows[1].group);
  EXPECT_EQ(plan->pool_tasks[0].prefix, 0u);
  EXPECT_EQ(plan->pool_tasks[1].prefix, ~0u);
  EXPECT_EQ(plan->pool_tasks[2].prefix, 0u);
}

TEST(Ledger, RefusedStepsHaveNoEffect) {
  Scene s;
  s.Admit("A");
  s.Run(4, {{0, "A", 1}});
  const uint64_t length = s.ledger.View(Scene::R("A")).length;
  std::vector<RowPlan> rows(2);
  rows[0].req = rows[1].req = Scene::R("A");
  rows[0].new_tokens = 5;
  std::vector<PoolBuffers> pools(1);
  StepEvent event;
  const StepPlan* plan = nullptr;
  event.rows = rows;
  event.pools = pools;
  event.step = StepId(5);
  EXPECT_FALSE(s.ledger.Launch(event, &plan).ok());  // row 0 twice
  rows[1].row = Row(99);
  EXPECT_FALSE(s.ledger.Launch(event, &plan).ok());  // no such row
  rows[1].row = Row(1);
  event.pools = {};
  EXPECT_FALSE(s.ledger.Launch(event, &plan).ok());  // nothing could be judged
  event.pools = pools;
  event.step = StepId(4);
  EXPECT_FALSE(s.ledger.Launch(event, &plan).ok());  // not later than the last one
  EXPECT_EQ(s.ledger.View(Scene::R("A")).length, length);
  event.step = StepId(5);
  EXPECT_TRUE(s.ledger.Launch(event, &plan).ok());
  EXPECT_FALSE(s.ledger.Retire(StepId(6), nullptr).ok());
  EXPECT_FALSE(s.ledger.Confirm(StepId(6)).ok());
}

// --- verdicts ------------------------------------------------------------------------------------

TEST(Ledger, ARowThatWasNeverConfirmedIsUnverified) {  // I-9
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  s.Launch(1, {{0, "A", 3}});
  const auto rows = s.Retire(1);
  EXPECT_EQ(rows[0].reasons, CheckSet(Reason::kUnverified));
  EXPECT_EQ(s.Take(), Words{"unverified -1"});
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 0);
}

TEST(Ledger, AFailedRowTakesItsWritesBack) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 4}});
  s.Admit("B");
  ASSERT_TRUE(s.ledger.Fork({.from = Scene::R("A"), .to = Scene::R("B")}).ok());
  ASSERT_TRUE(s.ledger.Cow({.req = Scene::R("B"), .at = 0, .page = PageId(2)}).ok());
  const Expectation copied = s.ExpectationOf("B", 0);
  EXPECT_EQ(copied.stamp, s.ExpectationOf("A", 0).stamp);  // the copy keeps its birth mark
  EXPECT_EQ(s.PageOf(2).record.stamp, copied.stamp);
  s.Launch(2, {{1, "B", 2}});
  EXPECT_NE(s.ExpectationOf("B", 0).stamp, copied.stamp);  // ... until B's own first write
  s.Found(2, {Reason::kLengthMismatch});
  EXPECT_EQ(s.ExpectationOf("B", 0).stamp, copied.stamp);
  EXPECT_EQ(s.PageOf(2).record.stamp, copied.stamp);
  EXPECT_EQ(s.PageOf(2).record.fill_flags & kFillMask, 4);
  EXPECT_EQ(s.ledger.View(Scene::R("B")).length, 6u);  // as the engine believes
  s.Confirm(2);
  s.Retire(2);
  EXPECT_EQ(s.Take(), Words{});
}

TEST(Ledger, WhoReadWritesThatBecameVoidFailsWhenTheStepIsSettled) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Bind(0, "A");
  s.Launch(1, {{0, "A", 4}});
  s.Launch(2, {{0, "A", 1}});  // reads what step 1 writes
  s.Found(1, {Reason::kChangedDuringStep});
  s.Confirm(1);
  EXPECT_TRUE(s.ledger.Launched(StepId(2))[0].reasons.empty());
  s.Retire(1);
  EXPECT_EQ(s.Take(), Words{"not_committed 1"});
  EXPECT_EQ(s.ledger.Launched(StepId(2))[0].reasons, CheckSet(Reason::kNotCommitted));
  s.Confirm(2);
  s.Retire(2);
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 0);
}

TEST(Ledger, AReaderThatLetThePageGoIsFoundToo) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  s.Bind(0, "A");
  s.Launch(1, {{0, "A", 4}});
  s.Launch(2, {{0, "A", 1}});
  s.Bind(0, "");
  s.Release("A");
  ASSERT_TRUE(s.ledger.Confirm(StepId(2)).ok());
  s.Retire(1);  // never confirmed
  EXPECT_EQ(s.Take(), (Words{"unverified -1", "not_committed 1"}));
}

TEST(Ledger, ReissueUnderALaunchedStepFailsItsRow) {
  Scene s(SmallConfig(Frees::kImplicit));
  s.Admit("A");
  s.Alloc("A", {1});
  s.Bind(0, "A");
  s.Launch(1, {{0, "A", 4}});
  s.Bind(0, "");
  s.Release("A");
  s.Admit("B");
  s.Alloc("B", {2});
  EXPECT_EQ(s.Take(), Words{});
  s.Alloc("B", {1});
  EXPECT_EQ(s.Take(), Words{"in_flight 1"});
  s.Confirm(1);
  EXPECT_EQ(s.Retire(1)[0].reasons, CheckSet(Reason::kInFlight));
  s.Alloc("B", {1}, 5);  // its own page again: held, and no step is in flight
  EXPECT_EQ(s.Take(), Words{"issued_while_held 1"});
}

TEST(Ledger, RebindingALaunchedRowFailsIt) {
  for (const Reuse reuse : {Reuse::kRetired, Reuse::kStream}) {
    Scene s(SmallConfig(Frees::kImplicit, reuse));
    s.Admit("A");
    s.Admit("B");
    s.Alloc("A", {1});
    s.Bind(0, "A");
    s.Launch(1, {{0, "A", 4}});
    s.Bind(0, "");
    EXPECT_EQ(s.Take(), Words{});
    s.Bind(0, "B");
    const bool retired = reuse == Reuse::kRetired;
    EXPECT_EQ(s.Take(), retired ? Words{"row_epoch -1"} : Words{});
    EXPECT_EQ(s.ledger.Launched(StepId(1))[0].reasons.empty(), !retired);
  }
}

TEST(Ledger, FactsOfTheStepRetiredLastAreStillThere) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Publish("K", "A", 1);
  s.Run(1, {{3, "A", 20}});
  const auto pages = s.ledger.WrittenPages(StepId(1), Row(3));
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[1].second, PageId(2));
  EXPECT_EQ(s.ledger.KeysOf(PoolId(0), PageId(2)), std::vector<KeyId>{Scene::K("K")});
  EXPECT_TRUE(s.ledger.KeysOf(PoolId(0), PageId(1)).empty());
}

TEST(Ledger, DigestsAgreeExactlyWhenBookkeepingDoes) {
  const auto digest = [](std::initializer_list<int64_t> pages, uint64_t n) {
    Scene s;
    s.Admit("A");
    s.Alloc("A", pages);
    s.Launch(1, {{0, "A", n}});
    return s.ledger.Digest(StepId(1));
  };
  EXPECT_EQ(digest({1, 2}, 3), digest({1, 2}, 3));
  EXPECT_NE(digest({1, 2}, 3), digest({2, 1}, 3));
  EXPECT_NE(digest({1, 2}, 3), digest({1, 2}, 4));
}

// --- same-step reads -----------------------------------------------------------------------------

TEST(LedgerSameStep, AReaderSharesTheWritersFate) {
  for (const bool writer_fails : {false, true}) {
    Scene s(SameStep());
    s.Admit("A");
    s.Alloc("A", {1, 2});
    s.Publish("K", "A", 0);
    s.Admit("B");
    s.Share("B", {1}, 16, {"K"});  // to be written by A in the coming step
    s.Alloc("B", {3});
    EXPECT_EQ(s.Take(), Words{});
    const StepPlan& plan = s.Launch(1, {{0, "A", 20}, {1, "B", 4}});
    EXPECT_EQ(s.Take(), Words{});
    ASSERT_EQ(plan.same_step_reads.size(), 1u);
    EXPECT_EQ(plan.same_step_reads[0].reader, 1u);
    EXPECT_EQ(plan.same_step_reads[0].writer, 0u);
    ASSERT_EQ(plan.late_pages.size(), 1u);
    EXPECT_EQ(plan.late_pages[0], 0u);
    EXPECT_EQ(plan.pool_tasks[1].late_end - plan.pool_tasks[1].late_begin, 1u);
    const auto also =
        s.Found(1, {writer_fails ? CheckSet(Reason::kTagMismatch) : CheckSet(), CheckSet()});
    EXPECT_EQ(also, writer_fails ? std::vector<uint32_t>{1} : std::vector<uint32_t>{});
    EXPECT_EQ(s.Take(), writer_fails ? Words{"not_committed 1"} : Words{});
  }
}

TEST(LedgerSameStep, WritingWhatAnotherHolderDoesNotWaitForIsSharedWriting) {
  Scene s(SameStep());
  s.Admit("A");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 10}});
  s.Admit("B");
  ASSERT_TRUE(s.ledger.Fork({.from = Scene::R("A"), .to = Scene::R("B")}).ok());
  const StepPlan& plan = s.Launch(2, {{0, "A", 1}, {1, "B", 1}});
  EXPECT_EQ(plan.rows[0].doomed, static_cast<int>(Reason::kWriteShared) + 1);
  EXPECT_EQ(plan.rows[1].doomed, static_cast<int>(Reason::kWriteShared) + 1);
  EXPECT_EQ(s.Take(), (Words{"write_shared 1", "write_shared 1"}));
}

TEST(LedgerSameStep, APageThatNobodyIsToWriteIsNotCommittedAtOnce) {
  Scene s(SameStep());
  s.Admit("A");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 4}});
  s.Admit("B");
  s.Share("B", {1}, 16);  // A's length says it will write on: judged when read
  EXPECT_EQ(s.Take(), Words{});
  s.Release("A");
  s.Admit("C");
  s.Share("C", {1}, 16);  // B relies on it too, but is no writer
  EXPECT_EQ(s.Take(), Words{"not_committed 1"});
}

// --- copies --------------------------------------------------------------------------------------

TEST(LedgerCopies, WhatACopyBroughtCountsWhenItEndedWell) {
  for (const bool ok : {true, false}) {
    Scene s;
    s.Admit("A");
    s.Alloc("A", {1});
    s.PinCopy("in", CopyDir::kIn, {1}, "A", 0);
    s.WriteAs(1, 0, 16, Scene::R("A"), 0, "in");
    EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 0);
    s.Unpin("in", ok);
    EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, ok ? 16 : 0);
    EXPECT_EQ(s.PageOf(1).record.stamp, ok ? s.ExpectationOf("A", 0).stamp : kNoStamp);
    ASSERT_TRUE(s.ledger.Ready({.req = Scene::R("A"), .tokens = 16}).ok());
    EXPECT_EQ(s.Take(), ok ? Words{} : Words{"not_committed 1"});
  }
}

TEST(LedgerCopies, APageThatChangedUnderAnOutCopyRaced) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Run(1, {{0, "A", 20}});
  s.PinCopy("out", CopyDir::kOut, {1, 2}, "A", 0);
  EXPECT_NE(s.PageOf(1).record.fill_flags & kPageSealed, 0);
  s.Run(2, {{0, "A", 1}});  // appends to page 2
  s.Unpin("out");
  EXPECT_EQ(s.Take(), Words{"copy_raced 2"});
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kPageSealed, 0);
}

TEST(LedgerCopies, AReadOfMoreThanWasWrittenIsNotCommitted) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Run(1, {{0, "A", 16}});
  ASSERT_TRUE(s.ledger.Ready({.req = Scene::R("A"), .tokens = 20}).ok());
  EXPECT_EQ(s.Take(), Words{"not_committed 2"});
  s.PinCopy("out", CopyDir::kOut, {1, 2}, "A", 0);
  s.ReadBy(1, "out");
  EXPECT_EQ(s.Take(), Words{});
  s.ReadBy(2, "out");
  EXPECT_EQ(s.Take(), Words{"not_committed 2"});
  s.ReadBy(2, "nobody's");
  EXPECT_EQ(s.Take(), Words{"in_flight 2"});
}

TEST(LedgerCopies, ALeaseEndsAfterThatManySteps) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.PinCopy("out", CopyDir::kOut, {2}, "", {}, 2);
  s.Run(1, {{0, "A", 1}});
  s.Run(2, {{0, "A", 1}});
  EXPECT_EQ(s.Take(), Words{});
  s.Run(3, {{0, "A", 1}});
  EXPECT_EQ(s.Take(), Words{"in_flight 2"});
  s.Run(4, {{0, "A", 1}});
  EXPECT_EQ(s.Take(), Words{});
}

TEST(LedgerCopies, PagesThatAStepLoadsAreAskedAtConfirm) {
  Scene s(SmallConfig(Frees::kExplicit, Reuse::kStream));
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.PinCopy("load", CopyDir::kIn, {1}, "A", 0);
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 16}).ok());
  const StepPlan& plan = s.Launch(1, {{0, "A", 1, {}, 0, {"load"}}});
  ASSERT_EQ(plan.late_pages.size(), 1u);
  EXPECT_EQ(plan.late_pages[0], 0u | kLateAtConfirm);
  s.WriteAs(1, 0, 16, Scene::R("A"), 0, "load");  // the copy that the row waits for
  EXPECT_EQ(s.Take(), Words{});
  s.Unpin("load");
  EXPECT_EQ(s.PageOf(1).record.fill_flags & kFillMask, 16);
  s.WriteAs(2, 8, 4, Scene::R("A"), 1);  // nobody's plan: a page of a running step
  EXPECT_EQ(s.Take(), Words{"in_flight 2"});
}

TEST(LedgerCopies, WhatComesBackUnderAKeyIsWhatWasReadThere) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 16}});
  s.Publish("K", "A", 0);
  s.Admit("B");
  s.Alloc("B", {2});
  s.Run(2, {{1, "B", 16}});
  PinEvent out;
  out.id = Scene::N("out");
  out.dir = CopyDir::kOut;
  const auto wrong = Scene::P({2});
  out.pages = wrong;
  out.key = Scene::K("K");
  ASSERT_TRUE(s.ledger.Pin(out).ok());
  EXPECT_EQ(s.Take(), Words{"stale_index_entry 2"});  // the key names page 1
  s.ReadBy(2, "out");
  s.Unpin("out");
  s.Admit("C");
  s.Alloc("C", {3});
  PinEvent in;
  in.id = Scene::N("in");
  const auto three = Scene::P({3});
  in.pages = three;
  in.req = Scene::R("C");
  in.at = 0;
  in.key = Scene::K("K");
  ASSERT_TRUE(s.ledger.Pin(in).ok());
  EXPECT_EQ(s.ExpectationOf("C", 0).stamp, s.ExpectationOf("A", 0).stamp);
  WriteEvent write;
  write.page = PageId(3);
  write.n = 16;
  write.as.key = Scene::K("K");
  write.xfer = Scene::N("in");
  ASSERT_TRUE(s.ledger.Write(write).ok());
  s.Unpin("in");
  EXPECT_EQ(s.PageOf(3).record.stamp, s.ExpectationOf("B", 0).stamp);  // not what C expects
  EXPECT_EQ(s.Take(), Words{});
}

TEST(LedgerCopies, AnotherSumForTheSameContentIsAMismatch) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1});
  WriteEvent write;
  write.page = PageId(1);
  write.n = 16;
  write.as.req = Scene::R("A");
  write.as.at = 0;
  write.sum = Scene::N("x");
  ASSERT_TRUE(s.ledger.Write(write).ok());
  s.PinCopy("out", CopyDir::kOut, {1}, "A", 0);
  ReadEvent read{.page = PageId(1), .xfer = Scene::N("out"), .sum = Scene::N("x")};
  ASSERT_TRUE(s.ledger.Read(read).ok());
  EXPECT_EQ(s.Take(), Words{});
  read.sum = Scene::N("y");
  ASSERT_TRUE(s.ledger.Read(read).ok());
  EXPECT_EQ(s.Take(), Words{"content_mismatch 1"});
}

// --- scales --------------------------------------------------------------------------------------

TEST(LedgerScales, AScaleEntryBelongsToTheGenerationThatWroteIt) {
  FenceConfig config = SmallConfig();
  config.pools[0].scales = true;
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 4}});
  EXPECT_EQ(s.PageOf(1).record.scale, 1u);
  s.Release("A");
  s.Free({1});
  s.Admit("B");
  s.Alloc("B", {1, 2});
  EXPECT_EQ(s.PageOf(1).record.scale, 0u);
  s.WriteAs(1, 0, 4, Scene::R("B"), 0);  // the bytes without their scale
  EXPECT_EQ(s.PageOf(1).record.scale, 0u);
  ASSERT_TRUE(s.ledger.Scale({.page = PageId(1)}).ok());
  EXPECT_EQ(s.PageOf(1).record.scale, 3u);
  ASSERT_TRUE(s.ledger.Copy({.from = PageId(1), .to = PageId(2)}).ok());
  EXPECT_EQ(s.PageOf(2).record.scale, 1u);  // valid for page 2's own generation
}

TEST(LedgerScales, RescaleBeginsAnEpochForTheWholePool) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Run(1, {{0, "A", 16}});
  ASSERT_TRUE(s.ledger.Rescale({}).ok());
  EXPECT_EQ(s.gate.epochs[0], 1u);
  s.Run(2, {{0, "A", 1}});
  EXPECT_EQ(s.PageOf(1).record.scale, 0u);
  EXPECT_EQ(s.PageOf(2).record.scale, 1u);
}

// --- pools of one space, levels ------------------------------------------------------------------

TEST(Ledger, PoolsOfOneSpaceHaveOneTag) {
  FenceConfig config = SmallConfig();
  config.pools[0].space = "s";
  config.pools.push_back({.name = "other", .pages = 16, .page_size = 16, .space = "s"});
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1});
  s.Admit("B");
  s.Alloc("B", {1}, {}, 1);
  EXPECT_EQ(s.Take(), Words{"issued_while_held 1"});
  EXPECT_EQ(s.PageOf(1, 0).record.tag, 3u);
  EXPECT_EQ(s.PageOf(1, 1).record.tag, 3u);
  EXPECT_EQ((s.gate.pages[{1, 1}].tag), 3u);
}

TEST(Ledger, LevelMapKeepsTheBooksAndSaysNothingOfOwnership) {
  FenceConfig config = SmallConfig();
  config.level = Level::kMap;
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1});
  s.Free({1, 1});
  s.Alloc("A", {2, 2});
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(s.PageOf(1).record.tag, 2u);
  EXPECT_EQ(s.PageOf(2).record.tag, 3u);
}

TEST(Ledger, ADisabledCheckFailsNoRow) {
  FenceConfig config = SmallConfig(Frees::kImplicit);
  config.disabled = Reason::kInFlight;
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1});
  s.Launch(1, {{0, "A", 4}});
  s.Release("A");
  s.Admit("B");
  s.Alloc("B", {1});
  s.Confirm(1);
  EXPECT_TRUE(s.Retire(1)[0].reasons.empty());
  EXPECT_EQ(s.Take(), Words{});
}

TEST(Ledger, FreeIsRefusedWherePagesGoBackByThemselves) {
  Scene s(SmallConfig(Frees::kImplicit));
  EXPECT_FALSE(s.ledger.Free({.pages = Scene::P({1})}).ok());
}

}  // namespace
}  // namespace kvfence::testing
