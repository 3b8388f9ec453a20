// What tests of campaigns share: small configs, and reports without what a clock measured.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/campaign.h"

namespace kvfence::testing {

inline CampaignConfig Small(uint64_t seed, uint64_t requests, std::vector<std::string> faults) {
  CampaignConfig config;
  config.seed = seed;
  config.requests = requests;
  config.faults = std::move(faults);
  return config;
}

inline CampaignReport MustRun(const CampaignConfig& config, const CampaignHooks& hooks = {}) {
  Result<CampaignReport> report = RunCampaign(config, hooks);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? std::move(*report) : CampaignReport();
}

inline std::string Why(const CampaignReport& report) {
  std::string text;
  for (const std::string& line : report.red) text += line + "\n";
  return text;
}

// Without what differs from run to run.
inline std::string Timeless(const std::string& report) {
  auto json = nlohmann::ordered_json::parse(report);
  json.erase("seconds");
  return json.dump();
}
inline std::string Timeless(const CampaignReport& report) { return Timeless(ToJson(report)); }

// A folder of this test's own, gone with the object.
class Folder {
 public:
  explicit Folder(const std::string& name) : path_(::testing::TempDir() + "kvfence_" + name) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvfence::testing
