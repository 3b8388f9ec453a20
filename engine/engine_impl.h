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
// Where each engine of the run has its pools and rows: one, or that which decodes and that which
// prefills.
std::vector<EngineSeat> SeatsOf(const EngineConfig& config, const std::vector<TraceRequest>& trace,
                                bool faults);
EngineConfig ConfigOf(const EngineConfig& config, EngineRole role);
// One per group; those of one space share it.
Result<std::vector<std::unique_ptr<PagePool>>> MakePools(const EngineConfig& config,
                                                         const EngineSeat& seat,
                                                         const std::vector<TraceRequest>& trace);
StepLatency Percentiles(std::vector<uint32_t>* steps);

// One engine: its state, and what works on it.
template <class TrackerT>
struct EngineParts {
  EngineParts(const EngineConfig& config, const EngineSeat& seat, RunState* run,
              const std::vector<TraceRequest>* trace, TrackerT tracker, const EngineNames& names,
              FaultHooks* hooks, OutcomeSink* outcomes,
              std::vector<std::unique_ptr<PagePool>> pools)
      : state(ConfigOf(config, seat.role), seat, run, trace, std::move(tracker), names, hooks,
              outcomes, std::move(pools)),
        surface(&state),
        scheduler(&state),
        runner(&state, &scheduler),
        settler(&state, &scheduler) {
    state.surface = &surface;
  }

  // True: a step was launched.
  bool Launch() {
    StepInFlight* next = &state.flights[(state.report.steps + 1) % 2];
    next->view.clear();
    state.flight = next;
    if (runner.LaunchCapture(next)) return true;
    scheduled.clear();
    scheduler.Plan(&scheduled);
    if (scheduled.empty()) return false;
    runner.Launch(next, scheduled);
    return true;
  }

  EngineState<TrackerT> state;
  Surface<TrackerT> surface;
  Scheduler<TrackerT> scheduler;
  StepRunner<TrackerT> runner;
  Settler<TrackerT> settler;
  std::vector<RequestState*> scheduled;
};

template <class TrackerT>
class Engine<TrackerT>::Impl {
 public:
  using Parts = EngineParts<TrackerT>;
  using Pools = std::vector<std::unique_ptr<PagePool>>;

  // `pools` by engine, as the seats.
  Impl(const EngineConfig& config, const std::vector<TraceRequest>* trace, TrackerT tracker,
       const EngineNames& names, FaultHooks* hooks, OutcomeSink* outcomes, std::vector<Pools> pools)
      : run_(config.seed), turn_rng_(Mix64(config.seed) ^ 8) {
    run_.requests.resize(trace->size());
    for (const EngineSeat& seat : SeatsOf(config, *trace, hooks != nullptr)) {
      // Faults are of the engine that decodes, so that each page has one name.
      FaultHooks* own = seat.role == EngineRole::kPrefill ? nullptr : hooks;
      engines_.push_back(std::make_unique<Parts>(config, seat, &run_, trace, tracker, names, own,
                                                 outcomes, std::move(pools[engines_.size()])));
    }
    if (engines_.size() == 1) return;
    engines_[0]->scheduler.Join(&engines_[1]->scheduler);
    engines_[1]->scheduler.Join(&engines_[0]->scheduler);
  }

  bool Step() {
    if (finished_) return false;
    EngineState<TrackerT>& s = state();
    const bool over = s.config.max_steps > 0 && s.report.steps >= s.config.max_steps;
    const bool empty = std::ranges::all_of(engines_, [](const auto& e) { return e->state.Idle(); });
    if (over || s.report.stopped || (s.ended == s.trace->size() && empty)) {
      Finish();
      return false;
    }
    ++s.passes;
    for (const auto& e : engines_) {
      for (const auto& books : e->state.books) books->EndRests(s.passes);
    }
    for (const auto& e : engines_) e->scheduler.Poll();
    engines_.back()->scheduler.Arrive();
    for (const auto& e : engines_) e->scheduler.Offer();
    for (const auto& e : engines_) e->scheduler.Abort(AbortMoment::kBetweenSteps);
    if (s.unsettled > 0 && s.MayCopy()) s.device.Wait(kComputeStream, s.device.LastCompute());
    // One of them has a step in this pass: whose turn it is, or the other.
    const size_t turn = engines_.size() > 1 ? turn_rng_.Below(2) : 0;
    for (size_t i = 0; i < engines_.size(); ++i) {
      Parts* e = engines_[(turn + i) % engines_.size()].get();
      if (!e->Launch()) continue;
      Follow(e);
      return true;
    }
    ++s.report.idle_steps;
    SettleOpen();
    const bool hoping = std::ranges::any_of(
        engines_, [](const auto& e) { return e->scheduler.Moving() || e->state.Resting(); });
    for (const auto& e : engines_) e->scheduler.WaitForCopy();
    // Leases count steps. When none can be launched nobody will ever fetch what is offered.
    for (const auto& e : engines_) {
      if (!hoping) e->scheduler.LoseOffer();
    }
    return true;
  }

  EngineState<TrackerT>& state() { return engines_[0]->state; }
  FaultSurface& surface() { return engines_[0]->surface; }

 private:
  void SettleOpen() {
    Parts* e = std::exchange(open_, nullptr);
    if (e != nullptr) e->settler.Settle(std::exchange(open_flight_, nullptr));
  }
  // Settles the step just launched or, where steps overlap, the one before: the device is then
  // somewhere between the new step's validate and its confirm.
  void Follow(Parts* e) {
    StepInFlight* launched = e->state.flight;
    if (!e->state.config.features.overlapped) return e->settler.Settle(launched);
    const std::array<SimDevice::Ticket, 3> moments = {launched->validated, launched->attended,
                                                      launched->confirmed};
    run_.device.Wait(kComputeStream, moments[state().overlap_rng.Below(moments.size())]);
    SettleOpen();
    open_ = e;
    open_flight_ = launched;
  }

  // Ends what max_steps left, then asks whether every page came back.
  void Finish() {
    EngineState<TrackerT>& s = state();
    finished_ = true;
    SettleOpen();
    s.flight->view.clear();
    s.report.unfinished = s.trace->size() - s.ended;
    for (const auto& e : engines_) {
      for (auto* list : {&e->state.running, &e->state.moving, &e->state.offered}) {
        while (!list->empty()) e->scheduler.Preempt(list->back());
      }
    }
    for (const auto& e : engines_) {
      while (e->scheduler.Moving()) {
        e->scheduler.WaitForCopy();
        e->scheduler.Poll();
      }
    }
    s.device.Discard();
    for (const auto& e : engines_) {
      s.report.row_moves += e->state.batch.moves();
      if (s.report.audit.empty()) s.report.audit = AuditIdle(e->state);
    }
    s.report.first_token = Percentiles(&s.first_latencies);
    s.report.whole = Percentiles(&s.whole_latencies);
    if (s.hooks == nullptr || s.config.audit_faulty) {
      KVF_IF_HEARD (s.tracker) s.tracker.Audit({.idle = true});
    }
  }

  static std::string AuditIdle(const EngineState<TrackerT>& s) {
    PoolCounts all;
    for (const auto& books : s.books) {
      if (std::string breach = books->AuditIdle(); !breach.empty()) return breach;
      const PoolCounts counts = books->counts();
      all.cached += counts.cached;
      const uint64_t there = counts.free + (s.one_space() ? all.cached : counts.cached) +
                             counts.quarantined + counts.retired + 1;
      const bool last = books == s.books.back();
      if (there != counts.pages && (last || !s.one_space())) {
        return "free, cached and set-apart pages do not add up";
      }
    }
    return "";
  }

  RunState run_;
  std::vector<std::unique_ptr<Parts>> engines_;  // the one that decodes first
  Rng turn_rng_;
  Parts* open_ = nullptr;  // whose step is launched and not settled
  StepInFlight* open_flight_ = nullptr;
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
  std::vector<std::vector<std::unique_ptr<PagePool>>> all;
  for (const EngineSeat& seat : SeatsOf(config, *trace, hooks != nullptr)) {
    Result<std::vector<std::unique_ptr<PagePool>>> pools = MakePools(config, seat, *trace);
    if (!pools.ok()) return Status(pools.status().code(), pools.status().message());
    all.push_back(std::move(*pools));
  }
  auto impl = std::make_unique<Impl>(Completed(config), trace, std::move(tracker), names, hooks,
                                     outcomes, std::move(all));
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
