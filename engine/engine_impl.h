// Engine<TrackerT>: the loop around scheduler and step runner. Included by the files that
// instantiate it, and by tests with trackers of their own.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_schedule.h"
#include "engine_settle.h"
#include "engine_state.h"
#include "engine_step.h"
#include "engine_surface.h"
#include "kvfence/engine.h"

namespace kvfence {

// Fills in what the config leaves to the engine.
EngineConfig Completed(EngineConfig config);
// One per group; those of one space share it.
Result<std::vector<std::unique_ptr<PagePool>>> MakePools(const EngineConfig& config,
                                                         const std::vector<TraceRequest>& trace);
StepLatency Percentiles(std::vector<uint32_t>* steps);

template <class TrackerT>
class Engine<TrackerT>::Impl {
 public:
  Impl(const EngineConfig& config, const std::vector<TraceRequest>* trace, TrackerT tracker,
       EngineNames names, FaultHooks* hooks, OutcomeSink* outcomes,
       std::vector<std::unique_ptr<PagePool>> pools)
      : state_(config, trace, std::move(tracker), std::move(names), hooks, outcomes,
               std::move(pools)),
        surface_(&state_),
        scheduler_(&state_),
        runner_(&state_, &scheduler_),
        settler_(&state_, &scheduler_) {
    state_.surface = &surface_;
    state_.requests.resize(trace->size());
  }

  bool Step() {
    EngineState<TrackerT>& s = state_;
    if (finished_) return false;
    const bool over = s.config.max_steps > 0 && s.report.steps >= s.config.max_steps;
    if (over || s.report.stopped ||
        (s.ended == s.trace->size() && s.waiting.empty() && s.running.empty() &&
         s.moving.empty())) {
      Finish();
      return false;
    }
    ++s.passes;
    for (const auto& books : s.books) books->EndRests(s.passes);
    scheduler_.Poll();
    scheduler_.Arrive();
    scheduler_.Abort(AbortMoment::kBetweenSteps);
    if (s.unsettled > 0 && scheduler_.MayCopy()) {
      s.device.Wait(kComputeStream, s.device.LastCompute());
    }
    StepInFlight* next = &s.flights[(s.report.steps + 1) % 2];
    next->view.clear();
    s.flight = next;
    if (runner_.LaunchCapture(next)) {
      Follow(next);
      return true;
    }
    scheduled_.clear();
    scheduler_.Plan(&scheduled_);
    if (scheduled_.empty()) {
      ++s.report.idle_steps;
      SettleOpen();
      scheduler_.WaitForCopy();
    } else {
      runner_.Launch(next, scheduled_);
      Follow(next);
    }
    return true;
  }

  EngineState<TrackerT>& state() { return state_; }
  FaultSurface& surface() { return surface_; }

 private:
  void SettleOpen() {
    if (open_ != nullptr) settler_.Settle(std::exchange(open_, nullptr));
  }
  // Settles the step just launched or, where steps overlap, the one before: the device is then
  // somewhere between the new step's validate and its confirm.
  void Follow(StepInFlight* launched) {
    EngineState<TrackerT>& s = state_;
    if (!s.config.features.overlapped) return settler_.Settle(launched);
    const std::array<SimDevice::Ticket, 3> moments = {launched->validated, launched->attended,
                                                      launched->confirmed};
    s.device.Wait(kComputeStream, moments[s.overlap_rng.Below(moments.size())]);
    SettleOpen();
    open_ = launched;
  }

  // Ends what max_steps left, then asks whether every page came back.
  void Finish() {
    EngineState<TrackerT>& s = state_;
    finished_ = true;
    SettleOpen();
    s.flight->view.clear();
    s.report.unfinished = s.trace->size() - s.ended;
    while (!s.running.empty()) scheduler_.Preempt(s.running.back());
    while (!s.moving.empty()) scheduler_.Preempt(s.moving.back());
    while (scheduler_.Moving()) {
      scheduler_.WaitForCopy();
      scheduler_.Poll();
    }
    s.device.Discard();
    s.report.row_moves = s.batch.moves();
    s.report.audit = AuditIdle();
    s.report.first_token = Percentiles(&s.first_latencies);
    s.report.whole = Percentiles(&s.whole_latencies);
    if (s.hooks == nullptr) s.tracker.Audit({.idle = true});
  }

  std::string AuditIdle() const {
    PoolCounts all;
    for (const auto& books : state_.books) {
      if (std::string breach = books->AuditIdle(); !breach.empty()) return breach;
      const PoolCounts counts = books->counts();
      all.cached += counts.cached;
      const uint64_t there = counts.free + (state_.one_space() ? all.cached : counts.cached) +
                             counts.quarantined + counts.retired + 1;
      const bool last = books == state_.books.back();
      if (there != counts.pages && (last || !state_.one_space())) {
        return "free, cached and set-apart pages do not add up";
      }
    }
    return "";
  }

  EngineState<TrackerT> state_;
  Surface<TrackerT> surface_;
  Scheduler<TrackerT> scheduler_;
  StepRunner<TrackerT> runner_;
  Settler<TrackerT> settler_;
  StepInFlight* open_ = nullptr;  // launched and not settled
  std::vector<RequestState*> scheduled_;
  bool finished_ = false;
};

template <class TrackerT>
Engine<TrackerT>::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <class TrackerT>
Engine<TrackerT>::~Engine() = default;

template <class TrackerT>
Result<std::unique_ptr<Engine<TrackerT>>> Engine<TrackerT>::Create(
    const EngineConfig& config, const std::vector<TraceRequest>* trace, TrackerT tracker,
    EngineNames names, FaultHooks* hooks, OutcomeSink* outcomes) {
  if (Status status = CheckEngineConfig(config); !status.ok()) return status;
  Result<std::vector<std::unique_ptr<PagePool>>> pools = MakePools(config, *trace);
  if (!pools.ok()) return Status(pools.status().code(), pools.status().message());
  auto impl = std::make_unique<Impl>(Completed(config), trace, std::move(tracker), std::move(names),
                                     hooks, outcomes, std::move(*pools));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

template <class TrackerT>
bool Engine<TrackerT>::Step() {
  return impl_->Step();
}
template <class TrackerT>
const EngineReport& Engine<TrackerT>::Run() {
  while (impl_->Step()) {
  }
  return report();
}
template <class TrackerT>
const EngineReport& Engine<TrackerT>::report() const {
  return impl_->state().report;
}
template <class TrackerT>
uint64_t Engine<TrackerT>::ended() const {
  return impl_->state().ended;
}
template <class TrackerT>
FaultSurface& Engine<TrackerT>::surface() {
  return impl_->surface();
}

}  // namespace kvfence
