// The campaign: hands out runs, folds what comes back in the order of their numbers, keeps its
// journal, and leaves logs of what went wrong.
#include "kvfence/campaign.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "campaign_fold.h"
#include "campaign_identity.h"
#include "campaign_plan.h"
#include "campaign_verdict.h"
#include "kind_choice.h"
#include "progress_journal.h"
#include "reproducer.h"
#include "run_doer.h"

namespace kvfence {
namespace {

constexpr uint64_t kAheadOfFold = 8;  // runs per worker that wait for one with a smaller number
constexpr double kCleanShare = 0.3;   // of a given time, for one no-fault run

class Campaign {
 public:
  Campaign(CampaignPlan plan, const CampaignHooks& hooks)
      : plan_(std::move(plan)),
        hooks_(hooks),
        state_{.fold = CampaignFold(plan_.kinds())},
        begin_(std::chrono::steady_clock::now()) {}

  Result<CampaignReport> Run() {
    if (Status status = Begin(); !status.ok()) return status;
    while (!over_) {
      HandOut();
      if (!doer_->Busy() && done_.empty()) break;
      if (std::optional<DoneRun> done = doer_->Await()) {
        const uint64_t number = done->planned.number;
        done_.insert_or_assign(number, std::move(*done));
      }
      if (Status status = Fold(); !status.ok()) return status;
      Tell();
    }
    if (journal_ != nullptr) {
      if (Status status = journal_->Flush(); !status.ok()) return status;
      if (!partial_) journal_->Remove();
    }
    return Report();
  }

 private:
  const CampaignConfig& config() const { return plan_.config(); }
  double Sitting() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double Seconds() const { return before_ + Sitting(); }
  bool OutOfTime() const {
    return config().duration_seconds != 0 &&
           Seconds() >= static_cast<double>(config().duration_seconds);
  }

  Status Begin() {
    // Impossible settings are refused at once.
    const std::optional<PlannedRun> first = plan_.At(config().only.value_or(1));
    if (!first) return Status::Invalid("only: there is no run " + std::to_string(*config().only));
    EpisodePlan trial;
    trial.number = first->number;
    trial.kinds = plan_.KindsOf(*first);
    trial.trace = plan_.source().Stream(0, 0, std::min<uint64_t>(first->requests, 400));
    if (Status status = DrawEpisode(config(), &trial); !status.ok()) return status;
    if (config().only) state_.next = *config().only;
    if (!hooks_.journal.empty()) {
      Result<std::unique_ptr<ProgressJournal>> journal =
          ProgressJournal::Open(hooks_.journal, plan_, hooks_.resume, &state_);
      if (!journal.ok()) return Status(journal.status().code(), journal.status().message());
      journal_ = std::move(*journal);
      before_ = state_.seconds;
      activated_ = state_.fold.activated();
    }
    began_at_ = plan_.Fraction(state_.fold, 0, before_);
    given_ = state_.next;
    DoerOptions options{.plan = &plan_, .hooks = &hooks_};
    if (config().duration_seconds != 0) {
      const double share = plan_.kinds().empty() ? 1.0 : kCleanShare;
      options.clean_seconds = share * static_cast<double>(config().duration_seconds);
    }
    options.on_fault = [this](const FaultKind& kind) {
      ++activated_;
      if (hooks_.on_fault) hooks_.on_fault(std::string(kind.name));
    };
    options.tick = [this] { Tell(); };
    if (hooks_.jobs == 0) {
      doer_ = DoHere(options);
      return Status();
    }
    Result<std::unique_ptr<RunDoer>> doer = DoInWorkers(options, hooks_.jobs);
    if (!doer.ok()) return Status(doer.status().code(), doer.status().message());
    doer_ = std::move(*doer);
    return Status();
  }

  // The first run from `number` on that is to be done here, as far as is known by now.
  std::optional<PlannedRun> NextFrom(uint64_t number) const {
    size_t unwanted = 0;
    for (;; ++number) {
      if (config().only && number != *config().only) return std::nullopt;
      const std::optional<PlannedRun> run = plan_.At(number);
      if (!run) return std::nullopt;
      const bool wanted = plan_.Wants(*run, state_.fold);
      if (wanted && plan_.Mine(number)) return run;
      // A whole round of kinds that are done with: none of them is wanted ever again.
      unwanted = wanted ? 0 : unwanted + 1;
      if (unwanted > plan_.slots()) return std::nullopt;
    }
  }

  void HandOut() {
    if (hooks_.stop != nullptr && hooks_.stop->load(std::memory_order_relaxed)) {
      if (!stopped_ && NextFrom(state_.next)) partial_ = true;
      stopped_ = true;
      doer_->Stop();
      return;
    }
    const uint64_t most = std::max<uint64_t>(hooks_.jobs, 1) * kAheadOfFold;
    while (!OutOfTime() && doer_->CanTake() && under_way_ < most) {
      const std::optional<PlannedRun> run = NextFrom(given_);
      if (!run) return;
      given_ = run->number + 1;
      ++under_way_;
      doer_->Give(*run, run->faulty() ? state_.fold.WantedStories(*run) : 0);
    }
  }

  // Folds all results that are next in the order.
  Status Fold() {
    while (!done_.empty() && !over_) {
      DoneRun& done = done_.begin()->second;
      const std::optional<PlannedRun> next = NextFrom(state_.next);
      const uint64_t number = done.planned.number;
      if (next && next->number < number) {
        KVF_CHECK(next->number < given_, "I-120 the run that is next has been handed out");
        return Status();
      }
      if (next && next->number == number) {
        if (Status status = Take(&done); !status.ok()) return status;
      }
      // Else it turned out that this run isn't wanted: its sort was done with before it.
      done_.erase(number);
      --under_way_;
    }
    return Status();
  }

  Status Take(DoneRun* done) {
    CampaignRun& run = done->run;
    const PlannedRun planned = done->planned;
    if (!run.refused.empty()) {
      // Nothing to go on with: the same settings are refused again.
      if (journal_ != nullptr) journal_->Remove();
      return Status::Invalid(run.refused);
    }
    if (run.cut) {
      // Of a no-fault run what was served is told; the journal says that it's still to be done.
      over_ = partial_ = true;
      if (!planned.faulty()) state_.fold.Add(planned, std::move(run));
      return Status();
    }
    if (run.bad && !run.logged && state_.fold.WantsLog()) LeaveLog(planned, &run);
    for (const FaultResult& fault : run.faults) {
      const std::string kind(plan_.kinds()[fault.kind]->name);
      if (hooks_.on_outcome) hooks_.on_outcome(kind, fault.outcome);
    }
    state_.next = run.number + 1;
    state_.seconds = Seconds();
    if (journal_ == nullptr) {
      state_.fold.Add(planned, std::move(run));
      return Status();
    }
    state_.fold.Add(planned, run);
    return journal_->Append(run, state_);
  }

  // The run's log, and the smallest one that shows the same.
  void LeaveLog(const PlannedRun& planned, CampaignRun* run) {
    run->logged = true;
    const std::string& dir = config().log_dir;
    if (dir.empty()) return;
    const std::string name = LogNameOf(plan_, planned);
    const std::string small = SmallestNameOf(name);
    std::error_code error;
    for (const std::string& old : {name, small}) std::filesystem::remove(dir + "/" + old, error);
    std::string why;
    doer_->Guarded([&](const std::atomic<bool>* stop) {
      const Status status = RecordRun(plan_, planned, dir, name);
      if (!status.ok()) why = status.message();
      if (status.ok()) WriteSmallest(dir, name, stop);
    });
    const auto is_there = [&](const std::string& file) {
      return std::filesystem::exists(dir + "/" + file, error);
    };
    if (!is_there(name)) run->red.push_back("no log of " + name + (why.empty() ? "" : ": " + why));
    for (IncidentStory& story : run->stories) {
      if (IsBad(story.outcome) && is_there(name)) story.log = is_there(small) ? small : name;
    }
  }

  void Tell() {
    if (!hooks_.progress) return;
    CampaignProgress p;
    p.seconds = Sitting();
    told_ = std::max(told_, plan_.Fraction(state_.fold, doer_->served(), Seconds()));
    p.fraction = told_;
    p.runs = state_.fold.runs();
    p.steps = state_.fold.steps() + doer_->steps();
    p.activated = activated_;
    p.bad = state_.fold.bad();
    if (!first_steps_) first_steps_ = state_.fold.steps();
    p.steps_per_second =
        p.seconds > 0 ? static_cast<double>(p.steps - *first_steps_) / p.seconds : 0;
    if (p.fraction > began_at_ + 0.005) {
      p.seconds_left = p.seconds * (1 - p.fraction) / (p.fraction - began_at_);
    }
    const std::optional<PlannedRun> next = plan_.At(state_.next);
    p.phase = next && !next->faulty() ? "no-fault arm" : "faults";
    hooks_.progress(p);
  }

  CampaignReport Report() {
    CampaignReport report = state_.fold.Report(config(), partial_);
    report.drawn = DescribeDraw(config());
    report.left_out = ChooseKinds(config()).value().left_out;
    report.seconds = Seconds();
    if (config().shard.of > 1) {
      CampaignConfig whole = config();
      whole.shard = {};
      const nlohmann::ordered_json shard = {{"part", config().shard.part},
                                            {"of", config().shard.of},
                                            {"program", ProgramDigest()},
                                            {"config", ConfigJson(whole)},
                                            {"state", state_.fold.ToJson(false)}};
      report.shard_state =
          shard.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }
    return report;
  }

  const CampaignPlan plan_;
  const CampaignHooks& hooks_;
  CampaignState state_;
  const std::chrono::steady_clock::time_point begin_;
  double before_ = 0;    // seconds of the sittings before this one
  double began_at_ = 0;  // fraction
  double told_ = 0;      // the largest fraction that was told: it never goes back
  std::optional<uint64_t> first_steps_{};
  std::unique_ptr<ProgressJournal> journal_;
  std::unique_ptr<RunDoer> doer_;
  std::map<uint64_t, DoneRun> done_;  // not yet folded
  uint64_t given_ = 1;                // number of the first run that wasn't handed out
  uint64_t under_way_ = 0;            // handed out, not yet folded
  uint64_t activated_ = 0;
  bool stopped_ = false, partial_ = false, over_ = false;
};

}  // namespace

Result<CampaignReport> RunCampaign(const CampaignConfig& config, const CampaignHooks& hooks) {
  Result<CampaignPlan> plan = CampaignPlan::Make(config);
  if (!plan.ok()) return Status(plan.status().code(), plan.status().message());
  return Campaign(std::move(*plan), hooks).Run();
}

}  // namespace kvfence
