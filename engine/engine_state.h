// Everything the engine knows, in one place: what Scheduler, StepRunner and Surface work on.
//
// Invariant: every live RequestState is either in `waiting` (no pages, no row) or in `running`
// (a present incarnation), or `gone` and kept until its step is settled.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "attention.h"
#include "batch_table.h"
#include "kvfence/engine.h"
#include "kvfence/ground_truth.h"
#include "kvfence/sim_device.h"
#include "page_books.h"
#include "request_state.h"
#include "step_buffers.h"

namespace kvfence {

// One launched step. One at a time for now; overlapping ones would each have theirs.
struct StepInFlight {
  StepId id{};
  std::vector<RequestState*> rows;  // by row
  std::vector<StepRow> view;        // by row, padded ones included
  std::vector<RowPlan> plans;       // what the fence is told: must live until retired
  std::vector<Row> pads;
  std::array<PoolBuffers, 1> pools{};
  StepBuffers* buffers = nullptr;
  std::optional<StepBuffers> raw{};  // as buffers, but for the fence's sanitising (judge_raw)
  PassResult pass;
  PassResult raw_pass;
};

template <class TrackerT>
struct EngineState {
  EngineState(const EngineConfig& c, uint64_t width, const std::vector<TraceRequest>* t,
              TrackerT tracker_in, EngineNames n, FaultHooks* h, OutcomeSink* o,
              std::unique_ptr<PagePool> pool)
      : config(c),
        trace(t),
        tracker(tracker_in),
        names(std::move(n)),
        hooks(h),
        outcomes(o),
        weights(c.page_size, width),
        kv(c.pages, &weights),
        pass(&kv, 0),
        device(Mix64(c.seed) ^ 1),
        books(std::move(pool), &tracker, &report, h != nullptr),
        batch(c.rows, width, 0, [this](uint32_t row, RequestState* r) { Bound(row, r); }),
        buffers{StepBuffers(c.rows, width), StepBuffers(c.rows, width)},
        abort_rng(Mix64(c.seed) ^ 2) {}
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  // Is there a fence whose word must be waited for?
  bool Fenced() const {
    if constexpr (requires { tracker.on(); }) return tracker.on();
    return TrackerT::kTracks;
  }
  // event `row`
  void Bound(uint32_t row, RequestState* r) {
    if (hooks != nullptr && !hooks->OnBindRow(*surface, Row(row), r ? r->index : kNoRequest))
      return;
    tracker.BindRow({.row = Row(row), .req = r ? r->id : RequestId()});
  }
  uint64_t PagesFor(uint64_t tokens) const {
    return (tokens + config.page_size - 1) / config.page_size;
  }

  EngineConfig config;
  const std::vector<TraceRequest>* trace;
  [[no_unique_address]] TrackerT tracker;
  EngineNames names;
  FaultHooks* hooks;
  OutcomeSink* outcomes;
  FaultSurface* surface = nullptr;
  EngineReport report;

  PositionWeights weights;
  KvMemory kv;
  AttentionPass pass;
  SimDevice device;
  PageBooks<TrackerT> books;
  BatchTable batch;
  std::array<StepBuffers, 2> buffers;  // of this step and the one before

  std::vector<std::unique_ptr<RequestState>> requests;  // by place in the trace; null: not there
  std::deque<RequestState*> waiting;
  std::vector<RequestState*> running;  // oldest admission first
  uint64_t next_arrival = 0;
  uint64_t clock_ms = 0;
  uint64_t passes = 0;  // of the loop, idle ones included
  uint64_t ended = 0;
  StepInFlight flight;
  Rng abort_rng;
  std::vector<uint32_t> first_latencies, whole_latencies;  // in passes
};

}  // namespace kvfence
