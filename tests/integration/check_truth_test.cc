// The ground truth, without a fence: every row counts as clean, so what it finds is all its own.
#include "integration/check_truth.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "integration/player.h"
#include "kvfence/event_log_reader.h"
#include "open_fence.h"

namespace kvfence {
namespace {

std::string Header(const std::string& more = "", const std::string& pool = "") {
  return R"({"kvfence_log":1,"pools":[{"name":"p","pages":16,"page_size":4)" + pool +
         R"(}],"rows":4,"width":8,"frees":"explicit")" + more + "}\n";
}

// One row that is bound to `req`, as a line of a step.
std::string RowOf(int row, const std::string& req, int fresh, const std::string& table, int len,
                  const std::string& write, const std::string& more = "") {
  return R"({"row":)" + std::to_string(row) + R"(,"req":")" + req + R"(","new":)" +
         std::to_string(fresh) + R"(,"table":[)" + table + R"(],"len":)" + std::to_string(len) +
         R"(,"write":[)" + write + "]" + more + "}";
}
std::string Launch(int step, const std::string& rows, const std::string& more = "") {
  return R"({"ev":"step","step":)" + std::to_string(step) + R"(,"rows":[)" + rows + "]" + more +
         "}\n";
}
std::string End(int step) {
  const std::string n = std::to_string(step);
  return "{\"ev\":\"confirm\",\"step\":" + n + "}\n{\"ev\":\"retire\",\"step\":" + n + "}\n";
}
std::string Step(int step, const std::string& rows, const std::string& more = "") {
  return Launch(step, rows, more) + End(step);
}
std::string Begin(const std::string& req, const std::string& pages) {
  return R"({"ev":"admit","req":")" + req + "\"}\n" + R"({"ev":"alloc","req":")" + req +
         R"(","pages":[)" + pages + "]}\n";
}

uint64_t Wrong(const std::string& log, OpenFence* fence) {
  std::istringstream in(log);
  auto reader = EventLogReader::FromStream(&in, "x");
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  if (!reader.ok()) return ~uint64_t{0};
  CheckTruth truth(reader.value()->config());
  TargetNames<OpenFence> names(fence);
  Player<OpenFence> player(fence, reader.value()->config(), &truth,
                           [](StepId, Row) { return false; });
  LogRecord record;
  for (;;) {
    auto more = reader.value()->Next(&names, &record);
    EXPECT_TRUE(more.ok()) << more.status().message();
    if (!more.ok()) return ~uint64_t{0};
    if (!more.value()) return truth.wrong_reads_published();
    EXPECT_TRUE(player.Play(record.event).ok());
  }
}
uint64_t Wrong(const std::string& log) {
  OpenFence fence;
  return Wrong(log, &fence);
}

const std::string kPrefill = Begin("R", "1,2") + Step(1, RowOf(0, "R", 6, "1,2", 6, "[4,6]"));

TEST(CheckTruth, PrefillAndDecodeReadTheirOwn) {
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 7, "10")) +
                  Step(3, RowOf(0, "R", 1, "1,2", 8, "11"))),
            0u);
}

TEST(CheckTruth, APageThatWentToAnotherIsWrongForItsOldHolder) {
  const std::string taken = kPrefill + "{\"ev\":\"free\",\"pages\":[1]}\n" + Begin("S", "1") +
                            Step(2, RowOf(1, "S", 2, "1", 2, "[4,2]"));
  EXPECT_EQ(Wrong(Header() + taken), 0u);
  EXPECT_EQ(Wrong(Header() + taken + Step(3, RowOf(0, "R", 1, "1,2", 7, "10"))), 1u);
  // Issued, but not written yet: what lies there is still R's.
  EXPECT_EQ(Wrong(Header() + kPrefill + "{\"ev\":\"free\",\"pages\":[1]}\n" + Begin("S", "1") +
                  Step(3, RowOf(0, "R", 1, "1,2", 7, "10"))),
            0u);
}

TEST(CheckTruth, TokensOfARowCountTogether) {
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 2, "3,2", 8, "[10,2]"))), 2u);
}

TEST(CheckTruth, ATokenThatWasNotWrittenOrMisplacedIsWrong) {
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 7, "-1"))), 1u);
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 7, "11"))), 1u);
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 7, ""))), 1u);
  // Two tokens that swapped their slots.
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 2, "1,2", 8, "11,10"))), 2u);
}

TEST(CheckTruth, ALengthThatIsTooLongReadsNothing) {
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 8, "10"))), 1u);
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 2000000000, "10"))), 1u);
}

TEST(CheckTruth, SharedPrefixesAreWhatTheirKeyNames) {
  const std::string publish = R"({"ev":"publish","key":"K","req":"R","at":0})"
                              "\n";
  const std::string hit = R"({"ev":"admit","req":"S"})"
                          "\n"
                          R"({"ev":"share","req":"S","pages":[1],"tokens":4,"keys":["K"]})"
                          "\n"
                          R"({"ev":"alloc","req":"S","pages":[3]})"
                          "\n";
  const std::string reads = Step(3, RowOf(1, "S", 1, "1,3", 5, "12"));
  EXPECT_EQ(Wrong(Header() + kPrefill + publish + hit + reads), 0u);
  const std::string reused = R"({"ev":"free","pages":[1]})"
                             "\n" +
                             Begin("T", "1") + Step(2, RowOf(2, "T", 4, "1", 4, "[4,4]"));
  EXPECT_EQ(Wrong(Header() + kPrefill + publish + reused + hit + reads), 1u);
}

TEST(CheckTruth, PublishedBeforeWrittenIsRightOnceWritten) {
  const std::string early = Begin("R", "1,2") +
                            R"({"ev":"publish","key":"K","req":"R","at":0})"
                            "\n"
                            R"({"ev":"admit","req":"S"})"
                            "\n"
                            R"({"ev":"share","req":"S","pages":[1],"tokens":4,"keys":["K"]})"
                            "\n"
                            R"({"ev":"alloc","req":"S","pages":[3]})"
                            "\n";
  const std::string both =
      RowOf(0, "R", 6, "1,2", 6, "[4,6]") + "," + RowOf(1, "S", 1, "1,3", 5, "12");
  EXPECT_EQ(Wrong(Header(R"(,"same_step_reads":true)") + early + Step(1, both)), 0u);
  EXPECT_EQ(Wrong(Header() + early + Step(1, both)), 1u) << "the order in one step isn't said";
  EXPECT_EQ(Wrong(Header() + early + Step(1, RowOf(1, "S", 1, "1,3", 5, "12"))), 1u);
}

TEST(CheckTruth, ForksShareUntilOneWrites) {
  const std::string fork = kPrefill + R"({"ev":"admit","req":"F"})"
                                      "\n"
                                      R"({"ev":"fork","from":"R","to":"F"})"
                                      "\n";
  const std::string cow = R"({"ev":"cow","req":"F","at":1,"page":5})"
                          "\n";
  const std::string each =
      RowOf(0, "R", 1, "1,2", 7, "10") + "," + RowOf(1, "F", 1, "1,5", 7, "22");
  EXPECT_EQ(Wrong(Header() + fork + cow + Step(2, each)), 0u);
  EXPECT_EQ(
      Wrong(Header() + fork + Step(2, RowOf(0, "R", 1, "1,2", 7, "10")) +
            Step(3, RowOf(1, "F", 1, "1,2", 7, "10")) + Step(4, RowOf(0, "R", 1, "1,2", 8, "11"))),
      1u)
      << "F wrote over R's token";
}

TEST(CheckTruth, RejectedSpeculationIsWrittenAnew) {
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 2, "1,2", 8, "[10,2]")) +
                  R"({"ev":"trim","req":"R","tokens":7})"
                  "\n" +
                  Step(3, RowOf(0, "R", 1, "1,2", 8, "11", R"(,"draft":1)"))),
            0u);
}

TEST(CheckTruth, DraftSlotsAreNobodysUntilWritten) {
  EXPECT_EQ(
      Wrong(Header() + kPrefill + Step(2, RowOf(0, "R", 1, "1,2", 7, "10,11", R"(,"draft":1)")) +
            Step(3, RowOf(0, "R", 1, "1,2", 8, "11"))),
      0u);
  // A draft slot in another's page destroys it.
  EXPECT_EQ(Wrong(Header() + kPrefill + Begin("S", "3") +
                  Step(2, RowOf(1, "S", 1, "3", 1, "12,4", R"(,"draft":1)")) +
                  Step(3, RowOf(0, "R", 1, "1,2", 7, "10"))),
            1u);
}

TEST(CheckTruth, WindowsLookNoFurtherBack) {
  const std::string window = R"(,"window":3)";
  // Page 1 (positions 0..3) belongs to another by now; the last 3 tokens lie in page 2.
  const std::string log = kPrefill +
                          R"({"ev":"drop","req":"R","at":0,"n":1})"
                          "\n" +
                          Begin("S", "1") + Step(2, RowOf(1, "S", 1, "1", 1, "4"));
  EXPECT_EQ(Wrong(Header("", window) + log + Step(3, RowOf(0, "R", 1, "1,2", 7, "10"))), 0u);
  EXPECT_EQ(Wrong(Header() + log + Step(3, RowOf(0, "R", 1, "1,2", 7, "10"))), 1u);
  const std::string two = Step(3, RowOf(0, "R", 2, "1,2", 8, "[10,2]"));
  EXPECT_EQ(Wrong(Header("", window) + log + two), 0u) << "window + new - 1 = 4 tokens";
  EXPECT_EQ(Wrong(Header("", R"(,"window":4)") + log + two), 2u);
}

const std::string kLoad = Begin("R", "1,2") +
                          R"({"ev":"pin","id":"t","dir":"in","pages":[1],"req":"R","at":0})"
                          "\n";
const std::string kArrives =
    R"({"ev":"write","page":1,"first":0,"n":4,"as":{"req":"R","at":0},"xfer":"t"})"
    "\n";
const std::string kUse = RowOf(0, "R", 1, "1,2", 5, "8");

TEST(CheckTruth, TransfersBringWhatTheySay) {
  const std::string ok = R"({"ev":"unpin","id":"t"})"
                         "\n";
  const std::string bad = R"({"ev":"unpin","id":"t","ok":false})"
                          "\n";
  EXPECT_EQ(Wrong(Header() + kLoad + kArrives + ok + Step(1, kUse)), 0u);
  EXPECT_EQ(Wrong(Header() + kLoad + kArrives + bad + Step(1, kUse)), 1u);
  EXPECT_EQ(Wrong(Header() + kLoad + ok + Step(1, kUse)), 1u);
  EXPECT_EQ(Wrong(Header() + kLoad + ok + kArrives + Step(1, kUse)), 0u) << "late, but there";
  const std::string late = kLoad +
                           R"({"ev":"release","req":"R"})"
                           "\n" +
                           Begin("S", "1") + Step(1, RowOf(0, "S", 2, "1", 2, "[4,2]")) + kArrives;
  EXPECT_EQ(Wrong(Header() + late + Step(2, RowOf(0, "S", 1, "1", 3, "6"))), 1u)
      << "R's transfer landed in S's page";
  EXPECT_EQ(Wrong(Header() + kLoad +
                  R"({"ev":"write","page":1,"first":0,"n":4,"as":null,"xfer":"t"})"
                  "\n" +
                  ok + Step(1, kUse)),
            1u);
}

TEST(CheckTruth, LayerwiseLoadsAreJudgedAtConfirm) {
  const std::string loads = Launch(1, RowOf(0, "R", 1, "1,2", 5, "8", R"(,"loads":["t"])"));
  EXPECT_EQ(Wrong(Header() + kLoad + loads + kArrives + End(1)), 0u);
  EXPECT_EQ(Wrong(Header() + kLoad + loads + End(1)), 1u);
}

TEST(CheckTruth, AMoverThatWritesWhileAttentionReadsIsWrong) {
  const std::string other = R"({"ev":"write","page":1,"first":1,"n":1,"as":null})"
                            "\n";
  EXPECT_EQ(
      Wrong(Header() + kPrefill + Launch(2, RowOf(0, "R", 1, "1,2", 7, "10")) + other + End(2)),
      1u);
  EXPECT_EQ(Wrong(Header() + kPrefill + Launch(2, RowOf(0, "R", 1, "1,2", 7, "10")) +
                  "{\"ev\":\"confirm\",\"step\":2}\n" + other + "{\"ev\":\"retire\",\"step\":2}\n"),
            0u)
      << "attention is over";
  EXPECT_EQ(Wrong(Header() + kPrefill + Launch(2, RowOf(0, "R", 1, "1,2", 7, "10")) +
                  R"({"ev":"copy","from":3,"to":2})"
                  "\n" +
                  End(2)),
            1u);
}

TEST(CheckTruth, OffloadAndReloadByKeyCarryContent) {
  const std::string out = kPrefill + R"({"ev":"publish","key":"K","req":"R","at":0})"
                                     "\n"
                                     R"({"ev":"pin","id":"o","dir":"out","pages":[1],"key":"K"})"
                                     "\n"
                                     R"({"ev":"read","page":1,"xfer":"o"})"
                                     "\n"
                                     R"({"ev":"unpin","id":"o"})"
                                     "\n"
                                     R"({"ev":"release","req":"R"})"
                                     "\n";
  const auto reload = [](const std::string& key) {
    return Begin("S", "4,5") +
           R"({"ev":"pin","id":"i","dir":"in","pages":[4],"req":"S","at":0,"key":"K"})"
           "\n"
           R"({"ev":"write","page":4,"first":0,"n":4,"as":{"key":")" +
           key + "\"},\"xfer\":\"i\"}\n{\"ev\":\"unpin\",\"id\":\"i\"}\n";
  };
  const std::string reads = Step(3, RowOf(1, "S", 1, "4,5", 5, "20"));
  EXPECT_EQ(Wrong(Header() + out + reload("K") + reads), 0u);
  EXPECT_EQ(Wrong(Header() + out + reload("L") + reads), 1u);
}

TEST(CheckTruth, CopiesCarryIds) {
  const std::string moved = kPrefill + R"({"ev":"copy","from":1,"to":7})"
                                       "\n";
  EXPECT_EQ(Wrong(Header() + moved + Step(2, RowOf(0, "R", 1, "7,2", 7, "10"))), 0u);
  EXPECT_EQ(Wrong(Header() + moved + Step(2, RowOf(0, "R", 1, "2,7", 7, "30"))), 1u);
}

TEST(CheckTruth, PrefixTablesAreReadInsteadOfFirstEntries) {
  const std::string row = RowOf(0, "R", 1, "9,2", 7, "10");
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, row)), 1u);
  EXPECT_EQ(Wrong(Header() + kPrefill + Step(2, row, R"(,"prefix":{"rows":[0],"table":[1]})")), 0u);
  EXPECT_EQ(
      Wrong(Header() + kPrefill +
            Step(2, RowOf(0, "R", 1, "1,2", 7, "10"), R"(,"prefix":{"rows":[0],"table":[2]})")),
      1u);
}

TEST(CheckTruth, SlotTablesAreReadTokenByToken) {
  const std::string slots = R"(,"entries":"slots")";
  const auto step = [](const std::string& table) {
    return Begin("R", "1,2") + Step(1, RowOf(0, "R", 6, "4,5,6,7,8,9", 6, "[4,6]")) +
           Step(2, RowOf(0, "R", 1, table, 7, "10"));
  };
  EXPECT_EQ(Wrong(Header("", slots) + step("4,5,6,7,8,9,10")), 0u);
  EXPECT_EQ(Wrong(Header("", slots) + step("4,5,7,6,8,9,10")), 1u);
  EXPECT_EQ(Wrong(Header("", slots) + step("4,5,6,7,8,9")), 1u);
}

TEST(CheckTruth, InterleavedRanksHoldTheirOwnPositions) {
  const std::string header = Header(R"(,"ranks":2)", R"(,"interleave":[2,1])");
  const std::string begin = Begin("R", "1");
  const auto step = [](int rank, const std::string& write) {
    const std::string on = R"(,"rank":)" + std::to_string(rank);
    return Launch(1, RowOf(0, "R", 4, "1", 4, write), on) + "{\"ev\":\"confirm\",\"step\":1" + on +
           "}\n";
  };
  const std::string settle =
      "{\"ev\":\"retire\",\"step\":1}\n{\"ev\":\"retire\",\"step\":1,\"rank\":1}\n";
  EXPECT_EQ(Wrong(header + begin + step(0, "4,-1,6,-1") + step(1, "-1,5,-1,7") + settle), 0u);
  EXPECT_EQ(Wrong(header + begin + step(0, "-1,5,-1,7") + step(1, "4,-1,6,-1") + settle), 4u)
      << "wrong on both ranks, counted once";
}

TEST(CheckTruth, StatePoolsAskForWhatWasWritten) {
  const std::string state = R"(,"kind":"state")";
  const std::string first = Begin("R", "3") + Step(1, RowOf(0, "R", 9, "3", 9, "[12,4]"));
  EXPECT_EQ(Wrong(Header("", state) + first + Step(2, RowOf(0, "R", 1, "3", 10, "12"))), 0u);
  EXPECT_EQ(Wrong(Header("", state) + first + Step(2, RowOf(0, "R", 1, "4", 10, "16"))), 1u);
}

TEST(CheckTruth, FailingRowsWriteAndReadNothing) {
  const std::string over = Begin("S", "1") + Step(2, RowOf(1, "S", 2, "1", 2, "[4,2]")) +
                           Step(3, RowOf(0, "R", 1, "1,2", 7, "10"));
  OpenFence at_step, at_confirm, at_retire;
  at_step.fail_at_step = {{2, 1}};
  EXPECT_EQ(Wrong(Header() + kPrefill + over, &at_step), 0u);
  at_confirm.fail_at_confirm = {{2, 1}};
  EXPECT_EQ(Wrong(Header() + kPrefill + over, &at_confirm), 1u) << "it had written by then";
  // R reads, before step 2 is settled, what S's row wrote for both of them.
  const std::string shared = Begin("R", "1") +
                             R"({"ev":"admit","req":"S"})"
                             "\n"
                             R"({"ev":"share","req":"S","pages":[1],"tokens":2})"
                             "\n"
                             R"({"ev":"alloc","req":"S","pages":[2],"at":1})"
                             "\n" +
                             Launch(1, RowOf(0, "R", 4, "1", 4, "[4,4]")) +
                             Launch(2, RowOf(1, "S", 1, "1,2", 5, "8")) + End(1) + End(2);
  EXPECT_EQ(Wrong(Header() + shared), 0u);
  at_retire.fail_at_retire = {{1, 0}};
  EXPECT_EQ(Wrong(Header() + shared, &at_retire), 1u) << "what it read is void";
}

// A forked page is published by the one who stays in it; who hits it in the same step reads what
// that one writes there.
TEST(CheckTruth, APageWhoseFirstOwnerHasLeftIsItsHoldersToFill) {
  const std::string header = Header(R"(,"reuse":"stream","same_step_reads":true)");
  const std::string fork = Begin("R", "1") + Step(1, RowOf(0, "R", 3, "1", 3, "[4,3]")) +
                           R"({"ev":"admit","req":"S"})"
                           "\n"
                           R"({"ev":"fork","from":"R","to":"S"})"
                           "\n";
  const std::string hit =
      R"({"ev":"publish","key":"K","req":"S","at":0})"
      "\n" +
      Begin("T", "3") +
      R"({"ev":"share","req":"T","pages":[1],"tokens":4,"at":0,"keys":["K"]})"
      "\n"
      R"({"ev":"alloc","req":"T","pages":[4],"at":1})"
      "\n" +
      Step(2, RowOf(1, "S", 1, "1", 4, "7") + "," + RowOf(2, "T", 1, "1,4", 5, "16"));
  const std::string leave = R"({"ev":"cow","req":"R","at":0,"page":2})"
                            "\n";
  EXPECT_EQ(Wrong(header + fork + leave + hit), 0u);
  EXPECT_EQ(Wrong(header + fork + hit), 1u) << "R still holds it: S may not write there";
}

// A page is published after its last token was rejected, and before that one is written anew.
TEST(CheckTruth, RejectedTokensAreNotWhatAnIndexEntryExpects) {
  const std::string write = R"({"ev":"publish","key":"K","req":"R","at":0})"
                            "\n" +
                            Step(2, RowOf(0, "R", 1, "1", 4, "7"));
  const std::string hit = R"({"ev":"admit","req":"T"})"
                          "\n"
                          R"({"ev":"share","req":"T","pages":[1],"tokens":4,"keys":["K"]})"
                          "\n"
                          R"({"ev":"alloc","req":"T","pages":[4]})"
                          "\n" +
                          Step(3, RowOf(2, "T", 1, "1,4", 5, "16"));
  const std::string begin = Begin("R", "1") + Step(1, RowOf(0, "R", 4, "1", 4, "[4,4]"));
  const std::string trim = R"({"ev":"trim","req":"R","tokens":3,"step":1})"
                           "\n";
  EXPECT_EQ(Wrong(Header() + begin + trim + write + hit), 0u);
  const std::string named = R"({"ev":"publish","key":"J","req":"R","at":0})"
                            "\n"
                            R"({"ev":"unpublish","key":"J"})"
                            "\n";
  EXPECT_EQ(Wrong(Header() + begin + named + trim + write + hit), 0u) << "J names it no more";
  EXPECT_EQ(Wrong(Header() + begin + trim + hit), 1u) << "void, though it still lies there";
  EXPECT_EQ(Wrong(Header() + begin + write + hit), 1u) << "the entry expects what it replaced";
}

TEST(CheckTruth, AnotherTableAtConfirmIsReadToo) {
  const auto confirm = [](const std::string& table) {
    return R"({"ev":"confirm","step":2,"rows":[{"row":0,"table":[)" + table + "]}]}\n" +
           "{\"ev\":\"retire\",\"step\":2}\n";
  };
  const std::string launch = kPrefill + Launch(2, RowOf(0, "R", 1, "1,2", 7, "10"));
  EXPECT_EQ(Wrong(Header() + launch + confirm("1,2")), 0u);
  EXPECT_EQ(Wrong(Header() + launch + confirm("1,3")), 1u);
}

}  // namespace
}  // namespace kvfence
