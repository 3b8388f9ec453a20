// Who carries out a campaign's runs: the calling thread, or worker processes.
//
// Idea: the campaign hands out runs and gets results back in any order. A worker process does one
// run at a time and says over a pipe what it sees meanwhile (faults, findings, progress), so that
// listeners hear of it on the campaign's thread. A worker that dies takes its run along, which
// counts as crashed, and is replaced. Invariant: I-122, a run's result is the same from any doer,
// and no run ends the campaign by dying.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "campaign_plan.h"
#include "do_run.h"
#include "kvfence/campaign.h"

namespace kvfence {

struct DoneRun {
  PlannedRun planned;
  CampaignRun run;
};

class RunDoer {
 public:
  virtual ~RunDoer() = default;
  virtual bool CanTake() const = 0;
  virtual void Give(const PlannedRun& run, WantedStories stories) = 0;
  virtual bool Busy() const = 0;
  // A result, if one comes soon.
  virtual std::optional<DoneRun> Await() = 0;
  // Runs under way end now, cut.
  virtual void Stop() = 0;
  // Does `work` where a crash does no harm. False: it crashed.
  virtual bool Guarded(const std::function<void(const std::atomic<bool>* stop)>& work) = 0;
  // Of runs under way: their steps, and the requests that no-fault ones have served.
  virtual uint64_t steps() const = 0;
  virtual uint64_t served() const = 0;
};

struct DoerOptions {
  const CampaignPlan* plan = nullptr;
  const CampaignHooks* hooks = nullptr;
  double clean_seconds = 0;  // as RunListener::clean_seconds
  std::function<void(const FaultKind&)> on_fault{};
  std::function<void()> tick{};  // often
};
std::unique_ptr<RunDoer> DoHere(const DoerOptions& options);
// Refuses where no process can be started.
Result<std::unique_ptr<RunDoer>> DoInWorkers(const DoerOptions& options, uint64_t jobs);

}  // namespace kvfence
