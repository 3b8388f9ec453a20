// Every scenario is a test of its own, named by its entry; and the catalogue misses nothing.
#include "scenarios.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "kvfence/check_log.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

const std::string kScenarios = KVFENCE_SOURCE_DIR "/tests/scenarios";
constexpr std::string_view kTwinEnd = ".clean.kvlog", kLogEnd = ".kvlog";

// Ids of the files that end so, sorted; without `but`, which ends likewise.
std::vector<std::string> IdsOf(std::string_view end, std::string_view but = "\n") {
  std::vector<std::string> ids;
  for (const auto& file : std::filesystem::directory_iterator(kScenarios)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(end) || name.ends_with(but)) continue;
    ids.push_back(name.substr(0, name.size() - end.size()));
  }
  std::ranges::sort(ids);
  return ids;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

CheckReport Check(const std::string& file, std::optional<Level> level) {
  CheckOptions options;
  options.level = level;
  Result<CheckReport> report = CheckLogFile(kScenarios + "/" + file, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (report.ok()) return std::move(report).value();
  CheckReport unreadable;
  unreadable.error = report.status().message();
  return unreadable;
}

class ScenarioBug : public testing::TestWithParam<std::string> {};
TEST_P(ScenarioBug, IsReportedAsItsLogExpects) {
  const CheckReport report = Check(GetParam() + ".kvlog", std::nullopt);
  EXPECT_TRUE(report.ok()) << report.error << report.ToJson();
  EXPECT_FALSE(report.violations.empty());
}
INSTANTIATE_TEST_SUITE_P(Scenario, ScenarioBug, testing::ValuesIn(IdsOf(kLogEnd, kTwinEnd)),
                         TestName);

class ScenarioTwin : public testing::TestWithParam<std::string> {};
TEST_P(ScenarioTwin, IsSilentAtEveryLevel) {
  for (const Level level : kPlayedLevels) {
    SCOPED_TRACE(LevelName(level));
    const CheckReport report = Check(GetParam() + ".clean.kvlog", level);
    EXPECT_TRUE(report.ok()) << report.error << report.ToJson();
    EXPECT_TRUE(report.violations.empty());
    EXPECT_EQ(report.wrong_reads_published, 0u);
    EXPECT_GT(report.stats.steps, 0u) << "a twin that launches nothing is silent about nothing";
  }
}
INSTANTIATE_TEST_SUITE_P(Scenario, ScenarioTwin, testing::ValuesIn(IdsOf(kTwinEnd)), TestName);

TEST(Scenarios, EveryEntryHasBothLogsOrALimit) {
  Result<Catalogue> read = ReadCatalogue(kScenarios);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Catalogue& catalogue = *read;
  const std::string limits = ReadAll(KVFENCE_SOURCE_DIR "/docs/limits.md");
  std::set<std::string> bugs, twins;
  for (const std::string& id : IdsOf(kLogEnd, kTwinEnd)) bugs.insert(id);
  for (const std::string& id : IdsOf(kTwinEnd)) twins.insert(id);
  std::map<char, int> sizes;
  for (const CatalogueEntry& entry : catalogue.entries) {
    ++sizes[entry.letter()];
    EXPECT_FALSE(entry.title.empty()) << entry.id;
    if (entry.visible()) {
      EXPECT_EQ(bugs.erase(entry.id), 1u) << entry.id << " has no log";
      EXPECT_EQ(twins.erase(entry.id), 1u) << entry.id << " has no twin";
    } else {
      EXPECT_FALSE(bugs.contains(entry.id) || twins.contains(entry.id)) << entry.id;
      EXPECT_NE(limits.find("<a id=\"" + entry.limit + "\"></a>"), std::string::npos) << entry.id;
      EXPECT_NE(limits.find("### " + entry.id + " "), std::string::npos) << entry.id;
      EXPECT_FALSE(entry.why.empty()) << entry.id;
    }
  }
  EXPECT_TRUE(bugs.empty()) << *bugs.begin() << " isn't in the catalogue";
  EXPECT_TRUE(twins.empty()) << *twins.begin() << " isn't in the catalogue";
  const std::map<char, int> expected = {{'A', 5}, {'B', 14}, {'C', 11}, {'D', 11}, {'E', 7},
                                        {'F', 7}, {'G', 11}, {'I', 12}, {'J', 11}, {'K', 8},
                                        {'L', 3}, {'M', 7},  {'N', 6},  {'O', 3}};
  EXPECT_EQ(sizes, expected);
  EXPECT_EQ(catalogue.entries.size(), 116u);
  EXPECT_EQ(catalogue.classes.size(), expected.size());
}

TEST(Scenarios, PatternsSelectByStarAndQuestionMark) {
  EXPECT_TRUE(Selected("C-05", {"A-01", "C-*"}));
  EXPECT_TRUE(Selected("C-05", {"?-05"}));
  EXPECT_FALSE(Selected("C-05", {"C", "C-0", "B-*"}));
  EXPECT_FALSE(Selected("C-05", {}));
}

}  // namespace
}  // namespace kvfence::tools
