// `kvfence explore`: what it prints, and that it refuses what it can't do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"
#include "tools/cli.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(ExploreVerb, TellsOfEachFaultInWordsAndAsJson) {
  const Ran ran = RunTool({"explore", "--depth=10"});
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  for (const char* words :
       {"none", "late_write", "long_length", "every interleaving of up to 10"}) {
    EXPECT_THAT(ran.out, HasSubstr(words));
  }
  const Ran again = RunTool({"explore", "--depth=10", "--json"});
  const json report = json::parse(again.out);
  EXPECT_TRUE(report.at("ok"));
  EXPECT_EQ(report.at("depth"), 10);
  ASSERT_EQ(report.at("faults").size(), 9u);
  uint64_t wrong_without = 0;
  for (const json& fault : report.at("faults")) {
    EXPECT_GE(fault.at("interleavings"), fault.at("worlds"));
    EXPECT_EQ(fault.at("wrong_published"), 0);
    EXPECT_EQ(fault.at("worlds_with_the_fault") == 0, fault.at("fault") == "none");
    wrong_without += fault.at("wrong_published_without_fence").get<uint64_t>();
  }
  EXPECT_GT(wrong_without, 0u);
}

TEST(ExploreVerb, RefusesADepthThatWouldNeverEnd) {
  for (const char* depth : {"--depth=0", "--depth=25", "--depth=-1"}) {
    const Ran ran = RunTool({"explore", depth});
    EXPECT_EQ(ran.code, kExitUsage);
    EXPECT_THAT(ran.err, HasSubstr("expected a number from 1 to 24"));
  }
  EXPECT_EQ(RunTool({"explore", "words"}).code, kExitUsage);
}

}  // namespace
}  // namespace kvfence::tools
