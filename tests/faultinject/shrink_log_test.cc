// Shrunk logs, judged by playing them: small, the same finding, nothing new, nothing left to take.
#include "kvfence/shrink_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "kvfence/rng.h"

namespace kvfence {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHeader =
    R"({"kvfence_log":1,"pools":[{"name":"p","pages":64,"page_size":4}],"rows":8,"width":8,)"
    R"("frees":"explicit"})"
    "\n";

Result<ShrunkLog> Try(const std::string& text, const ShrinkOptions& options = {}) {
  std::istringstream in(text);
  return ShrinkLog(&in, "x.kvlog", options);
}
ShrunkLog Shrink(const std::string& text, const ShrinkOptions& options = {}) {
  Result<ShrunkLog> shrunk = Try(text, options);
  EXPECT_TRUE(shrunk.ok()) << shrunk.status().message();
  return shrunk.ok() ? std::move(*shrunk) : ShrunkLog();
}
std::string Refusal(const std::string& text, const ShrinkOptions& options = {}) {
  const Result<ShrunkLog> shrunk = Try(text, options);
  return shrunk.ok() ? "shrunk" : shrunk.status().message();
}

CheckReport Check(const std::string& text) {
  std::istringstream in(text);
  Result<CheckReport> report = CheckLog(&in, "x");
  if (report.ok()) return std::move(*report);
  CheckReport unreadable;
  unreadable.error = report.status().message();
  return unreadable;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// One request that lives alone: admitted, two pages, two steps, released.
std::string Life(const std::string& req, int row, int page, int step) {
  const std::string r = std::to_string(row), q = '"' + req + '"';
  const std::string p = std::to_string(page), p2 = std::to_string(page + 1);
  const auto pass = [&](int n, int fresh, int len, int slot) {
    const std::string s = std::to_string(n);
    return R"({"ev":"step","step":)" + s + R"(,"rows":[{"row":)" + r + R"(,"req":)" + q +
           R"(,"new":)" + std::to_string(fresh) + R"(,"table":[)" + p + "," + p2 + R"(],"len":)" +
           std::to_string(len) + R"(,"write":[[)" + std::to_string(slot) + "," +
           std::to_string(fresh) + "]]}]}\n" + R"({"ev":"confirm","step":)" + s + "}\n" +
           R"({"ev":"retire","step":)" + s + "}\n";
  };
  return R"({"ev":"admit","req":)" + q + "}\n" + R"({"ev":"alloc","req":)" + q + R"(,"pages":[)" +
         p + "," + p2 + "]}\n" + R"({"ev":"row","row":)" + r + R"(,"req":)" + q + "}\n" +
         pass(step, 5, 5, page * 4) + pass(step + 1, 1, 6, page * 4 + 5) + R"({"ev":"row","row":)" +
         r + ",\"req\":null}\n" + R"({"ev":"release","req":)" + q + "}\n" +
         R"({"ev":"free","pages":[)" + p + "," + p2 + "]}\n";
}
const std::string kTwice = R"({"ev":"free","pages":[9,10]})"
                           "\n";

// I-100.
TEST(ShrinkLog, I100_ALogBecomesItsFinding) {
  const std::string log = kHeader + Life("A", 0, 1, 1) + Life("B", 1, 3, 3) +
                          R"({"ev":"expect","clean":true})"
                          "\n" +
                          kTwice + Life("C", 2, 5, 5);
  const ShrunkLog shrunk = Shrink(log);
  EXPECT_EQ(
      shrunk.text,
      R"({"kvfence_log":1,"pools":[{"name":"p","pages":10,"page_size":4}],"rows":1,"width":1,)"
      R"("frees":"explicit"})"
      "\n"
      R"({"ev":"free","pages":[9]})"
      "\n"
      R"({"ev":"expect","reason":"double_free","page":9})"
      "\n"
      R"({"ev":"expect","clean":true})"
      "\n");
  EXPECT_EQ(shrunk.finding.line, 27u);
  EXPECT_EQ(shrunk.line, 2u);
  EXPECT_EQ(shrunk.lines_before, 37u);
  EXPECT_EQ(shrunk.lines, 1u);
  EXPECT_FALSE(shrunk.stopped);
}

TEST(ShrinkLog, TheFindingIsChosenByReasonAndLine) {
  const std::string stale = R"({"ev":"unpublish","key":"k"})"
                            "\n";
  const std::string covered = R"({"ev":"expect","reason":"double_free"})"
                              "\n";
  const std::string log = kHeader + kTwice + stale + stale + covered;
  EXPECT_EQ(Shrink(log).finding.violation.reason, Reason::kStaleIndexEntry) << "the unexpected one";
  EXPECT_EQ(Shrink(log).finding.line, 3u);
  EXPECT_EQ(Shrink(kHeader + kTwice + covered).finding.line, 2u) << "else the first";
  ShrinkOptions options;
  options.reason = Reason::kDoubleFree;
  EXPECT_THAT(Shrink(log, options).text, Not(HasSubstr("unpublish")));
  options = {};
  options.line = 2;
  EXPECT_EQ(Shrink(log, options).finding.violation.page, 9);
  options.reason = Reason::kStaleIndexEntry;
  EXPECT_EQ(
      Refusal(log, options),
      "x.kvlog: no finding of reason stale_index_entry at line 2; the first is double_free at "
      "line 2");
}

TEST(ShrinkLog, RefusesWhatHoldsNoFinding) {
  EXPECT_EQ(Refusal(kHeader + Life("A", 0, 1, 1)), "x.kvlog: no finding");
  EXPECT_THAT(Refusal(""), HasSubstr("x.kvlog:1:1: expected the header"));
  EXPECT_THAT(Refusal(kHeader + "{\"ev\":\"conjure\"}\n"), HasSubstr("no finding; x.kvlog:2:7: "));
}

TEST(ShrinkLog, WhatFollowsTheFindingMayBeUnreadable) {
  const ShrunkLog shrunk = Shrink(kHeader + Life("A", 0, 1, 1) + kTwice + "{\"ev\":\"conj");
  EXPECT_EQ(shrunk.lines, 1u);
  EXPECT_TRUE(Check(shrunk.text).ok());
}

// Two requests that share steps; only R's row is wrong, and only by what a patch says.
TEST(ShrinkLog, PatchesAreWrittenOutSoThatEarlierStepsCanGo) {
  const auto row = [](int row, const char* req, int len, const char* table, int slot, int n) {
    return R"({"row":)" + std::to_string(row) + R"(,"req":")" + req + R"(","new":)" +
           std::to_string(n) + "," + table + R"(,"len":)" + std::to_string(len) + R"(,"write":[[)" +
           std::to_string(slot) + "," + std::to_string(n) + "]]}";
  };
  const auto pass = [](int step, const std::string& first, const std::string& second) {
    const std::string s = std::to_string(step);
    return R"({"ev":"step","step":)" + s + R"(,"rows":[)" + first + "," + second + "]}\n" +
           R"({"ev":"confirm","step":)" + s + "}\n" + R"({"ev":"retire","step":)" + s + "}\n";
  };
  const std::string log =
      kHeader + R"({"ev":"admit","req":"R"}
{"ev":"alloc","req":"R","pages":[1,2]}
{"ev":"admit","req":"S"}
{"ev":"alloc","req":"S","pages":[3,4]}
{"ev":"row","row":0,"req":"R"}
{"ev":"row","row":1,"req":"S"}
)" + pass(1, row(0, "R", 4, R"("table":[1])", 4, 4), row(1, "S", 4, R"("table":[3])", 12, 4)) +
      pass(2, row(1, "S", 5, R"("patch":[[1,4]])", 16, 1),
           row(0, "R", 5, R"("patch":[[1,2]])", 8, 1)) +
      pass(3, row(0, "R", 6, R"("patch":[[0,3]])", 9, 1), row(1, "S", 6, R"("patch":[])", 17, 1));
  const ShrunkLog shrunk = Shrink(log);
  EXPECT_EQ(shrunk.finding.violation.reason, Reason::kPageMismatch);
  EXPECT_EQ(shrunk.finding.req, "R");
  EXPECT_THAT(shrunk.text, Not(HasSubstr("\"S\"")));
  EXPECT_THAT(shrunk.text, Not(HasSubstr("patch")));
  EXPECT_THAT(shrunk.text, Not(HasSubstr("\"step\":2,\"rows\"")));
  EXPECT_TRUE(Check(shrunk.text).ok());
}

// A hundred decode steps before the finding are one step after it.
TEST(ShrinkLog, ALongLifeBecomesOneStep) {
  std::string log = kHeader + R"({"ev":"admit","req":"R"}
{"ev":"alloc","req":"R","pages":[1,2,3,4,5]}
{"ev":"row","row":0,"req":"R"}
)";
  const auto pass = [&](int n) {
    const std::string s = std::to_string(n);
    log += R"({"ev":"step","step":)" + s +
           R"(,"rows":[{"row":0,"req":"R","new":1,"table":[1,2,3,4,5],"len":)" + s +
           R"(,"write":[)" + std::to_string(3 + n) + "]}]}\n" + R"({"ev":"confirm","step":)" + s +
           "}\n" + R"({"ev":"retire","step":)" + s + "}\n";
  };
  for (int n = 1; n <= 18; ++n) pass(n);
  log += R"({"ev":"free","pages":[2]})"
         "\n";
  pass(19);
  ShrinkOptions options;
  options.reason = Reason::kTagMismatch;
  const ShrunkLog shrunk = Shrink(log, options);
  EXPECT_LE(shrunk.lines, 5u) << shrunk.text;
  EXPECT_THAT(shrunk.text, HasSubstr("\"new\":19"));
  EXPECT_TRUE(Check(shrunk.text).ok());
}

TEST(ShrinkLog, StopsWhenAskedWithTheSmallestSoFar) {
  const std::string log = kHeader + Life("A", 0, 1, 1) + Life("B", 1, 3, 3) + kTwice;
  std::atomic<bool> stop{false};
  ShrinkOptions options;
  options.stop = &stop;
  options.progress = [&](const ShrinkProgress& p) { stop = p.plays >= 2; };
  ShrunkLog shrunk = Shrink(log, options);
  EXPECT_TRUE(shrunk.stopped);
  EXPECT_EQ(shrunk.plays, 2u);
  EXPECT_GT(shrunk.lines, 0u);
  EXPECT_TRUE(Check(shrunk.text).ok());
  options = {};
  options.max_plays = 1;
  shrunk = Shrink(log, options);
  EXPECT_EQ(shrunk.plays, 1u);
  EXPECT_TRUE(Check(shrunk.text).ok());
}

// --- any log -------------------------------------------------------------------------------------

// Bookkeeping that goes wrong at random, of a few requests that take turns.
std::string RandomLog(uint64_t seed) {
  Rng rng(seed);
  std::string log = kHeader;
  const auto number = [&](uint64_t bound) { return std::to_string(rng.Below(bound)); };
  const auto req = [&] { return std::string("\"") + "RSTU"[rng.Below(4)] + '"'; };
  for (const char* each : {"R", "S", "T", "U"}) {
    log += std::string(R"({"ev":"admit","req":")") + each + "\"}\n";
  }
  for (int i = 0; i < 60; ++i) {
    const std::string head = "{\"ev\":";
    switch (rng.Below(8)) {
      case 0:
      case 1:
        log += head + R"("alloc","req":)" + req() + R"(,"pages":[)" + number(12) + "]}\n";
        break;
      case 2:
        log += head + R"("free","pages":[)" + number(12) + "," + number(12) + "]}\n";
        break;
      case 3:
        log += head + R"("publish","key":"k)" + number(3) + R"(","req":)" + req() + R"(,"at":)" +
               number(2) + "}\n";
        break;
      case 4:
        log += head + R"("row","row":)" + number(3) + R"(,"req":)" + req() + "}\n";
        break;
      case 5:
        log += head + R"("pin","id":"x)" + number(3) + R"(","dir":"out","pages":[)" + number(12) +
               "]}\n";
        break;
      case 6:
        log += head + R"("unpin","id":"x)" + number(3) + "\"}\n";
        break;
      default: {
        const std::string step = std::to_string(i + 1);
        const std::string rows = R"(,"rows":[{"row":)" + number(2) + R"(,"req":)" + req() +
                                 R"(,"new":1,"table":[)" + number(12) + "," + number(12) +
                                 R"(],"len":)" + number(8) + R"(,"write":[)" + number(48) + "]}]";
        const std::string pads =
            R"(,"pads":[{"row":2,"table":[0,)" + number(2) + R"(],"len":0,"write":[]}])";
        const uint64_t which = rng.Below(4);  // pads alone, both, or rows alone
        log += head + R"("step","step":)" + step + (which == 0 ? "" : rows) +
               (which < 2 ? pads : "") + "}\n" + head + R"("confirm","step":)" + step + "}\n" +
               head + R"("retire","step":)" + step + "}\n";
      }
    }
  }
  return log;
}

using Finding = std::tuple<Reason, std::string, int64_t, int64_t, int64_t, int64_t>;
std::set<Finding> FindingsOf(const CheckReport& report) {
  std::set<Finding> findings;
  for (const LoggedViolation& each : report.violations) {
    const Violation& v = each.violation;
    findings.insert({v.reason, each.req, v.pool, v.at, v.page, v.row});
  }
  return findings;
}

// I-100.
TEST(ShrinkLog, I100_AnyLogShrinksToOneOfWhichNoLineCanGo) {
  uint64_t shrunk_logs = 0, lines = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const std::string log = RandomLog(seed);
    const CheckReport before = Check(log);
    if (before.violations.empty()) continue;
    SCOPED_TRACE(seed);
    ShrinkOptions options;  // the last of the first reason: not always at the beginning
    options.reason = before.violations.back().violation.reason;
    const ShrunkLog shrunk = Shrink(log, options);
    const std::set<Finding> allowed = FindingsOf(before);
    const CheckReport after = Check(shrunk.text);
    EXPECT_TRUE(after.ok()) << shrunk.text << after.ToJson();
    const Violation& v = shrunk.finding.violation;
    const Finding wanted{v.reason, shrunk.finding.req, v.pool, v.at, v.page, v.row};
    EXPECT_TRUE(FindingsOf(after).contains(wanted)) << shrunk.text;
    EXPECT_TRUE(std::ranges::includes(allowed, FindingsOf(after))) << shrunk.text;
    ++shrunk_logs;
    lines += shrunk.lines;
    std::vector<std::string> all = LinesOf(shrunk.text);
    std::erase_if(all, [](const std::string& line) { return line.find("expect") != line.npos; });
    for (size_t without = 1; without < all.size(); ++without) {
      std::string less;
      for (size_t i = 0; i < all.size(); ++i) less += i == without ? "" : all[i] + "\n";
      const CheckReport report = Check(less);
      const bool could_go = report.error.empty() && FindingsOf(report).contains(wanted) &&
                            std::ranges::includes(allowed, FindingsOf(report));
      EXPECT_FALSE(could_go) << "line " << without + 1 << " of\n" << shrunk.text;
    }
  }
  EXPECT_GT(shrunk_logs, 8u);
  EXPECT_LT(lines, shrunk_logs * 12);
}

// I-20.
TEST(ShrinkLog, TheSameLogGivesTheSameBytes) {
  const std::string log = RandomLog(3);
  EXPECT_EQ(Shrink(log).text, Shrink(log).text);
  EXPECT_EQ(Shrink(log).plays, Shrink(log).plays);
  const std::string small = Shrink(log).text;
  EXPECT_EQ(Shrink(small).text, small) << "and a smallest one stays as it is";
}

// What a request got by a copy its row may as well have written.
TEST(ShrinkLog, ALoadGivesWayToAStepThatWritesTheSame) {
  std::string text = kHeader;
  text += R"({"ev":"admit","req":"A"})"
          "\n"
          R"({"ev":"alloc","req":"A","pages":[1,2,3,4,5]})"
          "\n";
  for (int page = 1; page <= 5; ++page) {
    const std::string p = std::to_string(page), at = std::to_string(page - 1);
    text += R"({"ev":"pin","id":"x)" + p + R"(","dir":"in","pages":[)" + p +
            R"(],"req":"A","at":)" + at + "}\n";
    text += R"({"ev":"write","page":)" + p + R"(,"first":0,"n":4,"as":{"req":"A","at":)" + at +
            R"(},"xfer":"x)" + p + "\"}\n";
    text += R"({"ev":"unpin","id":"x)" + p + "\"}\n";
  }
  text += R"({"ev":"ready","req":"A","tokens":18})"
          "\n";
  text += R"({"ev":"row","row":0,"req":"A"})"
          "\n";
  text += R"({"ev":"step","step":1,"rows":[{"row":0,"req":"A","new":2,"table":[1,2,3,4,5,9],)"
          R"("len":20,"write":[[22,2]],"reach":6}]})"
          "\n";
  const ShrunkLog shrunk = Shrink(text);
  EXPECT_EQ(shrunk.finding.violation.reason, Reason::kRowTail);
  EXPECT_EQ(shrunk.lines, 4u) << shrunk.text;
  EXPECT_THAT(shrunk.text, Not(HasSubstr("\"pin\"")));
}

}  // namespace
}  // namespace kvfence
