// Requests enter the engine: who they are, and whether they can be served at all.
//
// Idea: a request's identity, stop token and abort are functions of seed and place in the trace, so
// they're the same whatever the engine is doing. With an engine that prefills and one that decodes,
// it's the former that they enter, and they must fit both.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class Arrivals {
 public:
  explicit Arrivals(EngineState<TrackerT>* state) : s_(*state) {}

  // Requests whose time has come enter the queue.
  // `reject(request)` for those that can't ever fit.
  template <class F>
  void Arrive(F reject) {
    const std::vector<TraceRequest>& trace = *s_.trace;
    if (s_.config.ms_per_step > 0 && s_.Idle() && (s_.peer == nullptr || s_.peer->Idle()) &&
        s_.next_arrival < trace.size()) {
      s_.clock_ms = std::max(s_.clock_ms, trace[s_.next_arrival].timestamp_ms);
    }
    while (s_.next_arrival < trace.size()) {
      const TraceRequest& next = trace[s_.next_arrival];
      const bool due = s_.config.ms_per_step > 0 ? next.timestamp_ms <= s_.clock_ms
                                                 : s_.waiting.size() < 2 * s_.config.rows;
      if (!due) break;
      RequestState* r = Enter(next, static_cast<RequestIndex>(s_.next_arrival++));
      if (!CanFit(s_, next) || (s_.peer != nullptr && !CanFit(*s_.peer, next))) reject(r);
    }
    s_.clock_ms += s_.config.ms_per_step;
  }

 private:
  RequestState* Enter(const TraceRequest& trace, RequestIndex index) {
    auto r = std::make_unique<RequestState>();
    r->index = index;
    r->trace = &trace;
    const std::string name = "r" + std::to_string(index);
    r->name = s_.names.name ? s_.names.name(name) : NameId(index + 1);
    const uint32_t identity = IdentityOf(trace, index);
    if (identity > 0) {
      r->identity = s_.names.identity ? s_.names.identity(identity) : IdentityId(identity);
    }
    r->root = index;
    r->at_prefill = s_.seat.role == EngineRole::kPrefill;
    r->salt = ContentSalt(identity, 0);
    r->arrival_step = s_.passes;
    if (s_.config.abort_per_mille > 0 && s_.abort_rng.Chance(s_.config.abort_per_mille, 1000)) {
      r->will_abort = true;
      r->abort_at = s_.abort_rng.Below(trace.input_length + trace.output_length);
      // Many of them while it's handed over.
      if (s_.peer != nullptr && r->abort_at % 2 == 0) r->abort_at += trace.input_length;
      r->abort_moment = static_cast<AbortMoment>(s_.abort_rng.Below(3));
    }
    r->ends_early = (Mix64(s_.config.seed ^ (uint64_t{index} << 20)) & 1) != 0;
    s_.waiting.push_back(r.get());
    s_.requests[index] = std::move(r);
    return s_.waiting.back();
  }

  // What its content depends on beside the tokens: an adapter of the trace, and what goes with the
  // single request.
  uint32_t IdentityOf(const TraceRequest& trace, RequestIndex index) const {
    if (!s_.config.features.mixed_identity) return trace.identity;
    const uint64_t drawn = Mix64(Mix64(s_.config.seed) ^ (uint64_t{index} + 71));
    const uint32_t media = drawn % 4 == 0 ? 1 + drawn / 4 % 2 : 0;
    const uint32_t salt = drawn / 8 % 4 == 0 ? 1 + drawn / 32 % 2 : 0;
    return (trace.identity & 0xFFFFu) | media << 16 | salt << 24;
  }
  // Alone in the pools, with nothing cached.
  static bool CanFit(const EngineState<TrackerT>& s, const TraceRequest& trace) {
    const uint64_t tokens = MostTokens(s.config, trace);
    uint64_t together = 1;
    for (const KvGroup& group : s.groups) {
      const uint64_t most = MostPages(group, tokens, MostGrowth(s.config));
      if (most >= group.pages || PagesFor(tokens, group.page_size) > group.width) return false;
      together += most;
    }
    return !s.one_space() || together <= s.groups[0].pages;
  }

  EngineState<TrackerT>& s_;
};

}  // namespace kvfence
