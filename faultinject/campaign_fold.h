// The fold of runs into a campaign's report.
//
// Idea: sums, tallies and histograms add up; of stories, logs and red sentences the first few by
// run number are kept. So folding shard by shard and joining gives what folding run by run gives,
// and memory doesn't grow with the number of runs. Invariant: I-120, the report depends on which
// runs were folded, not on where, when or in how many parts.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "campaign_plan.h"
#include "kvfence/campaign.h"
#include "run_result.h"

namespace kvfence {

class CampaignFold {
 public:
  explicit CampaignFold(const std::vector<const FaultKind*>& kinds);

  // Runs come in the order of their numbers. `cut` ones count as far as they came.
  void Add(const PlannedRun& planned, CampaignRun run);
  // The runs of another shard.
  void Join(const CampaignFold& other);

  // Stories of this run that are still worth telling, as bits by outcome.
  uint32_t WantedStories(const PlannedRun& planned) const;
  // May this bad run leave a log? Only the first few do.
  bool WantsLog() const { return bad_runs_.size() < kMostLogs; }

  const FaultTally& tally(size_t kind_at) const { return tallies_[kind_at]; }
  // Faults of runs with several kinds at once.
  const FaultTally& several() const { return several_; }
  uint64_t fault_steps() const { return faulty_.steps; }
  uint64_t fault_requests() const { return faulty_.requests; }
  uint64_t clean_requests() const { return clean_.requests; }
  uint64_t steps() const { return faulty_.steps + clean_.steps; }
  uint64_t runs() const { return faulty_.engines + clean_.engines; }
  uint64_t activated() const;
  uint64_t bad() const;
  uint64_t folded() const { return folded_; }  // runs, engines tried in vain not counted

  // The report, judged; `partial` as said.
  CampaignReport Report(const CampaignConfig& config, bool partial) const;

  // All of it; `clock`: with what a clock measured.
  nlohmann::ordered_json ToJson(bool clock) const;
  // kInvalidArgument: it isn't one of these kinds' folds; names the field. Then nothing changes.
  Status FromJson(const nlohmann::ordered_json& json);

 private:
  static constexpr size_t kMostLogs = 10;
  static constexpr size_t kMostRed = 20;
  static constexpr size_t kMostStories = 20;

  void AddCoverage(const PlannedRun& planned, const CampaignRun& run);
  void KeepFirst();
  std::vector<IncidentStory> PickStories() const;

  std::vector<const FaultKind*> kinds_;
  std::vector<FaultTally> tallies_;
  FaultTally several_;  // faults of runs with several kinds at once
  uint64_t several_runs_ = 0;
  std::vector<uint64_t> of_several_;  // ... by kind
  FeatureCoverage coverage_;
  RunTotals clean_, faulty_;
  uint64_t folded_ = 0;
  uint64_t bytes_per_page_ = 0;
  std::vector<IncidentStory> stories_;                 // by run
  std::vector<uint64_t> bad_runs_;                     // the first few
  std::vector<std::pair<uint64_t, std::string>> red_;  // the first few, by run
  uint64_t red_count_ = 0;
  double clean_seconds_ = 0, off_seconds_ = 0;
  uint64_t off_tokens_ = 0;
};

}  // namespace kvfence
