// Everything the engine knows, in one place: what Scheduler, StepRunner and Surface work on.
//
// With `disaggregated` there are two of these, one that prefills and one that decodes, and what
// both share is a RunState. Invariant: every live RequestState is in `waiting` (no pages, no row),
// in `running` (a present incarnation), in `moving` (one that is swapped out, or has pages that
// copies are to fill) or in `offered` (prefilled, for the other engine to take over), or `gone` and
// kept until its steps are settled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "batch_table.h"
#include "graph_pool.h"
#include "kvfence/engine.h"
#include "kvfence/sim_device.h"
#include "model_parts.h"
#include "page_books.h"
#include "request_state.h"
#include "served_model.h"
#include "step_buffers.h"

namespace kvfence {

// A live row of a launched step.
struct RowInFlight {
  RequestState* request = nullptr;
  uint64_t epoch = 0;  // of the request, at the launch
  StepShare plan{};
  uint64_t base = 0;        // tokens before the step; until `known`, at most so many
  bool known = true;        // the host knows the base at the launch
  bool token_known = true;  // ... and the first new token
  bool samples = false;
  RequestId told{};  // whose the fence is told that the row is, where a fault has it otherwise
};

// A rank's part of a launched step that isn't as the others' (a fault).
struct RankPart {
  uint32_t rank = 0;
  std::vector<RowPlan> plans;
  std::vector<Row> pads;
  std::vector<Row> live;
};

// One launched step.
struct StepInFlight {
  StepId id{};
  std::vector<RowInFlight> rows;  // by row
  std::vector<uint32_t> order;    // rows as they were scheduled
  std::vector<StepRow> view;      // by row, padded ones included
  std::vector<RowPlan> plans;     // what the fence is told: must live until retired
  std::vector<Row> pads;
  std::vector<Row> live;  // all rows that aren't padding, where they share a prefix table
  std::vector<std::pair<RankId, Row>> dropped;  // rows that a rank wasn't told of (a fault)
  std::vector<RankPart> parts;                  // of those ranks
  std::vector<PoolBuffers> pools;               // by part of the model
  CapturedGraph* graph = nullptr;    // that it replays or captures; null: it runs eagerly
  std::vector<int32_t> before;       // the graph's table before the upload (with hooks)
  std::span<StepBuffers> buffers{};  // by part of the model
  std::vector<StepBuffers> raw;      // as buffers, but for the fence's sanitising (judge_raw)
  PassResult pass;
  PassResult raw_pass;
  SimDevice::Ticket validated = 0, attended = 0, confirmed = 0;
};

inline constexpr PageId kNullPage{0};

// What the engines of one run have in common.
struct RunState {
  explicit RunState(uint64_t seed) : device(Mix64(seed) ^ 1) {}

  EngineReport report;
  SimDevice device;
  std::vector<std::unique_ptr<RequestState>> requests;  // by place in the trace, then siblings
  uint64_t passes = 0;                                  // of the loop, idle ones included
  uint64_t ended = 0;
  uint64_t settled = 0;    // the newest settled step
  uint64_t unsettled = 0;  // launched steps that aren't
  uint64_t copies = 0;     // that were ever begun
  uint64_t swaps = 0;
  std::vector<uint32_t> first_latencies, whole_latencies;  // in passes
};

template <class TrackerT>
struct EngineState {
  // `s`: which of the run's engines this is.
  EngineState(const EngineConfig& c, const EngineSeat& s, RunState* run,
              const std::vector<TraceRequest>* t, TrackerT tracker_in, EngineNames n, FaultHooks* h,
              OutcomeSink* o, std::vector<std::unique_ptr<PagePool>> pools)
      : config(c),
        seat(s),
        trace(t),
        groups(GroupsOf(c, *t)),
        tracker(tracker_in),
        names(std::move(n)),
        hooks(h),
        outcomes(o),
        model(ModelFor(c, s.role, groups, kNullPage.value())),
        report(run->report),
        device(run->device),
        requests(run->requests),
        passes(run->passes),
        ended(run->ended),
        settled(run->settled),
        unsettled(run->unsettled),
        copies(run->copies),
        swaps(run->swaps),
        first_latencies(run->first_latencies),
        whole_latencies(run->whole_latencies),
        batch(c.rows, WidthsOf(groups), kNullPage.value(),
              [this](uint32_t row, RequestState* r) { Bound(row, r); }),
        buffers{BuffersOf(groups, c.rows, RanksOf(c), s.first_row),
                BuffersOf(groups, c.rows, RanksOf(c), s.first_row)},
        graphs(c, s, groups),
        host(groups.size(), c.features.host_offload ? c.host_pages : 0),
        overlap_rng(Mix64(c.seed) ^ 6),
        abort_rng(Mix64(c.seed) ^ 2),
        beam_rng(Mix64(c.seed + s.first_pool) ^ 5),
        copy_rng(Mix64(c.seed + s.first_pool) ^ 7) {
    for (auto& pool : pools) {
      books.push_back(
          std::make_unique<PageBooks<TrackerT>>(std::move(pool), &tracker, &report, s.faults));
    }
    for (const KvGroup& group : groups) page_unit = std::max(page_unit, group.page_size);
  }
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  // event `admit`
  void Admit(RequestState* r) {
    r->id = RequestId(r->name, 1);
    KVF_IF_HEARD (tracker) r->id = tracker.Admit({.name = r->name, .identity = r->identity});
  }
  // event `row`
  void Bound(uint32_t row, RequestState* r) {
    if (hooks != nullptr && !hooks->OnBindRow(*surface, RowOf(row), r ? r->index : kNoRequest))
      return;
    KVF_IF_HEARD (tracker) tracker.BindRow({.row = RowOf(row), .req = r ? r->id : RequestId()});
  }
  // The first group's, for who watches.
  void Holds(const RequestState& r, PageId page, bool issued) {
    if (hooks != nullptr) hooks->OnHold(*surface, r.index, page, issued);
  }
  void Moved(const ContentMove& move) {
    if (hooks != nullptr) hooks->OnMove(*surface, move);
  }
  uint64_t ranks() const { return RanksOf(config); }
  // As the fence numbers them.
  PoolId Pool(size_t group) const { return PoolId(static_cast<uint32_t>(seat.first_pool + group)); }
  Row RowOf(uint64_t row) const { return Row(static_cast<uint32_t>(seat.first_row + row)); }
  bool Has(PoolId pool) const {
    return pool.value() >= seat.first_pool && pool.value() < seat.first_pool + groups.size();
  }
  PageBooks<TrackerT>& BooksOf(PoolId pool) { return *books[pool.value() - seat.first_pool]; }
  NameId NameOfCopy() {
    const std::string name = "x" + std::to_string(++copies);
    return names.copy ? names.copy(name) : NameId(kFirstCopyName + static_cast<uint32_t>(copies));
  }
  // The request's golden run, begun where there's none yet. One model for both engines of a run:
  // that of the one that all requests end in.
  SoloRun& GoldenOf(RequestState* r) {
    if (r->golden) return *r->golden;
    const ServedModel& last = seat.role != EngineRole::kPrefill ? *model : *peer->model;
    r->golden = last.Alone(r->salt, config.judge_raw);
    r->golden->Prefill(std::span(r->tokens).first(r->trace->input_length));
    for (uint64_t i = 0; i < r->outputs(); ++i) r->golden->Advance(r->sample);
    return *r->golden;
  }
  // Who waits in a queue, which may be long, keeps no golden run: it's begun anew. But not one
  // whose tokens aren't those of its own sample from the first on.
  void ForgetGolden(RequestState* r) {
    if (!r->other_line && !config.numeric) r->golden = nullptr;
  }
  // Of the first slots of a page as it is now; null where movers give none.
  NameId SumOf(size_t group, PageId page, uint64_t slots) const {
    if (!config.sums) return {};
    const uint64_t sum = model->SumOf(group, static_cast<uint64_t>(page.value()), slots);
    if (!names.sum) return NameId(static_cast<uint32_t>(sum >> 32) | 1);
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(sum));
    return names.sum(hex);
  }
  // May a request have to copy a page before it writes? Then what is launched must have been run,
  // so that nobody writes the page between the fence's hearing of the copy and the copy.
  bool MayCopy() const { return config.features.parallel_sampling; }
  bool one_space() const { return groups.size() > 1 && !groups[0].space.empty(); }
  // Is there nobody to be served?
  bool Idle() const {
    return waiting.empty() && running.empty() && moving.empty() && offered.empty();
  }
  bool Resting() const {
    return std::ranges::any_of(books, [](const auto& b) { return b->resting(); });
  }

  static constexpr uint32_t kFirstCopyName = 0x40000000;

  EngineConfig config;
  EngineSeat seat;
  EngineState* peer = nullptr;  // the other engine of the run
  const std::vector<TraceRequest>* trace;
  std::vector<KvGroup> groups;
  uint64_t page_unit = 1;  // tokens that are whole pages in every group
  [[no_unique_address]] TrackerT tracker;
  EngineNames names;
  FaultHooks* hooks;
  OutcomeSink* outcomes;
  FaultSurface* surface = nullptr;

  std::unique_ptr<ServedModel> model;  // with its cache
  EngineReport& report;                // these are the run's
  SimDevice& device;
  std::vector<std::unique_ptr<RequestState>>& requests;
  uint64_t& passes;
  uint64_t& ended;
  uint64_t& settled;
  uint64_t& unsettled;
  uint64_t& copies;
  uint64_t& swaps;
  std::vector<uint32_t>& first_latencies;
  std::vector<uint32_t>& whole_latencies;
  std::vector<std::unique_ptr<PageBooks<TrackerT>>> books;  // by group
  BatchTable batch;
  // By part of the model; of this step and the one before.
  std::array<std::vector<StepBuffers>, 2> buffers;
  GraphPool graphs;

  std::deque<RequestState*> waiting;
  std::vector<RequestState*> moving;   // swapped out, or waiting for copies; oldest first
  std::vector<RequestState*> running;  // oldest admission first
  std::vector<RequestState*> offered;  // oldest first
  uint64_t next_arrival = 0;
  uint64_t clock_ms = 0;
  std::array<StepInFlight, 2> flights;  // by step, even and odd
  StepInFlight* flight = &flights[0];   // that in hand: being planned, run or settled
  HostTier host;
  Rng overlap_rng;
  Rng abort_rng;
  Rng beam_rng;
  Rng copy_rng;
};

}  // namespace kvfence
