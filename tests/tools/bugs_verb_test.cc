// `kvfence bugs` as a user meets it: the table, the object, and an exit code that can fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHeader =
    R"({"kvfence_log":1,"pools":[{"name":"full","pages":8,"page_size":16}],"rows":4,"width":4,)"
    R"("frees":"explicit"})"
    "\n";
const std::string kBegin = R"({"ev":"admit","req":"R"}
{"ev":"alloc","req":"R","pages":[1]}
{"ev":"row","row":0,"req":"R"}
{"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":3,"table":[1],"len":3,"write":[[16,3]]}]}
{"ev":"confirm","step":1}
{"ev":"retire","step":1}
)";
const std::string kNext =
    R"({"ev":"step","step":2,"rows":[{"row":0,"req":"R","new":1,"table":[1],"len":4,"write":[19]}]}
{"ev":"confirm","step":2}
{"ev":"retire","step":2}
)";
const std::string kForeign = R"({"ev":"write","page":1,"first":0,"n":1,"as":null})"
                             "\n";
const std::string kFreed = R"({"ev":"free","pages":[1]})"
                           "\n";
const std::string kClean = R"({"ev":"expect","clean":true})"
                           "\n";
std::string Expect(const std::string& reason) {
  return R"({"ev":"expect","reason":")" + reason + "\"}\n";
}

// A folder with a catalogue of these ids, all of class X.
class Museum {
 public:
  explicit Museum(const std::vector<std::string>& ids) {
    json catalogue;
    catalogue["classes"]["X"] = "made up";
    for (const std::string& id : ids) {
      catalogue["entries"].push_back({{"id", id}, {"title", "title of " + id}});
    }
    scratch_.Write("catalogue.json", catalogue.dump());
  }
  void Put(const std::string& id, const std::string& bug, const std::string& twin) const {
    scratch_.Write(id + ".kvlog", kHeader + bug);
    scratch_.Write(id + ".clean.kvlog", kHeader + twin);
  }
  Ran Run(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), {"bugs", "--scenarios=" + scratch_.Path("")});
    return RunTool(arguments);
  }
  const Scratch& scratch() const { return scratch_; }

 private:
  Scratch scratch_;
};

TEST(BugsVerb, TheWholeCatalogueHoldsAndAllButTwoAreAnsweredInTime) {
  const Ran ran = RunTool({"bugs", "--json"});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("total"), 116);
  EXPECT_EQ(report.at("answered"), 114);
  EXPECT_EQ(report.at("answered_before_publication"), 114);
  EXPECT_EQ(report.at("twins_silent"), 114);
  EXPECT_EQ(report.at("not_visible"), 2);
  EXPECT_EQ(report.at("answered_at").at("audit"), 114);
  EXPECT_TRUE(report.at("ok"));
  for (const json& entry : report.at("entries")) {
    const std::string id = entry.at("id");
    EXPECT_EQ(entry.at("class"), id.substr(0, 1));
    if (entry.contains("limit")) continue;
    EXPECT_TRUE(entry.at("before_publication")) << id;
    const json& lowest = entry.at("levels").at(std::string(entry.at("level")));
    EXPECT_EQ(lowest.at("reason"), entry.at("reason")) << id;
  }
  EXPECT_THAT(ran.err, HasSubstr("all hold"));
}

TEST(BugsVerb, TheTableNamesClassReasonByLevelAndTwin) {
  const Ran ran = RunTool({"bugs", "--only=A-04,D-1?,N-01"});
  EXPECT_EQ(ran.code, kExitClean) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\nA  stale mapping of a freed page\nA-04   tag_mismatch "));
  EXPECT_THAT(ran.out, testing::ContainsRegex("D-10 +silent +stamp_mismatch +as full +silent  "));
  EXPECT_THAT(ran.out, HasSubstr("\nD-11 "));
  EXPECT_THAT(ran.out, HasSubstr("N-01   not visible: "));
  EXPECT_THAT(ran.out, HasSubstr("docs/limits.md#n-01: "));
  EXPECT_THAT(ran.out, HasSubstr("4 entries: 3 answered before publication at full"));
  EXPECT_THAT(ran.out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(ran.err, "");
}

TEST(BugsVerb, WhatNoEventShowsHasItsLimitInTheObject) {
  const json report = json::parse(RunTool({"bugs", "--only=N-02", "--json"}).out);
  const json& entry = report.at("entries").at(0);
  EXPECT_FALSE(entry.at("answered"));
  EXPECT_FALSE(entry.at("before_publication"));
  EXPECT_TRUE(entry.at("reason").is_null() && entry.at("level").is_null());
  EXPECT_EQ(entry.at("limit"), "docs/limits.md#n-02");
  EXPECT_EQ(report.at("total"), 1);
  EXPECT_EQ(report.at("answered"), 0);
}

TEST(BugsVerb, LevelsAreToldApart) {
  const Museum museum({"X-01"});
  museum.Put("X-01",
             kBegin + kFreed + Expect("freed_while_held") + kNext + Expect("tag_mismatch") + kClean,
             kBegin + kNext + kClean);
  const Ran ran = museum.Run({"--json"});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  const json entry = json::parse(ran.out).at("entries").at(0);
  EXPECT_EQ(entry.at("level"), "map");
  EXPECT_EQ(entry.at("reason"), "tag_mismatch");
  EXPECT_EQ(entry.at("levels").at("map").at("line"), 10);
  EXPECT_EQ(entry.at("levels").at("full").at("reason"), "freed_while_held");
  EXPECT_EQ(entry.at("levels").at("full").at("line"), 8);
  EXPECT_EQ(entry.at("own_level"), "full");
}

TEST(BugsVerb, AScenarioWhoseExpectationIsNotMetFails) {
  const Museum museum({"X-01"});
  museum.Put("X-01", kBegin + kFreed + Expect("double_free"), kBegin + kNext);
  const Ran ran = museum.Run();
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out, HasSubstr("title of X-01  DOESN'T HOLD"));
  EXPECT_THAT(ran.out, HasSubstr("X-01.kvlog:9: expected double_free, which was not reported"));
  EXPECT_THAT(ran.out, HasSubstr("X-01.kvlog:8: freed_while_held req R page 1 at 0"));
  EXPECT_THAT(ran.out, HasSubstr("1 DON'T HOLD"));
}

TEST(BugsVerb, ATwinThatSpeaksFails) {
  const Museum museum({"X-01"});
  museum.Put("X-01", kBegin + kFreed + Expect("freed_while_held"), kBegin + kForeign + kNext);
  const Ran ran = museum.Run({"--json"});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.err, HasSubstr("SPEAKS"));
  EXPECT_THAT(ran.err, HasSubstr("X-01.clean.kvlog:9: the twin isn't silent at full: stamp_mism"));
  EXPECT_THAT(ran.err, HasSubstr("the twin isn't silent at map: publishes 1 wrong tokens"));
  const json report = json::parse(ran.out);
  EXPECT_FALSE(report.at("ok"));
  EXPECT_EQ(report.at("twins_silent"), 0);
  EXPECT_FALSE(report.at("entries").at(0).at("twin_silent"));
}

// All expectations met, and yet late: R's wrong token was out before anything named R.
TEST(BugsVerb, AnAnswerBehindTheWrongTokenIsLate) {
  const Museum museum({"X-01"});
  const std::string wrong_table =
      R"({"ev":"step","step":3,"rows":[{"row":0,"req":"R","new":1,"table":[2],"len":5,)"
      R"("write":[36]}]})"
      "\n";
  const std::string bug = kBegin + kForeign + kNext + wrong_table + Expect("page_mismatch");
  museum.Put("X-01", bug, kBegin + kNext);
  const std::string at_map = kHeader.substr(0, kHeader.size() - 2) + ",\"level\":\"map\"}\n";
  museum.scratch().Write("X-01.kvlog", at_map + bug);
  const Ran ran = museum.Run({"--json"});
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.err, HasSubstr("page_mismatch, late"));
  EXPECT_THAT(ran.err, HasSubstr("X-01.kvlog:12: 1 wrong tokens were published of requests that"));
  const json levels = json::parse(ran.out).at("entries").at(0).at("levels");
  EXPECT_EQ(levels.at("map").at("unnamed_wrong_tokens"), 1);
  EXPECT_FALSE(levels.at("map").at("before_publication"));
  EXPECT_TRUE(levels.at("full").at("before_publication"));
}

TEST(BugsVerb, UnreadableScenariosAreTrouble) {
  const Museum museum({"X-01", "X-02"});
  museum.Put("X-01", "{\"ev\":\"conjure\"}\n", kBegin);
  const Ran ran = museum.Run();
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.out, HasSubstr("X-01.kvlog:2:7: expected"));
  EXPECT_THAT(ran.out, HasSubstr("X-02.kvlog: No such file"));
  EXPECT_THAT(ran.out, HasSubstr("X-02.clean.kvlog: No such file"));
}

TEST(BugsVerb, UsageErrorsAreOneLine) {
  const Scratch scratch;
  const auto fails = [](const std::vector<std::string>& arguments, const std::string& with) {
    const Ran ran = RunTool(arguments);
    EXPECT_EQ(ran.code, kExitUsage) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(with));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "");
  };
  fails({"bugs", "A-04"}, "takes no words");
  fails({"bugs", "--scenarios=" + scratch.Path("absent")}, "there's no such folder");
  fails({"bugs", "--scenarios=" + scratch.Path("")}, "catalogue.json: No such file");
  fails({"bugs", "--only=A-77"}, "--only: no entry is called 'A-77', did you mean 'A-0");
  fails({"bugs", "--json", "--only=C-*,H-*"}, "'H-*'");
  scratch.Write("catalogue.json", "[1,2");
  fails({"bugs", "--scenarios=" + scratch.Path("")}, "catalogue.json: ");
  scratch.Write("catalogue.json", R"({"classes":{"A":"a"},"entries":[{"id":"B-01","title":"t"}]})");
  fails({"bugs", "--scenarios=" + scratch.Path("")}, "begins with the letter of no class");
}

TEST(BugsVerb, HelpHasExamples) {
  const Ran ran = RunTool({"bugs", "--help"});
  EXPECT_EQ(ran.code, kExitClean);
  EXPECT_THAT(ran.out, HasSubstr("kvfence bugs --only=A-04,C-*"));
  EXPECT_THAT(ran.out, HasSubstr("exit codes"));
}

}  // namespace
}  // namespace kvfence::tools
