// Campaigns in parts: shards, worker processes, runs that die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "kvfence/campaign.h"
#include "kvfence/fault_kind.h"
#include "tests/faultinject/campaign_kit.h"
#include "tests/model/cases.h"

namespace kvfence {
namespace {

using testing::Folder, testing::MustRun, testing::Small, testing::Timeless, testing::Why;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> ShardsOf(CampaignConfig config, uint64_t of) {
  std::vector<std::string> reports;
  for (uint64_t part = 1; part <= of; ++part) {
    config.shard = {part, of};
    const CampaignReport report = MustRun(config);
    EXPECT_TRUE(report.green) << Why(report);
    EXPECT_FALSE(report.complete);
    reports.push_back(ToJson(report));
  }
  return reports;
}

std::vector<std::string> Names(size_t n) {
  std::vector<std::string> names;
  for (size_t i = 0; i < n; ++i) names.push_back("part" + std::to_string(i + 1));
  return names;
}

std::string MergeRefusal(const std::vector<std::string>& reports) {
  Result<CampaignReport> merged = MergeShards(reports, Names(reports.size()));
  return merged.ok() ? "accepted" : merged.status().message();
}

TEST(Shards, MergedTheyAreTheWholeByteForByte) {  // I-120
  for (const uint64_t of : {1u, 2u, 3u, 7u}) {
    // Two no-fault runs, or one.
    const uint64_t requests = of == 2 && !testing::kAddressSanitizer ? 1010 : 90;
    const CampaignConfig config = Small(20 + of, requests, {"row_swap", "double_free", "row_tail"});
    std::vector<std::string> reports = ShardsOf(config, of);
    if (of == 1) continue;  // one shard of one is the whole
    std::rotate(reports.begin(), reports.begin() + 1, reports.end());
    Result<CampaignReport> merged = MergeShards(reports, Names(reports.size()));
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    EXPECT_EQ(Timeless(*merged), Timeless(MustRun(config))) << of;
  }
}

// What only the first few leave (stories, logs, red sentences) is the first few of all.
TEST(Shards, WithBadOutcomesTooMergedTheyAreTheWhole) {
  const Folder folder("shards_bad");
  CampaignConfig config = Small(2, 160, {"row_tail"});
  config.disabled = CheckSet(Reason::kRowTail);
  const std::string whole = Timeless(MustRun(config));
  EXPECT_THAT(whole, HasSubstr("missed"));
  std::vector<std::string> reports;
  for (uint64_t part = 1; part <= 3; ++part) {
    config.shard = {part, 3};
    const CampaignReport report = MustRun(config);
    reports.push_back(ToJson(report));
  }
  Result<CampaignReport> merged = MergeShards(reports, Names(3));
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_EQ(Timeless(*merged), whole);
}

TEST(Shards, WhatDoesNotBelongTogetherIsNotMerged) {
  const std::vector<std::string> reports = ShardsOf(Small(3, 40, {"row_swap"}), 2);
  EXPECT_EQ(MergeRefusal(reports), "accepted");
  EXPECT_THAT(MergeRefusal({reports[0]}), HasSubstr("shard 2 of 2 is missing"));
  EXPECT_THAT(MergeRefusal({reports[0], reports[0]}), HasSubstr("part2: is shard 1, and so is"));
  EXPECT_THAT(MergeRefusal({reports[0], ToJson(MustRun(Small(3, 40, {"row_swap"})))}),
              HasSubstr("part2: is no shard's report"));
  EXPECT_THAT(MergeRefusal({reports[0], "{"}), HasSubstr("part2: isn't a report"));
  const std::vector<std::string> other = ShardsOf(Small(4, 40, {"row_swap"}), 2);
  EXPECT_THAT(MergeRefusal({reports[0], other[1]}), HasSubstr("seed is 4, not 3"));
  auto json = nlohmann::ordered_json::parse(reports[1]);
  json["shard"]["program"] = "0123456789abcdef";
  EXPECT_THAT(MergeRefusal({reports[0], json.dump()}), HasSubstr("another build"));
  json = nlohmann::ordered_json::parse(reports[1]);
  json["shard"]["state"]["tallies"][0].erase("outcomes");
  EXPECT_THAT(MergeRefusal({reports[0], json.dump()}), HasSubstr("state can't be read"));
  json = nlohmann::ordered_json::parse(reports[1]);
  json["partial"] = true;
  EXPECT_THAT(MergeRefusal({reports[0], json.dump()}), HasSubstr("part2: is partial"));
}

// Each number of a report is judged: none wraps, none is cut, none adds up to what can't be.
TEST(Shards, NumbersThatCannotBeAreNamedByFileAndField) {
  const std::vector<std::string> reports = ShardsOf(Small(3, 40, {"row_swap"}), 2);
  const auto whole = nlohmann::ordered_json::parse(reports[1]);
  const auto refusal = [&](const std::string& at, const nlohmann::ordered_json& value) {
    auto json = whole;
    json.at(nlohmann::ordered_json::json_pointer(at)) = value;
    return MergeRefusal({reports[0], json.dump()});
  };
  const std::string tally = "/shard/state/tallies/0/";
  const uint64_t activated = whole["shard"]["state"]["tallies"][0]["activated"];
  EXPECT_EQ(refusal(tally + "activated", activated), "accepted");
  EXPECT_THAT(refusal(tally + "activated", -5),
              HasSubstr("part2: its state can't be read: tallies of row_swap: activated must be a "
                        "number of 0..281474976710655, not -5"));
  EXPECT_THAT(refusal(tally + "activated", activated + 1), HasSubstr("outcomes are"));
  for (const char* field :
       {"tallies/0/outcomes/2", "tallies/0/off", "clean/3", "faulty/0", "folded", "bytes",
        "several/runs", "several/kinds/0", "coverage/met/1", "coverage/on/0", "red_count"}) {
    for (const nlohmann::ordered_json& value :
         {nlohmann::ordered_json(-1), nlohmann::ordered_json(1.5), nlohmann::ordered_json(true),
          nlohmann::ordered_json("1"), nlohmann::ordered_json(nullptr),
          nlohmann::ordered_json(uint64_t{1} << 60)}) {
      EXPECT_THAT(refusal(std::string("/shard/state/") + field, value),
                  HasSubstr("part2: its state can't be read: "))
          << field << " " << value;
    }
  }
  EXPECT_THAT(refusal("/seconds", -1), HasSubstr("part2: seconds must be"));
  EXPECT_THAT(refusal("/shard/part", -1), HasSubstr("part2: part must be"));
  EXPECT_THAT(refusal("/shard/of", 1e300), HasSubstr("part2: of must be"));
  // Of one campaign, but of none that could have been run.
  auto first = nlohmann::ordered_json::parse(reports[0]), second = whole;
  for (const auto& [field, value] : {std::pair("rows", -1), {"policy", 9}, {"level", 0}}) {
    first["shard"]["config"][field] = second["shard"]["config"][field] = value;
    EXPECT_THAT(MergeRefusal({first.dump(), second.dump()}), HasSubstr("part1: ")) << field;
    first["shard"]["config"][field] = second["shard"]["config"][field] =
        whole["shard"]["config"][field];
  }
}

TEST(Shards, MustKnowTheirRunsBeforehand) {
  CampaignConfig config = Small(1, 0, {"row_swap"});
  config.shard = {1, 2};
  const auto refusal = [&] {
    Result<CampaignReport> report = RunCampaign(config, {});
    return report.ok() ? "accepted" : report.status().message();
  };
  config.until_complete = true;
  EXPECT_THAT(refusal(), HasSubstr("not until=complete"));
  config.until_complete = false;
  config.duration_seconds = 1;
  EXPECT_THAT(refusal(), HasSubstr("not duration"));
  config.duration_seconds = 0;
  config.shard = {3, 2};
  EXPECT_THAT(refusal(), HasSubstr("shard must be K/N"));
}

TEST(Workers, HowManyThereAreChangesNothing) {  // I-122
  const CampaignConfig config = Small(11, 200, {"all"});
  const std::string alone = Timeless(MustRun(config));
  for (const uint64_t jobs : {1u, 2u, 5u}) {
    CampaignHooks hooks;
    hooks.jobs = jobs;
    EXPECT_EQ(Timeless(MustRun(config, hooks)), alone) << jobs;
  }
}

// Whether a run is wanted is decided by those before it, in their order, not in that of arrival.
TEST(Workers, UntilCompleteEndsAtTheSameRun) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "20,000 requests twice: release tests do it";
  CampaignConfig config = Small(3, 0, {"row_swap", "length_off_by_one"});
  config.until_complete = true;
  const CampaignReport alone = MustRun(config);
  EXPECT_GE(alone.faults[0].activated, 300u);
  CampaignHooks hooks;
  hooks.jobs = 3;
  EXPECT_EQ(Timeless(MustRun(config, hooks)), Timeless(alone));
}

TEST(Workers, ListenersHearWhatTheyHearOfOneProcess) {
  struct Sink final : EventSink {
    uint64_t violations = 0, steps = 0, entries = 0, aborts = 0;
    void OnViolation(const Violation&) override { ++violations; }
    void OnStep(const StepStats& stats) override {
      ++steps;
      entries += stats.entries;
    }
    void OnAbort(RequestId, Reason) override { ++aborts; }
    bool operator==(const Sink& o) const {
      return violations == o.violations && steps == o.steps && entries == o.entries &&
             aborts == o.aborts;
    }
  };
  Sink sinks[2];
  uint64_t faults[2] = {}, outcomes[2] = {};
  for (const uint64_t jobs : {0, 2}) {
    const size_t i = jobs == 0 ? 0 : 1;
    CampaignHooks hooks;
    hooks.jobs = jobs;
    hooks.sinks = {&sinks[i]};
    hooks.on_fault = [&](const std::string& kind) {
      ++faults[i];
      EXPECT_EQ(kind, "row_swap");
    };
    hooks.on_outcome = [&](const std::string&, Outcome) { ++outcomes[i]; };
    MustRun(Small(6, 96, {"row_swap"}), hooks);
  }
  EXPECT_EQ(sinks[0], sinks[1]);
  EXPECT_GT(sinks[0].violations, 0u);
  EXPECT_GT(sinks[0].entries, 0u);
  EXPECT_EQ(faults[0], faults[1]);
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

// A run that takes its process down is a crashed fault, whoever does it; the others go on.
TEST(Workers, ARunThatDiesCountsAsCrashed) {  // I-122
  const CampaignConfig config = Small(5, 120, {"row_swap", "row_tail"});
  const CampaignReport well = MustRun(config);
  ASSERT_TRUE(well.green) << Why(well);
  std::string first;
  for (const uint64_t jobs : {1u, 3u}) {
    CampaignHooks hooks;
    hooks.jobs = jobs;
    hooks.in_run = [](uint64_t run, bool fault) {
      if (run == 3 && fault) std::raise(SIGKILL);
    };
    const CampaignReport report = MustRun(config, hooks);
    EXPECT_FALSE(report.green);
    EXPECT_THAT(Why(report), HasSubstr("row_tail: 1 of"));
    EXPECT_THAT(Why(report), HasSubstr("crashed"));
    EXPECT_EQ(report.faults[1].outcomes[static_cast<size_t>(Outcome::kCrashed)], 1u);
    EXPECT_EQ(report.faults[0].activated, well.faults[0].activated);
    ASSERT_FALSE(report.stories.empty());
    EXPECT_EQ(report.stories[0].outcome, Outcome::kCrashed);
    EXPECT_EQ(report.stories[0].run, 3u);
    EXPECT_THAT(report.stories[0].timeline[0].text, HasSubstr("signal 9"));
    if (first.empty()) first = Timeless(report);
    EXPECT_EQ(Timeless(report), first);
  }
}

TEST(Workers, ARunThatDiesBeforeAnyFaultIsRedToo) {
  for (const uint64_t victim : {1u, 4u}) {  // the no-fault run; one with faults
    CampaignHooks hooks;
    hooks.jobs = 2;
    hooks.in_run = [&](uint64_t run, bool) {
      if (run == victim) std::_Exit(9);
    };
    const CampaignReport report = MustRun(Small(5, 120, {"row_swap", "row_tail"}), hooks);
    EXPECT_FALSE(report.green);
    EXPECT_THAT(Why(report), HasSubstr("run " + std::to_string(victim) +
                                       ", without a fault so far,"
                                       " ended its process with exit code 9"));
  }
}

TEST(Only, PlaysOneRunAsTheCampaignDid) {
  const CampaignConfig config = Small(4, 96, {"wrong_write_slot", "row_swap"});
  const CampaignReport whole = MustRun(config);
  ASSERT_FALSE(whole.stories.empty());
  const IncidentStory& story = whole.stories[0];
  CampaignConfig one = config;
  one.only = story.run;
  const CampaignReport alone = MustRun(one);
  EXPECT_EQ(alone.runs, 1u);
  ASSERT_FALSE(alone.stories.empty());
  EXPECT_EQ(alone.stories[0].run, story.run);
  EXPECT_EQ(alone.stories[0].record, story.record);
  EXPECT_TRUE(alone.green) << Why(alone);
  EXPECT_FALSE(alone.complete);
  one.only = 100000;
  Result<CampaignReport> none = RunCampaign(one, {});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("there is no run 100000"));
}

// A step in flight answered before the step that the fault was put into: its delay was -1, wrapped.
TEST(Only, AnAnswerBeforeItsFaultsStepIsNoDelay) {
  CampaignConfig config;
  config.seed = 1;
  config.until_complete = true;
  config.only = 540;
  CampaignHooks hooks;
  hooks.jobs = 1;
  const CampaignReport report = MustRun(config, hooks);
  EXPECT_GT(report.several.tally.activated, 0u);
  for (const auto& [steps, count] : report.several.tally.delay_steps) EXPECT_LT(steps, 10000u);
}

TEST(Duration, GoesOnUntilTheTimeIsOverAndNoFurther) {
  CampaignConfig config = Small(1, 0, {"row_swap"});
  config.duration_seconds = 1;
  CampaignHooks hooks;
  hooks.jobs = 1;
  const CampaignReport report = MustRun(config, hooks);
  EXPECT_TRUE(report.green) << Why(report);
  EXPECT_FALSE(report.partial);
  EXPECT_GE(report.seconds, 1.0);
  EXPECT_LT(report.seconds, 30.0);
  EXPECT_GT(report.faults[0].activated, 0u);
  EXPECT_GT(report.clean_arm.steps, 0u);
}

}  // namespace
}  // namespace kvfence
