// `kvfence check --follow`: a log that another process is still writing.
//
// Nothing is timed: each test waits for the words that show how far the tool has come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kHeader =
    R"({"kvfence_log":1,"pools":[{"name":"full","pages":8,"page_size":16}],"rows":4,"width":4,)"
    R"("frees":"explicit"})"
    "\n";
const std::string kTwice = R"({"ev":"free","pages":[5]})"
                           "\n";

// Appends by a process of its own, which has ended when this returns.
void Append(const std::string& path, const std::string& text) {
  Process cat({"/bin/sh", "-c", "cat >> \"$0\"", path}, {.input = text});
  EXPECT_EQ(cat.Wait().code, 0);
}

TEST(Follow, FindingsAreToldWhileTheLogIsWritten) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", "");
  Process tool(ToolArgs({"check", "--follow", "--json", log}), {});
  Append(log, kHeader.substr(0, 30));  // not even the header is whole
  Append(log, kHeader.substr(30) + kTwice);
  EXPECT_TRUE(tool.SaysOnError(log + ":2: double_free page 5"));
  Append(log, kTwice.substr(0, 9));
  Append(log, kTwice.substr(9, 10));
  Append(log, kTwice.substr(19));
  EXPECT_TRUE(tool.SaysOnError(log + ":3: double_free page 5"));
  tool.Signal(SIGINT);
  const Ran ran = tool.Wait();
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.err, HasSubstr("2 events, 2 violations (2 unexpected)"));
  EXPECT_EQ(json::parse(ran.out).at("violations").size(), 2u);
}

// As without --follow: what stands in half a line wasn't checked.
TEST(Follow, EndedInMidLineItSaysThatTheLogIsCutOff) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kHeader + R"({"ev":"expect","reason":"double_)");
  Process tool(ToolArgs({"check", "--follow", "--json", log}), {});
  EXPECT_TRUE(tool.SaysOnError("following " + log));
  tool.Signal(SIGINT);
  const Ran ran = tool.Wait();
  EXPECT_EQ(ran.code, kExitUsage) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(log + ":2:"));
  EXPECT_THAT(ran.err, HasSubstr("0 events, 0 violations (0 unexpected), 0 unmet"));
  EXPECT_THAT(ran.err, HasSubstr("CUT OFF, checked up to there"));
  EXPECT_TRUE(json::parse(ran.out).at("cut_off"));
}

TEST(Follow, ExpectationsAreJudgedInTheSummary) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kHeader);
  Process tool(ToolArgs({"check", "--follow", "--json", log}), {});
  Append(log, R"({"ev":"expect","reason":"in_flight"})"
              "\n" +
                  kTwice);
  EXPECT_TRUE(tool.SaysOnError(":3: double_free"));
  tool.Signal(SIGTERM);
  const Ran ran = tool.Wait();
  EXPECT_EQ(ran.code, kExitFinding);
  EXPECT_THAT(ran.err, HasSubstr(log + ":2: expected in_flight, which was not reported"));
}

TEST(Follow, ALogThatShrinksIsAnError) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kHeader + kTwice);
  Process tool(ToolArgs({"check", "--follow", "--json", log}), {});
  EXPECT_TRUE(tool.SaysOnError(":2: double_free"));
  std::filesystem::resize_file(log, 10);
  const Ran ran = tool.Wait();
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr(log + ": was truncated while it was followed"));
  const json report = json::parse(ran.out);
  EXPECT_FALSE(report.at("ok"));
  EXPECT_EQ(report.at("violations").size(), 1u);
}

// What stood in the old file is judged to its end, whoever has its name by then.
TEST(Follow, ALogWhoseNameGoesToAnotherFileIsAnError) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kHeader);
  Process tool(ToolArgs({"check", "--follow", "--json", log}), {});
  EXPECT_TRUE(tool.SaysOnError("following"));
  Append(log, kTwice);
  std::filesystem::rename(log, scratch.Path("a.kvlog.1"));
  scratch.Write("a.kvlog", kHeader + kTwice + kTwice);
  const Ran ran = tool.Wait();
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr(log + ": was moved, removed or replaced while it was followed"));
  EXPECT_EQ(json::parse(ran.out).at("violations").size(), 1u);
}

TEST(Follow, ABadLineEndsItAsEver) {
  const Scratch scratch;
  const std::string log = scratch.Write("a.kvlog", kHeader);
  Process tool(ToolArgs({"check", "--follow", log}), {});
  Append(log, "{\"ev\":\"conjure\"}\n" + kTwice);
  const Ran ran = tool.Wait();
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr(log + ":2:7: expected a verb"));
  EXPECT_THAT(ran.out, HasSubstr("UNREADABLE, checked up to there"));
}

TEST(Follow, StandardInputIsFollowedToItsEnd) {
  const std::string pipe = "printf '%s\\n' \"$1\" \"$2\" | \"$0\" check --follow -";
  Process shell({"/bin/sh", "-c", pipe, KVFENCE_TOOL, kHeader, kTwice}, {});
  const Ran ran = shell.Wait();
  EXPECT_EQ(ran.code, kExitFinding) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("stdin:3: double_free page 5"));
}

TEST(Follow, TakesOneLog) {
  const Ran ran = RunTool({"check", "--follow", "a.kvlog", "b.kvlog"});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("--follow takes one LOG, got 2"));
  EXPECT_EQ(RunTool({"check", "--follow", "absent.kvlog"}).code, kExitUsage);
}

}  // namespace
}  // namespace kvfence::tools
