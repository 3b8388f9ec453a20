// Pages of requests over all groups: what is needed, taken, left behind by a window, given back.
//
// Idea: the one place where a request's lists change. Invariant: the fence hears alloc, drop and
// free in the order in which the books change; free after what let the pages go.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine_state.h"

namespace kvfence {

// Pages by group.
using Demand = std::array<uint64_t, kMostGroups>;

template <class TrackerT>
class PageKeeper {
 public:
  explicit PageKeeper(EngineState<TrackerT>* state) : s_(*state) {}

  // Pages that the request lacks for `tokens` tokens, and `ahead` slots of drafts behind them.
  Demand Lacking(const RequestState& r, uint64_t tokens, uint64_t ahead) const {
    Demand demand{};
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const KvGroup& group = s_.groups[g];
      const uint64_t want = PagesFor(tokens + (group.draft ? ahead : 0), group.page_size);
      demand[g] = want - std::min<uint64_t>(want, r.lists[g].pages.size());
    }
    return demand;
  }
  static bool Nothing(const Demand& demand) {
    return std::ranges::all_of(demand, [](uint64_t n) { return n == 0; });
  }
  static Demand Sum(Demand a, const Demand& b) {
    for (size_t g = 0; g < a.size(); ++g) a[g] += b[g];
    return a;
  }
  // Are as many free, or cached and evictable?
  bool Fits(const Demand& demand) const {
    if (!s_.one_space()) {
      for (size_t g = 0; g < s_.groups.size(); ++g) {
        if (demand[g] > 0 && demand[g] > s_.books[g]->Free() + s_.books[g]->Evictable()) {
          return false;
        }
      }
      return true;
    }
    uint64_t have = s_.books[0]->Free();
    uint64_t want = 0;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      have += s_.books[g]->Evictable();
      want += demand[g];
    }
    return want <= have;
  }
  void Take(RequestState* r, const Demand& demand) {
    for (size_t g = 0; g < s_.groups.size(); ++g) TakeIn(r, g, demand[g]);
  }

  // One fresh page for the caller to map.
  PageId TakeOne(size_t g) {
    PageBooks<TrackerT>& books = *s_.books[g];
    if (s_.one_space() && books.Free() == 0 && books.Evictable() == 0) {
      for (const auto& other : s_.books) {
        if (other->Evictable() == 0) continue;
        other->EvictOne();
        break;
      }
    }
    return books.Take();
  }
  // A reference that the request no longer has, of a page that others hold, or not.
  void LetGo(size_t g, PageId page) {
    if (s_.books[g]->Return(page))
      KVF_IF_HEARD (s_.tracker) s_.tracker.Free({.pages = {&page, 1}, .pool = s_.Pool(g)});
  }

  // What the window has left behind goes back; the row's table goes on naming it.
  void Slide(RequestState* r) {
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const KvGroup& group = s_.groups[g];
      const PageList& list = r->lists[g];
      const uint64_t first = std::min<uint64_t>(
          FirstRead(r->computed, group.window) / group.page_size, list.pages.size());
      if (first > list.first) LeaveBehind(r, g, first);
    }
  }

  // What follows the first `tokens` tokens goes back. The request must expect no more of it.
  void ReturnBehind(RequestState* r, uint64_t tokens) {
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      PageList& list = r->lists[g];
      const uint64_t keep =
          std::min<uint64_t>(PagesFor(tokens, s_.groups[g].page_size), list.pages.size());
      ReturnRange(r, g, std::max(keep, list.first), list.pages.size());
      list.pages.resize(keep);
      list.first = std::min(list.first, keep);
      list.published = std::min(list.published, keep);
      list.stored = std::min(list.stored, keep);
    }
  }

  // Drops what follows the first `tokens` tokens, whole pages in each group.
  void DropBehind(RequestState* r, uint64_t tokens) {
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const PageList& list = r->lists[g];
      const uint64_t keep = PagesFor(tokens, s_.groups[g].page_size);
      if (keep >= list.pages.size()) continue;
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Drop(
            {.req = r->id, .at = keep, .n = list.pages.size() - keep, .pool = s_.Pool(g)});
    }
    ReturnBehind(r, tokens);
  }

  // Whole pages in each group, and nothing that a window has left behind: how much of the first
  // `tokens` tokens can be gone on from.
  uint64_t Resumable(const RequestState& r, uint64_t tokens) const {
    uint64_t keep = tokens / s_.page_unit * s_.page_unit;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const KvGroup& group = s_.groups[g];
      keep =
          std::min(keep, r.lists[g].pages.size() * group.page_size / s_.page_unit * s_.page_unit);
    }
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const KvGroup& group = s_.groups[g];
      if (FirstRead(keep, group.window) / group.page_size < r.lists[g].first) return 0;
    }
    return keep;
  }

 private:
  void TakeIn(RequestState* r, size_t g, uint64_t n) {
    if (n == 0) return;
    PageList& list = r->lists[g];
    fresh_.clear();
    for (uint64_t i = 0; i < n; ++i) fresh_.push_back(TakeOne(g));
    if (s_.hooks != nullptr && g == 0) {
      std::vector<PageId> altered = fresh_;
      s_.hooks->OnAlloc(*s_.surface, r->index, altered);
      for (size_t i = 0; i < fresh_.size() && i < altered.size(); ++i) {
        if (altered[i] != fresh_[i] && s_.books[g]->Exchange(fresh_[i], altered[i])) {
          fresh_[i] = altered[i];
        }
      }
    }
    KVF_IF_HEARD (s_.tracker) {
      AllocEvent event{.req = r->id, .pages = fresh_, .pool = s_.Pool(g)};
      if (list.first > 0) event.at = list.pages.size();  // behind a gap, it may be
      s_.tracker.Alloc(event);
    }
    list.pages.insert(list.pages.end(), fresh_.begin(), fresh_.end());
  }

  // Pages before the logical page `first`. Not inlined into what each row runs through (ADR 53).
  [[gnu::noinline]] void LeaveBehind(RequestState* r, size_t g, uint64_t first) {
    PageList& list = r->lists[g];
    KVF_IF_HEARD (s_.tracker)
      s_.tracker.Drop(
          {.req = r->id, .at = list.first, .n = first - list.first, .pool = s_.Pool(g)});
    s_.report.pages_slid += first - list.first;
    ReturnRange(r, g, list.first, first);
    for (; list.first < first; ++list.first) list.pages[list.first] = kNullPage;
  }

  // Last page first, so that a cached chain is evicted from its end.
  void ReturnRange(RequestState* r, size_t g, uint64_t begin, uint64_t end) {
    PageBooks<TrackerT>& books = *s_.books[g];
    const bool hooked = s_.hooks != nullptr && g == 0;
    fresh_.clear();
    for (uint64_t i = end; i > begin; --i) {
      const PageId page = r->lists[g].pages[i - 1];
      const ReturnAction action =
          hooked ? s_.hooks->OnReturn(*s_.surface, r->index, page) : ReturnAction::kProceed;
      if (action == ReturnAction::kSkip) continue;
      if (books.Return(page)) fresh_.push_back(page);
      if (action == ReturnAction::kTwice) again_.push_back(page);
    }
    if (!fresh_.empty())
      KVF_IF_HEARD (s_.tracker) s_.tracker.Free({.pages = fresh_, .pool = s_.Pool(g)});
    for (const PageId page : std::exchange(again_, {})) {
      if (books.StateOf(page) == PageState::kFree) {
        s_.surface->FreeAgain(page);
      } else {
        s_.surface->FreePageNow(page);
      }
    }
  }

  EngineState<TrackerT>& s_;
  std::vector<PageId> fresh_;
  std::vector<PageId> again_;
};

}  // namespace kvfence
