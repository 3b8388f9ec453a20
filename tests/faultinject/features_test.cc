// Which features runs have: what was asked for, what kinds need, what is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "faultinject/feature_choice.h"
#include "tests/faultinject/campaign_kit.h"

namespace kvfence {
namespace {

using testing::MustRun, testing::Small, testing::Why;

FeatureMask Chosen(const std::vector<std::string>& words, const char* kind, FeatureMask drawn) {
  Result<FeatureChoice> choice = FeatureChoice::Read(words);
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  std::vector<const FaultKind*> kinds;
  if (kind != nullptr) kinds.push_back(FindFaultKind(kind));
  return choice->Apply(drawn, kinds);
}

TEST(Features, AskedForComesBeforeNeededComesBeforeDrawn) {
  const FeatureMask all = (FeatureMask{1} << kEngineFeatures.size()) - 1;
  const FeatureMask cache = MaskOfNames("prefix_cache");
  EXPECT_NE(cache, 0u);
  EXPECT_EQ(Chosen({}, nullptr, 5), 5u);
  EXPECT_EQ(Chosen({"all"}, nullptr, 0), all);
  EXPECT_EQ(Chosen({"none"}, nullptr, all), 0u);
  EXPECT_EQ(Chosen({"none", "prefix_cache"}, nullptr, 0), cache);
  EXPECT_EQ(Chosen({"all", "-prefix_cache"}, nullptr, 0), all & ~cache);
  EXPECT_EQ(Chosen({"-prefix_cache"}, nullptr, all), all & ~cache);
  EXPECT_EQ(Chosen({}, "stale_index_entry", 0), cache);
  EXPECT_EQ(Chosen({"-prefix_cache"}, "stale_index_entry", 0), 0u);
  EXPECT_EQ(Chosen({}, "double_free", all), all & ~MaskOfNames("one_space"));
  EXPECT_FALSE(FeatureChoice::Read({"swap", "-swap"}).ok());
  EXPECT_FALSE(FeatureChoice::Read({"none", "all"}).ok());
  EXPECT_TRUE(FeatureChoice::Read({"none", "swap", "swap"}).ok());
  for (const char* word : {"warp_drive", "", "-", "prefix_cache,padded_batches"}) {
    EXPECT_FALSE(FeatureChoice::Read({word}).ok()) << word;
  }
}

TEST(Features, WhatKindsNeedExists) {
  for (const FaultKind& kind : FaultKinds()) {
    EXPECT_EQ(kind.needs.empty(), MaskOfNames(kind.needs) == 0) << kind.name;
    EXPECT_EQ(kind.without.empty(), MaskOfNames(kind.without) == 0) << kind.name;
  }
}

TEST(Features, MasksAndNamesAgree) {
  for (FeatureMask mask = 0; mask < FeatureMask{1} << kEngineFeatures.size(); ++mask) {
    EXPECT_EQ(MaskOf(FeaturesOf(mask)), mask);
  }
}

// Each one off alone, all off, all on: the runs are green, and the report shows what was met.
TEST(Features, EachCanBeSwitchedOff) {
  std::vector<std::vector<std::string>> choices = {{"none"}, {"all"}};
  for (const EngineFeature& feature : kEngineFeatures) {
    choices.push_back({"-" + std::string(feature.name)});
    choices.push_back({"all", "-" + std::string(feature.name)});
  }
  for (const std::vector<std::string>& choice : choices) {
    CampaignConfig config = Small(8, 24, {"row_swap", "free_while_held"});
    config.features = choice;
    const CampaignReport report = MustRun(config);
    EXPECT_TRUE(report.green) << choice.back() << "\n" << Why(report);
    for (size_t a = 0; a < report.coverage.features.size(); ++a) {
      const bool off = choice[0] == "none" || choice.back() == "-" + report.coverage.features[a];
      if (off) {
        EXPECT_EQ(report.coverage.on[a], 0u) << report.coverage.features[a];
      } else if (choice[0] == "all") {
        EXPECT_GT(report.coverage.on[a], 0u) << report.coverage.features[a];
      }
      EXPECT_LE(report.coverage.met[a], report.coverage.on[a]);
    }
  }
}

TEST(Features, AreCountedWithEachOtherAndWithFaults) {
  const CampaignReport report = MustRun(Small(5, 240, {"row_swap"}));
  const FeatureCoverage& coverage = report.coverage;
  ASSERT_EQ(coverage.features.size(), kEngineFeatures.size());
  uint64_t met = 0;
  for (const auto& [pair, count] : coverage.pairs) {
    EXPECT_LT(pair.first, pair.second);
    EXPECT_LE(count, coverage.met[pair.first]);
    EXPECT_LE(count, coverage.met[pair.second]);
    met += count;
  }
  EXPECT_GT(met, 0u);
  const std::vector<uint64_t>& faults = coverage.faults_by_kind.at("row_swap");
  uint64_t most = 0;
  for (const uint64_t count : faults) {
    EXPECT_LE(count, report.faults[0].activated);
    most = std::max(most, count);
  }
  EXPECT_GT(most, 0u);
  const auto json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["coverage"]["features"].size(), kEngineFeatures.size());
  EXPECT_EQ(json["coverage"]["pairs"].size(),
            kEngineFeatures.size() * (kEngineFeatures.size() - 1) / 2);
  EXPECT_TRUE(json["coverage"]["faults"]["row_swap"].contains("prefix_cache"));
}

}  // namespace
}  // namespace kvfence
