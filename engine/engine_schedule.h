// The scheduler: who is admitted, who gets pages, who is preempted, and how a request ends.
//
// In the manner of vLLM v1: running requests first, each with as many new tokens as budget and
// chunk size allow; a request that needs pages when none are left preempts the newest running one,
// which gives up everything and is computed again later; waiting requests are admitted in order
// while pages last. Invariant: the fence hears admit, share, alloc, row, release and free in the
// order in which the books change.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine_arrivals.h"
#include "engine_fork.h"
#include "engine_handover.h"
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
        arrivals_(state),
        pages_(state),
        mover_(state, &pages_),
        prefix_(state, &pages_, &mover_),
        forker_(state, &pages_),
        handover_(state, &pages_, &prefix_) {}
  // The run's other engine.
  void Join(Scheduler* peer) {
    peer_ = peer;
    s_.peer = &peer->s_;
    if (s_.seat.role == EngineRole::kDecode) handover_.FetchFrom(&peer->s_, &peer->pages_);
  }

  void Arrive() {
    arrivals_.Arrive([this](RequestState* r) { End(r, EndKind::kRejected); });
  }
  // The oldest offer comes to nothing.
  void LoseOffer() {
    if (s_.offered.empty()) return;
    ++s_.report.offers_expired;
    Lose(s_.offered.front());
  }
  // What has been prefilled is offered to the engine that decodes. What nobody fetched in time is
  // prefilled again: its pages are needed.
  void Offer() {
    if (s_.seat.role != EngineRole::kPrefill) return;
    while (!s_.offered.empty() &&
           s_.report.steps >= s_.offered.front()->offered_at + s_.config.handoff_lease) {
      LoseOffer();
    }
    for (size_t i = 0; i < s_.running.size();) {
      RequestState* r = s_.running[i];
      if (r->flights > 0 || r->outputs() == 0 || r->computed + 1 < r->tokens.size()) {
        ++i;
        continue;
      }
      s_.batch.Clear(r);
      s_.running.erase(s_.running.begin() + static_cast<std::ptrdiff_t>(i));
      r->offered_at = s_.report.steps;
      s_.offered.push_back(r);
    }
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
    for (RequestState* r : s_.offered) {
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
    if (!pressed) AdmitMore(budget, scheduled);
    // Alone in the queue, nothing running, and still no room: it never will fit.
    if (scheduled->empty() && s_.running.empty() && !s_.waiting.empty() && !Hoping() &&
        s_.waiting.front()->flights == 0) {
      End(s_.waiting.front(), EndKind::kRejected);
    }
  }

  // What settled steps have filled enters the index, and what windows have left behind goes back.
  // One function, whatever hooks do to the sizes that compilers inline by (ADR 53).
  [[gnu::noinline]] void Advance(RequestState* r) {
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
  // Will settling this row fork its request while a later step of it is launched?
  bool WillFork(const RequestState& r) const { return forker_.WillFork(r); }

  // Copies that have ended, at the beginning of a pass.
  void Poll() {
    mover_.Poll(
        [this](RequestState* r, uint64_t good, uint64_t all) { Arrived(r, good, all, all); });
    handover_.Poll([this](RequestState* r, uint64_t good, uint64_t all, uint64_t told) {
      Arrived(r, good, all, told);
    });
  }
  // The key's content is suspect, on the host too.
  void Distrust(KeyId key) {
    mover_.Distrust(key);
    if (peer_ != nullptr) peer_->mover_.Distrust(key);
  }
  bool Moving() const { return mover_.busy() || handover_.busy(); }
  void WaitForCopy() {
    if (!handover_.WaitForOne()) mover_.WaitForOne();
  }

  // Back to the head of the queue: all is computed again (preemption by recompute).
  void Preempt(RequestState* r) {
    const RequestId id = r->id;
    GiveUp(r);
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, EndKind::kPreempted);
    Leave(r);
    EngineState<TrackerT>& next = peer_ != nullptr ? NextFor(*r) : s_;
    r->at_prefill = next.seat.role == EngineRole::kPrefill;
    next.waiting.push_front(r);
    s_.ForgetGolden(r);
  }

  // What follows `tokens`, whole pages from the start, is computed again, into fresh pages and from
  // a row bound anew: a failed row stays failed, and its table may be what was wrong.
  void Rewind(RequestState* r, uint64_t tokens) {
    r->computed = pages_.Resumable(*r, tokens);
    r->ForgetLaunched();
    ++r->epoch;
    s_.batch.Clear(r);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Trim({.req = r->id, .tokens = r->computed});
    pages_.DropBehind(r, r->computed);
    s_.report.tokens_kept += r->computed;
  }

  // The request is over. Its state lives on, `gone`, while a step of it is in flight.
  void End(RequestState* r, EndKind kind) {
    if (r->at_prefill && s_.seat.role == EngineRole::kDecode) return peer_->End(r, kind);
    const RequestId id = r->id;
    if (id) {
      GiveUp(r);
      Leave(r);
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
  StepShare ShareOf(const RequestState& r, uint64_t budget) const {
    const EngineConfig& c = s_.config;
    const uint64_t chunk = c.features.chunked_prefill && c.max_chunk > 0 ? c.max_chunk : budget;
    const uint64_t most = MostTokens(c, *r.trace);
    StepShare share;
    if (r.pending > 0) {
      if (s_.seat.role == EngineRole::kPrefill) return share;  // it's the other engine's turn
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
    const Demand copies = forker_.Copies(*r);
    if (pages_.Nothing(lacking) && pages_.Nothing(copies)) return true;
    return MakeRoomFor(r, lacking, copies, pressed);
  }
  [[gnu::noinline]] bool MakeRoomFor(RequestState* r, const Demand& lacking, Demand copies,
                                     bool* pressed) {
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

  // Who comes back from the host, over from the other engine, and out of the queue, while there's
  // budget. Not inlined, nor is MakeRoomFor: Plan's loop over the running rows stays free of hooks
  // (ADR 53).
  [[gnu::noinline]] void AdmitMore(uint64_t budget, std::vector<RequestState*>* scheduled) {
    SwapIn();
    if (s_.seat.role == EngineRole::kDecode) TakeOver();
    while (budget > 0 && !s_.waiting.empty() && HasSeat()) {
      RequestState* r = s_.waiting.front();
      const StepShare share = TryAdmit(r, budget);
      if (!s_.moving.empty() && s_.moving.back() == r) continue;  // it loads first
      if (share.tokens == 0) break;
      Schedule(r, share, &budget, scheduled);
    }
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
  bool Hoping() const {
    return s_.Resting() || Moving() || !s_.moving.empty() || !s_.offered.empty() ||
           (peer_ != nullptr && peer_->Moving());
  }

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
  // The engine that computes a request without content: the one that decodes when hand-offs of it
  // have been lost too often.
  EngineState<TrackerT>& NextFor(const RequestState& r) {
    const EngineRole role = r.lost < kMostLost ? EngineRole::kPrefill : EngineRole::kDecode;
    return s_.seat.role == role ? s_ : *s_.peer;
  }
  // Its hand-off came to nothing.
  void Lose(RequestState* r) {
    if (++r->lost == kMostLost) ++s_.report.failed_over;
    Preempt(r);
  }
  // Requests that are offered come over, oldest first, while there's room.
  void TakeOver() {
    while (HasSeat() && !s_.peer->offered.empty()) {
      RequestState* r = s_.peer->offered.front();
      const auto taken = handover_.Take(r);
      if (taken == HandOver<TrackerT>::Taken::kNoRoom) return;
      if (taken == HandOver<TrackerT>::Taken::kNothing) {
        Lose(r);
      } else {
        s_.moving.push_back(r);
      }
    }
  }
  // The copies of a request have ended: of `all` its tokens, the first `good` are in place; the
  // fence counts `told` of them.
  void Arrived(RequestState* r, uint64_t good, uint64_t all, uint64_t told) {
    if (good < all) {
      good = pages_.Resumable(*r, good);
      if (good == 0) {
        r->load_failed = true;
        return told < all && peer_ != nullptr ? Lose(r) : Preempt(r);
      }
      if (good < told) {
        KVF_IF_HEARD (s_.tracker) s_.tracker.Trim({.req = r->id, .tokens = good});
      }
      pages_.DropBehind(r, good);
    }
    KVF_IF_HEARD (s_.tracker) s_.tracker.Ready({.req = r->id, .tokens = good});
    r->computed = good;
    std::erase(s_.moving, r);
    s_.running.push_back(r);
  }

  void Leave(RequestState* r) {
    std::erase(s_.running, r);
    std::erase(s_.moving, r);
    std::erase(s_.offered, r);
  }
  // Row and pages go back.
  void GiveUp(RequestState* r) {
    mover_.Forget(*r);
    handover_.Forget(*r);
    mover_.ForgetSwap(r);
    if (s_.hooks != nullptr) s_.hooks->OnRelease(*s_.surface, r->index);
    s_.batch.Clear(r);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Release({.req = r->id});
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

  static constexpr uint32_t kMostLost = 2;

  EngineState<TrackerT>& s_;
  Arrivals<TrackerT> arrivals_;
  PageKeeper<TrackerT> pages_;
  Mover<TrackerT> mover_;
  PrefixCache<TrackerT> prefix_;
  Forker<TrackerT> forker_;
  HandOver<TrackerT> handover_;
  Scheduler* peer_ = nullptr;
};

}  // namespace kvfence
