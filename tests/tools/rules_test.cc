// The language's rules, one by one: each log of tests/rules holds what docs/events.md says of one
// of them, and those of tests/rules/exits end as their list says.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kvfence/check_log.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

const std::string kRules = KVFENCE_SOURCE_DIR "/tests/rules";

std::vector<std::string> LogsIn(const std::string& folder) {
  std::vector<std::string> logs;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".kvlog") logs.push_back(file.path().filename().string());
  }
  std::ranges::sort(logs);
  return logs;
}

TEST(Rules, EachLogHolds) {
  const std::vector<std::string> logs = LogsIn(kRules);
  EXPECT_GT(logs.size(), 700u);
  for (const std::string& log : logs) {
    Result<CheckReport> report = CheckLogFile(kRules + "/" + log);
    if (!report.ok()) {
      ADD_FAILURE() << report.status().message();
      continue;
    }
    EXPECT_TRUE(report->ok()) << log << ": " << report->error << report->ToJson();
  }
}

// Lines: log, exit, a piece of what is said, with tabs between.
TEST(Rules, RefusedAndFailingLogsEndAsListed) {
  const std::string folder = kRules + "/exits";
  std::ifstream list(folder + "/exits.tsv");
  size_t listed = 0;
  for (std::string line; std::getline(list, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string log, code, text;
    std::getline(fields, log, '\t');
    std::getline(fields, code, '\t');
    std::getline(fields, text);
    ++listed;
    const Ran ran = RunTool({"check", folder + "/" + log});
    EXPECT_EQ(std::to_string(ran.code), code) << log << "\n" << ran.err << ran.out;
    EXPECT_NE((ran.out + ran.err).find(text), std::string::npos)
        << log << ": expected to read '" << text << "' in\n"
        << ran.out << ran.err;
  }
  EXPECT_EQ(listed, LogsIn(folder).size());
}

}  // namespace
}  // namespace kvfence::tools
