// The ledger by invariants: holders, incarnations, lengths, plans, levels. What the lockstep model
// doesn't tell, and what it would tell only by chance. Numbers are those of docs/INVARIANTS.md.
#include <gtest/gtest.h>

#include "ledger_scene.h"

namespace kvfence::testing {
namespace {

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

TEST(Ledger, CountsFollowThePagesStates) {  // I-7, I-34
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

TEST(Ledger, AnEndedIncarnationHasNoEffect) {  // I-31
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

TEST(Ledger, ABaseThatWasNoNewsNeedsNoTrim) {
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Launch(1, {{0, "A", 10}});
  s.Launch(2, {{0, "A", 4, 10}});  // nothing was rejected
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 10}).ok());
  EXPECT_EQ(s.ledger.View(Scene::R("A")).length, 14u);  // said all the same
  s.Launch(3, {{0, "A", 4, 14}});
  ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 12}).ok());  // about something else
  EXPECT_EQ(s.ledger.View(Scene::R("A")).length, 12u);
  EXPECT_EQ(s.Take(), Words{});
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

TEST(Ledger, ThePlanComesFromTheBooksAlone) {  // I-8
  Scene s;  // hands over no array at all: there is nothing that the plan could have been read from
  s.Admit("A");
  s.Alloc("A", {1, 2});
  const StepPlan& plan = s.Launch(1, {{0, "A", 20}});
  EXPECT_EQ(plan.pool_tasks[0].covered, 2u);
  EXPECT_EQ(plan.pool_tasks[0].write_pages, 2u);
  EXPECT_EQ(plan.write_stamps,
            (std::vector<Stamp>{s.ExpectationOf("A", 0).stamp, s.ExpectationOf("A", 1).stamp}));
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

TEST(Ledger, RefusedStepsHaveNoEffect) {  // I-33
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

// Said where it is wrong, not at the next step; and nothing of it is taken.
TEST(Ledger, ALengthBeyondARequestsIsRefusedWhereItIsSaid) {
  constexpr uint64_t kTooMany = uint64_t{1} << 24;
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  const RequestId a = Scene::R("A");
  const PageId page(1);
  EXPECT_EQ(s.ledger.Trim({.req = a, .tokens = kTooMany}).message(),
            "16777216 tokens are more than a request can have");
  EXPECT_FALSE(s.ledger.Ready({.req = a, .tokens = ~uint64_t{0}}).ok());
  EXPECT_FALSE(s.ledger.Share({.req = a, .pages = {&page, 1}, .tokens = kTooMany}).ok());
  s.Launch(1, {{0, "A", 3}});
  EXPECT_TRUE(s.ledger.Trim({.req = a, .tokens = kTooMany - 1}).ok());
}

}  // namespace
}  // namespace kvfence::testing
