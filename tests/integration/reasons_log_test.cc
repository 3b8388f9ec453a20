// Reasons as logs show them: what fires, what stays silent beside it, and what is published.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "kvfence/check_log.h"

namespace kvfence {
namespace {

using Lines = std::vector<std::string>;

std::string Head(const std::string& more = "", const std::string& pools = "") {
  const std::string one = R"({"name":"p","pages":16,"page_size":4})";
  return R"({"kvfence_log":1,"pools":[)" + (pools.empty() ? one : pools) +
         R"(],"rows":4,"width":4,"frees":"explicit")" + more + "}";
}

// A log whose expectations are all met, and which shows nothing else.
void Ok(const Lines& lines, uint64_t wrong_reads = 0) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  text += R"({"ev":"expect","clean":true})"
          "\n";
  std::istringstream in(text);
  auto report = CheckLog(&in, "x.kvlog");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->ok()) << report->ToJson();
  EXPECT_EQ(report->wrong_reads_published, wrong_reads);
}

Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string Expect(const std::string& keys) { return R"({"ev":"expect",)" + keys + "}"; }
std::string Confirm(int step, int rank = 0) {
  return R"({"ev":"confirm","step":)" + std::to_string(step) + R"(,"rank":)" +
         std::to_string(rank) + "}";
}
std::string Retire(int step) { return R"({"ev":"retire","step":)" + std::to_string(step) + "}"; }
// A step of one row, row 0 of R.
std::string Step(int step, int before, int n, const std::string& table, const std::string& write,
                 const std::string& more = "") {
  return R"({"ev":"step","step":)" + std::to_string(step) +
         R"(,"rows":[{"row":0,"req":"R","new":)" + std::to_string(n) + R"(,"table":)" + table +
         R"(,"len":)" + std::to_string(before + n) + R"(,"write":)" + write + more + "}]}";
}
std::string OnRank(const std::string& event, int rank) {
  return event.substr(0, event.size() - 1) + R"(,"rank":)" + std::to_string(rank) + "}";
}

const Lines kStart = {R"({"ev":"admit","req":"R"})", R"({"ev":"alloc","req":"R","pages":[1,2]})",
                      R"({"ev":"row","row":0,"req":"R"})"};

// --- ranks ---------------------------------------------------------------------------------------

const Lines kTwoRanks = {Head(R"(,"ranks":2)")};

TEST(RankDivergence, EachRankIsRightByItselfButTheyDisagree) {  // I-82
  const Lines start = {
      R"({"ev":"admit","req":"R"})", R"({"ev":"alloc","req":"R","pages":[1,2],"rank":0})",
      R"({"ev":"alloc","req":"R","pages":[2,1],"rank":1})", R"({"ev":"row","row":0,"req":"R"})"};
  const Lines step = {OnRank(Step(1, 0, 5, "[1,2]", "[[4,5]]"), 0),
                      OnRank(Step(1, 0, 5, "[2,1]", "[[8,4],4]"), 1), Confirm(1, 0), Confirm(1, 1),
                      Retire(1)};
  Ok(kTwoRanks + start + step +
     Lines{Expect(R"("reason":"rank_divergence","req":"R","row":0,"step":1)")});
}

TEST(RankDivergence, LengthsThatDifferFailOnlyTheRowThatHasThem) {
  const auto rows = [](int r_new) {
    const std::string n = std::to_string(r_new);
    return R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":)" + n +
           R"(,"table":[1,2],"len":)" + n + R"(,"write":[[4,)" + n +
           R"(]]},{"row":1,"req":"S","new":3,"table":[5],"len":3,"write":[[20,3]]}]})";
  };
  const Lines other = {R"({"ev":"admit","req":"S"})", R"({"ev":"alloc","req":"S","pages":[5]})",
                       R"({"ev":"row","row":1,"req":"S"})"};
  Ok(kTwoRanks + kStart + other +
     Lines{OnRank(rows(5), 0), OnRank(rows(6), 1), Confirm(1, 0), Confirm(1, 1), Retire(1),
           Expect(R"("reason":"rank_divergence","req":"R","row":0)")});
}

TEST(RankDivergence, ARankWithoutTheRowDisagrees) {
  const std::string none = R"({"ev":"step","step":1,"rank":1,"rows":[]})";
  Ok(kTwoRanks + kStart +
     Lines{Step(1, 0, 5, "[1,2]", "[[4,5]]"), none, Confirm(1, 0), Confirm(1, 1), Retire(1),
           Expect(R"("reason":"rank_divergence","req":"R","row":0)")});
}

TEST(RankDivergence, ARankThatSchedulesForItselfHasNoPartInAnothersRequests) {
  const Lines start = {R"({"ev":"admit","req":"R","rank":0})",
                       R"({"ev":"alloc","req":"R","pages":[1],"rank":0})",
                       R"({"ev":"row","row":0,"req":"R","rank":0})",
                       R"({"ev":"admit","req":"S","rank":1})",
                       R"({"ev":"alloc","req":"S","pages":[1],"rank":1})",
                       R"({"ev":"row","row":0,"req":"S","rank":1})"};
  const std::string own =
      R"({"ev":"step","step":1,"rank":1,"rows":[{"row":0,"req":"S","new":2,"table":[1],"len":2,)"
      R"("write":[[4,2]]}]})";
  Ok(kTwoRanks + start +
     Lines{Step(1, 0, 3, "[1]", "[[4,3]]"), own, Confirm(1, 0), Confirm(1, 1), Retire(1)});
  const std::string dummy = R"({"ev":"step","step":1,"rank":1,"rows":[]})";
  Ok(kTwoRanks + start +
     Lines{Step(1, 0, 3, "[1]", "[[4,3]]"), dummy, Confirm(1, 0), Confirm(1, 1), Retire(1)});
}

TEST(Unverified, AMissingOrUnconfirmedRankPublishesNothing) {  // I-9
  const Lines run = kTwoRanks + kStart + Lines{Step(1, 0, 5, "[1,2]", "[[4,5]]"), Confirm(1, 0)};
  const Lines end = {Retire(1), Expect(R"("reason":"unverified","req":"R","row":0,"step":1)")};
  Ok(run + end);
  Ok(run + Lines{OnRank(Step(1, 0, 5, "[1,2]", "[[4,5]]"), 1)} + end);
}

TEST(Unverified, RetireMayBeSaidForAllRanksOrForEach) {
  const Lines run =
      kTwoRanks + kStart +
      Lines{Step(1, 0, 5, "[1,2]", "[[4,5]]"), OnRank(Step(1, 0, 5, "[1,2]", "[[4,5]]"), 1),
            Confirm(1, 0), Confirm(1, 1)};
  Ok(run + Lines{OnRank(Retire(1), 0), OnRank(Retire(1), 1)});
  Ok(run + Lines{Retire(1), OnRank(Retire(1), 1)});
}

// --- sums ----------------------------------------------------------------------------------------

const Lines kFilled = kStart + Lines{Step(1, 0, 4, "[1,2]", "[[4,4]]"), Confirm(1), Retire(1),
                                     R"({"ev":"publish","key":"K","req":"R","at":0})"};
const std::string kPinOut = R"({"ev":"pin","id":"o","dir":"out","pages":[1],"key":"K"})";
const Lines kLoad = {R"({"ev":"unpin","id":"o"})", R"({"ev":"admit","req":"S"})",
                     R"({"ev":"alloc","req":"S","pages":[3]})",
                     R"({"ev":"pin","id":"i","dir":"in","pages":[3],"req":"S","at":0,"key":"K"})"};
const std::string kLanded = R"({"ev":"unpin","id":"i"})";
std::string Sum(const std::string& event, const std::string& sum) {
  return event.substr(0, event.size() - 1) + R"(,"sum":")" + sum + R"("})";
}
const std::string kRead = R"({"ev":"read","page":1,"xfer":"o"})";
const std::string kWrite = R"({"ev":"write","page":3,"first":0,"n":4,"as":{"key":"K"},"xfer":"i"})";

TEST(ContentMismatch, SumsAtAHandOffAreComparedAtLevelFull) {
  const Lines out = Lines{Head()} + kFilled + Lines{kPinOut, Sum(kRead, "a")} + kLoad;
  Ok(out + Lines{Sum(kWrite, "a"), kLanded});
  Ok(out + Lines{Sum(kWrite, "b"), Expect(R"("reason":"content_mismatch","page":3)"), kLanded});
  Ok(out + Lines{kWrite, kLanded});  // one side gives none
}

TEST(ContentMismatch, APageThatAStepAddedToHasANewSum) {
  const Lines start = Lines{Head()} + kStart +
                      Lines{Step(1, 0, 2, "[1,2]", "[[4,2]]"),
                            Confirm(1),
                            Retire(1),
                            R"({"ev":"pin","id":"o","dir":"out","pages":[1],"req":"R","at":0})",
                            Sum(kRead, "half"),
                            R"({"ev":"unpin","id":"o"})"};
  Ok(start + Lines{Step(2, 2, 2, "[1,2]", "[[6,2]]"), Confirm(2), Retire(2),
                   R"({"ev":"pin","id":"o","dir":"out","pages":[1],"req":"R","at":0})",
                   Sum(kRead, "whole"), R"({"ev":"unpin","id":"o"})"});
}

TEST(ContentMismatch, APageWrittenInPartsHasTheSumOfTheLast) {
  const auto part = [](int first, const std::string& sum) {
    return R"({"ev":"write","page":3,"first":)" + std::to_string(first) +
           R"(,"n":2,"as":{"key":"K"},"xfer":"i","sum":")" + sum + R"("})";
  };
  const Lines out = Lines{Head()} + kFilled + Lines{kPinOut, kRead} + kLoad;
  Ok(out + Lines{part(0, "x"), part(2, "y"), kLanded});
}

// --- identity ------------------------------------------------------------------------------------

TEST(KeyMismatch, IsReportedAtTheHitAndNowhereElse) {
  const std::string admit = R"({"ev":"admit","req":"S","identity":{"adapter":"b"}})";
  const std::string share = R"({"ev":"share","req":"S","pages":[1],"tokens":4,"keys":["K"]})";
  const std::string step =
      R"({"ev":"step","step":2,"rows":[{"row":1,"req":"S","new":1,"table":[1,3],"len":5,)"
      R"("write":[12]}]})";
  Ok(Lines{Head()} + kFilled +
     Lines{admit, share, Expect(R"("reason":"key_mismatch","req":"S","page":1,"at":0)"),
           R"({"ev":"alloc","req":"S","pages":[3]})", R"({"ev":"row","row":1,"req":"S"})", step,
           Confirm(2), Retire(2)});
}

TEST(KeyMismatch, ALoadUnderAKeyIsAHit) {
  Lines load = kLoad;
  load[1] = R"({"ev":"admit","req":"S","identity":{"weights":"2"}})";
  Ok(Lines{Head()} + kFilled + Lines{kPinOut, kRead} + load +
     Lines{Expect(R"("reason":"key_mismatch","req":"S","page":3,"at":0)"), kWrite, kLanded});
}

// --- overlapped steps ----------------------------------------------------------------------------

TEST(Overlap, StepsLaunchedBeforeTheOneBeforeIsConfirmedAreSilent) {  // I-81
  Ok(Lines{Head()} + kStart +
     Lines{Step(1, 0, 4, "[1,2]", "[[4,4]]"), Step(2, 4, 1, "[1,2]", "[8]"), Confirm(1),
           Step(3, 5, 1, "[1,2]", "[9]"), Retire(1), Confirm(2), Retire(2),
           Step(4, 6, 1, "[1,2]", "[10]"), Step(5, 7, 1, "[1,2]", "[11]"), Confirm(3), Retire(3),
           Confirm(4), Confirm(5), Retire(4), Retire(5)});
}

TEST(Overlap, ATableThatChangedUnderAStepIsSeenAtItsOwnConfirm) {
  const std::string changed = R"({"ev":"confirm","step":1,"rows":[{"row":0,"table":[7,2]}]})";
  Ok(Lines{Head()} + kStart +
     Lines{Step(1, 0, 5, "[1,2]", "[[4,5]]"), Step(2, 5, 1, "[1,2]", "[9]"), changed,
           Expect(R"("reason":"changed_during_step","req":"R","step":1,"at":0)"), Retire(1),
           // It read what the failed row was to write.
           Expect(R"("reason":"not_committed","req":"R","step":2)"), Confirm(2), Retire(2)});
}

TEST(Overlap, ContentThatChangedUnderAStepIsReportedAtItsConfirm) {
  const std::string foreign = R"({"ev":"write","page":1,"first":0,"n":4,"as":{"req":"S","at":3}})";
  const Lines start = Lines{Head()} + kFilled + Lines{R"({"ev":"admit","req":"S"})"};
  const std::string at_confirm = Expect(R"("reason":"changed_during_step","step":2,"at":0)");
  const std::string at_step = Expect(R"("reason":"stamp_mismatch","step":3,"at":0)");
  const std::string consequence = Expect(R"("reason":"not_committed","step":3)");
  // Before the next step is launched, which is judged with it ...
  Ok(start + Lines{Step(2, 4, 1, "[1,2]", "[8]"), foreign, Step(3, 5, 1, "[1,2]", "[9]"), at_step,
                   consequence, Confirm(2), at_confirm, Retire(2), Confirm(3), Retire(3)});
  // ... or after.
  Ok(start + Lines{Step(2, 4, 1, "[1,2]", "[8]"), Step(3, 5, 1, "[1,2]", "[9]"), foreign,
                   Confirm(2), at_confirm, Confirm(3),
                   Expect(R"("reason":"changed_during_step","step":3,"at":0)"), Retire(2),
                   Retire(3)});
}

TEST(Overlap, PagesAndRowsThatGoOnBehindTheStepAreNoChange) {
  const std::string next =
      R"({"ev":"step","step":2,"rows":[{"row":0,"req":"S","new":5,"table":[1,2],"len":5,)"
      R"("write":[[4,5]]}]})";
  Ok(Lines{Head(R"(,"reuse":"stream")")} + kStart +
     Lines{Step(1, 0, 5, "[1,2]", "[[4,5]]"), R"({"ev":"release","req":"R"})",
           R"({"ev":"free","pages":[1,2]})", R"({"ev":"admit","req":"S"})",
           R"({"ev":"alloc","req":"S","pages":[1,2]})", R"({"ev":"row","row":0,"req":"S"})", next,
           Confirm(1), Retire(1), Confirm(2), Retire(2)});
}

TEST(Overlap, ALoadThatEndsAfterTheNextLaunchIsAskedAtConfirm) {
  const auto log = [](bool ok) {
    const std::string two =
        R"({"ev":"step","step":3,"rows":[{"row":1,"req":"T","new":2,"table":[5],"len":2,)"
        R"("write":[[20,2]]}]})";
    const std::string reads =
        R"({"ev":"step","step":2,"rows":[{"row":0,"req":"S","new":1,"table":[3,4],"len":5,)"
        R"("write":[16],"loads":["i"]}]})";
    return Lines{Head(), R"({"ev":"admit","req":"T"})", R"({"ev":"alloc","req":"T","pages":[5]})",
                 R"({"ev":"row","row":1,"req":"T"})"} +
           kFilled + Lines{kPinOut, kRead} + kLoad +
           Lines{R"({"ev":"share","req":"S","pages":[3],"at":0,"tokens":4})",
                 Expect(R"("reason":"not_committed","req":"S")"),
                 R"({"ev":"alloc","req":"S","pages":[4]})",
                 R"({"ev":"row","row":0,"req":"S"})",
                 reads,
                 two,
                 kWrite,
                 ok ? kLanded : R"({"ev":"unpin","id":"i","ok":false})",
                 Confirm(2)} +
           (ok ? Lines{} : Lines{Expect(R"("reason":"not_committed","req":"S","step":2)")}) +
           Lines{Confirm(3), Retire(2), Retire(3)};
  };
  Ok(log(true));
  Ok(log(false));
}

// --- writes --------------------------------------------------------------------------------------

TEST(WriteTarget, SurplusSlotsAreFoundBehindSkippedOnesAndOncePerLogicalPage) {
  Ok(Lines{Head()} + kStart +
     Lines{Step(1, 0, 3, "[1,2]", "[[4,3],-1,[12,4],[32,4]]"),
           Expect(R"("reason":"write_target","req":"R","step":1,"at":1)"),
           Expect(R"("reason":"write_target","req":"R","step":1,"at":2)"), Confirm(1), Retire(1)});
}

TEST(WriteTarget, DraftsMayBeCountedOrListed) {
  for (const char* more :
       {R"([4,5,6,7,8],"draft":2)", R"([4,5,6],"draft":[[7,2]])", R"([4,5,6],"draft":[7,8])"}) {
    Ok(Lines{Head()} + kStart + Lines{Step(1, 0, 3, "[1,2]", more), Confirm(1), Retire(1)});
  }
  Ok(Lines{Head()} + kStart +
     Lines{Step(1, 0, 3, "[1,2]", R"([4,5,6],"draft":[7,9])"),
           Expect(R"("reason":"write_target","req":"R","at":1)"), Confirm(1), Retire(1)});
}

TEST(WriteTarget, DraftsPastTheRowsEntriesAreWrongSlotsNotWrongReads) {
  Ok(Lines{Head()} + kStart +
     Lines{Step(1, 0, 8, "[1,2]", "[[4,8],36,37]", R"(,"draft":2)"),
           Expect(R"("reason":"write_target","req":"R","step":1,"at":2)"), Confirm(1), Retire(1)});
}

// --- copies --------------------------------------------------------------------------------------

TEST(Copies, WhatAStalePinReallyReadComesBackUnderItsKey) {
  Ok(Lines{Head()} + kFilled +
     Lines{kPinOut,
           R"({"ev":"release","req":"R"})",
           R"({"ev":"unpublish","key":"K"})",
           R"({"ev":"free","pages":[1,2]})",
           R"({"ev":"admit","req":"T"})",
           R"({"ev":"alloc","req":"T","pages":[1]})",
           Expect(R"("reason":"in_flight","page":1)"),
           R"({"ev":"write","page":1,"first":0,"n":4,"as":{"req":"T","at":0}})",
           kRead,
           R"({"ev":"unpin","id":"o"})",
           Expect(R"("reason":"copy_raced","page":1)"),
           R"({"ev":"admit","req":"S"})",
           R"({"ev":"alloc","req":"S","pages":[3,4]})",
           R"({"ev":"pin","id":"i","dir":"in","pages":[3],"req":"S","at":0,"key":"K"})",
           kWrite,
           kLanded,
           R"({"ev":"ready","req":"S","tokens":4})",
           R"({"ev":"row","row":1,"req":"S"})",
           R"({"ev":"step","step":2,"rows":[{"row":1,"req":"S","new":1,"table":[3,4],"len":5,)"
           R"("write":[16]}]})",
           Expect(R"("reason":"stamp_mismatch","req":"S","page":3)"),
           Confirm(2),
           Retire(2)});
}

TEST(Copies, ARowThatFailsBeforeItWritesRacesWithNoCopy) {
  const Lines pinned = Lines{Head()} + kFilled +
                       Lines{R"({"ev":"pin","id":"o","dir":"out","pages":[2],"req":"R","at":1})"};
  const std::string end = R"({"ev":"unpin","id":"o"})";
  const std::string raced = Expect(R"("reason":"copy_raced","page":2)");
  const Lines after = {Confirm(2), Retire(2), end};
  Ok(pinned +
     Lines{Step(2, 5, 1, "[1,2]", "[9]"), Expect(R"("reason":"length_mismatch")"),
           Expect(R"("reason":"write_target")")} +
     after);
  Ok(pinned + Lines{Step(2, 4, 1, "[1,2]", "[8]")} + after + Lines{raced});
}

TEST(Copies, WhatACopyReadOfAStepIsJudgedWithThatStep) {
  const Lines read =
      Lines{Head()} + kStart +
      Lines{Step(1, 0, 4, "[1,2]", "[[4,4]]"),
            R"({"ev":"pin","id":"o","dir":"out","pages":[1],"req":"R","at":0})", kRead};
  const std::string end = R"({"ev":"unpin","id":"o"})";
  Ok(read + Lines{end, Confirm(1), Retire(1)});
  Ok(read + Lines{end, Retire(1), Expect(R"("reason":"unverified")"),
                  Expect(R"("reason":"not_committed","req":"R","page":1)")});
}

TEST(Copies, NobodysContentIsContentAllTheSame) {
  const std::string clear = R"({"ev":"write","page":1,"first":0,"n":4,"as":null})";
  Ok(Lines{Head()} + kStart +
     Lines{clear, R"({"ev":"ready","req":"R","tokens":4})", Step(1, 4, 1, "[1,2]", "[8]"),
           Expect(R"("reason":"stamp_mismatch","req":"R","page":1)"), Confirm(1), Retire(1)});
  Ok(Lines{Head()} + kStart +
     Lines{clear, Step(1, 0, 5, "[1,2]", "[[4,5]]"), Confirm(1), Retire(1)});
}

TEST(Copies, StateThatWasClearedForANewRequestIsItsOwn) {
  const Lines start = {Head("", R"({"name":"kv","pages":8,"page_size":4},)"
                                R"({"name":"st","pages":8,"page_size":1,"kind":"state"})"),
                       R"({"ev":"admit","req":"R"})",
                       R"({"ev":"alloc","req":"R","pages":[1]})",
                       R"({"ev":"alloc","req":"R","pages":[3],"pool":"st"})",
                       R"({"ev":"row","row":0,"req":"R"})",
                       R"({"ev":"write","page":3,"pool":"st","first":0,"n":1,"as":null})"};
  const std::string step =
      R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":2,)"
      R"("tables":{"kv":[1],"st":[3]},"len":2,"writes":{"kv":[[4,2]],"st":[3]}}]})";
  Ok(start + Lines{step, Confirm(1), Retire(1)});
}

TEST(Copies, ACopyThatBeginsUnderARunningStepFailsItsRows) {
  for (const char* reuse : {"retired", "stream"}) {
    const std::string head = Head(R"(,"reuse":")" + std::string(reuse) + R"(")");
    const std::string pin = R"({"ev":"pin","id":"i","dir":"in","pages":[1],"req":"R","at":0})";
    Ok(Lines{head} + kFilled +
       Lines{Step(2, 4, 1, "[1,2]", "[8]"), pin, Expect(R"("reason":"in_flight","page":1)"),
             Confirm(2), Retire(2)});
    Ok(Lines{head} + kFilled + Lines{Step(2, 4, 1, "[1,2]", "[8]"), Confirm(2), pin, Retire(2)});
  }
}

TEST(Copies, WithSameStepReadsALoadStillToEndIsJudgedByTheFirstReader) {
  const Lines start =
      Lines{Head(R"(,"reuse":"stream","same_step_reads":true)")} + kFilled + Lines{kPinOut, kRead} +
      kLoad +
      Lines{R"({"ev":"ready","req":"S","tokens":4})", R"({"ev":"alloc","req":"S","pages":[4]})",
            R"({"ev":"row","row":1,"req":"S"})"};
  const auto step = [](const std::string& loads) {
    return R"({"ev":"step","step":2,"rows":[{"row":1,"req":"S","new":1,"table":[3,4],"len":5,)"
           R"("write":[16])" +
           loads + "}]}";
  };
  Ok(start + Lines{step(R"(,"loads":["i"])"), kWrite, kLanded, Confirm(2), Retire(2)});
  Ok(start + Lines{step(""), Expect(R"("reason":"not_committed","req":"S","step":2)"), Confirm(2),
                   Retire(2)});
}

TEST(Copies, ContentThatMovesWithItsRequestIsRightlyRead) {  // the ground truth says so too
  const std::string next = Step(2, 4, 1, "[3,2]", "[8]");
  Ok(Lines{Head()} + kFilled +
     Lines{R"({"ev":"unpublish","key":"K"})", R"({"ev":"alloc","req":"R","pages":[3],"at":0})",
           R"({"ev":"copy","from":1,"to":3})", next, Confirm(2), Retire(2)});
  Ok(Lines{Head()} + kStart +
     Lines{Step(1, 0, 4, "[1,2]", "[[4,4]]"), Confirm(1), Retire(1),
           R"({"ev":"pin","id":"o","dir":"out","pages":[1],"req":"R","at":0,"key":"swap"})", kRead,
           R"({"ev":"unpin","id":"o"})", R"({"ev":"alloc","req":"R","pages":[3],"at":0})",
           R"({"ev":"pin","id":"i","dir":"in","pages":[3],"req":"R","at":0,"key":"swap"})",
           R"({"ev":"write","page":3,"first":0,"n":4,"as":{"key":"swap"},"xfer":"i"})", kLanded,
           next, Confirm(2), Retire(2)});
}

TEST(Interleave, WritesOfTheRanksOwnPositionsCompleteAPage) {
  const std::string pool = R"({"name":"p","pages":16,"page_size":4,"interleave":[2,1]})";
  const auto write = [](int first, int rank) {
    return R"({"ev":"write","page":1,"first":)" + std::to_string(first) +
           R"(,"n":1,"as":{"req":"R","at":0},"rank":)" + std::to_string(rank) + "}";
  };
  Ok(Lines{Head(R"(,"ranks":2)", pool)} + kStart +
     Lines{write(0, 0), write(2, 0), write(1, 1), write(3, 1),
           R"({"ev":"ready","req":"R","tokens":4})", Step(1, 4, 1, "[1,2]", "[8]"),
           OnRank(Step(1, 4, 1, "[1,2]", "[-1]"), 1), Confirm(1, 0), Confirm(1, 1), Retire(1)});
  Ok(Lines{Head(R"(,"ranks":2)", pool)} + kStart +
     Lines{write(0, 0), write(1, 1), write(3, 1), R"({"ev":"ready","req":"R","tokens":4})",
           Expect(R"("reason":"not_committed","req":"R","page":1)")});
}

TEST(Prefix, EntriesThatASharedTableStandsForAreReadByNobody) {
  const std::string step =
      R"({"ev":"step","step":2,"rows":[{"row":0,"req":"R","new":1,"table":[9,2],"len":5,)"
      R"("write":[8]}],"prefix":{"rows":[0],"table":[1]}})";
  Ok(Lines{Head()} + kFilled + Lines{step, Confirm(2), Retire(2)});
}

// What a failed or trimmed page was told waits for the next step; what a mover says is newer.
TEST(Copies, WhatAMoverSaysIsTheLastWord) {
  const Lines trimmed =
      Lines{Head()} + kFilled +
      Lines{R"({"ev":"unpublish","key":"K"})", R"({"ev":"trim","req":"R","tokens":3})"};
  Ok(trimmed +
     Lines{R"({"ev":"write","page":1,"first":0,"n":1,"as":null})", Step(2, 3, 1, "[1,2]", "[7]"),
           Expect(R"("reason":"stamp_mismatch","req":"R","page":1)"), Confirm(2), Retire(2)});
  Ok(trimmed + Lines{R"({"ev":"write","page":1,"first":3,"n":1,"as":{"req":"R","at":0}})",
                     R"({"ev":"ready","req":"R","tokens":4})", Step(2, 4, 1, "[1,2]", "[8]"),
                     Confirm(2), Retire(2)});
}

TEST(Unverified, ARowThatOneRankFailedIsPublishedByNone) {  // I-9: not even by the first to retire
  const std::string changed =
      R"({"ev":"confirm","step":1,"rank":1,"rows":[{"row":0,"table":[7,2]}]})";
  Ok(kTwoRanks + kStart +
     Lines{Step(1, 0, 5, "[1,2]", "[[4,5]]"), OnRank(Step(1, 0, 5, "[1,2]", "[[4,5]]"), 1),
           Confirm(1, 0), changed, Expect(R"("reason":"changed_during_step","req":"R")"),
           OnRank(Retire(1), 0), OnRank(Retire(1), 1)});
}

TEST(Prefix, APlaceReportsOnceThoughItsSharedTableFailsItToo) {
  const std::string step =
      R"({"ev":"step","step":2,"rows":[{"row":0,"req":"R","new":1,"table":[1,2],"len":5,)"
      R"("write":[8]},{"row":1,"req":"S","new":1,"table":[5,6],"len":5,"write":[24]}],)"
      R"("prefix":{"rows":[0,1],"table":[1]}})";
  Ok(Lines{Head()} + kFilled +
     Lines{R"({"ev":"admit","req":"S"})", R"({"ev":"alloc","req":"S","pages":[5,6]})",
           R"({"ev":"row","row":1,"req":"S"})",
           R"({"ev":"write","page":5,"first":0,"n":4,"as":{"req":"S","at":0}})",
           R"({"ev":"ready","req":"S","tokens":4})", R"({"ev":"free","pages":[1]})",
           Expect(R"("reason":"freed_while_held","page":1)"), step,
           Expect(R"("reason":"page_mismatch","req":"R","at":0)"),
           Expect(R"("reason":"page_mismatch","req":"S","at":0)"), Confirm(2), Retire(2)});
}

TEST(Copies, AHybridModelsPoolsHaveSumsOfTheirOwn) {
  const std::string pools =
      R"({"name":"a","pages":8,"page_size":4},{"name":"b","pages":8,"page_size":4})";
  const auto write = [](const char* pool, const char* sum) {
    return R"({"ev":"write","page":1,"first":0,"n":4,"as":{"req":"R","at":0},"pool":")" +
           std::string(pool) + R"(","sum":")" + sum + R"("})";
  };
  const auto copy = [](const char* pool, const char* sum) {
    const std::string of = R"(,"pool":")" + std::string(pool) + R"(")";
    return Lines{
        R"({"ev":"pin","id":"o","dir":"out","pages":[1],"req":"R","at":0)" + of + "}",
        R"({"ev":"read","page":1,"xfer":"o","sum":")" + std::string(sum) + R"(")" + of + "}",
        R"({"ev":"unpin","id":"o"})"};
  };
  const Lines start = {Head("", pools), R"({"ev":"admit","req":"R"})",
                       R"({"ev":"alloc","req":"R","pages":[1],"pool":"a"})",
                       R"({"ev":"alloc","req":"R","pages":[1],"pool":"b"})"};
  const std::string plain_b =
      R"({"ev":"write","page":1,"first":0,"n":4,"as":{"req":"R","at":0},"pool":"b"})";
  Ok(start + Lines{write("a", "x"), plain_b} + copy("b", "y") + Lines{write("b", "y")});
  Ok(start + Lines{write("a", "x"), write("b", "z"), Expect(R"("reason":"content_mismatch")")});
}

TEST(Index, AKeyHasAnEntryInEachPool) {
  const std::string pools =
      R"({"name":"a","pages":8,"page_size":4},{"name":"b","pages":8,"page_size":4})";
  const auto in = [](const std::string& event, const char* pool) {
    return event.substr(0, event.size() - 1) + R"(,"pool":")" + pool + R"("})";
  };
  const std::string publish = R"({"ev":"publish","key":"K","req":"R","at":0})";
  const auto step = [](int n, const char* req, int tokens, int len, const std::string& tables,
                       const std::string& writes) {
    return R"({"ev":"step","step":)" + std::to_string(n) + R"(,"rows":[{"row":0,"req":")" + req +
           R"(","new":)" + std::to_string(tokens) + R"(,"tables":)" + tables + R"(,"len":)" +
           std::to_string(len) + R"(,"writes":)" + writes + "}]}";
  };
  const Lines start = {Head("", pools),
                       R"({"ev":"admit","req":"R"})",
                       in(R"({"ev":"alloc","req":"R","pages":[1]})", "a"),
                       in(R"({"ev":"alloc","req":"R","pages":[2]})", "b"),
                       R"({"ev":"row","row":0,"req":"R"})",
                       step(1, "R", 4, 4, R"({"a":[1],"b":[2]})", R"({"a":[[4,4]],"b":[[8,4]]})"),
                       Confirm(1),
                       Retire(1),
                       in(publish, "a"),
                       in(publish, "b")};
  Ok(start +
     Lines{R"({"ev":"admit","req":"S"})",
           in(R"({"ev":"share","req":"S","pages":[1],"tokens":4,"keys":["K"]})", "a"),
           in(R"({"ev":"share","req":"S","pages":[2],"tokens":4,"keys":["K"]})", "b"),
           in(R"({"ev":"alloc","req":"S","pages":[3]})", "a"),
           in(R"({"ev":"alloc","req":"S","pages":[3]})", "b"), R"({"ev":"row","row":0,"req":"S"})",
           step(2, "S", 1, 5, R"({"a":[1,3],"b":[2,3]})", R"({"a":[12],"b":[12]})"), Confirm(2),
           Retire(2), R"({"ev":"release","req":"R"})", R"({"ev":"release","req":"S"})",
           in(R"({"ev":"unpublish","key":"K"})", "b"), in(R"({"ev":"free","pages":[2,3]})", "b"),
           in(R"({"ev":"free","pages":[1]})", "a"),
           Expect(R"("reason":"freed_while_held","page":1)")});
  // A verb without its pool means the one that has the key.
  Ok(Lines(start.begin(), start.end() - 2) +
     Lines{in(publish, "b"), R"({"ev":"unpublish","key":"K"})", R"({"ev":"release","req":"R"})",
           in(R"({"ev":"free","pages":[2]})", "b")});
}

TEST(Index, AnEntryOrAPageThatMovesOntoItselfIsHeldAllTheWhile) {
  const std::string implicit =
      R"({"kvfence_log":1,"pools":[{"name":"p","pages":16,"page_size":4}],"rows":4,"width":4})";
  const std::string held = Expect(R"("reason":"issued_while_held","page":1)");
  const Lines other = {R"({"ev":"admit","req":"S"})", R"({"ev":"alloc","req":"S","pages":[1]})",
                       held};
  Ok(Lines{implicit} + kFilled +
     Lines{R"({"ev":"row","row":0,"req":null})", R"({"ev":"release","req":"R"})",
           R"({"ev":"publish","key":"L","page":1,"from_key":"K"})"} +
     other);
  Ok(Lines{implicit} + kStart +
     Lines{Step(1, 0, 4, "[1,2]", "[[4,4]]"), Confirm(1), Retire(1),
           R"({"ev":"share","req":"R","pages":[1],"tokens":4,"at":0})"} +
     other);
}

TEST(Copies, ALeaseRunsOutWithTheFirstStepAfterIt) {
  const Lines start = Lines{Head()} + kFilled +
                      Lines{R"({"ev":"pin","id":"o","dir":"out","pages":[1],"key":"K","lease":2})",
                            Step(2, 4, 1, "[1,2]", "[8]"),
                            Confirm(2),
                            Retire(2),
                            Step(3, 5, 1, "[1,2]", "[9]"),
                            Confirm(3),
                            Retire(3)};
  const std::string last = Step(4, 6, 1, "[1,2]", "[10]");
  Ok(start + Lines{R"({"ev":"unpin","id":"o"})", last, Confirm(4), Retire(4)});
  Ok(start + Lines{last, Expect(R"("reason":"in_flight","page":1,"step":4)"), Confirm(4), Retire(4),
                   R"({"ev":"unpin","id":"o"})"});
}

// --- geometry ------------------------------------------------------------------------------------

TEST(GeometryLog, SaysWhatCannotBeAddressedRightly) {
  const std::string geometry = Expect(R"("reason":"geometry")");
  const auto pool = [](const std::string& name, const std::string& more) {
    return R"({"name":")" + name + R"(","pages":1024,"page_size":16)" + more + "}";
  };
  const auto log = [&](const std::string& a, const std::string& b) {
    return Lines{Head("", pool("a", a) + "," + pool("b", b))};
  };
  Ok(log(R"(,"page_bytes":2097152,"index_bits":31)", ""));
  Ok(log(R"(,"page_bytes":2097153,"index_bits":31)", "") + Lines{geometry});
  Ok(log(R"(,"page_bytes":2097153,"index_bits":32)", ""));
  Ok(log(R"(,"base":18446744073709486079,"page_bytes":64)", ""));
  Ok(log(R"(,"base":18446744073709486080,"page_bytes":64)", "") + Lines{geometry});  // wraps
  Ok(log(R"(,"base":0,"page_bytes":64)", R"(,"base":65536,"page_bytes":64)"));
  Ok(log(R"(,"base":0,"page_bytes":65)", R"(,"base":65536,"page_bytes":64)") + Lines{geometry});
  const std::string same = R"(,"space":"s","page_bytes":64)";
  Ok(log(same, same));
  Ok(log(same, R"(,"space":"s","page_bytes":128)") + Lines{geometry});
  const std::string small = R"({"name":"b","pages":1024,"page_size":8,"space":"s"})";
  Ok(Lines{Head("", pool("a", R"(,"space":"s")") + "," + small), geometry});
}

}  // namespace
}  // namespace kvfence
