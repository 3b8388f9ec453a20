// Fork: parallel sampling and beams. Siblings share all pages of what they have in common; who
// writes into a partial page that others map gets a copy of it first (copy-on-write).
//
// Idea: when a prompt's last chunk is settled its request is forked, and each sibling samples its
// own first token from that same result; siblings for which there is no row wait like preempted
// requests. A beam that dies is forked anew from a sibling. Invariant I-113: siblings share pages
// only up to their common length, so at most the last of them is partial.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_pages.h"
#include "engine_state.h"
#include "kvfence/check.h"

namespace kvfence {

template <class TrackerT>
class Forker {
 public:
  Forker(EngineState<TrackerT>* state, PageKeeper<TrackerT>* pages) : s_(*state), pages_(*pages) {}

  // How many samples the request is to give; a function of seed and place in the trace.
  uint64_t SamplesOf(const RequestState& r) const {
    if (!s_.config.features.parallel_sampling || s_.config.samples < 2) return 1;
    return 1 + Mix64(Mix64(s_.config.seed) ^ (uint64_t{r.index} + 17)) % s_.config.samples;
  }

  // `r`'s prompt is in the cache, and `result` came of it; its own first token isn't appended yet
  // (it may have been preempted since: then there's nothing to share). Returns the siblings'
  // number; their first tokens are appended.
  uint64_t ForkSiblings(RequestState* r, uint64_t result) {
    const uint64_t samples = SamplesOf(*r);
    if (samples < 2) return 0;
    for (uint64_t sample = 1; sample < samples; ++sample) {
      RequestState* sibling = MakeSibling(*r, static_cast<uint32_t>(sample));
      sibling->tokens.push_back(s_.model->TokenOf(result, sibling->sample));
      if (sibling->golden) sibling->golden->Advance(sibling->sample);
      if (sibling->done()) {
        s_.requests[sibling->index].reset();
        continue;
      }
      if (r->id && s_.running.size() + s_.moving.size() < s_.config.rows && Shareable(*r) &&
          pages_.Fits(CopiesAtOnce(*r))) {
        Fork(*r, sibling);
        s_.running.push_back(sibling);
      } else {
        s_.waiting.push_back(sibling);
        s_.ForgetGolden(sibling);
      }
    }
    return samples - 1;
  }

  bool WillFork(const RequestState& r) const {
    return !r.forked && r.outputs() == 0 && SamplesOf(r) > 1;
  }

  // Now and then a beam is given up, and a sibling of it goes on twice.
  void Rebeam() {
    if (!s_.config.features.beam_search || !s_.beam_rng.Chance(1, 4)) return;
    candidates_.clear();
    for (RequestState* r : s_.running) {
      if (r->flights == 0 && r->root != kNoRequest && r->outputs() > 0) candidates_.push_back(r);
    }
    if (candidates_.size() < 2) return;
    RequestState* dies = candidates_[s_.beam_rng.Below(candidates_.size())];
    std::erase_if(candidates_, [&](const RequestState* r) {
      return r == dies || r->root != dies->root || r->computed == 0 || !Shareable(*r);
    });
    if (candidates_.empty()) return;
    Replace(dies, *candidates_[s_.beam_rng.Below(candidates_.size())]);
  }

  // Pages that must be copied before the request writes at its position `computed`.
  Demand Copies(const RequestState& r) const {
    Demand demand{};
    if (!s_.config.features.parallel_sampling) return demand;  // nobody shares a partial page
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      ForShared(r, g, [&](uint64_t) { ++demand[g]; });
    }
    return demand;
  }
  void CopyOnWrite(RequestState* r) {
    if (!s_.config.features.parallel_sampling) return;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      ForShared(*r, g, [&](uint64_t at) { Copy(r, g, at); });
    }
  }

 private:
  // A page that is set apart gets no further holders.
  bool Shareable(const RequestState& r) const {
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const PageList& list = r.lists[g];
      for (uint64_t at = list.first; at < list.pages.size(); ++at) {
        if (s_.books[g]->StateOf(list.pages[at]) == PageState::kQuarantined) return false;
      }
    }
    return true;
  }
  // Under launched work of the source, the last page is copied at once.
  Demand CopiesAtOnce(const RequestState& from) const {
    Demand demand{};
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      demand[g] = from.launched > 0 && from.computed % s_.groups[g].page_size != 0 ? 1 : 0;
    }
    return demand;
  }
  // Pages that the next step may write and others map: of what is launched it isn't known yet how
  // much was guessed right, so a step may begin anywhere behind what is settled.
  template <class F>
  void ForShared(const RequestState& r, size_t g, F f) const {
    const uint64_t size = s_.groups[g].page_size;
    const std::vector<PageId>& pages = r.lists[g].pages;
    for (uint64_t at = (r.computed + r.sure) / size; at < pages.size() && at * size <= r.base();
         ++at) {
      // What is being copied out must stand as it is till then.
      if (s_.books[g]->Shared(pages[at]) || s_.books[g]->Pinned(pages[at])) f(at);
    }
  }

  void Copy(RequestState* r, size_t g, uint64_t at) {
    PageId& page = r->lists[g].pages[at];
    const PageId from = page;
    const PageId to = pages_.TakeOne(g);
    KVF_IF_HEARD (s_.tracker)
      s_.tracker.Cow({.req = r->id, .at = at, .page = to, .pool = s_.Pool(g)});
    page = to;
    if (g == 0) s_.Holds(*r, to, true);
    pages_.LetGo(g, from);
    s_.batch.Rewrite(*r, g, at);
    ++s_.report.pages_copied;
    // In stream order that's now, as the fence was told.
    KVF_CHECK(s_.device.Idle(kComputeStream), "I-117 a copy for writing is made when it's said");
    s_.model->CopyPage(g, static_cast<uint64_t>(from.value()), static_cast<uint64_t>(to.value()));
    s_.Moved({.from = from, .to = to, .group = g});
  }

  RequestState* MakeSibling(const RequestState& of, uint32_t sample) {
    const auto index = static_cast<RequestIndex>(s_.requests.size());
    RequestState* r = s_.requests.emplace_back(std::make_unique<RequestState>()).get();
    r->index = index;
    r->root = of.index;
    r->sample = sample;
    r->at_prefill = of.at_prefill;
    r->trace = of.trace;
    const std::string name = "r" + std::to_string(index);
    r->name = s_.names.name ? s_.names.name(name) : NameId(index + 1);
    r->identity = of.identity;
    r->salt = of.salt;
    r->tokens = of.tokens;
    r->golden = of.golden ? of.golden->Copy() : nullptr;
    r->arrival_step = of.arrival_step;
    r->first_token_step = s_.passes;
    ++s_.report.siblings;
    return r;
  }

  // `to` is admitted and holds what `from` holds, but for what launched steps are adding to that.
  void Fork(const RequestState& from, RequestState* to) {
    ++s_.report.admitted;
    s_.Admit(to);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Fork({.from = from.id, .to = to->id});
    to->computed = from.computed;
    to->lists = from.lists;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      for (uint64_t at = to->lists[g].first; at < to->lists[g].pages.size(); ++at) {
        s_.books[g]->AddReference(to->lists[g].pages[at]);
        if (g == 0) s_.Holds(*to, to->lists[g].pages[at], false);
        ++s_.report.pages_shared;
      }
    }
    pages_.DropBehind(to, to->computed);
    if (from.launched == 0) return;
    // What the source has launched isn't the sibling's: it's cut off in a page of its own.
    CopyOnWrite(to);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Trim({.req = to->id, .tokens = to->computed});
  }

  void Replace(RequestState* dies, RequestState& lives) {
    if (s_.hooks != nullptr) s_.hooks->OnRelease(*s_.surface, dies->index);
    s_.batch.Clear(dies);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Release({.req = dies->id});
    pages_.ReturnBehind(dies, 0);
    dies->tokens = lives.tokens;
    if (s_.config.ground_truth) dies->golden = s_.GoldenOf(&lives).Copy();
    dies->other_line = true;
    ++s_.report.beams_replaced;
    Fork(lives, dies);
  }

  EngineState<TrackerT>& s_;
  PageKeeper<TrackerT>& pages_;
  std::vector<RequestState*> candidates_;
};

}  // namespace kvfence
