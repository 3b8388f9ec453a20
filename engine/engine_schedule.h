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

#include "engine_fork.h"
#include "engine_mover.h"
#include "engine_pages.h"
#include "engine_prefix.h"
#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class Scheduler {
 public:
  explicit Scheduler(EngineState<TrackerT>* state)
      : s_(*state),
        pages_(state),
        mover_(state, &pages_),
        prefix_(state, &pages_, &mover_),
        forker_(state, &pages_) {}

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
      if (r->will_abort && r->abort_moment == moment && r->base() >= r->abort_at) {
        aborted.push_back(r);
      }
    }
    for (RequestState* r : s_.moving) {
      if (r->will_abort && moment == AbortMoment::kBetweenSteps && s_.copy_rng.Chance(1, 4)) {
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
      const StepShare share = ShareOf(*r, budget);
      if (share.tokens == 0) continue;
      if (!MakeRoom(r, share, &pressed)) break;
      Schedule(r, share, &budget, scheduled);
    }
    if (!pressed) SwapIn();
    while (!pressed && budget > 0 && !s_.waiting.empty() && HasSeat()) {
      RequestState* r = s_.waiting.front();
      const StepShare share = TryAdmit(r, budget);
      if (!s_.moving.empty() && s_.moving.back() == r) continue;  // it loads first
      if (share.tokens == 0) break;
      Schedule(r, share, &budget, scheduled);
    }
    // Alone in the queue, nothing running, and still no room: it never will fit.
    if (scheduled->empty() && s_.running.empty() && !s_.waiting.empty() && !Hoping() &&
        s_.waiting.front()->flights == 0) {
      End(s_.waiting.front(), EndKind::kRejected);
    }
  }

  // What settled steps have filled enters the index, and what windows have left behind goes back.
  void Advance(RequestState* r) {
    prefix_.Publish(r);
    prefix_.Store(r);
    pages_.Slide(r);
  }

  // The request's prompt has been computed, with this result: its siblings begin.
  uint64_t ForkSiblings(RequestState* r, uint64_t result) {
    if (std::exchange(r->forked, true)) return 0;
    return forker_.ForkSiblings(r, result);
  }
  void Rebeam() { forker_.Rebeam(); }
  bool MayCopy() const { return forker_.MayCopy(); }
  // Will settling this row fork its request while a later step of it is launched?
  bool WillFork(const RequestState& r) const { return forker_.WillFork(r); }

  // Copies that have ended, at the beginning of a pass.
  void Poll() {
    mover_.Poll([this](RequestState* r, uint64_t good, uint64_t all) { Arrived(r, good, all); });
  }
  // The key's content is suspect, on the host too.
  void Distrust(KeyId key) { mover_.Distrust(key); }
  bool Moving() const { return mover_.busy(); }
  void WaitForCopy() { mover_.WaitForOne(); }

  // Back to the head of the queue: all is computed again (preemption by recompute).
  void Preempt(RequestState* r) {
    const RequestId id = r->id;
    GiveUp(r);
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, EndKind::kPreempted);
    std::erase(s_.running, r);
    std::erase(s_.moving, r);
    s_.waiting.push_front(r);
  }

  // What follows `tokens`, whole pages from the start, is computed again, into fresh pages and from
  // a row bound anew: a failed row stays failed, and its table may be what was wrong.
  void Rewind(RequestState* r, uint64_t tokens) {
    r->computed = pages_.Resumable(*r, tokens);
    r->ForgetLaunched();
    ++r->epoch;
    s_.batch.Clear(r);
    if constexpr (TrackerT::kTracks) s_.tracker.Trim({.req = r->id, .tokens = r->computed});
    pages_.DropBehind(r, r->computed);
    s_.report.tokens_kept += r->computed;
  }

  // The request is over. Its state lives on, `gone`, while a step of it is in flight.
  void End(RequestState* r, EndKind kind) {
    const RequestId id = r->id;
    if (id) {
      GiveUp(r);
      std::erase(s_.running, r);
      std::erase(s_.moving, r);
    } else {
      s_.waiting.erase(std::find(s_.waiting.begin(), s_.waiting.end(), r));
    }
    Count(*r, kind);
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, kind);
    if (r->flights > 0) {
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
    const uint32_t identity = IdentityOf(trace, index);
    if (identity > 0) {
      r->identity = s_.names.identity ? s_.names.identity(identity) : IdentityId(identity);
    }
    r->root = index;
    r->salt = ContentSalt(identity, 0);
    r->arrival_step = s_.passes;
    if (s_.config.abort_per_mille > 0 && s_.abort_rng.Chance(s_.config.abort_per_mille, 1000)) {
      r->will_abort = true;
      r->abort_at = s_.abort_rng.Below(trace.input_length + trace.output_length);
      r->abort_moment = static_cast<AbortMoment>(s_.abort_rng.Below(3));
    }
    r->ends_early = (Mix64(s_.config.seed ^ (uint64_t{index} << 20)) & 1) != 0;
    const bool fits = CanFit(MostTokens(s_.config, trace));
    s_.waiting.push_back(r.get());
    s_.requests[index] = std::move(r);
    if (!fits) End(s_.waiting.back(), EndKind::kRejected);
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
  bool CanFit(uint64_t tokens) const {
    uint64_t together = 1;
    for (const KvGroup& group : s_.groups) {
      const uint64_t most = MostPages(group, tokens, MostGrowth(s_.config));
      if (most >= group.pages || PagesFor(tokens, group.page_size) > group.width) return false;
      together += most;
    }
    return !s_.one_space() || together <= s_.groups[0].pages;
  }

  StepShare ShareOf(const RequestState& r, uint64_t budget) const {
    const EngineConfig& c = s_.config;
    const uint64_t chunk = c.features.chunked_prefill && c.max_chunk > 0 ? c.max_chunk : budget;
    const uint64_t most = MostTokens(c, *r.trace);
    StepShare share;
    if (r.pending > 0) {
      // Its last token isn't known yet, nor, if a stop token ends it, whether there'll be a next.
      const bool over = !r.ends_early && r.outputs() + r.pending >= r.trace->output_length;
      share.tokens = over || r.base() >= most ? 0 : 1;
    } else {
      share.tokens = std::min({r.tokens.size() - r.base(), budget, chunk});
    }
    if (!c.features.speculative || share.tokens == 0 || !r.samples_after(share)) return share;
    const bool decodes = share.tokens == 1 && (r.pending > 0 || r.outputs() > 0);
    if (decodes) share.guesses = std::min({c.draft_tokens, budget - 1, most - r.base() - 1});
    share.tokens += share.guesses;
    share.ahead = std::min(c.draft_tokens, most - r.base() - share.tokens);
    return share;
  }

  void Schedule(RequestState* r, const StepShare& share, uint64_t* budget,
                std::vector<RequestState*>* scheduled) {
    r->plan = share;
    if (s_.config.features.early_publish && r->pending == 0)
      prefix_.PublishAhead(r, r->base() + share.known());
    *budget -= share.tokens;
    scheduled->push_back(r);
  }

  // Pages for its share of the step, preempting the newest as long as there are too few. False: `r`
  // itself had to go.
  bool MakeRoom(RequestState* r, const StepShare& share, bool* pressed) {
    const Demand lacking = pages_.Lacking(*r, r->base() + share.tokens, share.ahead);
    Demand copies = forker_.Copies(*r);
    if (pages_.Nothing(lacking) && pages_.Nothing(copies)) return true;
    while (!pages_.Fits(pages_.Sum(lacking, copies))) {
      RequestState* victim = s_.running.back();
      *pressed = true;
      if (victim == r && s_.running.size() == 1 && !s_.Resting()) {
        if (!Hoping()) End(r, EndKind::kRejected);
        return false;
      }
      ++s_.report.preemptions;
      if (mover_.CanSwapOut(*victim)) {
        SwapOut(victim);
        return false;  // its pages come when they've been read
      }
      Preempt(victim);
      if (victim == r) return false;
      copies = forker_.Copies(*r);
    }
    forker_.CopyOnWrite(r);
    pages_.Take(r, lacking);
    return true;
  }

  // Its share of its first step, or none: not now.
  StepShare TryAdmit(RequestState* r, uint64_t budget) {
    if (r->flights > 0) return {};  // what its launched step brings belongs to its tokens
    if (r->tokens.empty()) r->tokens = PromptTokens(*r->trace);
    r->computed = prefix_.Find(r);
    StepShare share = ShareOf(*r, budget);
    if (!pages_.Fits(prefix_.NeedBeside(r->computed + share.tokens, share.ahead))) {
      r->computed = 0;
      return {};
    }
    ++s_.report.admitted;
    s_.Admit(r);
    r->computed = prefix_.Map(r);
    s_.waiting.pop_front();
    if (prefix_.Loads()) {
      prefix_.Load(r, std::exchange(r->computed, 0));
      s_.moving.push_back(r);
      return {};
    }
    s_.running.push_back(r);
    share = ShareOf(*r, budget);
    const Demand lacking = pages_.Lacking(*r, r->computed + share.tokens, share.ahead);
    if (!pages_.Fits(lacking)) {  // a hook took hits away
      Preempt(r);
      return {};
    }
    pages_.Take(r, lacking);
    return share;
  }

  // Rows are kept for those that are on their way back.
  bool HasSeat() const { return s_.running.size() + s_.moving.size() < s_.config.rows; }
  // May pages come back without anybody's giving them up?
  bool Hoping() const { return s_.Resting() || mover_.busy() || !s_.moving.empty(); }

  void SwapOut(RequestState* r) {
    const RequestId id = r->id;
    if (s_.hooks != nullptr) s_.hooks->OnRelease(*s_.surface, r->index);
    s_.batch.Clear(r);
    mover_.SwapOut(r);
    r->ForgetLaunched();
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, EndKind::kPreempted);
    std::erase(s_.running, r);
    s_.moving.push_back(r);
  }
  // The oldest that is on the host comes back when there's room.
  void SwapIn() {
    for (RequestState* r : s_.moving) {
      if (!r->swap || !r->swap->there) continue;
      if (pages_.Fits(mover_.NeedToSwapIn(*r))) mover_.SwapIn(r);
      return;
    }
  }
  // The copies of a request have ended: of `all` its tokens, the first `good` are in place.
  void Arrived(RequestState* r, uint64_t good, uint64_t all) {
    if (good < all) {
      good = pages_.Resumable(*r, good);
      if (good == 0) {
        r->load_failed = true;
        return Preempt(r);
      }
      if constexpr (TrackerT::kTracks) s_.tracker.Trim({.req = r->id, .tokens = good});
      pages_.DropBehind(r, good);
    }
    if constexpr (TrackerT::kTracks) s_.tracker.Ready({.req = r->id, .tokens = good});
    r->computed = good;
    std::erase(s_.moving, r);
    s_.running.push_back(r);
  }

  // Row and pages go back.
  void GiveUp(RequestState* r) {
    mover_.Forget(*r);
    mover_.ForgetSwap(r);
    if (s_.hooks != nullptr) s_.hooks->OnRelease(*s_.surface, r->index);
    s_.batch.Clear(r);
    if constexpr (TrackerT::kTracks) s_.tracker.Release({.req = r->id});
    pages_.ReturnBehind(r, 0);
    r->id = RequestId();
    r->computed = 0;
    r->ForgetLaunched();
  }

  void Count(const RequestState& r, EndKind kind) {
    if (r.index == r.root) ++s_.ended;
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
  Mover<TrackerT> mover_;
  PrefixCache<TrackerT> prefix_;
  Forker<TrackerT> forker_;
};

}  // namespace kvfence
