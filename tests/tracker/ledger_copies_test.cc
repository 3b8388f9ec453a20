// Copies and scales: what was begun is compared with what is there at the end.
#include <gtest/gtest.h>

#include "ledger_scene.h"

namespace kvfence::testing {
namespace {

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

TEST(LedgerCopies, ACopyEndsOnceAndSoDoesItsOtherSide) {  // I-32
  Scene s;
  s.Admit("A");
  s.Alloc("A", {1, 2});
  s.Run(1, {{0, "A", 16}});
  s.PinCopy("move", CopyDir::kOut, {1});
  s.PinCopy("move", CopyDir::kIn, {2});  // the target of the same copy
  EXPECT_EQ(s.Take(), Words{});
  CopyEvent copy{.from = PageId(1), .to = PageId(2)};
  copy.xfer = Scene::N("move");
  ASSERT_TRUE(s.ledger.Copy(copy).ok());
  EXPECT_EQ(s.PageOf(2).record.fill_flags & kFillMask, 0);  // until it has ended
  s.PinCopy("move", CopyDir::kIn, {2});                     // the same side again: another copy
  EXPECT_EQ(s.Take(), Words{"identity_reused -1"});
  EXPECT_EQ(s.PageOf(2).pins, 2u);
  s.Unpin("move");
  s.Unpin("move");
  EXPECT_EQ(s.Take(), Words{});
  EXPECT_EQ(s.PageOf(1).pins + s.PageOf(2).pins, 0u);
  EXPECT_EQ(s.PageOf(2).record.fill_flags & kFillMask, 16);
  EXPECT_EQ(s.PageOf(2).record.stamp, s.PageOf(1).record.stamp);
  s.Unpin("move");  // one may be said for each side
  EXPECT_EQ(s.Take(), Words{});
  s.Unpin("move");
  EXPECT_EQ(s.Take(), Words{"identity_reused -1"});
  s.PinCopy("out", CopyDir::kOut, {1});
  copy.xfer = Scene::N("out");
  ASSERT_TRUE(s.ledger.Copy(copy).ok());  // its target isn't pinned
  EXPECT_EQ(s.Take(), Words{"in_flight 2"});
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
  s.WriteAs(2, 0, 2, Scene::R("A"), 1);  // two of the four tokens that are relied on
  s.Take();
  s.ReadBy(2, "out");
  EXPECT_EQ(s.Take(), Words{"not_committed 2"});
}

TEST(LedgerCopies, WhatIsLoadedUnderAKeyHasItsIdentity) {
  Scene s;
  s.Admit("A", 7);
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 16}});
  s.Publish("K", "A", 0);
  const auto pin = [&](const std::string& req, int64_t page) {
    s.Alloc(req, {page});
    PinEvent in;
    in.id = Scene::N("to " + req);
    const auto pages = Scene::P({page});
    in.pages = pages;
    in.req = Scene::R(req);
    in.at = 0;
    in.key = Scene::K("K");
    ASSERT_TRUE(s.ledger.Pin(in).ok());
  };
  s.Admit("same", 7);
  pin("same", 2);
  EXPECT_EQ(s.Take(), Words{});
  s.Admit("other", 8);
  pin("other", 3);
  EXPECT_EQ(s.Take(), Words{"key_mismatch 3"});
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

// --- sums of what was found wrong ----------------------------------------------------------------

ReadEvent ReadOf(int64_t page, const char* xfer, const char* sum) {
  return {.page = PageId(page), .xfer = Scene::N(xfer), .sum = Scene::N(sum)};
}
WriteEvent Brought(int64_t page, const char* xfer, const char* key, const char* sum) {
  WriteEvent write{.page = PageId(page), .first = 0, .n = 16};
  write.as.key = Scene::K(key);
  write.xfer = Scene::N(xfer);
  write.sum = Scene::N(sum);
  return write;
}
PinEvent PinUnder(const char* id, CopyDir dir, std::span<const PageId> pages, const char* key) {
  return {.id = Scene::N(id),
          .dir = dir,
          .pages = pages,
          .req = Scene::R("A"),
          .at = 0,
          .key = Scene::K(key)};
}

// A copy brings a page back wrong, and before any row has read it, it's copied out again.
TEST(LedgerCopies, WhatIsKnownToBeWrongIsNobodysOnceItIsMoved) {  // I-80
  FenceConfig config = SmallConfig();
  config.judge_afresh = false;
  Scene s(config);
  s.Admit("A");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 16}});
  const std::vector<PageId> first = Scene::P({1}), second = Scene::P({2}), third = Scene::P({3});
  ASSERT_TRUE(s.ledger.Pin(PinUnder("o", CopyDir::kOut, first, "k")).ok());
  ASSERT_TRUE(s.ledger.Read(ReadOf(1, "o", "right")).ok());
  s.Unpin("o");
  s.Alloc("A", {2}, 0);
  ASSERT_TRUE(s.ledger.Pin(PinUnder("i", CopyDir::kIn, second, "k")).ok());
  ASSERT_TRUE(s.ledger.Write(Brought(2, "i", "k", "wrong")).ok());
  EXPECT_EQ(s.Take(), Words{"content_mismatch 2"});
  s.Unpin("i");
  ASSERT_TRUE(s.ledger.Pin(PinUnder("o2", CopyDir::kOut, second, "k2")).ok());
  ASSERT_TRUE(s.ledger.Read(ReadOf(2, "o2", "wrong")).ok());
  EXPECT_EQ(s.Take(), Words{"content_mismatch 2"}) << "it isn't what right copies are judged by";
  s.Unpin("o2");
  s.Alloc("A", {3}, 0);
  ASSERT_TRUE(s.ledger.Pin(PinUnder("i2", CopyDir::kIn, third, "k2")).ok());
  ASSERT_TRUE(s.ledger.Write(Brought(3, "i2", "k2", "wrong")).ok());
  s.Unpin("i2");
  EXPECT_NE(s.PageOf(3).record.stamp, s.ExpectationOf("A", 0).stamp);
}

// What comes back under a key is what was read under it, whatever a sibling did to that birth.
TEST(LedgerCopies, ASumStandsForItsKeyThoughTheBirthHasGrownElsewhere) {  // I-80
  for (const char* sum : {"right", "wrong"}) {
    Scene s;
    s.Admit("A");
    s.Alloc("A", {1});
    s.Run(1, {{0, "A", 8}});
    const std::vector<PageId> first = Scene::P({1}), second = Scene::P({2});
    ASSERT_TRUE(s.ledger.Pin(PinUnder("o", CopyDir::kOut, first, "k")).ok());
    ASSERT_TRUE(s.ledger.Read(ReadOf(1, "o", "right")).ok());
    s.Unpin("o");
    s.Run(2, {{0, "A", 1}});
    EXPECT_EQ(s.Take(), Words{});
    ASSERT_TRUE(s.ledger.Trim({.req = Scene::R("A"), .tokens = 8}).ok());
    s.Alloc("A", {2}, 0);
    ASSERT_TRUE(s.ledger.Pin(PinUnder("i", CopyDir::kIn, second, "k")).ok());
    WriteEvent write = Brought(2, "i", "k", sum);
    write.n = 8;
    ASSERT_TRUE(s.ledger.Write(write).ok());
    EXPECT_EQ(s.Take(), sum[0] == 'r' ? Words{} : Words{"content_mismatch 2"});
  }
}

// A copy for writing that enters the index before it's written keeps the birth mark of its source.
TEST(LedgerCopies, TwoThatGoOnFromOneBirthMayHaveDifferentSums) {  // I-80
  Scene s;
  s.Admit("A");
  s.Admit("B");
  s.Alloc("A", {1});
  s.Run(1, {{0, "A", 8}});
  ASSERT_TRUE(s.ledger.Fork({.from = Scene::R("A"), .to = Scene::R("B")}).ok());
  ASSERT_TRUE(s.ledger.Cow({.req = Scene::R("B"), .at = 0, .page = PageId(2)}).ok());
  s.Publish("b", "B", 0);
  s.Run(2, {{0, "A", 8}, {1, "B", 8}});
  EXPECT_EQ(s.PageOf(1).record.stamp, s.PageOf(2).record.stamp);
  for (const int64_t page : {1, 2}) {
    const std::string name = "o" + std::to_string(page);
    s.PinCopy(name, CopyDir::kOut, {page});
    ASSERT_TRUE(s.ledger.Read(ReadOf(page, name.c_str(), name.c_str())).ok());
    s.Unpin(name);
  }
  EXPECT_EQ(s.Take(), Words{});
}

}  // namespace
}  // namespace kvfence::testing
