// Each check of each level is needed: with it alone taken out, some bug passes in silence or makes
// a wrong token public.
//
// Idea: the logs of tests/scenarios and tests/rules are played at a level; where a reason is among
// the answers, the log is played again without that check. A check is needed if once nothing at all
// is said any more, or more wrong reads are published than before. One that never is could be
// deleted, or its logs are too few.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "kvfence/check_log.h"

namespace kvfence::tools {
namespace {

std::vector<std::string> Logs() {
  std::vector<std::string> logs;
  for (const char* folder : {"/tests/scenarios", "/tests/rules"}) {
    for (const auto& file :
         std::filesystem::directory_iterator(std::string(KVFENCE_SOURCE_DIR) + folder)) {
      if (file.path().extension() == ".kvlog") logs.push_back(file.path().string());
    }
  }
  std::ranges::sort(logs);
  return logs;
}

CheckReport Play(const std::string& log, Level level, CheckSet disabled) {
  CheckOptions options;
  options.level = level;
  options.disabled = disabled;
  Result<CheckReport> report = CheckLogFile(log, options);
  EXPECT_TRUE(report.ok()) << log;
  return report.ok() ? std::move(report).value() : CheckReport();
}

class NeededChecks : public testing::TestWithParam<Level> {};

TEST_P(NeededChecks, WithoutAnyOneSomethingPasses) {
  const CheckSet checks = ChecksOf(GetParam());
  std::set<Reason> needed;
  for (const std::string& log : Logs()) {
    const CheckReport whole = Play(log, GetParam(), {});
    std::set<Reason> said;
    for (const LoggedViolation& v : whole.violations) said.insert(v.violation.reason);
    for (const Reason reason : said) {
      if (needed.contains(reason)) continue;
      const CheckReport without = Play(log, GetParam(), reason);
      if (without.violations.empty() ||
          without.wrong_reads_published > whole.wrong_reads_published) {
        needed.insert(reason);
      }
    }
  }
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    // An `audit` line asks for conservation by name, at level full, too.
    if (!checks.Has(reason)) continue;
    EXPECT_TRUE(needed.contains(reason)) << ReasonName(reason);
  }
}

INSTANTIATE_TEST_SUITE_P(Level, NeededChecks,
                         testing::Values(Level::kMap, Level::kFull, Level::kAudit),
                         [](const auto& info) { return std::string(LevelName(info.param)); });

}  // namespace
}  // namespace kvfence::tools
