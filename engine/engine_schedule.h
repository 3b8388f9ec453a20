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

#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class Scheduler {
 public:
  explicit Scheduler(EngineState<TrackerT>* state) : s_(*state) {}

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
    if (scheduled->empty() && s_.running.empty() && !s_.waiting.empty() && !s_.books.resting()) {
      End(s_.waiting.front(), EndKind::kRejected);
    }
  }

  // Full pages that settled steps wrote enter the index.
  void PublishPages(RequestState* r) {
    if (!s_.config.prefix_cache) return;
    const uint64_t full = r->computed / s_.config.page_size;
    for (uint64_t& at = r->published_pages; at < full; ++at) {
      if (s_.hooks != nullptr && !s_.hooks->OnPublish(*s_.surface, r->index, at)) continue;
      const KeyId key = KeyAt(r, at);
      if (!s_.books.Publish(key, r->pages[at], r->identity)) continue;
      if (s_.Fenced()) TellPublished(key, *r, at);
    }
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
    const size_t keep = std::min<size_t>(tokens / s_.config.page_size, r->pages.size());
    r->computed = keep * s_.config.page_size;
    s_.batch.Clear(r);
    s_.tracker.Trim({.req = r->id, .tokens = r->computed});
    s_.tracker.Drop({.req = r->id, .at = keep, .n = r->pages.size() - keep});
    ReturnPages(r, keep);
    r->published_pages = std::min<uint64_t>(r->published_pages, keep);
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
  // Out of line: an absent fence leaves the loop around it as it is (I-142).
  [[gnu::cold, gnu::noinline]] void TellPublished(KeyId key, const RequestState& r, uint64_t at) {
    s_.tracker.Publish({.key = key, .req = r.id, .at = at});
  }

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
    const bool fits = s_.PagesFor(most) < s_.config.pages && s_.PagesFor(most) <= s_.batch.width();
    s_.waiting.push_back(r.get());
    s_.requests[index] = std::move(r);
    if (!fits) End(s_.waiting.back(), EndKind::kRejected);
  }

  uint64_t NewTokens(const RequestState& r, uint64_t budget) const {
    const uint64_t chunk = s_.config.max_chunk > 0 ? s_.config.max_chunk : budget;
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
    const uint64_t want = s_.PagesFor(tokens);
    if (want <= r->pages.size()) return true;
    while (want - r->pages.size() > s_.books.Available()) {
      RequestState* victim = s_.running.back();
      *pressed = true;
      if (victim == r && s_.running.size() == 1 && !s_.books.resting()) {
        End(r, EndKind::kRejected);
        return false;
      }
      ++s_.report.preemptions;
      Preempt(victim);
      if (victim == r) return false;
    }
    TakePages(r, want - r->pages.size());
    return true;
  }

  void TakePages(RequestState* r, uint64_t n) {
    if (n == 0) return;
    fresh_.clear();
    for (uint64_t i = 0; i < n; ++i) fresh_.push_back(s_.books.Take());
    if (s_.hooks != nullptr) {
      std::vector<PageId> altered = fresh_;
      s_.hooks->OnAlloc(*s_.surface, r->index, altered);
      for (size_t i = 0; i < fresh_.size() && i < altered.size(); ++i) {
        if (altered[i] != fresh_[i] && s_.books.Exchange(fresh_[i], altered[i])) {
          fresh_[i] = altered[i];
        }
      }
    }
    s_.tracker.Alloc({.req = r->id, .pages = fresh_});
    r->pages.insert(r->pages.end(), fresh_.begin(), fresh_.end());
  }

  KeyId KeyAt(RequestState* r, uint64_t at) const {
    const uint64_t size = s_.config.page_size;
    while (r->keys.size() <= at) {
      const uint64_t k = r->keys.size();
      const KeyId parent = k == 0 ? KeyId() : r->keys[k - 1];
      r->keys.push_back(
          ChainKey(parent, std::span(r->tokens).subspan(k * size, size), r->identity));
    }
    return r->keys[at];
  }

  // Pages of full blocks that are in the index already; at least the last token is computed.
  void FindHits(RequestState* r) {
    hits_.clear();
    if (!s_.config.prefix_cache) return;
    const uint64_t most = (r->tokens.size() - 1) / s_.config.page_size;
    for (uint64_t at = 0; at < most; ++at) {
      const KeyId key = KeyAt(r, at);
      const std::optional<PageId> page = s_.books.Lookup(key);
      if (!page) break;
      hits_.push_back({key, *page});
    }
  }
  bool RoomBesideHits(uint64_t tokens) const {
    uint64_t need = s_.PagesFor(tokens) - hits_.size();
    for (const SharedPage& hit : hits_) {
      if (s_.books.StateOf(hit.page) == PageState::kCached) ++need;
    }
    return need <= s_.books.Available();
  }

  // New tokens of its first step, or 0: not now.
  uint64_t TryAdmit(RequestState* r, uint64_t budget) {
    if (r->tokens.empty()) r->tokens = PromptTokens(*r->trace);
    FindHits(r);
    const uint64_t size = s_.config.page_size;
    r->computed = hits_.size() * size;
    uint64_t n = NewTokens(*r, budget);
    if (!RoomBesideHits(r->computed + n)) {
      r->computed = 0;
      return 0;
    }
    if (s_.hooks != nullptr) s_.hooks->OnShare(*s_.surface, r->index, hits_);
    ++s_.report.admitted;
    r->id = s_.tracker.Admit({.name = r->name, .identity = r->identity});
    MapHits(r);
    r->computed = r->pages.size() * size;
    s_.waiting.pop_front();
    s_.running.push_back(r);
    n = NewTokens(*r, budget);
    const uint64_t need = s_.PagesFor(r->computed + n) - r->pages.size();
    if (need > s_.books.Available()) {  // a hook took hits away
      Preempt(r);
      return 0;
    }
    TakePages(r, need);
    return n;
  }

  void MapHits(RequestState* r) {
    r->published_pages = 0;
    if (hits_.empty()) return;
    fresh_.clear();
    std::vector<KeyId> keys;
    for (const SharedPage& hit : hits_) {
      if (!s_.books.AddReference(hit.page)) break;
      s_.books.NoteHit(hit.key);
      fresh_.push_back(hit.page);
      keys.push_back(hit.key);
    }
    const uint64_t tokens = fresh_.size() * s_.config.page_size;
    s_.tracker.Share({.req = r->id, .pages = fresh_, .tokens = tokens, .keys = keys});
    r->pages = fresh_;
    r->published_pages = fresh_.size();
    s_.report.pages_shared += fresh_.size();
    s_.report.tokens_cached += tokens;
  }

  // Row and pages go back, last page first so that a cached chain is evicted from its end.
  void GiveUp(RequestState* r) {
    if (s_.hooks != nullptr) s_.hooks->OnRelease(*s_.surface, r->index);
    s_.batch.Clear(r);
    s_.tracker.Release({.req = r->id});
    ReturnPages(r, 0);
    r->id = RequestId();
    r->computed = 0;
  }

  // Pages from the logical page `keep` on go back.
  void ReturnPages(RequestState* r, size_t keep) {
    fresh_.clear();
    for (size_t i = r->pages.size(); i > keep; --i) {
      const PageId page = r->pages[i - 1];
      const ReturnAction action = s_.hooks == nullptr
                                      ? ReturnAction::kProceed
                                      : s_.hooks->OnReturn(*s_.surface, r->index, page);
      if (action == ReturnAction::kSkip) continue;
      if (s_.books.Return(page)) fresh_.push_back(page);
      if (action == ReturnAction::kTwice) again_.push_back(page);
    }
    if (!fresh_.empty()) s_.tracker.Free({.pages = fresh_});
    r->pages.resize(keep);
    for (const PageId page : std::exchange(again_, {})) {
      if (s_.books.StateOf(page) == PageState::kFree) {
        s_.surface->FreeAgain(page);
      } else {
        s_.surface->FreePageNow(page);
      }
    }
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
  std::vector<SharedPage> hits_;
  std::vector<PageId> fresh_;
  std::vector<PageId> again_;
};

}  // namespace kvfence
