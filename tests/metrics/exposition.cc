#include "tests/metrics/exposition.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace kvfence::testing {

std::string Named(std::string_view name,
                  std::initializer_list<std::pair<std::string_view, std::string_view>> labels) {
  std::ostringstream series;
  series << name;
  const char* before = "{";
  for (const auto& [label, value] : labels) {
    series << before << label << "=\"" << value << '"';
    before = ",";
  }
  series << "}";
  return series.str();
}

std::map<std::string, double> ParseExposition(const std::string& text) {
  std::map<std::string, double> series;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    if (space == std::string::npos) {
      ADD_FAILURE() << "no value: " << line;
      continue;
    }
    const bool fresh = series.emplace(line.substr(0, space), std::stod(line.substr(space))).second;
    EXPECT_TRUE(fresh) << "exported twice: " << line;
  }
  return series;
}

std::map<std::string, std::string> ParseTypes(const std::string& text) {
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name, type;
    if (words >> hash >> keyword >> name >> type && hash == "#" && keyword == "TYPE") {
      EXPECT_TRUE(types.emplace(name, type).second) << "two families " << name;
    }
  }
  return types;
}

std::set<std::string> KvfenceNames(const std::string& text) {
  static const std::regex kName("kvfence_[a-z0-9_]+");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), kName), end; it != end; ++it) {
    names.insert(it->str());
  }
  return names;
}

std::string FamilyOf(const std::string& name, const std::map<std::string, std::string>& types) {
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string stem = name.substr(0, name.size() - suffix.size());
    const auto it = types.find(stem);
    if (it != types.end() && it->second == "histogram") return stem;
  }
  return name;
}

std::string ReadSourceFile(const std::string& relative) {
  std::ifstream file(std::string(KVFENCE_SOURCE_DIR) + "/" + relative);
  EXPECT_TRUE(file.good()) << relative;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace kvfence::testing
