// The scheduler: who is admitted, who gets pages, who is preempted, and how a request ends.
//
// In the manner of vLLM v1: running requests first, each with as many new tokens as budget and
// chunk size allow; a request that needs pages when none are left preempts the newest running one,
// which gives up everything and is computed again later; waiting requests are admitted in order
// while pages last. Invariant: the fence hears admit, share, alloc, row, release and free in the
// order in which the books change.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine_pages.h"
#include "engine_prefix.h"
#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class Scheduler {
 public:
  explicit Scheduler(EngineState<TrackerT>* state) : s_(*state), pages_(state), prefix_(state) {}

  // Requests whose time has come enter the queue.
  void Arrive() {
    const std::vector<TraceRequest>& trace = *s_.trace;
    if (s_.config.ms_per_step > 0 && s_.waiting.empty() && s_.running.empty() &&
        s_.next_arrival < trace.size()) {
      s_.clock_ms = std::max(s_.clock_ms, trace[s_.next_arrival].timestamp_ms);
    }
    while (s_.next_arrival < trace.size()) {
      const TraceRequest& next = trace[s_.next_arrival];
      const bool due = s_.config.ms_per_step > 0 ? next.timestamp_ms <= s_.clock_ms
                                                 : s_.waiting.size() < 2 * s_.config.rows;
      if (!due) break;
      Enter(next, static_cast<RequestIndex>(s_.next_arrival++));
    }
    s_.clock_ms += s_.config.ms_per_step;
  }

  // Aborts of this moment. In a step, only its rows are looked at.
  void Abort(AbortMoment moment) {
    if (s_.config.abort_per_mille == 0) return;
    std::vector<RequestState*> aborted;
    for (RequestState* r : s_.running) {
      if (r->will_abort && r->abort_moment == moment && r->computed + r->planned >= r->abort_at) {
        aborted.push_back(r);
      }
    }
    for (RequestState* r : s_.waiting) {
      if (moment == AbortMoment::kBetweenSteps && r->will_abort && r->abort_at == 0) {
        aborted.push_back(r);
      }
    }
    for (RequestState* r : aborted) End(r, EndKind::kAborted);
  }

  // Chooses the step's requests and their new tokens; gets them pages. Empty: nothing can run.
  void Plan(std::vector<RequestState*>* scheduled) {
    uint64_t budget = s_.config.token_budget;
    bool pressed = false;
    for (size_t i = 0; i < s_.running.size() && budget > 0; ++i) {
      RequestState* r = s_.running[i];
      const uint64_t n = NewTokens(*r, budget);
      if (!MakeRoom(r, r->computed + n, &pressed)) break;
      Schedule(r, n, &budget, scheduled);
    }
    while (!pressed && budget > 0 && !s_.waiting.empty() && s_.running.size() < s_.config.rows) {
      RequestState* r = s_.waiting.front();
      const uint64_t n = TryAdmit(r, budget);
      if (n == 0) break;
      Schedule(r, n, &budget, scheduled);
    }
    // Alone in the queue, nothing running, and still no room: it never will fit.
    if (scheduled->empty() && s_.running.empty() && !s_.waiting.empty() && !s_.Resting()) {
      End(s_.waiting.front(), EndKind::kRejected);
    }
  }

  // What settled steps have filled enters the index, and what windows have left behind goes back.
  void Advance(RequestState* r) {
    prefix_.Publish(r);
    pages_.Slide(r);
  }

  // Back to the head of the queue: all is computed again (preemption by recompute).
  void Preempt(RequestState* r) {
    const RequestId id = r->id;
    GiveUp(r);
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, EndKind::kPreempted);
    std::erase(s_.running, r);
    s_.waiting.push_front(r);
  }

  // What follows `tokens`, whole pages from the start, is computed again, into fresh pages and from
  // a row bound anew: a failed row stays failed, and its table may be what was wrong.
  void Rewind(RequestState* r, uint64_t tokens) {
    r->computed = pages_.Resumable(*r, tokens);
    s_.batch.Clear(r);
    s_.tracker.Trim({.req = r->id, .tokens = r->computed});
    pages_.DropBehind(r, r->computed);
    s_.report.tokens_kept += r->computed;
  }

  // The request is over. Its state lives on, `gone`, while its step is in flight.
  void End(RequestState* r, EndKind kind) {
    const RequestId id = r->id;
    if (id) {
      GiveUp(r);
      std::erase(s_.running, r);
    } else {
      s_.waiting.erase(std::find(s_.waiting.begin(), s_.waiting.end(), r));
    }
    Count(*r, kind);
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, kind);
    if (r->planned > 0) {
      r->gone = true;
    } else {
      s_.requests[r->index].reset();
    }
  }

 private:
  void Enter(const TraceRequest& trace, RequestIndex index) {
    auto r = std::make_unique<RequestState>();
    r->index = index;
    r->trace = &trace;
    const std::string name = "r" + std::to_string(index);
    r->name = s_.names.name ? s_.names.name(name) : NameId(index + 1);
    if (trace.identity > 0) {
      r->identity =
          s_.names.identity ? s_.names.identity(trace.identity) : IdentityId(trace.identity);
    }
    r->salt = ContentSalt(trace.identity, 0);
    r->arrival_step = s_.passes;
    if (s_.config.abort_per_mille > 0 && s_.abort_rng.Chance(s_.config.abort_per_mille, 1000)) {
      r->will_abort = true;
      r->abort_at = s_.abort_rng.Below(trace.input_length + trace.output_length);
      r->abort_moment = static_cast<AbortMoment>(s_.abort_rng.Below(3));
    }
    const uint64_t most = uint64_t{trace.input_length} + trace.output_length - 1;
    const bool fits = CanFit(most);
    s_.waiting.push_back(r.get());
    s_.requests[index] = std::move(r);
    if (!fits) End(s_.waiting.back(), EndKind::kRejected);
  }

  // Alone in the pools, with nothing cached.
  bool CanFit(uint64_t tokens) const {
    uint64_t together = 1;
    for (const KvGroup& group : s_.groups) {
      const uint64_t most = MostPages(group, tokens, s_.config.token_budget);
      if (most >= group.pages || PagesFor(tokens, group.page_size) > group.width) return false;
      together += most;
    }
    return !s_.one_space() || together <= s_.groups[0].pages;
  }

  uint64_t NewTokens(const RequestState& r, uint64_t budget) const {
    const EngineConfig& c = s_.config;
    const uint64_t chunk = c.features.chunked_prefill && c.max_chunk > 0 ? c.max_chunk : budget;
    return std::min({r.tokens.size() - r.computed, budget, chunk});
  }

  void Schedule(RequestState* r, uint64_t n, uint64_t* budget,
                std::vector<RequestState*>* scheduled) {
    r->planned = n;
    *budget -= n;
    scheduled->push_back(r);
  }

  // Pages for `tokens` tokens, preempting the newest as long as there are too few. False: `r`
  // itself had to go.
  bool MakeRoom(RequestState* r, uint64_t tokens, bool* pressed) {
    const Demand lacking = pages_.Lacking(*r, tokens);
    if (pages_.Nothing(lacking)) return true;
    while (!pages_.Fits(lacking)) {
      RequestState* victim = s_.running.back();
      *pressed = true;
      if (victim == r && s_.running.size() == 1 && !s_.Resting()) {
        End(r, EndKind::kRejected);
        return false;
      }
      ++s_.report.preemptions;
      Preempt(victim);
      if (victim == r) return false;
    }
    pages_.Take(r, lacking);
    return true;
  }

  // New tokens of its first step, or 0: not now.
  uint64_t TryAdmit(RequestState* r, uint64_t budget) {
    if (r->tokens.empty()) r->tokens = PromptTokens(*r->trace);
    r->computed = prefix_.Find(r);
    uint64_t n = NewTokens(*r, budget);
    if (!pages_.Fits(prefix_.NeedBeside(r->computed + n))) {
      r->computed = 0;
      return 0;
    }
    ++s_.report.admitted;
    r->id = s_.tracker.Admit({.name = r->name, .identity = r->identity});
    r->computed = prefix_.Map(r);
    s_.waiting.pop_front();
    s_.running.push_back(r);
    n = NewTokens(*r, budget);
    const Demand lacking = pages_.Lacking(*r, r->computed + n);
    if (!pages_.Fits(lacking)) {  // a hook took hits away
      Preempt(r);
      return 0;
    }
    pages_.Take(r, lacking);
    return n;
  }

  // Row and pages go back.
  void GiveUp(RequestState* r) {
    if (s_.hooks != nullptr) s_.hooks->OnRelease(*s_.surface, r->index);
    s_.batch.Clear(r);
    s_.tracker.Release({.req = r->id});
    pages_.ReturnBehind(r, 0);
    r->id = RequestId();
    r->computed = 0;
  }

  void Count(const RequestState& r, EndKind kind) {
    ++s_.ended;
    switch (kind) {
      case EndKind::kFinished:
        ++s_.report.finished;
        break;
      case EndKind::kAborted:
        ++s_.report.aborted;
        break;
      case EndKind::kFenced:
        ++s_.report.fenced;
        break;
      case EndKind::kRejected:
        ++s_.report.rejected;
        break;
      case EndKind::kPreempted:
        break;
    }
    if (kind == EndKind::kFinished) {
      s_.whole_latencies.push_back(static_cast<uint32_t>(s_.passes - r.arrival_step));
      s_.first_latencies.push_back(static_cast<uint32_t>(*r.first_token_step - r.arrival_step));
    }
  }

  EngineState<TrackerT>& s_;
  PageKeeper<TrackerT> pages_;
  PrefixCache<TrackerT> prefix_;
};

}  // namespace kvfence
