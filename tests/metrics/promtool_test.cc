// Prometheus' own judgement: of the text we render, of the rules we ship, of every dashboard query.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/metrics/exposition.h"
#include "tests/metrics/fixture.h"
#include "tests/metrics/process.h"

namespace kvfence::testing {
namespace {

const std::string kAlerts = std::string(KVFENCE_SOURCE_DIR) + "/metrics/alerts/";

class Promtool : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!OnPath("promtool")) GTEST_SKIP() << "promtool (Debian package prometheus) is not on PATH";
  }
};

void ReplaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

TEST_F(Promtool, AcceptsTheTextWithoutComplaint) {
  const auto metrics = Make(HarnessOptions());
  metrics->OnStep(Stats(3, 70, 1, 0, 12'345));
  metrics->OnViolation(Found(Reason::kWriteShared));
  const ProcessResult result = RunProcess({"promtool", "check", "metrics"}, metrics->RenderText());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
}

TEST_F(Promtool, WouldComplainOfABadText) {
  std::string text = Make(HarnessOptions())->RenderText();
  ReplaceAll(text, "kvfence_violations_total", "kvfence_violations");
  EXPECT_NE(RunProcess({"promtool", "check", "metrics"}, text).exit_code, 0);
}

TEST_F(Promtool, AcceptsTheRules) {
  const ProcessResult result =
      RunProcess({"promtool", "check", "rules", kAlerts + "kvfence.rules.yaml"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("SUCCESS: 5 rules found"), std::string::npos) << result.output;
}

TEST_F(Promtool, RulesPassTheirUnitTest) {
  const ProcessResult result =
      RunProcess({"promtool", "test", "rules", kAlerts + "kvfence.rules.test.yaml"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

// Each dashboard query, its variables filled in, as the expression of a recording rule.
TEST_F(Promtool, ParsesEveryDashboardQuery) {
  const auto dashboard = nlohmann::json::parse(ReadSourceFile("metrics/dashboards/kvfence.json"));
  nlohmann::json rules = nlohmann::json::array();
  for (const auto& panel : dashboard["panels"]) {
    if (!panel.contains("targets")) continue;
    for (const auto& target : panel["targets"]) {
      std::string expr = target["expr"];
      ReplaceAll(expr, "$__rate_interval", "1m");
      for (const std::string name : {"$model_name", "$engine", "$instance"}) {
        ReplaceAll(expr, name, ".*");
      }
      EXPECT_EQ(expr.find('$'), std::string::npos) << "unknown variable in " << expr;
      rules.push_back({{"record", "panel:query" + std::to_string(rules.size())}, {"expr", expr}});
    }
  }
  ASSERT_GT(rules.size(), 15u);
  const std::string path = ::testing::TempDir() + "kvfence_dashboard_" + std::to_string(getpid());
  // JSON is YAML.
  std::ofstream(path) << nlohmann::json{{"groups", {{{"name", "d"}, {"rules", rules}}}}};
  const ProcessResult result = RunProcess({"promtool", "check", "rules", path});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  std::remove(path.c_str());
}

}  // namespace
}  // namespace kvfence::testing
