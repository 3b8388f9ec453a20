// Launching a step: rows and tables are written, and the pass is queued on the device.
//
// Order, with the fence's calls in brackets: rows bound, host table, upload, [step], attention,
// [confirm]. Upload to confirm are operations of the compute stream; other streams' work falls
// between them. What only the device knows when the host launches (the token and, with
// speculation, the length that the step before came to) is taken there by the upload. Invariant
// I-114: the fence hears of a step before it hears of anything that the host does behind it.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine_schedule.h"
#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class StepRunner {
 public:
  StepRunner(EngineState<TrackerT>* state, Scheduler<TrackerT>* scheduler)
      : s_(*state), scheduler_(*scheduler) {}

  // The step is queued when this returns; its upload and [step] are done when `validated` is.
  void Launch(StepInFlight* f, std::span<RequestState* const> scheduled) {
    Begin(f, scheduled);
    Queue(f);
  }
  // If a graph is wanted, the pass that captures it: padded rows only. False: none is.
  bool LaunchCapture(StepInFlight* f) {
    CapturedGraph* graph = s_.graphs.TakeWanted(s_.report.steps + 1);
    if (graph == nullptr) return false;
    ++s_.report.graphs_captured;
    Number(f);
    f->rows.clear();
    f->order.clear();
    f->graph = graph;
    f->buffers = graph->buffers;
    Pad(f, graph->bucket);
    if (s_.hooks != nullptr) s_.hooks->AfterPlan(*s_.surface);
    if (s_.hooks != nullptr) s_.hooks->BeforeUpload(*s_.surface);
    Queue(f);
    return true;
  }

 private:
  void Queue(StepInFlight* f) {
    untold_ = true;
    SimDevice& device = s_.device;
    device.SetClock(f->id.value());
    device.Enqueue(kComputeStream, [this, f] { Upload(f); });
    f->validated = device.Enqueue(kComputeStream, [this, f] { Validate(f); });
    f->attended = device.Enqueue(kComputeStream, [this, f] { Attend(f); });
    f->confirmed = device.Enqueue(kComputeStream, [this, f] { Confirm(f); });
  }
  void Number(StepInFlight* f) {
    f->id = StepId(++s_.report.steps);
    ++s_.unsettled;
    f->view.clear();
    f->pads.clear();
    f->dropped.clear();
    f->raw.clear();  // the last step's: hooks before validate must not reach into it
  }

  // Host side: rows, the view of the step, the host's table.
  void Begin(StepInFlight* flight, std::span<RequestState* const> scheduled) {
    StepInFlight& f = *flight;
    Number(flight);
    s_.batch.Assign(scheduled);
    f.rows.resize(scheduled.size());
    f.order.clear();
    for (RequestState* r : scheduled) {
      f.rows[r->row] = Launched(r);
      f.order.push_back(r->row);
    }
    for (const RowInFlight& row : f.rows) f.view.push_back(View(row));
    Pad(flight, Bucket(f.rows.size()));
    f.graph = Uniform(f) && !MaySharePrefix(f) ? s_.graphs.ForBatch(f.view.size(), f.id.value())
                                               : nullptr;
    f.buffers = f.graph != nullptr ? f.graph->buffers : s_.buffers[f.id.value() % 2];
    if (f.graph != nullptr) ++s_.report.graphs_replayed;
    if (s_.hooks != nullptr) s_.hooks->AfterPlan(*s_.surface);
    for (const RowInFlight& row : f.rows) s_.batch.WriteNewPages(*row.request);
    if (s_.hooks != nullptr) s_.hooks->BeforeUpload(*s_.surface);
    s_.report.rows += f.rows.size();
    s_.report.pad_rows += f.pads.size();
  }

  void Pad(StepInFlight* f, uint64_t padded) {
    for (uint64_t row = f->view.size(); row < padded; ++row) {
      f->pads.push_back(s_.RowOf(row));
      f->view.push_back({.row = f->pads.back(), .new_tokens = 1, .reach = Reach(0, 0)});
    }
  }
  // As many new tokens in each row as graphs are captured for?
  bool Uniform(const StepInFlight& f) const {
    return s_.graphs.on() && std::ranges::all_of(f.rows, [&](const RowInFlight& row) {
             return row.plan.tokens == s_.graphs.tokens();
           });
  }
  // A batch with a shared-prefix table isn't replayed.
  bool MaySharePrefix(const StepInFlight& f) const { return CommonPages(f) > 0; }

  // The request's part in the step, and the step's in the request.
  RowInFlight Launched(RequestState* r) {
    RowInFlight row{.request = r, .epoch = r->epoch};
    row.base = r->base();
    row.known = r->launched == 0 || !s_.config.features.speculative;
    row.token_known = r->pending == 0;
    row.plan = std::exchange(r->plan, StepShare{});
    row.samples = r->samples_after(row.plan);
    r->launched += row.plan.tokens;
    r->sure += row.plan.known();
    r->pending += row.samples ? 1 : 0;
    ++r->flights;
    return row;
  }

  StepRow View(const RowInFlight& row) {
    const uint64_t end = row.base + row.plan.tokens;
    const uint64_t covered = PagesFor(end, s_.groups[0].page_size);
    for (const KvGroup& group : s_.groups) {
      s_.report.entries_read +=
          PagesFor(end, group.page_size) - FirstRead(row.base, group.window) / group.page_size;
    }
    s_.report.tokens_computed += row.plan.tokens;
    if (row.plan.tokens > 1) ++s_.report.prefill_rows;
    return {.row = s_.RowOf(row.request->row),
            .request = row.request->index,
            .id = row.request->id,
            .length_before = row.base,
            .new_tokens = row.plan.tokens,
            .covered = covered,
            .reach = Reach(covered, 0),
            .publishes = row.samples};
  }
  uint64_t Reach(uint64_t covered, size_t group) const {
    const uint64_t tile = std::max<uint64_t>(s_.config.reach_tile, 1);
    return std::min((covered + tile - 1) / tile * tile, s_.batch.width(group));
  }
  uint64_t Bucket(uint64_t live) const {
    if (!s_.config.features.padded_batches) return live;
    for (const uint64_t bucket : s_.config.buckets) {
      if (bucket >= live) return std::min(bucket, s_.config.rows);
    }
    return live;
  }

  // Copies the host's tables; derives slots, as engines do, from the host's table.
  void Upload(StepInFlight* flight) {
    UploadTables(flight);
    ShareFirstEntries(flight);
  }
  void UploadTables(StepInFlight* flight) {
    StepInFlight& f = *flight;
    s_.flight = flight;
    if (f.graph != nullptr && s_.hooks != nullptr) f.before = f.graph->buffers[0].table;
    for (size_t row = 0; row < f.rows.size(); ++row) {
      if (!f.rows[row].known) FromDevice(&f.rows[row], &f.view[row]);
    }
    for (size_t part = 0; part < f.buffers.size(); ++part) {
      const size_t g = part % s_.groups.size();
      StepBuffers& b = f.buffers[part];
      b.rows = f.view.size();
      b.live = f.rows.size();
      b.order = s_.config.features.early_publish ? std::span<const uint32_t>(f.order)
                                                 : std::span<const uint32_t>();
      b.slots.clear();
      b.own.clear();
      b.starts[0] = 0;
      for (uint64_t row = 0; row < b.rows; ++row) {
        const uint64_t ahead = row < b.live && s_.groups[g].draft ? f.rows[row].plan.ahead : 0;
        UploadRow(f.view[row], row, ahead, g, &b);
        if (row < b.live) {
          const RowInFlight& live = f.rows[row];
          PushOwn(live.request->lists[g].pages, row, g, &b);
          PushSlots(f.view[row].length_before, live.plan.tokens + ahead, s_.batch.Row(row, g),
                    s_.groups[g].page_size, &b);
          b.inputs[row] = InputOf(live);
        } else {
          b.slots.push_back(-1);
          b.inputs[row] = {};
        }
        b.own_at[row + 1] = static_cast<uint32_t>(b.own.size());
        b.starts[row + 1] = static_cast<int32_t>(b.slots.size());
      }
    }
    if (f.graph != nullptr) PlanReplay(flight);
  }
  // Attention's plan for this step; a pass without requests captures the launch.
  void PlanReplay(StepInFlight* f) {
    for (size_t part = 0; part < f->buffers.size(); ++part) {
      f->buffers[part].PlanAnew(f->id.value(), s_.groups[part % s_.groups.size()].page_size);
    }
    s_.graphs.Fix(f->graph);
    if (f->rows.empty()) s_.graphs.Capture(f->graph);
  }

  // The whole pages before their new tokens that all rows have in common.
  uint64_t CommonPages(const StepInFlight& f) const {
    if (!s_.config.features.cascade || f.rows.size() < 2) return 0;
    uint64_t common = ~uint64_t{0};
    const std::vector<PageId>& first = f.rows[0].request->lists[0].pages;
    for (size_t row = 0; row < f.rows.size(); ++row) {
      const std::vector<PageId>& pages = f.rows[row].request->lists[0].pages;
      common = std::min(common, f.view[row].length_before / s_.groups[0].page_size);
      const auto end = std::mismatch(first.begin(), first.end(), pages.begin(), pages.end());
      common = std::min(common, static_cast<uint64_t>(end.first - first.begin()));
    }
    return common;
  }
  // They're read through one table: what the first row's on the device names.
  void ShareFirstEntries(StepInFlight* f) {
    const uint64_t common = f->graph == nullptr ? CommonPages(*f) : 0;
    f->live.clear();
    for (StepRow& row : f->view) {
      if (row.request == kNoRequest) continue;
      row.shared = common;
      if (common > 0) f->live.push_back(row.row);
    }
    for (size_t part = 0; part < f->buffers.size(); part += s_.groups.size()) {
      const std::span<const int32_t> table = std::as_const(f->buffers[part]).TableRow(0);
      f->buffers[part].prefix.assign(table.begin(), table.begin() + static_cast<int64_t>(common));
      s_.report.prefix_entries += common;
    }
  }

  // How much of what the step before guessed was right, the device knows.
  void FromDevice(RowInFlight* row, StepRow* view) {
    row->base = row->request->device_length;
    view->length_before = row->base;
    view->covered = PagesFor(row->base + row->plan.tokens, s_.groups[0].page_size);
    view->reach = Reach(view->covered, 0);
  }
  RowInput InputOf(const RowInFlight& row) const {
    const RequestState& r = *row.request;
    RowInput input{.tokens = row.token_known ? r.tokens.data() + row.base : &r.device_token,
                   .salt = r.salt};
    input.sample = r.sample;
    input.guesses = static_cast<uint32_t>(row.plan.guesses);
    input.guess_seed = Mix64(s_.config.seed ^ r.index);
    input.guess_per_cent = static_cast<uint32_t>(s_.config.accept_per_cent);
    return input;
  }

  void UploadRow(const StepRow& view, uint64_t row, uint64_t ahead, size_t group, StepBuffers* b) {
    const uint64_t length = view.request == kNoRequest ? 0 : view.length_before + view.new_tokens;
    const uint64_t reach = group == 0
                               ? view.reach
                               : Reach(PagesFor(length + ahead, s_.groups[group].page_size), group);
    const uint64_t n = std::max<uint64_t>(b->filled[row], reach);
    if (b->live == 0) {  // a pass without requests: the host's row may be somebody's
      std::fill_n(b->TableRow(row).begin(), n, static_cast<int32_t>(kNullPage.value()));
    } else {
      std::memcpy(b->TableRow(row).data(), s_.batch.Row(row, group).data(), n * sizeof(int32_t));
    }
    // Pages that the row has in store stand behind its reach, and were copied if n says so.
    b->filled[row] =
        static_cast<uint32_t>(std::max(reach, std::min<uint64_t>(n, s_.batch.touched(row, group))));
    b->reach[row] = reach;
    b->lengths[row] = static_cast<int32_t>(length);
  }

  void PushOwn(const std::vector<PageId>& pages, uint64_t row, size_t group, StepBuffers* b) const {
    b->own_from[row] = PagesFor(static_cast<uint64_t>(b->lengths[row]), s_.groups[group].page_size);
    const uint64_t end = std::min<uint64_t>(pages.size(), b->reach[row]);
    for (uint64_t k = b->own_from[row]; k < end; ++k) {
      b->own.push_back(static_cast<int32_t>(pages[k].value()));
    }
  }

  static void PushSlots(uint64_t begin, uint64_t n, std::span<const int32_t> table, uint64_t size,
                        StepBuffers* b) {
    uint64_t k = begin / size;
    uint64_t offset = begin % size;
    while (n > 0) {
      const uint64_t run = std::min(n, size - offset);
      const int64_t first =
          int64_t{table[k]} * static_cast<int64_t>(size) + static_cast<int64_t>(offset);
      for (uint64_t i = 0; i < run; ++i) b->slots.push_back(first + static_cast<int64_t>(i));
      n -= run;
      offset = 0;
      ++k;
    }
  }

  void Validate(StepInFlight* flight) {
    StepInFlight& f = *flight;
    s_.flight = flight;
    if (s_.hooks != nullptr) s_.hooks->BeforeValidate(*s_.surface);
    if (s_.config.judge_raw) f.raw.assign(f.buffers.begin(), f.buffers.end());
    untold_ = false;
    KVF_IF_HEARD (s_.tracker) {
      Describe(flight);
      SplitParts(flight);
      for (uint32_t rank = 0; rank < s_.ranks(); ++rank) {
        const auto own = std::ranges::find(f.parts, rank, &RankPart::rank);
        const RankPart* part = own != f.parts.end() ? &*own : nullptr;
        const size_t first = rank * s_.groups.size();
        const std::vector<Row>& live = part != nullptr ? part->live : f.live;
        const PrefixPlan prefix{.rows = live, .table = f.buffers[first].prefix, .pool = s_.Pool(0)};
        s_.tracker.Step({.step = f.id,
                         .rank = RankId(rank),
                         .rows = part != nullptr ? part->plans : f.plans,
                         .pads = part != nullptr ? part->pads : f.pads,
                         .prefix = {&prefix, live.empty() ? 0u : 1u},
                         .pools = std::span(f.pools).subspan(first, s_.groups.size())});
      }
    }
  }
  // What the fence is told of the step: the plan of each row, the arrays by part of the model.
  void Describe(StepInFlight* flight) {
    StepInFlight& f = *flight;
    f.plans.clear();
    for (size_t row = 0; row < f.rows.size(); ++row) f.plans.push_back(Plan(f, row));
    f.pools.clear();
    if (f.graph != nullptr) {
      f.pools = f.graph->launch;
      return;
    }
    for (size_t part = 0; part < f.buffers.size(); ++part) {
      f.pools.push_back(f.buffers[part].View());
      f.pools.back().pool = s_.Pool(part % s_.groups.size());
    }
  }
  // What ranks are told that lack a row.
  void SplitParts(StepInFlight* f) {
    f->parts.clear();
    for (const auto& [rank, row] : f->dropped) {
      auto part = std::ranges::find(f->parts, rank.value(), &RankPart::rank);
      if (part == f->parts.end()) {
        part = f->parts.insert(part, RankPart{rank.value(), f->plans, f->pads, f->live});
      }
      std::erase_if(part->plans,
                    [dropped = row](const RowPlan& plan) { return plan.row == dropped; });
      std::erase(part->live, row);
      part->pads.push_back(row);
    }
  }
  static RowPlan Plan(const StepInFlight& f, size_t row) {
    const StepRow& view = f.view[row];
    RowPlan plan{.row = view.row, .req = view.id, .new_tokens = view.new_tokens};
    plan.reach = view.reach;
    plan.draft = f.rows[row].plan.ahead;
    if (!f.rows[row].known) plan.base = f.rows[row].base;
    if (f.rows[row].told) plan.req = f.rows[row].told;
    if (f.graph != nullptr) {
      uint64_t epoch = f.id.value();
      for (const StepBuffers& b : f.buffers) epoch = std::min(epoch, b.planned_for);
      plan.table_epoch = StepId(epoch);
      plan.table_changed = f.id;  // it counts pages by length, and each step makes rows longer
    }
    return plan;
  }

  void Attend(StepInFlight* flight) {
    StepInFlight& f = *flight;
    s_.flight = flight;
    if (s_.hooks != nullptr) s_.hooks->BetweenValidateAndAttention(*s_.surface);
    if (!untold_) scheduler_.Abort(AbortMoment::kDuringAttention);
    // What would happen without the fence, on trial.
    if (s_.config.judge_raw) s_.model->Try(f.raw, &f.raw_pass);
    s_.model->Run(f.buffers, &f.pass);
    s_.report.wild_accesses += f.pass.wild_accesses;
    if (!s_.config.features.overlapped) return;
    for (size_t row = 0; row < f.rows.size(); ++row) {
      RequestState& r = *f.rows[row].request;
      const std::span<const uint64_t> results = f.pass.Of(row);
      r.device_length = f.rows[row].base + f.rows[row].plan.known() + results.size() - 1;
      r.device_token = s_.model->TokenOf(results.back(), r.sample);
    }
  }

  void Confirm(StepInFlight* flight) {
    s_.flight = flight;
    if (s_.hooks != nullptr) s_.hooks->AfterAttention(*s_.surface);
    for (uint32_t rank = 0; rank < s_.ranks(); ++rank) {
      if (s_.hooks != nullptr && !s_.hooks->OnConfirm(*s_.surface, RankId(rank))) continue;
      KVF_IF_HEARD (s_.tracker) s_.tracker.Confirm({.step = flight->id, .rank = RankId(rank)});
    }
  }

  EngineState<TrackerT>& s_;
  Scheduler<TrackerT>& scheduler_;
  bool untold_ = false;  // a step is queued of which the fence hasn't heard yet
};

}  // namespace kvfence
