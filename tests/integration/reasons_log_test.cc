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
