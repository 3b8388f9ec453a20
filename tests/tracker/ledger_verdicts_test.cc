// What becomes of launched rows: verdicts, void writes and their readers, same-step reads.
#include <gtest/gtest.h>

#include "ledger_scene.h"

namespace kvfence::testing {
namespace {

FenceConfig SameStep() {
  FenceConfig config = SmallConfig(Frees::kExplicit, Reuse::kStream);
  config.same_step_reads = true;
  return config;
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
    FenceConfig config = SmallConfig();
    config.ranks = 2;
    Scene s(config);
    s.Admit("A");
    s.Alloc("A", pages);
    s.Launch(1, {{0, "A", n}});
    return s.ledger.Launched(StepId(1))[0].digest;
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

}  // namespace
}  // namespace kvfence::testing
