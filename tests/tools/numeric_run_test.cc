// `kvfence run --numeric`: the small transformer under a campaign, and its flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> Numeric(const std::string& out, std::vector<std::string> more) {
  std::vector<std::string> all = {"run", "--numeric", "--seed=5", "--out=" + out, "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(NumericRun, NothingWrongLeavesUnderTheFenceAndMuchWithoutIt) {
  const Scratch scratch;
  const std::vector<std::string> flags = {"--requests=24",       "--faults=row_swap,crossed_row",
                                          "--attention=gqa",     "--kv=fp8",
                                          "--weights=int4,bf16", "--trace_scale=16"};
  const Ran ran = RunTool(Numeric(scratch.Path("a"), flags));
  ASSERT_EQ(ran.code, kExitClean) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report["numeric"]["attention"], json::parse(R"(["gqa"])"));
  EXPECT_EQ(report["numeric"]["kv"], json::parse(R"(["fp8"])"));
  EXPECT_EQ(report["numeric"]["weights"], json::parse(R"(["bf16","int4"])"));
  EXPECT_EQ(report["trace_scale"], 16);
  EXPECT_TRUE(report["green"]) << ran.out;
  EXPECT_GT(report["tokens_published"], 20);
  EXPECT_EQ(report["wrong_tokens_published"], 0);
  EXPECT_EQ(report["clean_arm"]["wrong_tokens_published"], 0);
  EXPECT_GT(report["off_arm"]["wrong_tokens_published"], 0);
  EXPECT_THAT(ran.err, HasSubstr("--numeric --attention=gqa --kv=fp8 --weights=bf16,int4"));
  EXPECT_THAT(ran.err, HasSubstr("--trace_scale=16"));
  const std::string html = ReadAll(scratch.Path("a/report.html"));
  for (const char* pair :
       {"model</dt><dd>small transformers, numeric<", "attention</dt><dd>gqa<",
        "KV cache</dt><dd>fp8<", "weights</dt><dd>bf16, int4<", "divided by</dt><dd>16<"}) {
    EXPECT_THAT(html, HasSubstr(pair));
  }
  const Ran again = RunTool(Numeric(scratch.Path("b"), flags));
  json other = json::parse(again.out);
  other["seconds"] = report["seconds"];
  EXPECT_EQ(other, report) << "I-20";
}

TEST(NumericRun, FlagsThatMakeNoSenseAreNamed) {
  const Scratch scratch;
  const auto refused = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"run", "--out=" + scratch.Path("x")});
    const Ran ran = RunTool(flags);
    EXPECT_EQ(ran.code, kExitUsage);
    return ran.err;
  };
  EXPECT_THAT(refused({"--attention=gqa"}), HasSubstr("--attention of a run needs --numeric"));
  EXPECT_THAT(refused({"--kv=fp8"}), HasSubstr("--kv of a run needs --numeric"));
  EXPECT_THAT(refused({"--weights=fp8"}), HasSubstr("--weights of a run needs --numeric"));
  EXPECT_THAT(refused({"--numeric", "--attention=mha"}), HasSubstr("gqa, mla, got 'mha'"));
  EXPECT_THAT(refused({"--numeric", "--weights=nvfp4"}), HasSubstr("bf16, fp8, int4, got"));
  EXPECT_THAT(refused({"--trace_scale=3"}), HasSubstr("--trace_scale must be a power of two"));
  EXPECT_THAT(refused({"--trace_scale=1024"}), HasSubstr("up to 512"));
}

}  // namespace
}  // namespace kvfence::tools
