// Logs as tests of themselves: expectations, reports, and what a bad log leaves behind.
#include "kvfence/check_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "integration/expectations.h"
#include "kvfence/rng.h"

namespace kvfence {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kHead =
    R"({"kvfence_log":1,"pools":[{"name":"p","pages":8,"page_size":4}],"rows":2,"width":2,)"
    R"("frees":"explicit"})"
    "\n";
constexpr const char* kRun = R"({"ev":"admit","req":"R"}
{"ev":"alloc","req":"R","pages":[3]}
{"ev":"row","row":0,"req":"R"}
{"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":2,"table":[3],"len":2,"write":[[12,2]]}]}
{"ev":"confirm","step":1}
{"ev":"retire","step":1}
)";
constexpr const char* kTwice = R"({"ev":"free","pages":[5]}
)";
constexpr const char* kStale = R"({"ev":"free","pages":[3]}
{"ev":"admit","req":"S"}
{"ev":"alloc","req":"S","pages":[3]}
{"ev":"step","step":2,"rows":[{"row":0,"req":"R","new":1,"table":[3],"len":3,"write":[14]}]}
{"ev":"confirm","step":2}
{"ev":"retire","step":2}
)";

CheckReport Check(const std::string& text, const CheckOptions& options = {}) {
  std::istringstream in(text);
  auto report = CheckLog(&in, "x.kvlog", options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? std::move(report).value() : CheckReport();
}
std::string Expect(const std::string& keys) { return R"({"ev":"expect",)" + keys + "}\n"; }

TEST(CheckLog, ACleanLogIsOk) {
  const CheckReport report = Check(std::string(kHead) + kRun);
  EXPECT_EQ(report.events, 6u);
  EXPECT_TRUE(report.ok()) << report.ToJson();
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(report.ToJson(),
            R"({"events":6,"violations":[],"unmet":[],"unexpected":[],"wrong_reads_published":0,)"
            R"("ok":true})");
}

TEST(CheckLog, AFindingThatNobodyExpectedIsUnexpected) {
  const CheckReport report = Check(std::string(kHead) + kRun + kTwice);
  EXPECT_EQ(report.exit_code(), 1);
  const json j = json::parse(report.ToJson());
  ASSERT_EQ(j["unexpected"].size(), 1u);
  const json& v = j["violations"][0];
  EXPECT_EQ(v["reason"], "double_free");
  EXPECT_EQ(v["line"], 8);
  EXPECT_EQ(v["page"], 5);
  EXPECT_EQ(v["pool"], "p");
  EXPECT_TRUE(v["req"].is_null() && v["step"].is_null() && v["row"].is_null());
  for (const char* key : {"at", "expected", "found"}) EXPECT_TRUE(v.contains(key)) << key;
  EXPECT_FALSE(j["ok"].get<bool>());
}

TEST(CheckLog, ExpectationsAgreeInAllKeysOrNotAtAll) {
  const std::string log =
      std::string(kHead) + kRun + kStale + Expect(R"("reason":"freed_while_held")");
  const auto ok = [&](const std::string& keys) {
    return Check(log + Expect(R"("reason":"tag_mismatch")" + keys)).ok();
  };
  EXPECT_TRUE(ok(""));
  EXPECT_TRUE(ok(R"(,"req":"R","page":3,"pool":"p","at":0,"step":2,"row":0)"));
  EXPECT_TRUE(ok(R"(,"req":"R","inc":1)"));
  for (const char* wrong : {R"(,"req":"S")", R"(,"req":"R","inc":2)", R"(,"page":4)", R"(,"at":1)",
                            R"(,"step":1)", R"(,"row":1)"}) {
    EXPECT_FALSE(ok(wrong)) << wrong;
  }
}

TEST(CheckLog, AnExpectationMustBeMetByItsLineButCoversLaterOnesToo) {
  const std::string expect = Expect(R"("reason":"double_free")");
  const CheckReport early = Check(std::string(kHead) + kRun + expect + kTwice);
  EXPECT_EQ(early.unmet.size(), 1u) << "nothing had been reported by then";
  EXPECT_EQ(early.unexpected.size(), 0u) << "but it covers what comes";
  EXPECT_EQ(early.exit_code(), 1);
  EXPECT_EQ(early.unmet[0].line, 8u);
  EXPECT_TRUE(Check(std::string(kHead) + kRun + kTwice + expect).ok());
  EXPECT_TRUE(Check(std::string(kHead) + kRun + kTwice + expect + kTwice).ok());
  EXPECT_FALSE(Check(std::string(kHead) + kRun + kTwice + Expect(R"("reason":"in_flight")")).ok());
}

TEST(CheckLog, CleanAllowsOnlyWhatIsCovered) {
  const std::string clean = Expect(R"("clean":true)");
  const std::string expect = Expect(R"("reason":"double_free")");
  EXPECT_TRUE(Check(std::string(kHead) + kRun + clean).ok());
  EXPECT_TRUE(Check(std::string(kHead) + kRun + kTwice + expect + clean).ok());
  EXPECT_TRUE(Check(std::string(kHead) + kRun + kTwice + clean + expect).ok())
      << "covered by a later line";
  const CheckReport dirty = Check(std::string(kHead) + kRun + kTwice + clean);
  ASSERT_EQ(dirty.unmet.size(), 1u);
  EXPECT_TRUE(dirty.unmet[0].expect.clean);
  const CheckReport after = Check(std::string(kHead) + kRun + clean + kTwice);
  EXPECT_EQ(after.unmet.size(), 0u) << "clean speaks of what came before it";
  EXPECT_EQ(after.unexpected.size(), 1u);
}

TEST(CheckLog, ThePageThatShouldHaveStoodThereAgreesToo) {
  Violation v;
  v.reason = Reason::kPageMismatch;
  v.page = 7;
  v.expected = 4;
  LogExpect expect;
  expect.reason = Reason::kPageMismatch;
  for (const int64_t page : {4, 7}) {
    expect.page = PageId(page);
    EXPECT_TRUE(Agrees(expect, v));
  }
  expect.page = PageId(5);
  EXPECT_FALSE(Agrees(expect, v));
  expect.reason = v.reason = Reason::kTagMismatch;
  expect.page = PageId(4);
  EXPECT_FALSE(Agrees(expect, v)) << "elsewhere `expected` isn't a page";
}

TEST(CheckLog, TruthCountsWhatALowerLevelLetsThrough) {
  const std::string log =
      std::string(kHead) + kRun + R"({"ev":"write","page":3,"first":0,"n":1,"as":null}
{"ev":"step","step":2,"rows":[{"row":0,"req":"R","new":1,"table":[3],"len":3,"write":[14]}]}
{"ev":"confirm","step":2}
{"ev":"retire","step":2}
)";
  const CheckReport full = Check(log);
  EXPECT_FALSE(full.violations.empty());
  EXPECT_EQ(full.wrong_reads_published, 0u);
  CheckOptions map;
  map.level = Level::kMap;
  std::vector<WrongRead> heard;
  map.on_wrong_read = [&](const WrongRead& wrong) { heard.push_back(wrong); };
  const CheckReport low = Check(log, map);
  EXPECT_EQ(low.violations.size(), 0u) << low.ToJson();
  EXPECT_EQ(low.wrong_reads_published, 1u);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].line, 11u);
  EXPECT_EQ(heard[0].step, StepId(2));
  EXPECT_EQ(heard[0].row, Row(0));
  EXPECT_EQ(heard[0].tokens, 1u);
  EXPECT_EQ(heard[0].req.incarnation(), 1u);
}

TEST(CheckLog, ACutLogIsCheckedUpToTheCut) {
  const CheckReport report = Check(std::string(kHead) + kRun + kTwice + R"({"ev":"free","pa)");
  EXPECT_EQ(report.events, 7u);
  EXPECT_EQ(report.violations.size(), 1u);
  EXPECT_TRUE(report.cut_off);
  EXPECT_EQ(report.exit_code(), 2);
  const json j = json::parse(report.ToJson());
  EXPECT_EQ(j["cut_off"], true);
  EXPECT_EQ(j["ok"], false);
  EXPECT_EQ(j["error"], "x.kvlog:9:17: expected '\"'; the log is cut off here");
}

TEST(CheckLog, WhatTheFenceRefusesEndsTheLogWithItsLine) {
  const CheckReport report =
      Check(std::string(kHead) + kRun + "{\"ev\":\"confirm\",\"step\":77}\n" + kTwice);
  EXPECT_EQ(report.exit_code(), 2);
  EXPECT_FALSE(report.cut_off);
  EXPECT_THAT(report.error, HasSubstr("x.kvlog:8:1: expected an event that the fence accepts: "));
  EXPECT_EQ(report.violations.size(), 0u) << "nothing after it is played";
}

TEST(CheckLog, HeadersThatAreNoFenceAreErrors) {
  std::istringstream in(
      R"({"kvfence_log":1,"pools":[{"name":"p","pages":8,"page_size":20000}],"rows":2,"width":2})");
  const auto report = CheckLog(&in, "x.kvlog");
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(),
              HasSubstr("x.kvlog:1:1: expected a header that a fence accepts: "));
  EXPECT_FALSE(CheckLogFile("/nonexistent.kvlog").ok());
}

TEST(CheckLog, GeometryIsFoundAtTheHeader) {
  std::string head = kHead;
  head.replace(head.find(R"("page_size":4)"), 13,
               R"("page_size":4,"page_bytes":64,"index_bits":8)");
  const CheckReport report = Check(head + kRun);
  ASSERT_EQ(report.violations.size(), 1u);
  EXPECT_EQ(report.violations[0].line, 1u);
  EXPECT_EQ(report.violations[0].violation.reason, Reason::kGeometry);
  EXPECT_TRUE(Check(head + kRun + Expect(R"("reason":"geometry","pool":"p")")).ok());
}

// A draft pool that only some rows use in a pass: the others hold nothing there, and are right.
TEST(CheckLog, RowsAreNotJudgedInPoolsThatTheyDoNotTouch) {
  const std::string head =
      R"({"kvfence_log":1,"pools":[{"name":"a","pages":8,"page_size":4},{"name":"b","pages":8,)"
      R"("page_size":4}],"rows":3,"width":2})"
      "\n";
  const std::string admit = R"({"ev":"admit","req":"R"}
{"ev":"alloc","req":"R","pages":[1]}
{"ev":"alloc","req":"R","pages":[2],"pool":"b"}
{"ev":"row","row":0,"req":"R"}
{"ev":"admit","req":"S"}
{"ev":"alloc","req":"S","pages":[3]}
{"ev":"row","row":1,"req":"S"}
)";
  const auto step = [&](const std::string& second) {
    return head + admit +
           R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":2,"tables":{"a":[1],"b":[2]},)"
           R"("len":2,"writes":{"a":[[4,2]],"b":[[8,2]]}},{"row":1,"req":"S","new":1,"tables":{)" +
           second +
           R"(,"len":1,"writes":{"a":[12]}}]})"
           "\n{\"ev\":\"confirm\",\"step\":1}\n{\"ev\":\"retire\",\"step\":1}\n";
  };
  const CheckReport report = Check(step(R"("a":[3]})"));
  EXPECT_TRUE(report.ok()) << report.ToJson();
  EXPECT_FALSE(Check(step(R"("a":[3],"b":[]})")).ok()) << "touched, and nothing is there";
}

TEST(CheckLog, HearsOfViolationsAsTheyAreFound) {
  std::string heard;
  CheckOptions options;
  options.on_violation = [&](uint64_t line, const Violation& v, std::string_view req) {
    heard += std::to_string(line) + ' ' + std::string(ReasonName(v.reason)) + ' ' +
             std::string(req) + '\n';
  };
  Check(std::string(kHead) + kRun + kStale, options);
  EXPECT_THAT(heard, HasSubstr("8 freed_while_held "));
  EXPECT_THAT(heard, HasSubstr("11 tag_mismatch R\n"));
}

// Lines that may follow one another in any order, sense or no sense.
std::string RandomLine(Rng* rng, uint64_t* step) {
  const auto number = [&](uint64_t bound) { return std::to_string(rng->Below(bound)); };
  const auto page = [&] {
    return rng->Chance(1, 20) ? std::to_string(static_cast<int64_t>(rng->Next())) : number(9);
  };
  const auto req = [&] { return std::string(1, "RST"[rng->Below(3)]); };
  const std::string of = R"("req":")" + req() + '"';
  const std::string key = R"("key":"K)" + number(3) + '"';
  const std::string at = R"("at":)" + number(3);
  const std::string pages = R"("pages":[)" + page() + (rng->Chance(1, 2) ? "," + page() : "") + "]";
  const std::string xfer = R"("t)" + number(3) + '"';
  switch (rng->Below(20)) {
    case 0:
      return R"("admit",)" + of;
    case 1:
      return R"("alloc",)" + of + ',' + pages + (rng->Chance(1, 3) ? "," + at : "");
    case 2:
      return R"("share",)" + of + ',' + R"("pages":[)" + page() + R"(],"tokens":)" + number(6) +
             R"(,"keys":["K)" + number(3) + "\"]";
    case 3:
      return R"("fork","from":")" + req() + R"(","to":")" + req() + '"';
    case 4:
      return R"("cow",)" + of + ',' + at + R"(,"page":)" + page();
    case 5:
      return R"("trim",)" + of + R"(,"tokens":)" + number(9);
    case 6:
      return R"("drop",)" + of + ',' + at + R"(,"n":)" + number(3);
    case 7:
      return R"("release",)" + of;
    case 8:
      return R"("free",)" + pages;
    case 9:
      return R"("publish",)" + key + ',' + of + ',' + at;
    case 10:
      return R"("pin","id":)" + xfer + R"(,"dir":")" + (rng->Chance(1, 2) ? "in" : "out") + "\"," +
             pages + ',' + of + ',' + at;
    case 11:
      return R"("unpin","id":)" + xfer + R"(,"ok":)" + (rng->Chance(1, 2) ? "true" : "false");
    case 12:
      return R"("ready",)" + of + R"(,"tokens":)" + number(9);
    case 13:
      return R"("row","row":)" + number(2) + ',' + of;
    case 14:
      return R"("write","page":)" + page() + R"(,"first":)" + number(4) + R"(,"n":)" + number(5) +
             R"(,"as":{)" + (rng->Chance(1, 2) ? of + ',' + at : key) + R"(},"xfer":)" + xfer;
    case 15:
      return R"("read","page":)" + page() + R"(,"xfer":)" + xfer;
    case 16:
      return R"("copy","from":)" + page() + R"(,"to":)" + page();
    case 17:
      return R"("confirm","step":)" + std::to_string(*step);
    case 18:
      return R"("retire","step":)" + std::to_string(*step);
    default:
      return R"("step","step":)" + std::to_string(++*step) + R"(,"rows":[{"row":0,)" + of +
             R"(,"new":)" + number(4) + R"(,"table":[)" + page() + ',' + page() + R"(],"len":)" +
             number(9) + R"(,"write":[[)" + number(40) + ',' + number(4) + "]]}]";
  }
}

TEST(CheckLog, AnyLinesInAnyOrderAreCheckedOrRefused) {
  Rng rng(11);
  uint64_t events = 0, findings = 0;
  for (int round = 0; round < 400; ++round) {
    std::string log = kHead;
    if (rng.Chance(1, 2)) log.replace(log.find("explicit"), 8, R"(explicit","reuse":"stream)");
    uint64_t step = 0;
    for (int i = 0; i < 60; ++i) log += "{\"ev\":" + RandomLine(&rng, &step) + "}\n";
    CheckOptions options;
    if (rng.Chance(1, 3)) options.level = Level::kAudit;
    const CheckReport report = Check(log, options);
    events += report.events;
    findings += report.violations.size();
    EXPECT_EQ(report.unmet.size(), 0u);
    EXPECT_FALSE(report.cut_off);
  }
  EXPECT_GT(events, 4000u);
  EXPECT_GT(findings, 1000u);
}

TEST(CheckLog, TheSameLogGivesTheSameReport) {
  const std::string log = std::string(kHead) + kRun + kStale + kTwice;
  EXPECT_EQ(Check(log).ToJson(), Check(log).ToJson());
}

}  // namespace
}  // namespace kvfence
