// Settling a step, in order: the tracker's word on each row, publication, and the clean-up that it
// asks for.
//
// Invariant: without a clean result of this very step for its row, no token is published and no
// page enters the index. A row may be of a request that has ended, was preempted or went back since
// the launch: a zombie's result is of no use, that of a preempted request is.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine_schedule.h"
#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class Settler {
 public:
  Settler(EngineState<TrackerT>* state, Scheduler<TrackerT>* scheduler)
      : s_(*state), scheduler_(*scheduler) {}

  // Waits for the step's confirm, and settles it. Steps are settled in the order of their launch.
  void Settle(StepInFlight* flight) {
    StepInFlight& f = *flight;
    s_.device.Wait(kComputeStream, f.confirmed);
    // Siblings copy what the step behind this one may be writing: it's run first.
    if (s_.unsettled > 1 && std::ranges::any_of(f.rows, [&](const RowInFlight& row) {
          return row.samples && !row.request->gone && scheduler_.WillFork(*row.request);
        })) {
      s_.device.Wait(kComputeStream, s_.device.LastCompute());
    }
    s_.flight = flight;
    scheduler_.Abort(AbortMoment::kBeforeRetire);
    Result<Settlement> retired(Settlement{.step = f.id});
    KVF_IF_HEARD (s_.tracker) retired = s_.tracker.Retire({.step = f.id});
    KVF_CHECK(retired.ok(), "I-47 the fence settles each launched step");
    s_.settled = f.id.value();
    --s_.unsettled;
    const Settlement& settlement = *retired;
    Judge(f, settlement);
    if (s_.outcomes != nullptr) {
      s_.outcomes->OnStep({.step = f.id,
                           .rows = outcomes_,
                           .wild_accesses = f.pass.wild_accesses,
                           .storm = settlement.storm});
    }
    if (settlement.storm) ++s_.report.storms;
    s_.report.stopped |= settlement.stop;
    for (const KeyId key : settlement.unpublish) {
      Unpublish(s_, key);
      if (s_.peer != nullptr) Unpublish(*s_.peer, key);
      scheduler_.Distrust(key);
    }
    for (const auto& [pool, page] : settlement.quarantine) {
      PageBooks<TrackerT>& books = s_.Has(pool) ? s_.BooksOf(pool) : s_.peer->BooksOf(pool);
      books.SetApart(page, s_.passes + s_.config.quarantine_steps);
    }
    for (size_t row = 0; row < f.rows.size(); ++row) Finish(f, row);
    scheduler_.Rebeam();
    if (s_.hooks != nullptr) s_.hooks->AfterRetire(*s_.surface);
  }

 private:
  static void Unpublish(EngineState<TrackerT>& engine, KeyId key) {
    for (const auto& books : engine.books) books->Unpublish(key);
  }
  // What a row costs, here and in Finish, isn't inlined into Settle: its hooks stay out of these
  // loops (ADR 53).
  [[gnu::noinline]] void Judge(const StepInFlight& f, const Settlement& settlement) {
    outcomes_.clear();
    for (size_t row = 0; row < f.rows.size(); ++row) {
      const StepRow& view = f.view[row];
      const RowInFlight& live = f.rows[row];
      outcomes_.push_back({.row = view.row,
                           .request = view.request,
                           .id = view.id,
                           .sampled = view.publishes,
                           .published = true,
                           .withdrawn = live.request->gone || live.request->epoch != live.epoch});
    }
    KVF_IF_HEARD (s_.tracker) {
      for (RowOutcome& outcome : outcomes_) outcome.published = false;
    }
    for (const RowResult& result : settlement.rows) {
      const uint64_t row = result.row.value() - s_.seat.first_row;
      if (row >= outcomes_.size()) continue;  // padding
      RowOutcome& outcome = outcomes_[row];
      outcome.reasons = result.reasons;
      outcome.good_prefix = result.good_prefix;
      outcome.published = result.published && result.req == outcome.id;
    }
    for (size_t row = 0; row < f.rows.size(); ++row) {
      RowOutcome& outcome = outcomes_[row];
      if (outcome.withdrawn) outcome.published = false;
      if (s_.config.ground_truth && !outcome.withdrawn) Compare(f, row, &outcome);
    }
  }

  // What the row computed against the request's golden run.
  void Compare(const StepInFlight& f, size_t row, RowOutcome* outcome) {
    if (!outcome->sampled && !s_.config.judge_raw) return;
    RequestState* r = f.rows[row].request;
    SoloRun& golden = s_.GoldenOf(r);
    const std::span<const uint64_t> results = f.pass.Of(row);
    right_.clear();
    if (!outcome->sampled) {
      right_.push_back(golden.ResultAt(f.view[row].length_before + f.view[row].new_tokens));
    } else if (results.size() == 1) {
      right_.push_back(golden.Result());
    } else {
      golden.Ahead(results.size(), r->sample, &right_);
    }
    outcome->token_wrong = !std::ranges::equal(results, right_);
    outcome->raw_wrong = s_.config.judge_raw ? !std::ranges::equal(f.raw_pass.Of(row), right_)
                                             : outcome->token_wrong;
  }

  [[gnu::noinline]] void Finish(const StepInFlight& f, size_t row) {
    const RowInFlight& live = f.rows[row];
    const RowOutcome& outcome = outcomes_[row];
    RequestState* r = live.request;
    --r->flights;
    if (r->gone) {
      if (r->flights == 0) s_.requests[r->index].reset();
      return;
    }
    if (live.epoch != r->epoch) return;
    const bool here = r->id == outcome.id;  // else it was preempted since
    if (here) {
      r->launched -= live.plan.tokens;
      r->sure -= live.plan.known();
      r->pending -= live.samples ? 1 : 0;
    }
    const std::span<const uint64_t> results = f.pass.Of(row);
    if (!outcome.published) {
      if (outcome.sampled) ++s_.report.tokens_withheld;
      if (here) Fail(f, row, results.size(), outcome);
      return;
    }
    if (here) Grow(f, row, results.size());
    if (outcome.sampled) Publish(r, results, outcome.token_wrong);
    if (here) scheduler_.Advance(r);
    if (r->done()) scheduler_.End(r, EndKind::kFinished);
  }

  void Fail(const StepInFlight& f, size_t row, uint64_t results, const RowOutcome& outcome) {
    RequestState* r = f.rows[row].request;
    if (s_.config.policy == Policy::kRecompute && r->recomputes < s_.config.most_recomputes) {
      ++r->recomputes;
      ++s_.report.recomputes;
      // The step behind it was built on a length that the device alone knew: that's said first.
      if (r->launched > 0) Grow(f, row, results);
      scheduler_.Rewind(r, outcome.good_prefix);
    } else {
      scheduler_.End(r, EndKind::kFenced);
    }
  }

  // The tokens of the step are in the cache: those that were known, and the right guesses.
  void Grow(const StepInFlight& f, size_t row, uint64_t results) {
    const RowInFlight& live = f.rows[row];
    live.request->computed += live.plan.known();
    if (live.plan.guesses > 0) GrowByGuesses(f, live, results - 1);
  }
  [[gnu::noinline]] void GrowByGuesses(const StepInFlight& f, const RowInFlight& live,
                                       uint64_t right) {
    RequestState* r = live.request;
    r->computed += right;
    s_.report.guesses += live.plan.guesses;
    s_.report.guesses_right += right;
    if (right == live.plan.guesses) return;
    KVF_IF_HEARD (s_.tracker) {
      TrimEvent trim{.req = r->id, .tokens = r->computed};
      if (s_.config.features.overlapped) trim.step = f.id;
      s_.tracker.Trim(trim);
    }
  }

  void Publish(RequestState* r, std::span<const uint64_t> results, bool wrong) {
    uint64_t tokens = 0;
    if (r->outputs() == 0) tokens += scheduler_.ForkSiblings(r, results.front());
    for (const uint64_t result : results) {
      if (r->done()) break;  // guessed right beyond its end
      ++tokens;
      const uint32_t token = s_.model->TokenOf(result, r->sample);
      if (wrong && token != s_.model->TokenOf(r->golden->Result(), r->sample)) {
        ++s_.report.other_tokens;
      }
      r->tokens.push_back(token);
      if (r->golden) r->golden->Advance(r->sample);
    }
    s_.report.tokens_published += tokens;
    r->recomputes = 0;
    if (wrong) s_.report.wrong_tokens += tokens;
    if (!r->first_token_step) r->first_token_step = s_.passes;
  }

  EngineState<TrackerT>& s_;
  Scheduler<TrackerT>& scheduler_;
  std::vector<RowOutcome> outcomes_;
  std::vector<uint64_t> right_;
};

}  // namespace kvfence
