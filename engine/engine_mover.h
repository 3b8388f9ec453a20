// Copies between the device's pools and the host, on streams of their own: swap of preempted
// requests, and the host tier of the prefix cache.
//
// Idea: a transfer is a list of runs (pages of one group that follow each other), each with a pin
// of its own, so that parts of it can fail. The device executes runs in the order of its streams,
// whenever the seed has it; the host looks at the beginning of each pass which ones have landed.
// What a transfer reads or writes stays out of reuse until its unpin, whatever became of its
// request meanwhile. Invariant I-116: a copy into pages begins only when no launched step uses
// them.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine_pages.h"
#include "engine_state.h"

namespace kvfence {

// Takes those for which `out` holds from the list; both keep their order. `out` is asked once of
// each, in order.
template <class T, class F>
std::vector<T> TakeOut(std::vector<T>* list, F out) {
  std::vector<T> taken;
  size_t kept = 0;
  for (size_t i = 0; i < list->size(); ++i) {
    if (out((*list)[i])) {
      taken.push_back(std::move((*list)[i]));
    } else if (kept++ != i) {
      (*list)[kept - 1] = std::move((*list)[i]);
    }
  }
  list->erase(list->begin() + static_cast<std::ptrdiff_t>(kept), list->end());
  return taken;
}

template <class TrackerT>
class Mover {
 public:
  Mover(EngineState<TrackerT>* state, PageKeeper<TrackerT>* pages) : s_(*state), pages_(*pages) {}

  bool busy() const { return !transfers_.empty(); }

  // --- swap
  // ---------------------------------------------------------------------------------------

  bool CanSwapOut(const RequestState& r) const {
    return s_.config.features.swap && r.flights == 0 && r.computed > 0 &&
           swapped_pages_ + PagesFor(r.computed, s_.groups[0].page_size) <= s_.config.host_pages &&
           Mix64(r.index ^ s_.passes) % 4 != 0;
  }
  // The request keeps its incarnation and its length, and gives its pages up as soon as they have
  // been read. Its row is gone already.
  void SwapOut(RequestState* r) {
    Transfer& t = Begin(TransferKind::kSwapOut, *r);
    t.tokens = r->computed;
    r->swap = std::make_unique<SwappedOut>();
    r->swap->tokens = r->computed;
    r->swap->number = ++s_.swaps;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const PageList& list = r->lists[g];
      r->swap->first[g] = list.first;
      const uint64_t end = PagesFor(r->computed, s_.groups[g].page_size);
      for (uint64_t at = list.first; at < end; at += kRun) {
        AddRun(&t, *r, g, at, std::min(end, at + kRun), PinDir::kOut).key =
            SwapKey(*r->swap, g, at);
      }
      r->swap->pages[g].resize(end);
    }
    swapped_pages_ += PagesFor(r->computed, s_.groups[0].page_size);
    for (Run& run : t.runs) PinRun(&t, &run);
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const PageList& list = r->lists[g];
      if (list.pages.size() == list.first) continue;
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Drop({.req = r->id,
                         .at = list.first,
                         .n = list.pages.size() - list.first,
                         .pool = s_.Pool(g)});
    }
    pages_.ReturnBehind(r, 0);
    r->computed = 0;
    ++s_.report.swaps_out;
  }
  Demand NeedToSwapIn(const RequestState& r) const {
    Demand need{};
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      need[g] = r.swap->pages[g].size() - r.swap->first[g];
    }
    return need;
  }
  void SwapIn(RequestState* r) {
    Transfer& t = Begin(TransferKind::kSwapIn, *r);
    t.tokens = r->swap->tokens;
    const Demand need = NeedToSwapIn(*r);
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      PageList& list = r->lists[g];
      list.pages.resize(r->swap->first[g]);
      list.first = r->swap->first[g];
    }
    pages_.Take(r, need);
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const uint64_t end = r->swap->pages[g].size();
      for (uint64_t at = r->swap->first[g]; at < end; at += kRun) {
        Run& run = AddRun(&t, *r, g, at, std::min(end, at + kRun), PinDir::kIn);
        run.key = SwapKey(*r->swap, g, at);
        for (size_t i = 0; i < run.pages.size(); ++i) {
          run.content.push_back(r->swap->pages[g][run.at + i]);
        }
      }
    }
    ForgetSwap(r);
    ++s_.report.swaps_in;
  }
  // A run of its pages on the host has a key of its own, so that what comes back is what was read,
  // whatever that was.
  static KeyId SwapKey(const SwappedOut& swap, size_t g, uint64_t at) {
    return KeyId(Mix64(Mix64(swap.number ^ 0x53776170) + (uint64_t{g} << 32) + at) | 1);
  }
  // Its content on the host isn't needed any more.
  void ForgetSwap(RequestState* r) {
    if (!r->swap) return;
    swapped_pages_ -= PagesFor(r->swap->tokens, s_.groups[0].page_size);
    r->swap.reset();
  }

  // --- the host tier
  // ------------------------------------------------------------------------------

  // A full page that the index has just got is copied out under its key, now and then.
  void Store(size_t g, PageId page, KeyId key) {
    if (!s_.config.features.host_offload) return;
    if (Mix64(key.value() ^ s_.config.seed) % 4 == 0) return;
    Transfer& t = transfers_.emplace_back();
    t.kind = TransferKind::kStore;
    Run& run = t.runs.emplace_back();
    run.group = g;
    run.pages.push_back(page);
    run.key = key;
    run.dir = PinDir::kOut;
    PinRun(&t, &run);
    ++s_.report.pages_stored;
  }
  // Pages of the request whose content the host has, to be loaded before it can run.
  struct Wanted {
    size_t group;
    uint64_t at;
    KeyId key;
    HostPage content;
  };
  void Load(RequestState* r, uint64_t tokens, const std::vector<Wanted>& wanted) {
    Transfer& t = Begin(TransferKind::kLoad, *r);
    t.tokens = tokens;
    for (const Wanted& w : wanted) {
      Run& run = AddRun(&t, *r, w.group, w.at, w.at + 1, PinDir::kIn);
      run.key = w.key;
      run.content.push_back(w.content);
      ++s_.report.pages_loaded;
    }
  }

  // What comes back under a key is what was last copied out under it: while that comes, the key
  // must not get another meaning.
  bool Loading(KeyId key) const {
    return s_.config.features.host_offload && std::ranges::any_of(transfers_, [&](const auto& t) {
             return t.kind == TransferKind::kLoad &&
                    std::ranges::any_of(t.runs, [&](const Run& run) { return run.key == key; });
           });
  }

  // What the host has, or is being given, under the key is of no use any more.
  void Distrust(KeyId key) {
    for (size_t g = 0; g < s_.groups.size(); ++g) s_.host.Drop(g, key);
    for (Transfer& t : transfers_) {
      for (Run& run : t.runs) run.suspect |= t.kind == TransferKind::kStore && run.key == key;
    }
  }

  // --- the host's look at the device
  // ----------------------------------------------------------------

  // What can begin begins; what has landed is taken note of. `done(request, good, all)`: of `all`
  // tokens that the request waits for, the first `good` are in place.
  template <class F>
  void Poll(F done) {
    for (size_t i = 0; i < transfers_.size(); ++i) {  // the device's work may call Forget
      if (transfers_[i].begun_at && LeaseEnds(transfers_[i])) WaitFor(i);
    }
    std::erase_if(transfers_, [](const Transfer& t) { return t.forgotten; });
    for (Transfer& t : transfers_) {
      if (!t.begun_at && !Used(t)) BeginIn(&t);
    }
    std::vector<Transfer> landed = TakeOut(&transfers_, [](const Transfer& t) {
      return t.begun_at && std::ranges::all_of(t.runs, [](const Run& run) { return *run.landed; });
    });
    for (Transfer& t : landed) Land(&t, done);
  }
  // Nothing else can go on before some copy has ended.
  // False: none is under way.
  bool WaitForOne() {
    for (size_t i = 0; i < transfers_.size(); ++i) {
      if (!transfers_[i].begun_at) continue;
      WaitFor(i);
      return true;
    }
    return false;
  }
  // The request's end: what of its copies hasn't begun doesn't begin.
  void Forget(const RequestState& r) {
    for (Transfer& t : transfers_) t.forgotten |= t.id == r.id && t.id && !t.begun_at;
  }

 private:
  static constexpr uint64_t kRun = 8;  // pages in one pin
  static constexpr uint32_t kOutStream = 2, kInStream = 3;

  enum class TransferKind : uint8_t { kSwapOut, kSwapIn, kStore, kLoad };
  struct Run {
    NameId id{};
    size_t group = 0;
    uint64_t at = 0;
    std::vector<PageId> pages{};
    KeyId key{};
    PinDir dir = PinDir::kOut;
    uint64_t last = 0;  // slots of the last page that hold tokens
    std::vector<HostPage> content{};
    std::shared_ptr<bool> landed = std::make_shared<bool>(false);
    std::shared_ptr<std::vector<HostPage>> read = std::make_shared<std::vector<HostPage>>();
    SimDevice::Ticket ticket = 0;
    bool fails = false;
    bool suspect = false;  // what it stores isn't to be kept
  };
  struct Transfer {
    TransferKind kind = TransferKind::kStore;
    RequestIndex request = kNoRequest;
    RequestId id{};
    uint64_t tokens = 0;
    std::vector<Run> runs{};
    uint64_t asked_at = 0;               // the newest step launched when its pages were taken
    std::optional<uint64_t> begun_at{};  // the newest step launched when it began
    bool forgotten = false;              // its request ended before it began
  };

  Transfer& Begin(TransferKind kind, const RequestState& r) {
    Transfer& t = transfers_.emplace_back();
    t.kind = kind;
    t.request = r.index;
    t.id = r.id;
    t.asked_at = s_.report.steps;
    return t;
  }
  Run& AddRun(Transfer* t, const RequestState& r, size_t g, uint64_t begin, uint64_t end,
              PinDir dir) {
    Run& run = t->runs.emplace_back();
    run.group = g;
    run.at = begin;
    run.dir = dir;
    const uint64_t size = s_.groups[g].page_size;
    run.last = std::min(size, t->tokens - (end - 1) * size);
    for (uint64_t at = begin; at < end; ++at) run.pages.push_back(r.lists[g].pages[at]);
    return run;
  }

  // [pin], and the copy is queued, behind what the compute stream has still to do.
  void PinRun(Transfer* t, Run* run) {
    run->id = s_.NameOfCopy();
    run->fails = s_.copy_rng.Chance(s_.config.copy_fail_per_mille, 1000);
    PinEvent pin{.id = run->id,
                 .dir = run->dir == PinDir::kIn ? CopyDir::kIn : CopyDir::kOut,
                 .pages = run->pages,
                 .pool = s_.Pool(run->group)};
    if (t->request != kNoRequest) {
      pin.req = t->id;
      pin.at = run->at;
      pin.lease = kLease;
    }
    pin.key = run->key;
    KVF_IF_HEARD (s_.tracker) s_.tracker.Pin(pin);
    for (const PageId page : run->pages) s_.books[run->group]->Pin(page, run->dir);
    t->begun_at = s_.report.steps;
    const uint32_t stream = run->dir == PinDir::kIn ? kInStream : kOutStream;
    run->ticket = s_.device.Enqueue(
        stream, [this, copy = *run] { Execute(copy); }, s_.report.steps, s_.device.LastCompute());
  }
  static constexpr uint64_t kLease = 12;  // steps

  // Slots of the run's page that hold tokens; what is stored are whole pages.
  uint64_t SlotsOf(const Run& run, size_t i) const {
    const bool part = i + 1 == run.pages.size() && run.last > 0;
    return part ? run.last : s_.groups[run.group].page_size;
  }
  // On the device: the bytes move.
  void Execute(const Run& run) {
    const PoolId pool = s_.Pool(run.group);
    for (size_t i = 0; i < run.pages.size(); ++i) {
      const auto page = static_cast<uint64_t>(run.pages[i].value());
      if (run.dir == PinDir::kOut) {
        KVF_IF_HEARD (s_.tracker)
          s_.tracker.Read({.page = run.pages[i],
                           .xfer = run.id,
                           .sum = s_.SumOf(run.group, run.pages[i], SlotsOf(run, i)),
                           .pool = pool});
        run.read->push_back(s_.model->ReadPage(run.group, page));
        s_.Moved({.from = run.pages[i], .key = run.key, .number = i, .group = run.group});
        continue;
      }
      if (run.fails && i > 0) break;  // it dies in the middle
      const uint64_t n = SlotsOf(run, i);
      const ContentMove move{.to = run.pages[i], .key = run.key, .number = i, .group = run.group};
      s_.model->WritePage(run.group, page, n, run.content[i]);
      if (s_.hooks != nullptr) s_.hooks->OnArrive(*s_.surface, move, n);
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Write({.page = run.pages[i],
                          .first = 0,
                          .n = n,
                          .as = {.key = run.key},
                          .xfer = run.id,
                          .sum = s_.SumOf(run.group, run.pages[i], n),
                          .pool = pool});
      s_.Moved(move);
    }
    *run.landed = true;
  }

  // Does a launched step use pages that were in other hands before?
  bool Used(const Transfer& t) const { return s_.unsettled > 0 && t.asked_at > s_.settled; }
  void BeginIn(Transfer* t) {
    for (Run& run : t->runs) PinRun(t, &run);
    t->begun_at = s_.report.steps;
  }
  bool LeaseEnds(const Transfer& t) const { return s_.report.steps + 2 >= *t.begun_at + kLease; }
  void WaitFor(size_t i) {
    const Run& last = transfers_[i].runs.back();
    s_.device.Wait(last.dir == PinDir::kIn ? kInStream : kOutStream, last.ticket);
  }

  template <class F>
  void Land(Transfer* t, F done) {
    uint64_t good = t->tokens;
    for (Run& run : t->runs) {
      KVF_IF_HEARD (s_.tracker) s_.tracker.Unpin({.id = run.id, .ok = !run.fails});
      if (run.fails) {
        ++s_.report.copies_failed;
        good = std::min(good, run.at * s_.groups[run.group].page_size);
      }
      for (const PageId page : run.pages) {
        if (s_.books[run.group]->Unpin(page, run.dir)) {
          KVF_IF_HEARD (s_.tracker)
            s_.tracker.Free({.pages = {&page, 1}, .pool = s_.Pool(run.group)});
        }
      }
    }
    if (t->kind == TransferKind::kStore) {
      const Run& run = t->runs.front();
      if (!run.fails && !run.suspect) s_.host.Put(run.group, run.key, run.read->front());
      return;
    }
    RequestState* r = s_.requests[t->request].get();
    if (r == nullptr || r->id != t->id) return;  // it has ended, or begun anew
    if (t->kind == TransferKind::kSwapOut) {
      for (const Run& run : t->runs) {
        std::ranges::copy(*run.read,
                          r->swap->pages[run.group].begin() + static_cast<std::ptrdiff_t>(run.at));
      }
      r->swap->there = good == t->tokens;
      if (r->swap->there) return;
      good = 0;  // a part of it is lost: all of it is
    }
    done(r, good, t->tokens);
  }

  EngineState<TrackerT>& s_;
  PageKeeper<TrackerT>& pages_;
  std::vector<Transfer> transfers_;  // oldest first
  uint64_t swapped_pages_ = 0;
};

}  // namespace kvfence
