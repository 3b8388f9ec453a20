// Prefill on one engine, decode on another: what has been prefilled is fetched page by page, and
// quantised on its way.
//
// Idea: a prefilled request is offered, with its pages, under a lease. The engine that decodes
// takes pages of its own for what its prefix index doesn't have, pins those of the other as read
// (each run of them under a key of its own, so that what arrives is what was read, whatever that
// was), and the request goes on there as a new incarnation. Runs travel on several wires and arrive
// late, out of order or not at all. When the lease ends, what hasn't arrived is called back: it
// touches nothing any more. Pages on both sides stay out of reuse until their unpin, whatever
// became of the request. Invariant I-119: a page is fetched while its pin stands, and into pages
// that no launched step uses.
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
class HandOver {
 public:
  // All of the engine that decodes.
  HandOver(EngineState<TrackerT>* state, PageKeeper<TrackerT>* pages, PrefixCache<TrackerT>* prefix)
      : s_(*state), pages_(*pages), prefix_(*prefix) {}
  // The other one.
  void FetchFrom(EngineState<TrackerT>* state, PageKeeper<TrackerT>* pages) {
    from_ = state;
    from_pages_ = pages;
  }
  bool busy() const { return !transfers_.empty(); }

  enum class Taken : uint8_t { kNoRoom, kComing, kNothing };
  // The offered request comes over. kNothing: it's here, but without what it needs (hits were taken
  // away by a fault).
  Taken Take(RequestState* r) {
    const uint64_t tokens = r->computed;
    Demand begin{};
    for (size_t g = 0; g < s_.groups.size(); ++g) begin[g] = r->lists[g].first;
    const uint64_t found = prefix_.FindBehind(r, begin);
    Demand need = prefix_.Cached();
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      begin[g] = std::max(begin[g], found / s_.groups[g].page_size);
      need[g] += PagesFor(tokens, s_.groups[g].page_size) - begin[g];
    }
    if (!pages_.Fits(need)) return Taken::kNoRoom;
    Transfer t{.request = r->index, .tokens = tokens, .asked_at = s_.report.steps};
    PinSources(&t, *r, begin);
    LeavePrefill(r);
    ++s_.report.admitted;
    s_.Admit(r);
    t.id = r->id;
    t.told = prefix_.Map(r);
    ++s_.report.handoffs;
    if (t.told != found || !TakePages(&t, r, begin)) {
      for (Run& run : t.runs) EndSource(&run, false);
      ++s_.report.handoffs_again;
      return Taken::kNothing;
    }
    transfers_.push_back(std::move(t));
    return Taken::kComing;
  }

  // As Mover::Poll; `told`: tokens that the fence counts for the request by now.
  template <class F>
  void Poll(F done) {
    std::vector<Transfer> over = TakeOut(&transfers_, [this](Transfer& t) {
      if (!t.begun && !t.orphan && !Used(t)) BeginIn(&t);
      const bool expired = s_.report.steps + 2 >= t.asked_at + s_.config.handoff_lease;
      const bool all = std::ranges::all_of(t.runs, [](const Run& run) { return *run.landed; });
      if (expired && !all && !t.orphan) ++s_.report.handoffs_expired;
      return (t.begun && all) || expired || (t.orphan && !t.begun);
    });
    for (Transfer& t : over) Land(&t, done);
  }
  // False: nothing is on its way.
  bool WaitForOne() {
    for (const Transfer& t : transfers_) {
      if (!t.begun) continue;
      for (const Run& run : t.runs) {
        while (!*run.landed) s_.device.Wait(run.wire, s_.device.Last(run.wire));
      }
      return true;
    }
    return false;
  }
  // The request's end: nobody waits for what is under way.
  void Forget(const RequestState& r) {
    for (Transfer& t : transfers_) {
      if (t.id != r.id || t.orphan) continue;
      t.orphan = true;
      ++s_.report.handoffs_aborted;
    }
  }

 private:
  static constexpr uint64_t kRun = 8;  // pages in one pin
  static constexpr uint32_t kFirstWire = 4, kWires = 2;
  static constexpr uint64_t kMostLate =
      24;  // waits for what the device has to do, about a step each

  struct Run {
    NameId out{}, in{};
    KeyId key{};
    size_t group = 0;
    uint64_t at = 0;
    std::vector<PageId> from{}, to{};
    uint64_t last = 0;  // slots of the last page that hold tokens
    uint32_t wire = 0;
    uint64_t late = 0;
    bool fails = false;
    std::shared_ptr<bool> landed = std::make_shared<bool>(false);
    std::shared_ptr<bool> called_back = std::make_shared<bool>(false);
  };
  struct Transfer {
    RequestIndex request = kNoRequest;
    RequestId id{};
    uint64_t tokens = 0;
    uint64_t told = 0;  // of them, found here
    std::vector<Run> runs{};
    uint64_t asked_at = 0;  // the newest step launched when its pages were taken
    bool begun = false;
    bool orphan = false;  // its request has ended, or is elsewhere
  };

  // [pin] out: the pages stand as they are until they've been read, though their request goes.
  void PinSources(Transfer* t, const RequestState& r, const Demand& begin) {
    const uint64_t number = ++handed_;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const uint64_t size = s_.groups[g].page_size;
      const uint64_t end = PagesFor(t->tokens, size);
      for (uint64_t at = begin[g]; at < end; at += kRun) {
        Run& run = t->runs.emplace_back();
        run.group = g;
        run.at = at;
        const uint64_t stop = std::min(end, at + kRun);
        for (uint64_t k = at; k < stop; ++k) run.from.push_back(r.lists[g].pages[k]);
        run.last = std::min(size, t->tokens - (stop - 1) * size);
        run.key = KeyId(Mix64(Mix64(number ^ 0x48616E64) + (uint64_t{g} << 32) + at) | 1);
        run.wire = kFirstWire + static_cast<uint32_t>(t->runs.size() % kWires);
        run.fails = s_.copy_rng.Chance(s_.config.copy_fail_per_mille, 1000);
        const bool late = s_.copy_rng.Chance(s_.config.handoff_late_per_mille, 1000);
        run.late = late ? s_.copy_rng.Between(1, kMostLate) : 0;
        run.out = s_.NameOfCopy();
        KVF_IF_HEARD (s_.tracker)
          s_.tracker.Pin({.id = run.out,
                          .dir = CopyDir::kOut,
                          .pages = run.from,
                          .req = r.id,
                          .at = at,
                          .key = run.key,
                          .lease = s_.config.handoff_lease,
                          .pool = from_->Pool(g)});
        for (const PageId page : run.from) from_->books[g]->Pin(page, PinDir::kOut);
      }
    }
  }
  void LeavePrefill(RequestState* r) {
    const RequestId id = r->id;
    KVF_IF_HEARD (s_.tracker) s_.tracker.Release({.req = id});
    from_pages_->ReturnBehind(r, 0);
    std::erase(from_->offered, r);
    r->at_prefill = false;
    r->computed = 0;
    if (s_.outcomes != nullptr) s_.outcomes->OnEnd(r->index, id, EndKind::kPreempted);
  }
  // False: a hook has taken so much away that there's no room now.
  bool TakePages(Transfer* t, RequestState* r, const Demand& begin) {
    Demand take{};
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      PageList& list = r->lists[g];
      if (list.pages.size() < begin[g]) {  // its window has left these behind
        list.pages.resize(begin[g], kNullPage);
        list.first = begin[g];
      }
      take[g] = PagesFor(t->tokens, s_.groups[g].page_size) - list.pages.size();
    }
    if (!pages_.Fits(take)) return false;
    pages_.Take(r, take);
    for (Run& run : t->runs) {
      const std::vector<PageId>& pages = r->lists[run.group].pages;
      for (size_t i = 0; i < run.from.size(); ++i) run.to.push_back(pages[run.at + i]);
    }
    return true;
  }

  // Does a launched step use pages that were in other hands before?
  bool Used(const Transfer& t) const { return s_.unsettled > 0 && t.asked_at > s_.settled; }
  // [pin] in, and the runs are on their way.
  void BeginIn(Transfer* t) {
    t->begun = true;
    for (Run& run : t->runs) {
      run.in = s_.NameOfCopy();
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Pin({.id = run.in,
                        .dir = CopyDir::kIn,
                        .pages = run.to,
                        .req = t->id,
                        .at = run.at,
                        .key = run.key,
                        .lease = s_.config.handoff_lease,
                        .pool = s_.Pool(run.group)});
      for (const PageId page : run.to) s_.books[run.group]->Pin(page, PinDir::kIn);
      Send(run);
    }
  }
  // What is late waits, again and again, for what the device has been given meanwhile.
  void Send(const Run& run) {
    const auto arrive = [this, copy = run]() mutable {
      if (*copy.called_back) return;
      if (copy.late == 0) return Fetch(copy);
      --copy.late;
      Send(copy);
    };
    s_.device.Enqueue(run.wire, arrive, s_.report.steps, s_.device.LastCompute());
  }
  // On the device: the bytes move.
  void Fetch(const Run& run) {
    const uint64_t size = s_.groups[run.group].page_size;
    for (size_t i = 0; i < run.from.size(); ++i) {
      if (run.fails && i > 0) break;  // it dies in the middle
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Read({.page = run.from[i], .xfer = run.out, .pool = from_->Pool(run.group)});
      const uint64_t n = i + 1 == run.from.size() ? run.last : size;
      const auto from = static_cast<uint64_t>(run.from[i].value());
      const auto to = static_cast<uint64_t>(run.to[i].value());
      s_.model->FetchPage(from_->model.get(), run.group, from, to, n);
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Write({.page = run.to[i],
                          .first = 0,
                          .n = n,
                          .as = {.key = run.key},
                          .xfer = run.in,
                          .pool = s_.Pool(run.group)});
      s_.Moved({.to = run.to[i], .key = run.key, .number = i, .group = run.group});
      ++s_.report.pages_handed_over;
    }
    *run.landed = true;
  }

  // [unpin], [free] of the page's last.
  void EndSource(Run* run, bool ok) {
    KVF_IF_HEARD (s_.tracker) s_.tracker.Unpin({.id = run->out, .ok = ok});
    for (const PageId page : run->from) {
      if (from_->books[run->group]->Unpin(page, PinDir::kOut)) {
        KVF_IF_HEARD (s_.tracker)
          s_.tracker.Free({.pages = {&page, 1}, .pool = from_->Pool(run->group)});
      }
    }
  }
  void EndTarget(Run* run, bool ok) {
    KVF_IF_HEARD (s_.tracker) s_.tracker.Unpin({.id = run->in, .ok = ok});
    for (const PageId page : run->to) {
      if (s_.books[run->group]->Unpin(page, PinDir::kIn)) {
        KVF_IF_HEARD (s_.tracker)
          s_.tracker.Free({.pages = {&page, 1}, .pool = s_.Pool(run->group)});
      }
    }
  }
  template <class F>
  void Land(Transfer* t, F done) {
    uint64_t good = t->tokens;
    for (Run& run : t->runs) {
      *run.called_back = true;
      const bool ok = *run.landed && !run.fails;
      if (!ok) good = std::min(good, run.at * s_.groups[run.group].page_size);
      if (!ok && t->begun) ++s_.report.copies_failed;
      if (ok && run.late > 0) s_.report.pages_handed_late += run.to.size();
      if (t->begun) EndTarget(&run, ok);
      EndSource(&run, ok);
    }
    if (t->orphan) return;
    ++(good == t->tokens ? s_.report.handoffs_whole
       : good > 0        ? s_.report.handoffs_partly
                         : s_.report.handoffs_again);
    done(s_.requests[t->request].get(), good, t->tokens, t->told);
  }

  EngineState<TrackerT>& s_;
  PageKeeper<TrackerT>& pages_;
  PrefixCache<TrackerT>& prefix_;
  EngineState<TrackerT>* from_ = nullptr;
  PageKeeper<TrackerT>* from_pages_ = nullptr;
  std::vector<Transfer> transfers_;  // oldest first
  uint64_t handed_ = 0;
};

}  // namespace kvfence
