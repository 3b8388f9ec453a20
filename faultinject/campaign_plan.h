// Which runs a campaign has: the list behind the numbers.
//
// Idea: a run's number says all about it: no-fault or which kinds, how many requests, which of the
// trace. In a round each kind has a run of its own, and one has several kinds at once. Numbers
// begin at 1. Invariant: a pure function of the config; what other runs came to decides only
// whether a run is wanted, never what it is (I-120).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "episode.h"
#include "kvfence/campaign.h"
#include "kvfence/fault_kind.h"

namespace kvfence {

class CampaignFold;

struct PlannedRun {
  uint64_t number = 0;
  std::vector<size_t> kinds{};  // of the campaign's; none: no faults
  uint64_t round = 0;           // how many runs of this sort came before
  uint64_t requests = 0;
  uint64_t first_request = 0;  // of the trace

  bool faulty() const { return !kinds.empty(); }
  bool several() const { return kinds.size() > 1; }
};

class CampaignPlan {
 public:
  // Refuses unknown kinds, settings that exclude each other, unreadable traces.
  static Result<CampaignPlan> Make(const CampaignConfig& config);

  const CampaignConfig& config() const { return config_; }
  const std::vector<const FaultKind*>& kinds() const { return kinds_; }
  // Of a run, in its order.
  std::vector<const FaultKind*> KindsOf(const PlannedRun& run) const;
  const RequestSource& source() const { return source_; }
  // Nothing: behind the last one.
  std::optional<PlannedRun> At(uint64_t number) const;
  // Is this run among those to be done here (shard, only)?
  bool Mine(uint64_t number) const;
  // Runs with faults in a round.
  uint64_t slots() const { return kinds_.size() + (together_.size() > 1 ? 1 : 0); }
  // Is it still wanted, after all runs before it? Once a sort isn't, it never is again.
  bool Wants(const PlannedRun& run, const CampaignFold& fold) const;
  // How much of the work is done, 0..1; `running`: requests served by no-fault runs under way.
  double Fraction(const CampaignFold& fold, uint64_t running, double seconds) const;

  bool endless() const { return endless_; }
  uint64_t clean_requests() const { return clean_requests_; }

 private:
  static constexpr uint64_t kRoundsPerCleanRun = 4;  // where both go on without end

  void CountRuns();
  PlannedRun CleanRun(uint64_t number, uint64_t piece) const;
  PlannedRun FaultRun(uint64_t number, uint64_t slot) const;

  CampaignConfig config_;
  std::vector<const FaultKind*> kinds_;
  std::vector<size_t> together_;  // of these, those that may be put in beside others
  RequestSource source_;
  bool endless_ = false;
  uint64_t wanted_ = 0;          // requests of the runs with faults; 0: decided otherwise
  uint64_t clean_requests_ = 0;  // of the no-fault arm
  uint64_t piece_ = 0;           // requests of one no-fault run
  uint64_t clean_runs_ = 0;
  uint64_t fault_runs_ = 0;
  uint64_t episode_ = 0;  // requests of one run with faults
};

}  // namespace kvfence
