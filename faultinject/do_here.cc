// Runs on the calling thread.
#include <utility>

#include "run_doer.h"

namespace kvfence {
namespace {

class Here final : public RunDoer {
 public:
  explicit Here(const DoerOptions& options) : options_(options) {}

  bool CanTake() const override { return !next_; }
  bool Busy() const override { return next_.has_value(); }
  void Give(const PlannedRun& run, WantedStories stories) override {
    next_ = run;
    stories_ = stories;
  }
  std::optional<DoneRun> Await() override {
    if (!next_) return std::nullopt;
    const PlannedRun run = *std::exchange(next_, std::nullopt);
    const auto& in_run = options_.hooks->in_run;
    if (in_run) in_run(run.number, false);
    RunListener listener;
    listener.sinks = options_.hooks->sinks;
    listener.clean_seconds = options_.clean_seconds;
    listener.twin = !options_.plan->kinds().empty();
    listener.on_fault = [&](size_t kind) {
      if (options_.on_fault) options_.on_fault(*options_.plan->kinds()[kind]);
      if (in_run) in_run(run.number, true);
    };
    listener.go_on = [&](uint64_t steps, uint64_t served) {
      steps_ = steps;
      served_ = run.faulty() ? 0 : served;
      if (steps % 64 == 0 && options_.tick) options_.tick();
      return !stopped_ && !(options_.hooks->stop != nullptr && options_.hooks->stop->load());
    };
    DoneRun done{run, DoRun(*options_.plan, run, stories_, listener)};
    steps_ = served_ = 0;
    return done;
  }
  void Stop() override { stopped_ = true; }
  bool Guarded(const std::function<void(const std::atomic<bool>*)>& work) override {
    work(options_.hooks->stop);
    return true;
  }
  uint64_t steps() const override { return steps_; }
  uint64_t served() const override { return served_; }

 private:
  DoerOptions options_;
  std::optional<PlannedRun> next_{};
  WantedStories stories_ = 0;
  bool stopped_ = false;
  uint64_t steps_ = 0, served_ = 0;
};

}  // namespace

std::unique_ptr<RunDoer> DoHere(const DoerOptions& options) {
  return std::make_unique<Here>(options);
}

}  // namespace kvfence
