// Six catalogue bugs and their clean twins as ownership sequences: what the ledger itself answers,
// and what it has told the device by the step at which the device must answer.
#include <gtest/gtest.h>

#include "ledger_scene.h"

namespace kvfence::testing {
namespace {

FenceConfig EightPages(Frees frees, Reuse reuse = Reuse::kRetired) {
  FenceConfig config = SmallConfig(frees, reuse);
  config.pools[0].pages = 8;
  config.width = 4;
  config.level = Level::kFull;
  return config;
}

// The page is evicted and issued again, its index entry stays and is hit.
TEST(LedgerExamples, StaleIndexEntryIsHit) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("A");
  s.Alloc("A", {1});
  s.Bind(0, "A");
  s.Run(1, {{0, "A", 16}});
  s.Publish("K", "A", 0);
  s.Bind(0, "");
  s.Release("A");
  EXPECT_EQ(s.Take(), Words{});
  s.Free({1});
  EXPECT_EQ(s.Take(), Words{"freed_while_held 1"});
  s.Admit("S");
  s.Alloc("S", {1});
  s.Bind(0, "S");
  s.Run(2, {{0, "S", 16}});
  s.Admit("R");
  s.Share("R", {1}, 16, {"K"});
  ASSERT_EQ(s.findings.size(), 1u);
  EXPECT_EQ(s.findings[0].reason, Reason::kStaleIndexEntry);
  EXPECT_EQ(s.findings[0].req, Scene::R("R", 1));
  EXPECT_EQ(s.Take(), Words{"stale_index_entry 1"});
  // R expects what the entry promised: never the tag of S's generation.
  EXPECT_EQ(s.ExpectationOf("R", 0).tag, 1u);
  EXPECT_EQ(s.PageOf(1).record.tag, 3u);
  EXPECT_EQ(s.PageOf(1).holders, std::vector<RequestId>{Scene::R("S", 1)});
  s.Release("R");
  s.Alloc("S", {2});
  s.Run(3, {{0, "S", 1}});
  EXPECT_EQ(s.Take(), Words{});
}

// The entry is gone, but a lookup that doesn't know it still finds the page, which is another's
// now.
TEST(LedgerExamples, NoNewHolderVouchesForAHitOnAnEntryThatIsGone) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("A");
  s.Alloc("A", {1});
  s.Bind(0, "A");
  s.Run(1, {{0, "A", 16}});
  s.Publish("K", "A", 0);
  s.Bind(0, "");
  s.Release("A");
  s.Unpublish("K");
  s.Free({1});
  s.Admit("S");
  s.Alloc("S", {1});
  s.Bind(0, "S");
  s.Run(2, {{0, "S", 16}});
  for (const char* key : {"K", "never"}) {
    s.Admit("R");
    s.Share("R", {1}, 16, {key});
    EXPECT_EQ(s.Take(), Words{"stale_index_entry 1"}) << key;
    EXPECT_LT(s.ExpectationOf("R", 0).tag, s.PageOf(1).record.tag) << key;
    EXPECT_EQ(s.PageOf(1).holders, std::vector<RequestId>{Scene::R("S", 1)}) << key;
    s.Release("R");
  }
}

TEST(LedgerExamples, EvictionThatTakesTheEntryOutIsClean) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("A");
  s.Alloc("A", {1});
  s.Bind(0, "A");
  s.Run(1, {{0, "A", 16}});
  s.Publish("K", "A", 0);
  s.Bind(0, "");
  s.Release("A");
  s.Unpublish("K");
  s.Free({1});
  s.Admit("S");
  s.Alloc("S", {1});
  s.Bind(0, "S");
  s.Run(2, {{0, "S", 16}});
  s.Admit("R");
  s.Alloc("R", {3});
  s.Bind(1, "R");
  s.Alloc("S", {2});
  s.Run(3, {{0, "S", 1}, {1, "R", 16}});
  EXPECT_EQ(s.Take(), Words{});
}

// A finished offload's list names one page twice: returned twice, issued twice.
TEST(LedgerExamples, DoubleFreeThenDoubleIssue) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("R");
  s.Alloc("R", {3});
  s.Bind(0, "R");
  s.Run(1, {{0, "R", 16}});
  s.PinCopy("offload", CopyDir::kOut, {3}, "R", 0);
  s.ReadBy(3, "offload");
  s.Unpin("offload");
  s.Bind(0, "");
  s.Release("R");
  EXPECT_EQ(s.Take(), Words{});
  s.Free({3, 3});
  EXPECT_EQ(s.Take(), Words{"double_free 3"});
  s.Admit("S");
  s.Alloc("S", {3});
  s.Admit("T");
  EXPECT_EQ(s.Take(), Words{});
  s.Alloc("T", {3});
  EXPECT_EQ(s.Take(), Words{"issued_while_held 3"});
  s.Bind(0, "S");
  s.Launch(2, {{0, "S", 5}});
  // What the device must find: S expects a generation that the page isn't in any more.
  EXPECT_NE(s.ExpectationOf("S", 0).tag, s.PageOf(3).record.tag);
  s.Found(2, {Reason::kTagMismatch});
  s.Confirm(2);
  EXPECT_FALSE(s.Retire(2)[0].reasons.empty());
  s.Bind(0, "");
  s.Release("S");
  s.Bind(0, "T");
  s.Run(3, {{0, "T", 3}});
  EXPECT_EQ(s.ExpectationOf("T", 0).tag, s.PageOf(3).record.tag);
  EXPECT_EQ(s.PageOf(3).record.fill_flags & kFillMask, 3);
  EXPECT_EQ(s.Take(), Words{});
}

// A is aborted while the remote side still writes its page; the page goes to B, the write lands.
TEST(LedgerExamples, LateRemoteWriteIntoAReissuedPage) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("W");
  s.Alloc("W", {1});
  s.Bind(1, "W");
  const RequestId a = s.Admit("A");
  s.Alloc("A", {2});
  s.PinCopy("rdma", CopyDir::kIn, {2}, "A", 0);
  s.Release("A");
  s.Free({2});
  s.Admit("B");
  EXPECT_EQ(s.Take(), Words{});
  s.Alloc("B", {2});
  EXPECT_EQ(s.Take(), Words{"in_flight 2"});
  s.Bind(0, "B");
  s.Run(1, {{0, "B", 16}, {1, "W", 5}});
  s.WriteAs(2, 0, 16, a, 0, "rdma");
  EXPECT_EQ(s.Take(), Words{"in_flight 2"});
  s.Unpin("rdma");
  s.Alloc("B", {3});
  s.Launch(2, {{0, "B", 1}, {1, "W", 1}});
  EXPECT_NE(s.PageOf(2).record.stamp, s.ExpectationOf("B", 0).stamp);
  EXPECT_EQ(s.PageOf(2).record.fill_flags & kFillMask, 16);
  s.Found(2, {Reason::kStampMismatch, CheckSet()});
  s.Confirm(2);
  const auto rows = s.Retire(2);
  EXPECT_FALSE(rows[0].reasons.empty());
  EXPECT_TRUE(rows[1].reasons.empty());
  EXPECT_EQ(rows[0].good_prefix, 0u);
  EXPECT_EQ(s.Take(), Words{});
}

// What is left of R after its row of step 2 has failed.
uint64_t GoodPrefixAfter(Scene* s, Reason reason) {
  s->Launch(2, {{0, "R", 1}});
  s->Found(2, {reason});
  s->Confirm(2);
  return s->Retire(2)[0].good_prefix;
}

// Its content still stands there, but the page isn't the request's any more.
TEST(LedgerExamples, AFreedPageEndsTheGoodPrefix) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("R");
  s.Alloc("R", {1, 2, 3});
  s.Bind(0, "R");
  s.Run(1, {{0, "R", 40}});
  s.Free({2});
  EXPECT_EQ(s.Take(), Words{"freed_while_held 2"});
  EXPECT_EQ(GoodPrefixAfter(&s, Reason::kTagMismatch), 16u);
}

// Nor where the request itself took it again, through another pool of the same memory.
TEST(LedgerExamples, APageTakenAgainThroughAnotherPoolEndsTheGoodPrefix) {
  FenceConfig config = EightPages(Frees::kExplicit);
  config.pools[0].space = "s";
  config.pools.push_back(
      {.name = "other", .pages = 8, .page_size = config.pools[0].page_size, .space = "s"});
  Scene s(config);
  const RequestId r = s.Admit("R");
  s.Alloc("R", {1, 2});
  s.Alloc("R", {3, 4}, 0, 1);
  s.Bind(0, "R");
  s.Run(1, {{0, "R", 32}});
  s.Free({2});
  EXPECT_EQ(s.Take(), Words{"freed_while_held 2"});
  s.Alloc("R", {2}, 1, 1);
  s.WriteAs(2, 0, 16, r, 1);
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(GoodPrefixAfter(&s, Reason::kTagMismatch), 16u);
}

// Complete, in the right generation, but born elsewhere.
TEST(LedgerExamples, ForeignContentEndsTheGoodPrefix) {
  Scene s(EightPages(Frees::kExplicit));
  s.Admit("R");
  s.Alloc("R", {1, 2, 3});
  s.Bind(0, "R");
  s.Run(1, {{0, "R", 40}});
  const RequestId other = s.Admit("S");
  s.Alloc("S", {4});
  s.WriteAs(2, 0, 16, other, 0);
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(GoodPrefixAfter(&s, Reason::kStampMismatch), 16u);
}

TEST(LedgerExamples, PageKeptBackUntilTheRemoteWriteHasEndedIsClean) {
  Scene s(EightPages(Frees::kExplicit));
  const RequestId a = s.Admit("A");
  s.Alloc("A", {2});
  s.PinCopy("rdma", CopyDir::kIn, {2}, "A", 0);
  s.Release("A");
  s.Admit("B");
  s.Alloc("B", {4});
  s.Bind(0, "B");
  s.Run(1, {{0, "B", 16}});
  s.WriteAs(2, 0, 16, a, 0, "rdma");
  s.Unpin("rdma");
  s.Free({2});
  s.Alloc("B", {2});
  s.Run(2, {{0, "B", 1}});
  s.Run(3, {{0, "B", 1}});
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(s.PageOf(2).record.stamp, s.ExpectationOf("B", 1).stamp);
}

// R is seen finished at step 1 while step 2 with R still runs; its page goes to a receive.
TEST(LedgerExamples, PageOfARunningStepGoesToATransfer) {
  for (const bool clean : {false, true}) {
    Scene s(EightPages(Frees::kExplicit, Reuse::kStream));
    s.Admit("R");
    s.Alloc("R", {1, 2});
    s.Bind(0, "R");
    s.Launch(1, {{0, "R", 17}});
    s.Confirm(1);
    s.Launch(2, {{0, "R", 1}});
    s.Retire(1);
    s.Bind(0, "");
    s.Release("R");
    s.Free({1, 2});
    s.Admit("B");
    s.Alloc("B", {2});
    if (clean) s.Confirm(2);
    EXPECT_EQ(s.Take(), Words{});
    s.PinCopy("recv", CopyDir::kIn, {2}, "B", 0);
    EXPECT_EQ(s.Take(), clean ? Words{} : Words{"in_flight 2"});
    if (!clean) s.Confirm(2);
    s.WriteAs(2, 0, 16, Scene::R("B"), 0, "recv");
    EXPECT_EQ(s.Retire(2)[0].reasons.empty(), clean);
    s.Unpin("recv");
    ASSERT_TRUE(s.ledger.Ready({.req = Scene::R("B"), .tokens = 16}).ok());
    s.Alloc("B", {1});
    s.Bind(0, "B");
    s.Run(3, {{0, "B", 1}});
    s.Run(4, {{0, "B", 1}});
    EXPECT_EQ(s.Take(), Words{});
  }
}

// A row moves to the place of a longer request: the ledger says how far the consumer may look.
TEST(LedgerExamples, ReachBeyondTheCoveredPagesIsInThePlan) {
  FenceConfig config = SmallConfig(Frees::kImplicit);
  config.pools[0].page_size = 4;
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1, 2, 3, 4, 5, 6});
  s.Bind(0, "A");
  s.Admit("B");
  s.Alloc("B", {7, 8});
  s.Bind(1, "B");
  s.Run(1, {{0, "A", 24}, {1, "B", 5}});
  s.Bind(0, "");
  s.Release("A");
  EXPECT_EQ(s.PageOf(3).record.tag, 2u);  // gone back by itself
  s.Bind(1, "");
  s.Bind(0, "B");
  s.Admit("C");
  s.Alloc("C", {3, 4});
  s.Bind(1, "C");
  std::vector<RowPlan> plans(1);
  plans[0].row = Row(0);
  plans[0].req = Scene::R("B");
  plans[0].new_tokens = 1;
  plans[0].reach = 6;
  std::vector<PoolBuffers> pools(1);
  StepEvent event;
  event.step = StepId(2);
  event.rows = plans;
  event.pools = pools;
  const StepPlan* plan = nullptr;
  ASSERT_TRUE(s.ledger.Launch(event, &plan).ok());
  EXPECT_EQ(plan->pool_tasks[0].covered, 2u);
  EXPECT_EQ(plan->pool_tasks[0].end_page, 6u);
  EXPECT_EQ(plan->pool_tasks[0].expected, 2u);
  EXPECT_EQ(plan->rows[0].request, Scene::R("B", 1).word());
  s.Confirm(2);
  s.Retire(2);
  EXPECT_EQ(s.Take(), Words{});
}

// Pages are published when scheduled: hit before they're written, before their step has retired,
// and after.
TEST(LedgerExamples, HitBeforeTheWritingStepHasRetired) {
  Scene s(EightPages(Frees::kImplicit));
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Bind(0, "A");
  s.Publish("K", "A", 0);
  s.Admit("B");
  s.Share("B", {1}, 16, {"K"});
  EXPECT_EQ(s.Take(), Words{"not_committed 1"});
  s.Release("B");
  s.Launch(1, {{0, "A", 20}});
  s.Confirm(1);
  s.Admit("C");
  s.Share("C", {1}, 16, {"K"});
  EXPECT_EQ(s.Take(), Words{"not_committed 1"});
  s.Release("C");
  s.Retire(1);
  s.Admit("D");
  s.Share("D", {1}, 16, {"K"});
  s.Alloc("D", {3});
  s.Bind(1, "D");
  s.Run(2, {{0, "A", 1}, {1, "D", 4}});
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(s.ExpectationOf("D", 0).stamp, s.PageOf(1).record.stamp);
}

}  // namespace
}  // namespace kvfence::testing
