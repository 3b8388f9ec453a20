// What ships beside the code speaks of the families that the code exports: dashboard, alerts,
// README.md's table.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/metrics/exposition.h"
#include "tests/metrics/fixture.h"

namespace kvfence::testing {
namespace {

using Json = nlohmann::ordered_json;

// The families named in `text`; fails the test for a name that nobody exports.
std::set<std::string> FamiliesNamedIn(const std::string& text) {
  const auto types = ParseTypes(Make(HarnessOptions())->RenderText());
  std::set<std::string> families;
  for (const std::string& name : KvfenceNames(text)) {
    const std::string family = FamilyOf(name, types);
    EXPECT_TRUE(types.contains(family)) << name << " is not exported";
    families.insert(family);
  }
  return families;
}

TEST(Dashboard, ShowsEveryFamilyAndNothingElse) {
  const std::string text = ReadSourceFile("metrics/dashboards/kvfence.json");
  const auto shown = FamiliesNamedIn(text);
  for (const auto& [family, type] : ParseTypes(Make(HarnessOptions())->RenderText())) {
    EXPECT_TRUE(shown.contains(family)) << family << " is on no panel";
  }
}

TEST(Dashboard, IsWellFormed) {
  const auto dashboard = Json::parse(ReadSourceFile("metrics/dashboards/kvfence.json"));
  EXPECT_EQ(dashboard["uid"], "kvfence");
  std::set<int> ids;
  std::set<std::pair<int, int>> covered;  // cells of the 24-column grid
  for (const auto& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << "id twice: " << panel["title"];
    const auto& grid = panel["gridPos"];
    const int x = grid["x"], y = grid["y"], w = grid["w"], h = grid["h"];
    EXPECT_LE(x + w, 24) << panel["title"];
    for (int i = x; i < x + w; ++i) {
      for (int j = y; j < y + h; ++j) {
        EXPECT_TRUE(covered.insert({i, j}).second) << panel["title"] << " lies over another panel";
      }
    }
    if (panel["type"] == "row") continue;
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}");
    EXPECT_FALSE(panel["targets"].empty()) << panel["title"];
  }
}

TEST(Alerts, NameOnlyExportedFamilies) {
  for (const std::string file : {"kvfence.rules.yaml", "kvfence.rules.test.yaml"}) {
    const auto named = FamiliesNamedIn(ReadSourceFile("metrics/alerts/" + file));
    EXPECT_TRUE(named.contains("kvfence_violations_total")) << file;
    EXPECT_TRUE(named.contains("kvfence_requests_checked_total")) << file;
  }
}

// One row of README.md's table.
struct Line {
  std::string name, type, labels, unit, meaning;
  friend bool operator==(const Line&, const Line&) = default;
  friend void PrintTo(const Line& line, std::ostream* out) {
    *out << line.name << " | " << line.type << " | " << line.labels << " | " << line.unit << " | "
         << line.meaning;
  }
};

std::vector<Line> LinesOfReadme() {
  std::vector<Line> lines;
  std::istringstream text(ReadSourceFile("metrics/README.md"));
  for (std::string row; std::getline(text, row);) {
    if (!row.starts_with("| `kvfence_")) continue;
    std::vector<std::string> cells;
    std::istringstream rest(row.substr(1));
    for (std::string cell; std::getline(rest, cell, '|');) {
      std::string plain;
      for (const char c : cell) {
        if (c != '`') plain += c;
      }
      const size_t from = plain.find_first_not_of(' ');
      cells.push_back(from == std::string::npos
                          ? ""
                          : plain.substr(from, plain.find_last_not_of(' ') - from + 1));
    }
    if (cells.size() != 5) {
      ADD_FAILURE() << "not five cells: " << row;
      continue;
    }
    lines.push_back({cells[0], cells[1], cells[2], cells[3], cells[4]});
  }
  return lines;
}

TEST(Readme, TableAndCodeAgree) {
  const auto json = Json::parse(Make(BareOptions())->RenderJson());
  std::vector<Line> exported;
  for (const auto& family : json["families"]) {
    std::string labels;
    for (const auto& [label, value] : family["samples"][0]["labels"].items()) {
      labels += (labels.empty() ? "" : ", ") + label;
    }
    exported.push_back({family["name"], family["type"], labels, family["unit"], family["help"]});
  }
  EXPECT_EQ(LinesOfReadme(), exported);
}

// The closed sets that the table only names are spelled out below it.
TEST(Readme, ListsTheValuesOfEachLabel) {
  const std::string readme = ReadSourceFile("metrics/README.md");
  const auto listed = [&](const auto& names) {
    std::string line;
    for (const std::string_view name : names) {
      line += (line.empty() ? "`" : ", `") + std::string(name) + "`";
    }
    EXPECT_NE(readme.find(line), std::string::npos) << line;
  };
  listed(Metrics::kBackendNames);
  listed(Metrics::kModeNames);
  listed(Metrics::kOutcomeNames);
}

}  // namespace
}  // namespace kvfence::testing
