// Small campaigns over the whole stack: engine, fence, ledger, kernels.
#include "kvfence/campaign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "faultinject/campaign_plan.h"
#include "kvfence/check_log.h"
#include "kvfence/fault_kind.h"
#include "tests/faultinject/campaign_kit.h"

namespace kvfence {
namespace {

using ::testing::HasSubstr;
using testing::Small, testing::MustRun, testing::Why, testing::Timeless;

std::string Refusal(const CampaignConfig& config) {
  Result<CampaignReport> report = RunCampaign(config, {});
  return report.ok() ? "accepted" : report.status().message();
}

class EachKind : public ::testing::TestWithParam<std::string> {};

TEST_P(EachKind, IsPutInAnsweredAndHarmfulWithoutTheFence) {
  const FaultKind& kind = *FindFaultKind(GetParam());
  const CampaignReport report = MustRun(Small(3, 96, {GetParam()}));
  ASSERT_EQ(report.faults.size(), 1u);
  const FaultTally& tally = report.faults[0];
  EXPECT_TRUE(report.green) << Why(report);
  EXPECT_GT(tally.activated, 2u);
  uint64_t declared = 0;
  for (const auto& [name, count] : tally.reasons) {
    if (kind.reasons.Has(*ReasonFromName(name))) declared += count;
  }
  EXPECT_GE(declared, tally.activated / 2);
  EXPECT_EQ(report.wrong_tokens_published, 0u);
  if (kind.bookkeeping_only) {
    EXPECT_EQ(tally.off_arm_wrong_tokens, 0u);
  } else {
    EXPECT_GT(tally.off_arm_wrong_tokens, 0u);
  }
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const FaultKind& kind : FaultKinds()) names.emplace_back(kind.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Campaign, EachKind, ::testing::ValuesIn(AllNames()),
                         [](const auto& info) { return info.param; });

TEST(Campaign, IsGreenOverSeeds) {
  std::map<std::string, uint64_t> activated;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const CampaignReport report = MustRun(Small(seed, 300, {"all"}));
    EXPECT_TRUE(report.green) << "seed " << seed << "\n" << Why(report);
    EXPECT_EQ(report.faults.size(), FaultKinds().size());
    EXPECT_GE(report.requests, 300u);
    for (const FaultTally& tally : report.faults) activated[tally.kind] += tally.activated;
  }
  for (const auto& [kind, times] : activated) EXPECT_GT(times, 0u) << kind;
}

// Of several kinds at once: each fault is answered in time, and the report tells them apart from
// those that came alone.
TEST(Campaign, OfSeveralKindsAtOnceIsGreen) {
  uint64_t activated = 0, harmful = 0, runs = 0;
  CampaignConfig config = Small(6, 90000, {"all"});
  const CampaignPlan plan = CampaignPlan::Make(config).value();
  for (uint64_t number = 1; runs < 60; ++number) {
    const PlannedRun run = plan.At(number).value();
    if (!run.several()) continue;
    ++runs;
    config.only = number;
    const CampaignReport report = MustRun(config);
    EXPECT_TRUE(report.green) << "run " << number << "\n" << Why(report);
    EXPECT_EQ(report.several.runs, 1u);
    uint64_t sum = 0;
    for (const uint64_t of_kind : report.several.activated) sum += of_kind;
    EXPECT_EQ(report.several.tally.activated, sum);
    activated += sum;
    harmful += report.off_arm.wrong_tokens_published > 0 ? 1 : 0;
    for (const FaultTally& alone : report.faults) EXPECT_EQ(alone.activated, 0u);
  }
  EXPECT_GT(activated, 3 * runs);
  EXPECT_GT(harmful, runs / 2);
}

// What failed is computed again: each request ends, with the right tokens.
TEST(Campaign, UnderRecomputeNoRequestIsLost) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    CampaignConfig config = Small(seed, 300, {"all"});
    config.policy = Policy::kRecompute;
    const CampaignReport report = MustRun(config);
    EXPECT_TRUE(report.green) << "seed " << seed << "\n" << Why(report);
    EXPECT_GT(report.recompute.requests, 100u);
    EXPECT_GT(report.recompute.right, report.recompute.requests * 3 / 4);
    EXPECT_EQ(report.recompute.lost(), 0u);
    EXPECT_EQ(report.requests_aborted, 0u);
    EXPECT_EQ(report.wrong_tokens_published, 0u);
  }
}

TEST(Campaign, WithoutFaultsIsSilentOverSeeds) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const CampaignReport report = MustRun(Small(seed, 40, {"none"}));
    EXPECT_TRUE(report.green) << "seed " << seed << "\n" << Why(report);
    EXPECT_EQ(report.clean_arm.violations, 0u);
    EXPECT_EQ(report.clean_arm.wrong_tokens_published, 0u);
    EXPECT_GT(report.clean_arm.entries_checked, 100u);
    EXPECT_EQ(report.requests, 40u);
    EXPECT_TRUE(report.faults.empty());
  }
}

// I-20.
TEST(Campaign, SameConfigSameBytes) {
  const CampaignConfig config = Small(11, 120, {"all"});
  const std::string first = Timeless(MustRun(config));
  EXPECT_EQ(first, Timeless(MustRun(config)));
  EXPECT_NE(first, Timeless(MustRun(Small(12, 120, {"all"}))));
}

TEST(Campaign, JsonHoldsWhatTheCommandLinePromises) {
  const CampaignReport report = MustRun(Small(4, 48, {"row_swap", "tag_flip"}));
  const auto json = nlohmann::json::parse(ToJson(report));
  for (const char* key : {"seed", "trace", "requests", "steps", "events", "entries_checked",
                          "ownership_changes", "tokens_published", "wrong_tokens_published",
                          "false_alarms", "faults", "clean_arm", "off_arm", "device_bytes_per_page",
                          "device_bytes_per_entry", "seconds", "green", "complete", "missing"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["faults"].size(), 2u);
  EXPECT_EQ(json["faults"][0]["kind"], "row_swap");
  EXPECT_EQ(json["faults"][0]["class"], "E");
  for (const std::string_view outcome : kOutcomeNames) {
    EXPECT_TRUE(json["faults"][0].contains(std::string(outcome))) << outcome;
  }
  EXPECT_TRUE(json["off_arm"]["by_kind"].contains("tag_flip"));
  EXPECT_EQ(json["device_bytes_per_page"], 16);
  EXPECT_EQ(json["device_bytes_per_entry"], 16);
  EXPECT_FALSE(json["complete"]);
  EXPECT_THAT(json["missing"].dump(), HasSubstr("not all fault kinds were run"));
}

TEST(Campaign, TellsStoriesThatNameTheFaultAndItsAnswer) {
  const CampaignReport report = MustRun(Small(4, 48, {"wrong_write_slot"}));
  ASSERT_FALSE(report.stories.empty());
  const IncidentStory& story = report.stories[0];
  EXPECT_EQ(story.outcome, Outcome::kPrevented);
  std::string what;
  for (const TimelineEntry& entry : story.timeline) what += entry.what + ": " + entry.text + "\n";
  EXPECT_THAT(what, HasSubstr("fault: new token"));
  EXPECT_THAT(what, HasSubstr("violation: write_target"));
  EXPECT_THAT(what, HasSubstr("abort: "));
  EXPECT_EQ(nlohmann::json::parse(story.record)["reason"], "write_target");
}

TEST(Campaign, ABadOutcomeLeavesALog) {
  const std::string folder = ::testing::TempDir() + "kvfence_campaign_log";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  CampaignConfig config = Small(4, 48, {"row_tail"});
  config.disabled = CheckSet(Reason::kRowTail);
  config.log_dir = folder;
  const CampaignReport report = MustRun(config);
  ASSERT_FALSE(report.stories.empty());
  EXPECT_EQ(report.stories[0].outcome, Outcome::kMissed);
  // The smallest log, and beside it the whole one; both show what the missing check would answer.
  const std::string small = report.stories[0].log;
  ASSERT_THAT(small, ::testing::EndsWith(".min.kvlog"));
  const std::string whole = small.substr(0, small.size() - 10) + ".kvlog";
  Result<CheckReport> played = CheckLogFile(folder + "/" + small);
  ASSERT_TRUE(played.ok()) << played.status().message();
  EXPECT_TRUE(played->ok()) << played->ToJson();
  ASSERT_FALSE(played->violations.empty());
  EXPECT_EQ(played->violations[0].violation.reason, Reason::kRowTail);
  EXPECT_LT(played->events, 20u);
  played = CheckLogFile(folder + "/" + whole);
  ASSERT_TRUE(played.ok()) << played.status().message();
  EXPECT_EQ(played->violations[0].violation.reason, Reason::kRowTail);
  EXPECT_GT(played->events, 100u);
  std::filesystem::remove_all(folder);
}

TEST(Campaign, StopsWhenAskedAndSaysSo) {
  std::atomic<bool> stop{false};
  CampaignHooks hooks;
  hooks.stop = &stop;
  uint64_t outcomes = 0;
  hooks.on_outcome = [&](const std::string&, Outcome) {
    if (++outcomes == 3) stop = true;
  };
  const CampaignReport report = MustRun(Small(5, 300, {"all"}), hooks);
  EXPECT_TRUE(report.partial);
  EXPECT_FALSE(report.complete);
  EXPECT_LT(report.requests, 300u);
}

// A run that is cut is the last thing a campaign on its own thread sees of being stopped: it isn't
// asked for another one.
TEST(Campaign, StoppedWithinARunItSaysSoToo) {
  for (const std::string kinds : {"none", "all"}) {
    std::atomic<bool> stop{false};
    CampaignHooks hooks;
    hooks.stop = &stop;
    hooks.jobs = 0;
    hooks.progress = [&](const CampaignProgress& p) { stop = stop || p.steps > 100; };
    CampaignConfig config = Small(5, 3000, {kinds});
    config.requests_per_run = 3000;
    const CampaignReport report = MustRun(config, hooks);
    EXPECT_TRUE(report.partial) << kinds;
    EXPECT_FALSE(report.complete) << kinds;
    EXPECT_TRUE(report.green) << kinds << ": " << Why(report);
    EXPECT_LT(report.clean_arm.requests, 3000u) << kinds;
  }
}

TEST(Campaign, ThatTimeWasUpIsSaid) {
  CampaignConfig config = Small(5, 1'000'000, {"none"});
  config.duration_seconds = 1;
  const CampaignReport report = MustRun(config, {});
  EXPECT_FALSE(report.partial);
  EXPECT_THAT(report.missing, ::testing::Contains(HasSubstr("of 1000000 requests were served")));
}

// Complete is a campaign of all kinds; one of some may have done what was asked for all the same.
TEST(Campaign, KindsThatWereAskedForCanBeComplete) {
  CampaignConfig config = Small(1, 10, {"row_tail"});
  config.until_complete = true;
  const CampaignReport report = MustRun(config, {});
  EXPECT_TRUE(report.green) << Why(report);
  EXPECT_TRUE(report.kinds_complete);
  EXPECT_FALSE(report.complete);
  config.until_complete = false;
  EXPECT_FALSE(MustRun(config, {}).kinds_complete);
}

TEST(Campaign, TellsItsListeners) {
  uint64_t faults = 0, outcomes = 0;
  double fraction = 0;
  CampaignHooks hooks;
  hooks.on_fault = [&](const std::string&) { ++faults; };
  hooks.on_outcome = [&](const std::string&, Outcome) { ++outcomes; };
  hooks.progress = [&](const CampaignProgress& p) {
    EXPECT_GE(p.fraction, 0.0);
    EXPECT_LE(p.fraction, 1.0);
    fraction = std::max(fraction, p.fraction);
  };
  const CampaignReport report = MustRun(Small(6, 96, {"row_swap"}), hooks);
  EXPECT_EQ(faults, report.faults[0].activated);
  EXPECT_EQ(outcomes, faults);
  EXPECT_GT(fraction, 0.2);
}

TEST(Campaign, RefusesWhatCannotBe) {
  EXPECT_THAT(Refusal(Small(1, 10, {"no_such_kind"})), HasSubstr("'no_such_kind'"));
  EXPECT_THAT(Refusal(Small(1, 10, {})), HasSubstr("no kind"));
  EXPECT_THAT(Refusal(Small(1, 10, {"none", "row_swap"})), HasSubstr("'none' stands alone"));
  CampaignConfig config = Small(1, 20, {"all"});
  config.pages = 1;
  EXPECT_THAT(Refusal(config), HasSubstr("it takes at least"));
  config.pages = 8;
  config.page_size = 16;
  EXPECT_THAT(Refusal(config), HasSubstr("pages=8 can't hold the longest request"));
  config = Small(1, 20, {"all"});
  config.trace = "/no/such/trace.jsonl";
  EXPECT_THAT(Refusal(config), HasSubstr("/no/such/trace.jsonl"));
  config = Small(1, 20, {"all"});
  config.level = Level::kOff;
  EXPECT_THAT(Refusal(config), HasSubstr("level"));
}

TEST(Campaign, ServesATraceFile) {
  const std::string path = ::testing::TempDir() + "kvfence_campaign_trace.jsonl";
  {
    std::ofstream trace(path);
    for (int i = 0; i < 30; ++i) {
      trace << R"({"timestamp": )" << i * 10 << R"(, "input_length": )" << 600 + i
            << R"(, "output_length": 9, "hash_ids": [1, )" << 2 + i % 3 << "]}\n";
    }
  }
  CampaignConfig config = Small(1, 0, {"none"});
  config.trace = path;
  const CampaignReport report = MustRun(config);
  EXPECT_TRUE(report.green) << Why(report);
  EXPECT_EQ(report.requests, 30u);
  const auto tells_of_generator = [](const CampaignReport& r) {
    return std::any_of(r.drawn.begin(), r.drawn.end(), [](const std::string& line) {
      return line.starts_with("conversations=") || line.starts_with("page_sizes=");
    });
  };
  EXPECT_FALSE(report.drawn.empty());
  EXPECT_FALSE(tells_of_generator(report));
  EXPECT_TRUE(tells_of_generator(MustRun(Small(1, 8, {"none"}))));
  config.faults = {"row_swap"};
  const CampaignReport faulty = MustRun(config);
  EXPECT_TRUE(faulty.green) << Why(faulty);
  EXPECT_GT(faulty.faults[0].activated, 0u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kvfence
