// The fold: parts join to the whole; what is written down is what is read back.
#include "faultinject/campaign_fold.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "faultinject/campaign_plan.h"
#include "faultinject/progress_journal.h"
#include "kvfence/rng.h"
#include "tests/faultinject/campaign_kit.h"

namespace kvfence {
namespace {

using testing::Folder;

const std::vector<std::string> kKinds = {"row_swap", "tag_flip", "padded_row"};

CampaignPlan PlanOf(uint64_t requests) {
  CampaignConfig config = testing::Small(1, requests, kKinds);
  Result<CampaignPlan> plan = CampaignPlan::Make(config);
  EXPECT_TRUE(plan.ok());
  return std::move(*plan);
}

// Anything that a run could come to.
CampaignRun AnyRun(const PlannedRun& planned, Rng& rng) {
  CampaignRun run;
  run.number = planned.number;
  RunTotals::ForEach(
      [&](uint64_t RunTotals::*member) { run.totals.*member = rng.Below(uint64_t{1} << 32); });
  for (uint64_t i = rng.Below(4); planned.faulty() && i > 0; --i) {
    FaultResult fault{.kind = planned.kinds[rng.Below(planned.kinds.size())],
                      .outcome = static_cast<Outcome>(rng.Below(kOutcomeCount))};
    fault.reasons = CheckSet(static_cast<uint32_t>(rng.Below(uint64_t{1} << kReasonCount)));
    if (rng.Chance(1, 2)) fault.delay = rng.Below(3000);
    run.faults.push_back(fault);
    if (!rng.Chance(1, 3)) continue;
    IncidentStory& story = run.stories.emplace_back();
    story.kind = kKinds[fault.kind];
    story.outcome = fault.outcome;
    story.run = planned.number;
    story.timeline.push_back(
        {static_cast<int64_t>(rng.Below(9)), "fault", "w\"o\\rds\n", "r1", {}});
    story.timeline.push_back({-1, "alloc", "\xc3\xa9", "", {3, 4}});
    if (rng.Chance(1, 2)) story.record = R"({"reason":"row_tail","page":9})";
    if (rng.Chance(1, 2)) story.log = "run.kvlog";
  }
  run.bad = rng.Chance(1, 4);
  run.logged = rng.Chance(1, 2);
  if (rng.Chance(1, 5)) run.red.push_back("sentence " + std::to_string(planned.number));
  run.bytes_per_page = 16;
  run.features = rng.Next();
  run.met = run.features & rng.Next();
  return run;
}

std::string Text(const CampaignFold& fold) {
  return fold.ToJson(true).dump() + ToJson(fold.Report(CampaignConfig(), false));
}

TEST(CampaignFold, PartsInAnyOrderJoinToTheWhole) {  // I-120
  const CampaignPlan plan = PlanOf(20000);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const uint64_t n = rng.Between(1, 120);
    std::vector<CampaignFold> parts(rng.Between(1, 5), CampaignFold(plan.kinds()));
    CampaignFold whole(plan.kinds());
    for (uint64_t number = 1; number <= n; ++number) {
      const PlannedRun planned = *plan.At(number);
      const CampaignRun run = AnyRun(planned, rng);
      whole.Add(planned, run);
      parts[rng.Below(parts.size())].Add(planned, run);
    }
    CampaignFold joined(plan.kinds());
    while (!parts.empty()) {
      const auto at = parts.begin() + static_cast<std::ptrdiff_t>(rng.Below(parts.size()));
      joined.Join(*at);
      parts.erase(at);
    }
    EXPECT_EQ(Text(joined), Text(whole)) << "seed " << seed;
  }
}

TEST(CampaignFold, RunsAndFoldsSurviveBeingWritten) {
  const CampaignPlan plan = PlanOf(20000);
  Rng rng(4);
  CampaignFold fold(plan.kinds());
  for (uint64_t number = 1; number <= 100; ++number) {
    const PlannedRun planned = *plan.At(number);
    const CampaignRun run = AnyRun(planned, rng);
    const std::string line = ToLine(run);
    const std::optional<CampaignRun> read = RunFromLine(line);
    ASSERT_TRUE(read) << line;
    EXPECT_EQ(ToLine(*read), line);
    fold.Add(planned, *read);
    CampaignFold again(plan.kinds());
    ASSERT_TRUE(again.FromJson(nlohmann::ordered_json::parse(fold.ToJson(true).dump())).ok());
    EXPECT_EQ(Text(again), Text(fold));
  }
  EXPECT_FALSE(RunFromLine("{}"));
  EXPECT_FALSE(RunFromLine("[1"));
  CampaignFold other(PlanOf(100).kinds());
  EXPECT_FALSE(other.FromJson(nlohmann::ordered_json::object()).ok());
}

// However many runs there are, the fold stays as small as the journal that holds it.
TEST(CampaignFold, NeitherItNorItsJournalGrowsWithTheRuns) {
  const Folder folder("fold_journal");
  const CampaignPlan plan = PlanOf(400000);
  CampaignState state{.fold = CampaignFold(plan.kinds())};
  Result<std::unique_ptr<ProgressJournal>> journal =
      ProgressJournal::Open(folder / "journal", plan, false, &state);
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  Rng rng(5);
  uint64_t largest = 0, shrunk = 0, last = 0;
  size_t early = 0;
  for (uint64_t number = 1; number <= 12000; ++number) {
    const PlannedRun planned = *plan.At(number);
    CampaignRun run = AnyRun(planned, rng);
    run.red.assign(2, std::string(200, 'x'));
    state.fold.Add(planned, run);
    state.next = number + 1;
    state.seconds = static_cast<double>(number) / 8;
    ASSERT_TRUE((*journal)->Append(run, state).ok());
    if (number % 200 != 0) continue;
    const uint64_t size = std::filesystem::file_size(folder / "journal");
    largest = std::max(largest, size);
    if (size < last) ++shrunk;
    last = size;
    if (number == 1000) early = state.fold.ToJson(true).dump().size();
  }
  EXPECT_GE(shrunk, 1u);
  EXPECT_LT(largest, uint64_t{5} << 20);
  EXPECT_LT(state.fold.ToJson(true).dump().size(), early + 2000);
  ASSERT_TRUE((*journal)->Flush().ok());
  journal->reset();
  CampaignState read{.fold = CampaignFold(plan.kinds())};
  journal = ProgressJournal::Open(folder / "journal", plan, true, &read);
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  EXPECT_EQ(read.next, state.next);
  EXPECT_EQ(read.seconds, state.seconds);
  EXPECT_EQ(Text(read.fold), Text(state.fold));
}

// The same number is the same run, whatever came before; and every run is in exactly one shard.
TEST(CampaignPlan, NumbersSayAllAboutARun) {  // I-120
  const CampaignPlan plan = PlanOf(2500);
  uint64_t number = 1, requests = 0, clean = 0;
  for (; plan.At(number); ++number) {
    const PlannedRun run = *plan.At(number);
    EXPECT_EQ(run.number, number);
    (run.faulty() ? requests : clean) += run.requests;
  }
  EXPECT_EQ(clean, 2500u);
  CampaignConfig small = plan.config();
  small.requests_per_run = 100;
  EXPECT_EQ(CampaignPlan::Make(small)->At(25)->requests, 100u);
  EXPECT_FALSE(CampaignPlan::Make(small)->At(25)->faulty());
  EXPECT_TRUE(CampaignPlan::Make(small)->At(26)->faulty());
  EXPECT_GE(requests, 2500u);
  EXPECT_LT(requests, 2600u);
  EXPECT_FALSE(plan.At(0));
  for (const uint64_t of : {1u, 2u, 5u}) {
    std::vector<uint64_t> owners(number);
    for (uint64_t part = 1; part <= of; ++part) {
      CampaignConfig config = plan.config();
      config.shard = {part, of};
      Result<CampaignPlan> shard = CampaignPlan::Make(config);
      ASSERT_TRUE(shard.ok());
      for (uint64_t n = 1; n < number; ++n) owners[n] += shard->Mine(n) ? 1 : 0;
    }
    for (uint64_t n = 1; n < number; ++n) EXPECT_EQ(owners[n], 1u);
  }
}

// One run of each round has two to four kinds at once, each of which comes up.
TEST(CampaignPlan, EachRoundHasARunOfSeveralKinds) {
  const CampaignPlan plan = PlanOf(20000);
  std::vector<uint64_t> drawn(plan.kinds().size());
  std::set<size_t> sizes;
  uint64_t several = 0, alone = 0;
  for (uint64_t number = 1; plan.At(number); ++number) {
    const PlannedRun run = *plan.At(number);
    if (!run.several()) {
      alone += run.faulty() ? 1 : 0;
      continue;
    }
    ++several;
    sizes.insert(run.kinds.size());
    EXPECT_EQ(std::set<size_t>(run.kinds.begin(), run.kinds.end()).size(), run.kinds.size());
    for (const size_t kind : run.kinds) ++drawn[kind];
  }
  EXPECT_GT(several, 100u);
  EXPECT_NEAR(static_cast<double>(alone), 3.0 * static_cast<double>(several), 3.0);
  EXPECT_EQ(sizes, (std::set<size_t>{2, 3}));
  for (const uint64_t n : drawn) EXPECT_GT(n, several / 3);
  CampaignConfig one = testing::Small(1, 500, {"row_swap"});
  EXPECT_EQ(CampaignPlan::Make(one)->slots(), 1u);
}

}  // namespace
}  // namespace kvfence
