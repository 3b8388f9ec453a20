// `kvfence shrink` as a user meets it: a file that is whole, words apart from the log, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kScenarios = KVFENCE_SOURCE_DIR "/tests/scenarios/";

TEST(ShrinkVerb, WritesALogThatHoldsUnderCheck) {
  const Scratch scratch;
  const std::string out = scratch.Path("small.kvlog");
  const Ran ran = RunTool({"shrink", kScenarios + "A-02.kvlog", "-o", out});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("freed_while_held req R page 2"));
  EXPECT_THAT(ran.err, HasSubstr(out + ":8 reports it"));
  EXPECT_THAT(scratch.List(""), ElementsAre("small.kvlog"));
  const Ran check = RunTool({"check", out});
  EXPECT_EQ(check.code, kExitClean) << check.out;
  EXPECT_THAT(check.out, HasSubstr(out + ":8: freed_while_held req R page 2"));
  EXPECT_THAT(check.out, HasSubstr("7 events, 1 violations (0 unexpected)"));
}

TEST(ShrinkVerb, StandardOutputIsTheLog) {
  const std::string log = ReadAll(kScenarios + "G-09.kvlog");
  const Ran ran = RunTool({"shrink", "-"}, {.input = log});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("{\"kvfence_log\":1,"));
  EXPECT_EQ(RunTool({"check", "-"}, {.input = ran.out}).code, kExitClean);
}

TEST(ShrinkVerb, JsonSaysWhatBecameOfIt) {
  const Scratch scratch;
  const std::string out = scratch.Path("small.kvlog");
  const Ran ran =
      RunTool({"shrink", kScenarios + "A-02.kvlog", "--reason=tag_mismatch", "--json", "-o", out});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("reason"), "tag_mismatch");
  EXPECT_EQ(report.at("req"), "R");
  EXPECT_EQ(report.at("out"), out);
  EXPECT_FALSE(report.at("interrupted"));
  EXPECT_LT(report.at("lines"), report.at("lines_before"));
  EXPECT_GT(report.at("trials"), 10);
}

TEST(ShrinkVerb, ALogThatIsCutOffBehindItsFindingSaysSo) {
  const Scratch scratch;
  const std::string out = scratch.Path("small.kvlog");
  const std::string cut = scratch.Write("cut.kvlog", ReadAll(kScenarios + "A-02.kvlog") + "{\"ev");
  const Ran ran = RunTool({"shrink", cut, "--json", "-o", out});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("cut off"));
  EXPECT_THAT(ran.err, HasSubstr("the log was read up to there"));
  EXPECT_TRUE(json::parse(ran.out).at("cut_off"));
  EXPECT_THAT(json::parse(ran.out).at("error").get<std::string>(), StartsWith(cut + ":"));
  const Ran whole = RunTool({"shrink", kScenarios + "A-02.kvlog", "--json", "-o", out});
  EXPECT_FALSE(json::parse(whole.out).contains("cut_off"));
}

TEST(ShrinkVerb, MistakesLeaveNothing) {
  const Scratch scratch;
  const std::string out = scratch.Path("small.kvlog");
  const auto fails = [&](const std::vector<std::string>& arguments, int code,
                         const std::string& with) {
    std::vector<std::string> all = {"shrink"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ran ran = RunTool(all);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(with));
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(std::filesystem::is_empty(scratch.Path("")));
  };
  const std::string bug = kScenarios + "A-02.kvlog";
  fails({"-o", out}, kExitUsage, "needs one LOG");
  fails({bug, bug, "-o", out}, kExitUsage, "needs one LOG");
  fails({scratch.Path("absent"), "-o", out}, kExitUsage, "absent: No such file");
  fails({kScenarios + "A-02.clean.kvlog", "-o", out}, kExitUsage, "no finding");
  fails({bug, "--reason=tag_mismtach", "-o", out}, kExitUsage, "did you mean 'tag_mismatch'?");
  fails({bug, "--line=3", "-o", out}, kExitUsage, "no finding at line 3; the first is freed");
  fails({bug, "--json"}, kExitUsage, "--json needs -o");
  fails({kScenarios + "catalogue.json", "-o", out}, kExitUsage, "catalogue.json:1:");
  fails({bug, "-o", scratch.Path("no/folder.kvlog")}, kExitEnvironment, "No such file");
}

}  // namespace
}  // namespace kvfence::tools
