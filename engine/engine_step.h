// One step: rows and tables are written, the device runs the pass, the host settles it.
//
// Order, with the fence's calls in brackets: rows bound, host table, upload, [step], attention,
// [confirm], [retire], then publication and what the settlement asks for. Upload to confirm are
// operations of the compute stream; other streams' work falls between them. Invariant: without a
// clean result of this very step for its row, no token is published and no page enters the index.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine_schedule.h"
#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class StepRunner {
 public:
  StepRunner(EngineState<TrackerT>* state, Scheduler<TrackerT>* scheduler)
      : s_(*state), scheduler_(*scheduler) {}

  void Run(std::vector<RequestState*>* scheduled) {
    Begin(scheduled);
    const SimDevice::Ticket done = Launch();
    s_.device.Wait(kComputeStream, done);
    scheduler_.Abort(AbortMoment::kBeforeRetire);
    Settle();
    if (s_.hooks != nullptr) s_.hooks->AfterRetire(*s_.surface);
  }

 private:
  // Host side: rows, the view of the step, the host's table.
  void Begin(std::vector<RequestState*>* scheduled) {
    StepInFlight& f = s_.flight;
    f.id = StepId(++s_.report.steps);
    f.buffers = &s_.buffers[f.id.value() % 2];
    f.raw.reset();  // the last step's: hooks before validate must not reach into it
    s_.batch.Assign(*scheduled);
    f.rows.resize(scheduled->size());
    for (RequestState* r : *scheduled) f.rows[r->row] = r;
    f.view.clear();
    f.pads.clear();
    for (const RequestState* r : f.rows) f.view.push_back(View(*r));
    const uint64_t padded = Bucket(f.rows.size());
    for (uint64_t row = f.rows.size(); row < padded; ++row) {
      f.pads.push_back(Row(static_cast<uint32_t>(row)));
      f.view.push_back({.row = f.pads.back(), .new_tokens = 1, .reach = Reach(0)});
    }
    if (s_.hooks != nullptr) s_.hooks->AfterPlan(*s_.surface);
    for (const RequestState* r : f.rows) s_.batch.WriteNewPages(*r);
    if (s_.hooks != nullptr) s_.hooks->BeforeUpload(*s_.surface);
    s_.report.rows += f.rows.size();
    s_.report.pad_rows += f.pads.size();
  }

  StepRow View(const RequestState& r) {
    const uint64_t covered = s_.PagesFor(r.computed + r.planned);
    s_.report.entries_read += covered;
    s_.report.tokens_computed += r.planned;
    if (r.planned > 1) ++s_.report.prefill_rows;
    return {.row = Row(r.row),
            .request = r.index,
            .id = r.id,
            .length_before = r.computed,
            .new_tokens = r.planned,
            .covered = covered,
            .reach = Reach(covered),
            .publishes = r.samples_after(r.planned)};
  }
  uint64_t Reach(uint64_t covered) const {
    const uint64_t tile = std::max<uint64_t>(s_.config.reach_tile, 1);
    return std::min((covered + tile - 1) / tile * tile, s_.batch.width());
  }
  uint64_t Bucket(uint64_t live) const {
    if (!s_.config.pad_batches) return live;
    for (const uint64_t bucket : s_.config.buckets) {
      if (bucket >= live) return std::min(bucket, s_.config.rows);
    }
    return live;
  }

  SimDevice::Ticket Launch() {
    SimDevice& device = s_.device;
    device.SetClock(s_.flight.id.value());
    device.Enqueue(kComputeStream, [this] { Upload(); });
    device.Enqueue(kComputeStream, [this] { Validate(); });
    device.Enqueue(kComputeStream, [this] { Attend(); });
    return device.Enqueue(kComputeStream, [this] { Confirm(); });
  }

  // Copies the host's tables; derives slots, as engines do, from the host's table.
  void Upload() {
    StepInFlight& f = s_.flight;
    StepBuffers& b = *f.buffers;
    b.rows = f.view.size();
    b.live = f.rows.size();
    b.slots.clear();
    b.starts[0] = 0;
    for (uint64_t row = 0; row < b.rows; ++row) {
      UploadRow(f.view[row], row, &b);
      if (row < b.live) {
        const RequestState& r = *f.rows[row];
        PushSlots(f.view[row], s_.batch.Row(row), &b);
        b.inputs[row] = {r.tokens.data() + r.computed, r.salt};
      } else {
        b.slots.push_back(-1);
        b.inputs[row] = {nullptr, 0};
      }
      b.starts[row + 1] = static_cast<int32_t>(b.slots.size());
    }
  }

  void UploadRow(const StepRow& view, uint64_t row, StepBuffers* b) {
    const uint64_t n = std::max<uint64_t>(b->filled[row], view.reach);
    std::memcpy(b->TableRow(row).data(), s_.batch.Row(row).data(), n * sizeof(int32_t));
    b->filled[row] = static_cast<uint32_t>(view.reach);
    b->reach[row] = view.reach;
    b->lengths[row] =
        view.request == kNoRequest ? 0 : static_cast<int32_t>(view.length_before + view.new_tokens);
  }

  void PushSlots(const StepRow& view, std::span<const int32_t> table, StepBuffers* b) {
    const uint64_t size = s_.config.page_size;
    uint64_t k = view.length_before / size;
    uint64_t offset = view.length_before % size;
    uint64_t left = view.new_tokens;
    while (left > 0) {
      const uint64_t run = std::min(left, size - offset);
      const int64_t first =
          int64_t{table[k]} * static_cast<int64_t>(size) + static_cast<int64_t>(offset);
      for (uint64_t i = 0; i < run; ++i) b->slots.push_back(first + static_cast<int64_t>(i));
      left -= run;
      offset = 0;
      ++k;
    }
  }

  void Validate() {
    StepInFlight& f = s_.flight;
    if (s_.hooks != nullptr) s_.hooks->BeforeValidate(*s_.surface);
    if (s_.config.judge_raw) f.raw = *f.buffers;
    if constexpr (TrackerT::kTracks) {
      if (s_.Fenced()) Describe(&f);
    }
    s_.tracker.Step({.step = f.id, .rows = f.plans, .pads = f.pads, .pools = f.pools});
  }

  // What the fence is told of the step; an absent one costs no more than the question.
  void Describe(StepInFlight* f) {
    f->plans.clear();
    for (size_t row = 0; row < f->rows.size(); ++row) {
      const StepRow& view = f->view[row];
      RowPlan plan{.row = view.row, .req = view.id, .new_tokens = view.new_tokens};
      plan.reach = view.reach;
      f->plans.push_back(plan);
    }
    f->pools[0] = f->buffers->View();
  }

  void Attend() {
    StepInFlight& f = s_.flight;
    if (s_.hooks != nullptr) s_.hooks->BetweenValidateAndAttention(*s_.surface);
    scheduler_.Abort(AbortMoment::kDuringAttention);
    if (s_.config.judge_raw) {
      // What would happen without the fence, on trial.
      UndoLog undo;
      s_.pass.Run(*f.raw, &f.raw_pass, &undo);
      s_.kv.Undo(undo);
    }
    s_.pass.Run(*f.buffers, &f.pass);
    s_.report.wild_accesses += f.pass.wild_accesses;
  }

  void Confirm() {
    if (s_.hooks != nullptr) s_.hooks->AfterAttention(*s_.surface);
    s_.tracker.Confirm({.step = s_.flight.id});
  }

  // The device's word is in: publish, end, clean up.
  void Settle() {
    StepInFlight& f = s_.flight;
    Result<Settlement> retired = s_.tracker.Retire({.step = f.id});
    KVF_CHECK(retired.ok(), "I-47 the fence settles each launched step");
    const Settlement& settlement = *retired;
    Judge(settlement);
    if (s_.outcomes != nullptr) {
      s_.outcomes->OnStep({.step = f.id,
                           .rows = outcomes_,
                           .wild_accesses = f.pass.wild_accesses,
                           .storm = settlement.storm});
    }
    if (settlement.storm) ++s_.report.storms;
    s_.report.stopped |= settlement.stop;
    for (const KeyId key : settlement.unpublish) s_.books.Unpublish(key);
    for (const auto& [pool, page] : settlement.quarantine) {
      s_.books.SetApart(page, s_.passes + s_.config.quarantine_steps);
    }
    FinishRows();
  }

  // Out of line: what a fence may ask for above doesn't weigh on this loop (I-142).
  [[gnu::noinline]] void FinishRows() {
    const std::vector<RequestState*>& rows = s_.flight.rows;
    for (size_t row = 0; row < rows.size(); ++row) Finish(rows[row], outcomes_[row]);
  }

  void Judge(const Settlement& settlement) {
    StepInFlight& f = s_.flight;
    const bool fenced = s_.Fenced();
    outcomes_.clear();
    for (size_t row = 0; row < f.rows.size(); ++row) {
      const StepRow& view = f.view[row];
      outcomes_.push_back({.row = view.row,
                           .request = view.request,
                           .id = view.id,
                           .sampled = view.publishes,
                           .published = !fenced,
                           .withdrawn = f.rows[row]->gone});
    }
    for (const RowResult& result : settlement.rows) {
      if (result.row.value() >= outcomes_.size()) continue;  // padding
      RowOutcome& outcome = outcomes_[result.row.value()];
      outcome.reasons = result.reasons;
      outcome.good_prefix = result.good_prefix;
      outcome.published = result.published && result.req == outcome.id;
    }
    for (size_t row = 0; row < f.rows.size(); ++row) {
      RowOutcome& outcome = outcomes_[row];
      if (outcome.withdrawn) outcome.published = false;
      if (s_.config.ground_truth) Compare(f.rows[row], f.view[row], &outcome);
    }
  }

  // What the row computed against the request's golden run.
  void Compare(RequestState* r, const StepRow& view, RowOutcome* outcome) {
    if (!outcome->sampled && !s_.config.judge_raw) return;
    if (!r->golden) {
      r->golden.emplace(&s_.weights, r->salt, s_.config.judge_raw);
      r->golden->Prefill(std::span(r->tokens).first(r->trace->input_length));
    }
    const size_t row = view.row.value();
    const uint64_t right = outcome->sampled
                               ? r->golden->Result()
                               : r->golden->ResultAt(view.length_before + view.new_tokens);
    outcome->token_wrong = s_.flight.pass.results[row] != right;
    outcome->raw_wrong =
        s_.config.judge_raw ? s_.flight.raw_pass.results[row] != right : outcome->token_wrong;
  }

  void Finish(RequestState* r, const RowOutcome& outcome) {
    if (r->gone) {
      s_.requests[r->index].reset();
      return;
    }
    if (!outcome.published) {
      if (outcome.sampled) ++s_.report.tokens_withheld;
      r->planned = 0;
      if (s_.config.policy == Policy::kRecompute && r->recomputes < kMostRecomputes) {
        ++r->recomputes;
        ++s_.report.recomputes;
        scheduler_.Rewind(r, outcome.good_prefix);
      } else {
        scheduler_.End(r, EndKind::kFenced);
      }
      return;
    }
    r->computed += std::exchange(r->planned, 0);
    if (outcome.sampled) {
      r->tokens.push_back(TokenOf(s_.flight.pass.results[outcome.row.value()]));
      ++s_.report.tokens_published;
      if (outcome.token_wrong) ++s_.report.wrong_tokens;
      if (r->golden) r->golden->Advance();
      if (!r->first_token_step) r->first_token_step = s_.passes;
    }
    scheduler_.PublishPages(r);
    if (r->done()) scheduler_.End(r, EndKind::kFinished);
  }

  static constexpr uint64_t kMostRecomputes = 3;

  EngineState<TrackerT>& s_;
  Scheduler<TrackerT>& scheduler_;
  std::vector<RowOutcome> outcomes_;
};

}  // namespace kvfence
