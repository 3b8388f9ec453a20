// The campaign: the no-fault arm, then episodes with faults, each with and without the fence.
#include "kvfence/campaign.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "campaign_verdict.h"
#include "episode.h"
#include "kvfence/device_types.h"
#include "kvfence/fault_kind.h"
#include "reproducer.h"

namespace kvfence {
namespace {

constexpr uint64_t kDefaultRequests = 60000;  // about 40 s on one core
constexpr uint64_t kCleanRequestsUntilComplete = 20000;
constexpr uint64_t kEpisodeRequests = 24;
constexpr uint64_t kLeastEpisodeRequests = 8;
constexpr uint64_t kTriesToActivate = 8;  // episodes of a kind that never activated
constexpr uint64_t kMostEpisodesOfAKind = 600;
constexpr size_t kMostStories = 20;
constexpr uint64_t kMostLogs = 10;
constexpr uint64_t kLongestLog = 20000;  // steps

class Campaign {
 public:
  Campaign(const CampaignConfig& config, const CampaignHooks& hooks)
      : hooks_(hooks), begin_(std::chrono::steady_clock::now()) {
    report_.config = config;
  }

  Result<CampaignReport> Run() {
    if (Status status = ChooseKinds(); !status.ok()) return status;
    Result<RequestSource> source = RequestSource::Open(config());
    if (!source.ok()) return Status(source.status().code(), source.status().message());
    source_ = std::move(*source);
    if (Status status = CleanArm(); !status.ok()) return status;
    if (Status status = FaultArms(); !status.ok()) return status;
    PickStories();
    report_.seconds = Seconds();
    JudgeCampaign(kinds_, &report_);
    return std::move(report_);
  }

 private:
  const CampaignConfig& config() const { return report_.config; }
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  bool Stopped() {
    if (hooks_.stop != nullptr && hooks_.stop->load(std::memory_order_relaxed)) {
      report_.partial = true;
    }
    return report_.partial;
  }
  bool OutOfTime(double share) const {
    return config().duration_seconds != 0 &&
           Seconds() >= share * static_cast<double>(config().duration_seconds);
  }

  Status ChooseKinds() {
    bool none = false;
    for (const std::string& name : config().faults) {
      if (name == "none") {
        none = true;
      } else if (name == "all") {
        for (const FaultKind& kind : FaultKinds()) AddKind(kind);
      } else if (const FaultKind* kind = FindFaultKind(name)) {
        AddKind(*kind);
      } else {
        return Status::Invalid("unknown fault kind '" + name + "'");
      }
    }
    if (none && !kinds_.empty()) return Status::Invalid("faults: 'none' stands alone");
    if (!none && kinds_.empty()) return Status::Invalid("faults: no kind is named");
    if (config().level == Level::kOff) {
      return Status::Invalid("level must be map, full or audit (a campaign has its own off arm)");
    }
    if (config().policy == Policy::kRecompute) {
      return Status::Invalid("policy recompute: a campaign counts ended requests");
    }
    return Status();
  }
  void AddKind(const FaultKind& kind) {
    if (std::find(kinds_.begin(), kinds_.end(), &kind) != kinds_.end()) return;
    kinds_.push_back(&kind);
    FaultTally& tally = report_.faults.emplace_back();
    tally.kind = std::string(kind.name);
    tally.fault_class = kind.fault_class;
  }

  // Requests to serve: as asked, else the trace's all, else the default.
  uint64_t Wanted() const {
    if (config().requests != 0) return config().requests;
    if (!source_.generated()) return source_.size();
    return config().until_complete ? kCleanRequestsUntilComplete : kDefaultRequests;
  }

  void Progress(const char* phase, double fraction, uint64_t steps) {
    if (!hooks_.progress) return;
    CampaignProgress p;
    p.fraction = std::min(fraction, 1.0);
    p.runs = report_.runs;
    p.steps = report_.steps + steps;
    p.activated = activated_;
    p.bad = bad_;
    p.seconds = Seconds();
    p.phase = phase;
    hooks_.progress(p);
  }

  Status CleanArm() {
    EpisodePlan plan;
    plan.trace = source_.All(Wanted());
    if (Status status = DrawEpisode(config(), &plan); !status.ok()) return status;
    report_.drawn = Describe(plan.engine);
    const double share = kinds_.empty() ? 1.0 : 0.15;
    RunOptions options;
    options.sinks = hooks_.sinks;
    options.go_on = [&](uint64_t steps, uint64_t ended) {
      if (steps % 64 == 0) {
        const auto total = static_cast<double>(plan.trace.size());
        Progress("no-fault arm", share * static_cast<double>(ended) / total, steps);
      }
      return !Stopped() && !OutOfTime(kinds_.empty() ? 1.0 : 0.3);
    };
    const double began = Seconds();
    Result<RunResult> run = RunEpisode(plan, options);
    if (!run.ok()) return Status(run.status().code(), run.status().message());
    report_.clean_tokens_per_second = PerSecond(run->tokens, Seconds() - began);
    report_.clean_arm = {.steps = run->steps,
                         .entries_checked = run->entries_checked,
                         .violations = run->false_alarms,
                         .wrong_tokens_published = run->wrong_tokens};
    report_.false_alarms += run->false_alarms;
    report_.device_bytes_per_page = run->device_bytes_pages / plan.engine.pages;
    report_.device_bytes_per_entry = sizeof(Expectation);
    if (kinds_.empty()) report_.requests = run->served;
    if (!run->audit.empty()) report_.red.push_back("no-fault arm: " + run->audit);
    Add(*run);
    if (run->false_alarms != 0 && run->steps <= kLongestLog) {
      const std::string log = "no_fault_arm.kvlog";
      if (Record(plan, log, true)) WriteSmallest(config().log_dir, log, hooks_.stop);
    }
    if (kinds_.empty() || Stopped()) return Status();
    return CleanArmWithoutFence(plan, options);
  }
  // The same once more without the fence, to compare the time it takes.
  Status CleanArmWithoutFence(const EpisodePlan& plan, RunOptions options) {
    options.fence = false;
    options.sinks.clear();
    const double began = Seconds();
    Result<RunResult> run = RunEpisode(plan, options);
    if (!run.ok()) return Status(run.status().code(), run.status().message());
    report_.off_tokens_per_second = PerSecond(run->tokens, Seconds() - began);
    if (run->wrong_tokens != 0) {
      report_.red.push_back("the engine itself publishes wrong tokens: without fence and faults " +
                            std::to_string(run->wrong_tokens));
    }
    return Status();
  }
  static double PerSecond(uint64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }

  // Runs it once more, which gives the same, and writes down what the fence is told. False: there's
  // no log.
  bool Record(const EpisodePlan& plan, const std::string& name, bool stop_at_violation) {
    if (config().log_dir.empty() || logs_ == kMostLogs) return false;
    ++logs_;
    RunOptions options;
    options.record_to = config().log_dir + "/" + name;
    options.stop_at_violation = stop_at_violation;
    const Result<RunResult> run = RunEpisode(plan, options);
    if (!run.ok()) report_.red.push_back("no log of " + name + ": " + run.status().message());
    return run.ok();
  }

  void Add(const RunResult& run) {
    ++report_.runs;
    report_.steps += run.steps;
    report_.events += run.events;
    report_.entries_checked += run.entries_checked;
    report_.ownership_changes += run.ownership_changes;
    report_.tokens_published += run.tokens;
    report_.wrong_tokens_published += run.wrong_tokens;
    report_.requests_aborted += run.aborted;
  }

  Status FaultArms() {
    const uint64_t wanted = config().until_complete && config().requests == 0 ? 0 : Wanted();
    std::vector<uint64_t> episodes(kinds_.size());
    for (uint64_t round = 0; !kinds_.empty(); ++round) {
      bool any = false;
      for (size_t k = 0; k < kinds_.size(); ++k) {
        if (!WantsMore(k, episodes[k], wanted)) continue;
        if (Stopped() || OutOfTime(1.0)) return Status();
        if (config().steps != 0 && fault_steps_ >= config().steps && episodes[k] > 0) continue;
        any = true;
        ++episodes[k];
        if (Status status = Episode(k, wanted); !status.ok()) return status;
      }
      if (!any) break;
    }
    return Status();
  }
  // Is another episode of this kind due?
  bool WantsMore(size_t k, uint64_t episodes, uint64_t wanted) const {
    if (episodes == 0) return true;
    if (episodes >= kMostEpisodesOfAKind && config().until_complete) return false;
    if (config().until_complete && !MissingOf(*kinds_[k], report_.faults[k]).empty()) return true;
    if (report_.requests < wanted) return !config().until_complete || wanted != 0;
    return report_.faults[k].activated == 0 && episodes < kTriesToActivate;
  }

  double FaultFraction(uint64_t wanted) const {
    if (!config().until_complete) {
      return static_cast<double>(report_.requests) /
             static_cast<double>(std::max<uint64_t>(wanted, 1));
    }
    double sum = 0;
    for (const FaultTally& tally : report_.faults) {
      sum += std::min(1.0, static_cast<double>(tally.activated) / kActivationsToComplete);
    }
    return sum / static_cast<double>(report_.faults.size());
  }

  Status Episode(size_t k, uint64_t wanted) {
    EpisodePlan plan;
    plan.number = ++episode_;
    plan.kind = kinds_[k];
    uint64_t n = kEpisodeRequests;
    if (wanted != 0) n = std::min(n, std::max(wanted / kinds_.size(), kLeastEpisodeRequests));
    plan.trace = source_.Slice(plan.number, report_.requests, n);
    if (Status status = DrawEpisode(config(), &plan); !status.ok()) return status;

    RunOptions options;
    options.sinks = hooks_.sinks;
    const std::string kind(plan.kind->name);
    options.on_fault = [&] {
      ++activated_;
      if (hooks_.on_fault) hooks_.on_fault(kind);
    };
    options.want_story = [&](const FaultRecord&, Outcome outcome) { return WantStory(k, outcome); };
    options.go_on = [&](uint64_t steps, uint64_t) {
      if (steps % 64 == 0) Progress("faults", 0.15 + 0.85 * FaultFraction(wanted), steps);
      return !Stopped();
    };
    Result<RunResult> on = RunEpisode(plan, options);
    if (!on.ok()) return Status(on.status().code(), on.status().message());
    if (on->stopped) return Status();
    RunOptions without{.fence = false, .go_on = [&](uint64_t, uint64_t) { return !Stopped(); }};
    Result<RunResult> off = RunEpisode(plan, without);
    if (!off.ok()) return Status(off.status().code(), off.status().message());
    if (off->stopped) return Status();
    Count(k, plan, std::move(*on), *off);
    return Status();
  }

  void Count(size_t k, const EpisodePlan& plan, RunResult on, const RunResult& off) {
    FaultTally& tally = report_.faults[k];
    report_.requests += plan.trace.size();
    fault_steps_ += on.steps;
    Add(on);
    report_.false_alarms += on.false_alarms;
    if (on.wrong_without_fault != 0) {
      report_.red.push_back("wrong tokens before any fault, in run " + std::to_string(plan.number));
    }
    tally.off_arm_wrong_tokens += off.wrong_tokens;
    report_.off_arm.wrong_tokens_published += off.wrong_tokens;
    for (size_t i = 0; i < on.faults.size(); ++i) {
      const FaultRecord& fault = on.faults[i];
      const Outcome outcome = on.outcomes[i];
      ++tally.activated;
      ++tally.outcomes[static_cast<size_t>(outcome)];
      if (IsBad(outcome)) ++bad_;
      for (int r = 0; r < kReasonCount; ++r) {
        const auto reason = static_cast<Reason>(r);
        if (fault.reasons.Has(reason)) ++tally.reasons[std::string(ReasonName(reason))];
      }
      if (fault.first_report) {
        ++tally.delay_steps[static_cast<uint64_t>(*fault.first_report - fault.step)];
      }
      if (hooks_.on_outcome) hooks_.on_outcome(tally.kind, outcome);
    }
    const bool bad =
        on.false_alarms != 0 || std::any_of(on.outcomes.begin(), on.outcomes.end(), IsBad);
    const std::string log = "run" + std::to_string(plan.number) + "_" + tally.kind + ".kvlog";
    const bool logged = bad && Record(plan, log, false);
    const std::string small =
        logged ? WriteSmallest(config().log_dir, log, hooks_.stop) : std::string();
    for (IncidentStory& story : on.stories) {
      if (logged && IsBad(story.outcome)) story.log = small.empty() ? log : small;
      stories_.push_back(std::move(story));
    }
  }

  // Bad ones, and of each kind the first of each good outcome.
  bool WantStory(size_t k, Outcome outcome) {
    uint64_t& told = told_[{k, outcome}];
    return told++ < (IsBad(outcome) ? 3u : 1u);
  }
  // Bad ones first, then what was prevented, then the rest.
  void PickStories() {
    const auto weight = [](const IncidentStory& story) {
      return IsBad(story.outcome) ? 0 : static_cast<int>(story.outcome) + 1;
    };
    std::stable_sort(stories_.begin(), stories_.end(),
                     [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
    if (stories_.size() > kMostStories) stories_.resize(kMostStories);
    report_.stories = std::move(stories_);
  }

  const CampaignHooks& hooks_;
  const std::chrono::steady_clock::time_point begin_;
  CampaignReport report_;
  RequestSource source_;
  std::vector<const FaultKind*> kinds_;
  uint64_t episode_ = 0;
  uint64_t fault_steps_ = 0;
  uint64_t activated_ = 0;
  uint64_t bad_ = 0;
  uint64_t logs_ = 0;
  std::map<std::pair<size_t, Outcome>, uint64_t> told_;
  std::vector<IncidentStory> stories_;
};

}  // namespace

Result<CampaignReport> RunCampaign(const CampaignConfig& config, const CampaignHooks& hooks) {
  return Campaign(config, hooks).Run();
}

}  // namespace kvfence
