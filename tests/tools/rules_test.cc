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
    // At level map content isn't asked for.
    if (log.starts_with("header-level-map")) continue;
    EXPECT_EQ(report->wrong_reads_published, 0u) << log;
  }
}

// What each says behind `refused: ` in its header, in single quotes for double ones.
TEST(Rules, RefusedLogsAreRefusedForWhatTheySay) {
  const std::string folder = kRules + "/refused/", mark = "refused: ";
  const std::vector<std::string> logs = LogsIn(folder);
  EXPECT_GT(logs.size(), 50u);
  for (const std::string& log : logs) {
    std::string header = ReadAll(folder + log);
    header.resize(header.find('\n'));
    const size_t at = header.find(mark);
    ASSERT_NE(at, std::string::npos) << log;
    std::string text = header.substr(at + mark.size());
    text.resize(text.find('"'));
    Result<CheckReport> report = CheckLogFile(folder + log);
    std::string error = report.ok() ? report->error : report.status().message();
    std::ranges::replace(error, '"', '\'');
    EXPECT_NE(error.find(text), std::string::npos) << log << ": " << error;
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
