// `kvfence check` as a user meets it: findings by file and line, expectations, unreadable logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kHeader =
    R"({"kvfence_log":1,"pools":[{"name":"full","pages":8,"page_size":16}],"rows":4,"width":4,)"
    R"("frees":"explicit"})"
    "\n";
// A page is freed while R holds it, issued to S, and still mapped by R.
const std::string kFreed = std::string(kHeader) +
                           R"({"ev":"admit","req":"R"}
{"ev":"alloc","req":"R","pages":[1,2]}
{"ev":"row","row":0,"req":"R"}
{"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":20,"table":[1,2],"len":20,)"
                           R"("write":[[16,16],[32,4]]}]}
{"ev":"confirm","step":1}
{"ev":"retire","step":1}
{"ev":"free","pages":[1]}
)";
const std::string kExpectFreed = R"({"ev":"expect","reason":"freed_while_held","req":"R","page":1})"
                                 "\n";
const std::string kExpectClean = R"({"ev":"expect","clean":true})"
                                 "\n";
const std::string kExpectTag =
    R"({"ev":"expect","reason":"tag_mismatch","req":"R","page":1,"step":2})"
    "\n";

TEST(CheckVerb, ALogWithoutFindingsIsOk) {
  const Scratch scratch;
  const std::string log =
      scratch.Write("a.kvlog", std::string(kHeader) + R"({"ev":"admit","req":"R"})"
                                                      "\n");
  const Ran ran = RunTool({"check", log});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr(log + ": 1 events, 0 violations"));
  EXPECT_THAT(ran.out, HasSubstr(": ok\n"));
  EXPECT_EQ(ran.err, "");
}

TEST(CheckVerb, FindingsAreToldByFileAndLine) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kFreed);
  const Ran ran = RunTool({"check", log});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out, StartsWith(log + ":8: freed_while_held req R page 1"));
  EXPECT_THAT(ran.out, Not(HasSubstr("as expected")));
  EXPECT_THAT(ran.out, HasSubstr("1 violations (1 unexpected)"));
}

TEST(CheckVerb, IncidentRecordsTellWhatHappenedToThePage) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kFreed), file = scratch.Path("i.jsonl");
  const Ran ran = RunTool({"check", "--incidents=" + file, log});
  EXPECT_EQ(ran.code, kExitFinding);
  const json record = json::parse(ReadAll(file));  // one line
  EXPECT_EQ(record.at("reason"), "freed_while_held");
  EXPECT_EQ(record.at("req"), "R");
  EXPECT_EQ(record.at("page"), 1);
  EXPECT_EQ(record.at("history").front().at("verb"), "alloc");
  EXPECT_EQ(record.at("history").back().at("verb"), "free");
  EXPECT_EQ(RunTool({"check", log}).out, ran.out);  // I-16
  const Ran absent = RunTool({"check", "--incidents=" + scratch.Path("no/i.jsonl"), log});
  EXPECT_EQ(absent.code, kExitEnvironment);
  EXPECT_THAT(absent.err, HasSubstr("no/i.jsonl"));
  EXPECT_EQ(RunTool({"check", "--incidents=/dev/full", log}).code, kExitEnvironment);
}

TEST(CheckVerb, ExpectationsThatAreMetMakeItOk) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kFreed + kExpectFreed + kExpectClean);
  const Ran ran = RunTool({"check", log});
  EXPECT_EQ(ran.code, kExitClean) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr(":8: freed_while_held req R page 1"));
  EXPECT_THAT(ran.out, HasSubstr("(as expected)"));
}

TEST(CheckVerb, ExpectationsThatAreNotMetAreToldByTheirLine) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kFreed + kExpectFreed + kExpectTag);
  const Ran ran = RunTool({"check", log});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out,
              HasSubstr(log + ":10: expected tag_mismatch req R page 1 step 2, which was not"));
  EXPECT_THAT(ran.out, HasSubstr("1 unmet expectations"));
  const std::string clean = scratch.Write("b.kvlog", kFreed + kExpectClean);
  EXPECT_THAT(RunTool({"check", clean}).out, HasSubstr(clean + ":9: expected clean"));
}

TEST(CheckVerb, JsonIsOneObjectOnStandardOutput) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kFreed);
  const Ran ran = RunTool({"check", "--json", log});
  EXPECT_EQ(ran.code, kExitFinding);
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("events"), 7);
  EXPECT_FALSE(report.at("ok"));
  ASSERT_EQ(report.at("violations").size(), 1u);
  const json& violation = report.at("violations")[0];
  EXPECT_EQ(violation.at("line"), 8);
  EXPECT_EQ(violation.at("reason"), "freed_while_held");
  EXPECT_EQ(violation.at("req"), "R");
  EXPECT_EQ(violation.at("page"), 1);
  for (const char* key : {"step", "row", "pool", "at", "expected", "found"}) {
    EXPECT_TRUE(violation.contains(key)) << key;
  }
  EXPECT_EQ(report.at("unexpected").size(), 1u);
  EXPECT_TRUE(report.at("unmet").empty());
  EXPECT_EQ(report.at("wrong_reads_published"), 0);
  EXPECT_THAT(ran.err, HasSubstr("freed_while_held"));  // the words for people
}

TEST(CheckVerb, SeveralLogsAreJudgedAloneAndTheWorstDecides) {
  const Scratch scratch;
  const std::string good = scratch.Write("good.kvlog", kHeader);
  const std::string bad = scratch.Write("bad.kvlog", kFreed);
  const Ran ran = RunTool({"check", good, bad, "--json"});
  EXPECT_EQ(ran.code, kExitFinding);
  const json report = json::parse(ran.out);
  ASSERT_EQ(report.at("logs").size(), 2u);
  EXPECT_TRUE(report.at("logs")[0].at("ok"));
  EXPECT_FALSE(report.at("logs")[1].at("ok"));
  EXPECT_FALSE(report.at("ok"));
  const Ran worst = RunTool({"check", bad, scratch.Path("absent.kvlog"), good});
  EXPECT_EQ(worst.code, kExitUsage);
  EXPECT_THAT(worst.err, HasSubstr("absent.kvlog"));
  EXPECT_THAT(worst.out, HasSubstr(good + ": 0 events"));
}

TEST(CheckVerb, ReadsStandardInput) {
  const Ran ran = RunTool({"check", "-"}, {.input = kFreed});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out, StartsWith("stdin:8: freed_while_held"));
}

TEST(CheckVerb, TheLevelCanBeLowered) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kFreed);
  // freed_while_held is a check of `full`.
  EXPECT_EQ(RunTool({"check", "--level=map", log}).code, kExitClean);
  EXPECT_EQ(RunTool({"check", "--level=full", log}).code, kExitFinding);
  EXPECT_EQ(RunTool({"check", "--level=off", log}).code, kExitUsage);
}

// Long isn't wrong: the line is read, and the log's one finding stands.
TEST(CheckVerb, ALineOfTenMegabytesIsReadLikeAnyOther) {
  const Scratch scratch;
  const std::string line = "{\"ev\":\"admit\",\"req\":\"" + std::string(10'000'000, 'x') + "\"}\n";
  const Ran ran = RunTool({"check", scratch.Write("long.kvlog", kFreed + kExpectFreed + line)});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
}

// One line that names file, line, column and what was expected; what came before was checked.
TEST(CheckVerb, UnreadableLogsAreNamedByFileLineAndColumn) {
  const Scratch scratch;
  const std::vector<std::string> bad_lines = {
      R"({"ev":"admit","req":)",
      R"({"ev":"conjure","req":"R"})"
      "\n",
      R"({"ev":"admit","request":"R"})"
      "\n",
      R"({"ev":"alloc","req":"R","pages":[99999999999999999999999]})"
      "\n",
      R"({"ev":"alloc","req":"R","pages":1})"
      "\n",
      std::string("\0\0\0\n", 4),
      "{\"ev\":\"admit\",\"" + std::string(10'000'000, 'x') + "\":\"R\"}\n",
      "not json\n",
      "\xff\xfe\n",
  };
  for (const std::string& line : bad_lines) {
    const std::string log = scratch.Write("bad.kvlog", kFreed + line);
    const Ran ran = RunTool({"check", log});
    const std::string shown = line.substr(0, 60);
    EXPECT_EQ(ran.code, kExitUsage) << shown;
    EXPECT_THAT(ran.err, StartsWith(log + ":9:")) << shown;
    EXPECT_THAT(ran.err, HasSubstr("expected")) << shown;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << shown;
    EXPECT_LT(ran.err.size(), 1000u) << shown;
    EXPECT_THAT(ran.out, HasSubstr(log + ":8: freed_while_held")) << shown;
  }
  for (const std::string& text : {std::string(), std::string("{}\n"), std::string("\n")}) {
    const std::string log = scratch.Write("bad.kvlog", text);
    const Ran ran = RunTool({"check", log, "--json"});
    EXPECT_EQ(ran.code, kExitUsage);
    EXPECT_THAT(json::parse(ran.out)["error"].get<std::string>(), StartsWith(log + ":1:"));
    EXPECT_THAT(ran.err, StartsWith(log + ":1:"));
  }
}

TEST(CheckVerb, ALogThatIsCutOffSaysSo) {
  const Scratch scratch;
  const std::string log = scratch.Write("cut.kvlog", kFreed + R"({"ev":"admi)");
  const Ran ran = RunTool({"check", log, "--json"});
  EXPECT_EQ(ran.code, kExitUsage);
  const json report = json::parse(ran.out);
  EXPECT_TRUE(report.at("cut_off"));
  EXPECT_FALSE(report.at("ok"));
  EXPECT_EQ(report.at("violations").size(), 1u);
  EXPECT_THAT(ran.err, HasSubstr("CUT OFF"));
}

// The verdict is about reports; wrong reads that no check of the level sees have a line of their
// own.
TEST(CheckVerb, WrongReadsThatNothingReportedAreTold) {
  const std::string log = KVFENCE_SOURCE_DIR "/tests/rules/exits/wrong-reads-counted-at-map.kvlog";
  const Ran ran = RunTool({"check", log});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("3 wrong reads published: ok\n"));
  EXPECT_THAT(ran.out, HasSubstr(log + ": WRONG READS that nothing reported"));
  const Scratch scratch;
  const Ran none = RunTool({"check", scratch.Write("a.kvlog", kFreed)});
  EXPECT_THAT(none.out, Not(HasSubstr("WRONG READS")));
}

// Not as the largest number there is.
TEST(CheckVerb, WhatIsNoPageOrNobodysIsNamed) {
  const std::string rules = KVFENCE_SOURCE_DIR "/tests/rules/";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"drop-becomes-null-in-the-ledger", "expected no page, found 1 "},
      {"alloc-at-leaves-a-hole", "expected nothing, found 0 "},
      {"draft-past-width", "expected no slot, found 12 "},
      {"header-skip-slot-given", "expected 7, found -2 "},
      {"cow-then-foreign-write", "expected 16777217, found nobody's content "},
      {"copy-then-foreign-write", "found content of several "},
      {"cross-failed-load-is-not-committed", "found a failed copy's content "}};
  for (const auto& [log, says] : cases) {
    const Ran ran = RunTool({"check", rules + log + ".kvlog"});
    EXPECT_EQ(ran.code, kExitClean) << log;
    EXPECT_THAT(ran.out, HasSubstr(says));
    EXPECT_THAT(ran.out, Not(HasSubstr("1844674407370955"))) << log;
  }
}

TEST(CheckVerb, NamesDontSteerTheTerminal) {
  const Scratch scratch;
  std::string text = kFreed;
  for (size_t at = 0; (at = text.find("\"R\"", at)) != std::string::npos;) {
    text.replace(at, 3, R"("\u001b[31m\nR")");
  }
  const Ran ran = RunTool({"check", scratch.Write("a.kvlog", text)});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out, HasSubstr("req \\x1b[31m\\x0aR page 1"));
}

TEST(CheckVerb, LongNamesArePlayedAndShownInPart) {
  const Scratch scratch;
  const std::string name(10'000'000, 'x');
  const std::string log =
      scratch.Write("a.kvlog", kHeader + ("{\"ev\":\"release\",\"req\":\"" + name + "\"}\n"));
  const Ran ran = RunTool({"check", log});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out, HasSubstr("identity_reused req xxx"));
  EXPECT_THAT(ran.out, HasSubstr("... (10000000 bytes)"));
  EXPECT_LT(ran.out.size(), 2000u);
}

TEST(CheckVerb, NeedsALog) {
  const Ran ran = RunTool({"check"});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("kvfence check: needs a LOG"));
  const Scratch scratch;
  EXPECT_EQ(RunTool({"check", scratch.Path("")}).code, kExitUsage);  // a folder
  EXPECT_EQ(RunTool({"check", "--backend=cuda", scratch.Write("a.kvlog", kHeader)}).code,
            kExitEnvironment);
}

}  // namespace
}  // namespace kvfence::tools
