// Carries out one run of a campaign: a no-fault run and its twin without the fence, or an episode
// with faults and its twin.
//
// Invariant: a pure function of (config, number) but for the clock (I-120); on any thread, in any
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "campaign_plan.h"
#include "kvfence/finding.h"
#include "run_result.h"

namespace kvfence {

// Which outcomes of its faults are still worth a story, as bits.
using WantedStories = uint32_t;

struct RunListener {
  std::vector<EventSink*> sinks{};
  std::function<void(size_t kind)> on_fault{};  // of the campaign's kinds
  // Now and then; false: stop now.
  std::function<bool(uint64_t steps, uint64_t served)> go_on{};
  double clean_seconds = 0;  // a no-fault run ends after this; 0: never
  bool twin = true;          // no-fault runs have one, too
};
CampaignRun DoRun(const CampaignPlan& plan, const PlannedRun& run, WantedStories stories,
                  const RunListener& listener);

// Does the run once more, which gives the same, and writes down what the fence is told, in
// `dir`/`name`. Not for runs without end: false where the log would be too long.
Status RecordRun(const CampaignPlan& plan, const PlannedRun& run, const std::string& dir,
                 const std::string& name);
// The name of a run's log.
std::string LogNameOf(const CampaignPlan& plan, const PlannedRun& run);

}  // namespace kvfence
