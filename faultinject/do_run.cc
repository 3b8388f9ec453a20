#include "do_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "campaign_verdict.h"
#include "episode.h"

namespace kvfence {
namespace {

constexpr uint64_t kTriesToActivate = 8;  // engines for a kind that found nothing to break
constexpr uint64_t kStoriesOfARun = 3;    // of one bad outcome
constexpr uint64_t kLongestLog = 20000;   // steps

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void AddTo(RunTotals* totals, const RunResult& run) {
  ++totals->engines;
  totals->steps += run.steps;
  totals->events += run.events;
  totals->entries_checked += run.entries_checked;
  totals->ownership_changes += run.ownership_changes;
  totals->tokens += run.tokens;
  totals->wrong_tokens += run.wrong_tokens;
  totals->aborted += run.aborted;
  totals->false_alarms += run.false_alarms;
}

void AddComebacks(RunTotals* totals, const Comebacks::Counts& counts) {
  totals->recomputed += counts.failed;
  totals->recomputed_right += counts.right;
  totals->recomputed_withdrawn += counts.withdrawn;
}

std::string InRun(const PlannedRun& run) { return "run " + std::to_string(run.number); }

Result<EpisodePlan> PlanEngine(const CampaignPlan& plan, const PlannedRun& run, uint64_t attempt) {
  EpisodePlan episode;
  episode.number = run.number;
  episode.attempt = attempt;
  episode.kinds = plan.KindsOf(run);
  episode.trace =
      run.faulty() ? plan.source().Slice(run.number << 8 | attempt, run.first_request, run.requests)
                   : plan.source().Stream(run.round, run.first_request, run.requests);
  if (Status status = DrawEpisode(plan.config(), &episode); !status.ok()) return status;
  return episode;
}

CampaignRun Refused(CampaignRun result, const Status& status) {
  result.refused = status.message();
  return result;
}

CampaignRun CleanRun(const CampaignPlan& plan, const PlannedRun& run, const RunListener& listener) {
  CampaignRun result;
  result.number = run.number;
  Result<EpisodePlan> episode = PlanEngine(plan, run, 0);
  if (!episode.ok()) return Refused(std::move(result), episode.status());
  const auto begin = Clock::now();
  bool out_of_time = false;
  RunOptions options;
  options.sinks = listener.sinks;
  options.go_on = [&](uint64_t steps, uint64_t served) {
    out_of_time = listener.clean_seconds > 0 && Since(begin) >= listener.clean_seconds;
    return !out_of_time && (!listener.go_on || listener.go_on(steps, served));
  };
  Result<RunResult> on = RunEpisode(*episode, options);
  if (!on.ok()) return Refused(std::move(result), on.status());
  result.seconds = Since(begin);
  AddTo(&result.totals, *on);
  result.totals.requests = on->served;
  result.features = on->features;
  result.met = on->reached;
  uint64_t pages = 0;
  for (const PoolConfig& pool : episode->fence.pools) pages += pool.pages * episode->fence.ranks;
  result.bytes_per_page = on->device_bytes_pages / pages;  // of one pool on one rank
  result.cut = on->stopped && !out_of_time;
  result.bad = on->false_alarms != 0 && on->steps <= kLongestLog;
  if (!on->audit.empty()) {
    result.red.push_back("the no-fault arm, " + InRun(run) + ": " + on->audit);
  }
  if (!listener.twin || on->stopped) return result;

  // The same once more without the fence, to compare the time it takes.
  options.fence = false;
  options.sinks.clear();
  const auto off_begin = Clock::now();
  Result<RunResult> off = RunEpisode(*episode, options);
  if (!off.ok()) return Refused(std::move(result), off.status());
  result.cut = off->stopped && !out_of_time;
  result.off_seconds = Since(off_begin);
  result.off_tokens = off->tokens;
  if (off->wrong_tokens != 0) {
    result.red.push_back("the engine itself publishes wrong tokens: without fence and faults " +
                         std::to_string(off->wrong_tokens) + ", " + InRun(run));
  }
  return result;
}

void AddFaults(RunResult* on, const PlannedRun& run, CampaignRun* result) {
  for (size_t i = 0; i < on->faults.size(); ++i) {
    const FaultRecord& fault = on->faults[i];
    FaultResult one{
        .kind = run.kinds[fault.kind], .outcome = on->outcomes[i], .reasons = fault.reasons};
    // A step that was in flight when the fault was put in may answer for it: no later than at once.
    if (fault.first_report) {
      one.delay = static_cast<uint64_t>(std::max<int64_t>(*fault.first_report - fault.step, 0));
    }
    result->faults.push_back(one);
    result->bad |= IsBad(one.outcome);
  }
  result->bad |= on->false_alarms != 0;
  if (on->wrong_without_fault != 0) {
    result->red.push_back("wrong tokens before any fault, in " + InRun(run));
  }
  for (IncidentStory& story : on->stories) result->stories.push_back(std::move(story));
}

CampaignRun FaultRun(const CampaignPlan& plan, const PlannedRun& run, WantedStories stories,
                     const RunListener& listener) {
  CampaignRun result;
  result.number = run.number;
  for (uint64_t attempt = 0; attempt < kTriesToActivate; ++attempt) {
    Result<EpisodePlan> episode = PlanEngine(plan, run, attempt);
    if (!episode.ok()) return Refused(std::move(result), episode.status());
    std::array<uint64_t, kOutcomeCount> told{};
    RunOptions options;
    options.sinks = listener.sinks;
    if (listener.on_fault) {
      options.on_fault = [&](size_t kind) { listener.on_fault(run.kinds[kind]); };
    }
    options.go_on = listener.go_on;
    options.want_story = [&](const FaultRecord&, Outcome outcome) {
      const auto at = static_cast<size_t>(outcome);
      return (stories >> at & 1u) != 0 && told[at]++ < (IsBad(outcome) ? kStoriesOfARun : 1);
    };
    Result<RunResult> on = RunEpisode(*episode, options);
    if (!on.ok()) return Refused(std::move(result), on.status());
    AddTo(&result.totals, *on);
    if (plan.config().policy == Policy::kRecompute) AddComebacks(&result.totals, on->comebacks);
    result.totals.requests += episode->trace.size();
    result.features = on->features;
    result.met = on->reached;
    result.cut = on->stopped;
    if (result.cut) return result;
    AddFaults(&*on, run, &result);
    if (on->activated == 0 && on->false_alarms == 0) continue;

    RunOptions without{.fence = false, .go_on = listener.go_on};
    Result<RunResult> off = RunEpisode(*episode, without);
    if (!off.ok()) return Refused(std::move(result), off.status());
    result.cut = off->stopped;
    result.totals.off_wrong_tokens += off->wrong_tokens;
    return result;
  }
  return result;
}

}  // namespace

CampaignRun DoRun(const CampaignPlan& plan, const PlannedRun& run, WantedStories stories,
                  const RunListener& listener) {
  return run.faulty() ? FaultRun(plan, run, stories, listener) : CleanRun(plan, run, listener);
}

Status RecordRun(const CampaignPlan& plan, const PlannedRun& run, const std::string& dir,
                 const std::string& name) {
  for (uint64_t attempt = 0; attempt < (run.faulty() ? kTriesToActivate : 1); ++attempt) {
    Result<EpisodePlan> episode = PlanEngine(plan, run, attempt);
    if (!episode.ok()) return Status(episode.status().code(), episode.status().message());
    RunOptions options;
    options.record_to = dir + "/" + name;
    options.stop_at_violation = !run.faulty();
    Result<RunResult> played = RunEpisode(*episode, options);
    if (!played.ok()) return Status(played.status().code(), played.status().message());
    if (played->activated != 0 || played->false_alarms != 0) break;
  }
  return Status();
}

std::string LogNameOf(const CampaignPlan& plan, const PlannedRun& run) {
  const std::string what = !run.faulty()   ? "no_fault"
                           : run.several() ? "several"
                                           : std::string(plan.KindsOf(run)[0]->name);
  return "run" + std::to_string(run.number) + "_" + what + ".kvlog";
}

}  // namespace kvfence
