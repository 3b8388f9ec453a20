// The prefix cache: pages found under chained keys when a request is admitted, and published when
// they are full.
//
// Idea: a hit must be one in every group: all pages where attention is full, those that the next
// token's window reaches where it slides (the rest are null). Invariant I-112: what is shared is
// the same number of tokens in each group.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "engine_mover.h"
#include "engine_pages.h"
#include "engine_state.h"

namespace kvfence {

// Stands for a page of which only the host has the content.
inline constexpr PageId kOnHost{-2};

template <class TrackerT>
class PrefixCache {
 public:
  PrefixCache(EngineState<TrackerT>* state, PageKeeper<TrackerT>* pages, Mover<TrackerT>* mover)
      : s_(*state), pages_(*pages), mover_(*mover) {}

  // Looks for the longest prefix that all groups have; at least the last token is computed. Returns
  // its tokens, whole pages in each group.
  uint64_t Find(RequestState* r) {
    for (std::vector<SharedPage>& hits : hits_) hits.clear();
    if (!s_.config.features.prefix_cache) return 0;
    uint64_t most = (r->tokens.size() - 1) / s_.page_unit * s_.page_unit;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      if (s_.groups[g].window == 0) most = FindFull(r, g, most) / s_.page_unit * s_.page_unit;
    }
    for (size_t g = 0; g < s_.groups.size() && most > 0; ++g) {
      if (s_.groups[g].window > 0) most = FindRecent(r, g, most);
    }
    Cut(most);
    return most;
  }
  // As Find, for what is in the cache of another engine, where windows have left the pages before
  // `begin` behind: a prefix that ends before one of these is of no use.
  uint64_t FindBehind(RequestState* r, const Demand& begin) {
    const uint64_t found = Find(r);
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      if (found / s_.groups[g].page_size >= begin[g]) continue;
      Cut(0);
      return 0;
    }
    return found;
  }
  // Pages found that come out of eviction's reach when they're shared.
  Demand Cached() const {
    Demand cached{};
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      cached[g] = static_cast<uint64_t>(std::ranges::count_if(hits_[g], [&](const SharedPage& hit) {
        return hit.page != kOnHost && s_.books[g]->StateOf(hit.page) == PageState::kCached;
      }));
    }
    return cached;
  }
  // Does what was found stand on the host in part?
  bool MustLoad() const {
    return std::ranges::any_of(hits_, [](const std::vector<SharedPage>& hits) {
      return std::ranges::any_of(hits, [](const SharedPage& h) { return h.page == kOnHost; });
    });
  }
  // Pages to be taken for `tokens` tokens beside those found, and those that come out of eviction's
  // reach when they're shared.
  Demand NeedBeside(uint64_t tokens, uint64_t ahead) const {
    Demand need = Cached();
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const KvGroup& group = s_.groups[g];
      need[g] += PagesFor(tokens + (group.draft ? ahead : 0), group.page_size) - hits_[g].size();
      need[g] += static_cast<uint64_t>(std::ranges::count_if(
          hits_[g], [](const SharedPage& hit) { return hit.page == kOnHost; }));
    }
    return need;
  }
  // The request maps what was found. Returns the tokens that are there now.
  uint64_t Map(RequestState* r) {
    const uint64_t found = hits_[0].size() * s_.groups[0].page_size;
    if (s_.hooks != nullptr && !MustLoad()) {
      s_.hooks->OnShare(*s_.surface, r->index, hits_[0]);
      // A fault adds pages only where no other group must have as many.
      if (s_.groups.size() > 1) {
        Cut(std::min(found,
                     hits_[0].size() * s_.groups[0].page_size / s_.page_unit * s_.page_unit));
      }
    }
    wanted_.clear();
    // All that is there is held before a page is taken: taking evicts.
    for (size_t g = 0; g < s_.groups.size(); ++g) Hold(g);
    for (size_t g = 0; g < s_.groups.size(); ++g) MapIn(r, g);
    return r->lists[0].pages.size() * s_.groups[0].page_size;
  }
  // Asks for the pages that Map found on the host; what comes is told by Mover::Poll.
  void Load(RequestState* r, uint64_t tokens) { mover_.Load(r, tokens, wanted_); }
  bool Loads() const { return !wanted_.empty(); }

  // Full pages that are in the index are copied to the host's tier.
  void Store(RequestState* r) {
    if (!s_.config.features.host_offload || !s_.config.features.prefix_cache) return;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      PageList& list = r->lists[g];
      const uint64_t full = Told(*r) / s_.groups[g].page_size;
      for (list.stored = std::max(list.stored, list.first); list.stored < full; ++list.stored) {
        const KeyId key = KeyAt(r, g, list.stored);
        const std::optional<PageId> page = s_.books[g]->Lookup(key);
        if (page == list.pages[list.stored]) mover_.Store(g, *page, key);
      }
    }
  }

  // Full pages that settled steps wrote enter the index. Inlined to the last hook into
  // Scheduler::Advance, with hooks and without (ADR 53).
  [[gnu::always_inline]] void Publish(RequestState* r) { PublishUpTo(r, Told(*r), true); }
  // Pages that the step in planning will fill enter it already, so that others hit them before they
  // are written, in this very step too.
  [[gnu::noinline]] void PublishAhead(RequestState* r, uint64_t tokens) {
    PublishUpTo(r, tokens, false);
  }

 private:
  // Tokens in the cache of which the request knows what they are: guesses that were right beyond
  // its end were computed too, and have no key.
  static uint64_t Told(const RequestState& r) {
    return std::min<uint64_t>(r.computed, r.tokens.size());
  }
  KeyId KeyAt(RequestState* r, size_t g, uint64_t at) const {
    const uint64_t size = s_.groups[g].page_size;
    // A key is of one group, and of one engine: what is stored under it must not depend on where
    // it's asked for. Groups of one page size share the work of hashing.
    std::vector<KeyId>& keys = r->lists[size == s_.groups[0].page_size ? 0 : g].keys;
    while (keys.size() <= at) {
      const uint64_t k = keys.size();
      const KeyId parent = k == 0 ? KeyId() : keys[k - 1];
      keys.push_back(ChainKey(parent, std::span(r->tokens).subspan(k * size, size), r->identity));
    }
    const uint64_t pool = s_.Pool(g).value();
    return pool == 0 ? keys[at] : KeyId(Mix64(keys[at].value() + pool) | 1);
  }

  [[gnu::always_inline]] void PublishUpTo(RequestState* r, uint64_t tokens, bool written) {
    if (!s_.config.features.prefix_cache) return;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      PageList& list = r->lists[g];
      const uint64_t full = tokens / s_.groups[g].page_size;
      list.published = std::max(list.published, list.first);
      for (uint64_t& at = list.published; at < full; ++at) {
        // What the index has already is looked at once more when it's written.
        if (!PublishOne(r, g, at, written) && !written) break;
      }
    }
  }
  // False: the index has this key already, with another page.
  [[gnu::always_inline]] bool PublishOne(RequestState* r, size_t g, uint64_t at, bool written) {
    if (s_.hooks != nullptr && g == 0 && !s_.hooks->OnPublish(*s_.surface, r->index, at)) {
      return true;
    }
    const KeyId key = KeyAt(r, g, at);
    if (mover_.Loading(key)) return false;  // it stands for what the host has
    if (s_.books[g]->Publish(key, r->lists[g].pages[at], r->identity)) {
      KVF_IF_HEARD (s_.tracker)
        s_.tracker.Publish({.key = key, .req = r->id, .at = at, .pool = s_.Pool(g)});
      s_.host.Drop(g, key);  // the key stands for this page's content from now on
      return true;
    }
    if (written && s_.config.features.radix_dedupe) Exchange(r, g, at, key);
    return false;
  }

  // The tree has this page: the request goes on with the tree's, and its own goes back.
  void Exchange(RequestState* r, size_t g, uint64_t at, KeyId key) {
    const std::optional<PageId> found = s_.books[g]->Lookup(key);
    const PageId own = r->lists[g].pages[at];
    if (!found || *found == own || !s_.books[g]->AddReference(*found)) return;
    const uint64_t size = s_.groups[g].page_size;
    KVF_IF_HEARD (s_.tracker)
      s_.tracker.Share({.req = r->id,
                        .pages = {&*found, 1},
                        .tokens = size,
                        .at = at,
                        .keys = {&key, 1},
                        .pool = s_.Pool(g)});
    r->lists[g].pages[at] = *found;
    if (g == 0) s_.Holds(*r, *found, false);
    s_.batch.Rewrite(*r, g, at);
    pages_.LetGo(g, own);
    ++s_.report.pages_exchanged;
  }

  // Tokens, up to `most`, of pages that follow each other from the start.
  uint64_t FindFull(RequestState* r, size_t g, uint64_t most) {
    const uint64_t size = s_.groups[g].page_size;
    for (uint64_t at = 0; at < most / size; ++at) {
      const KeyId key = KeyAt(r, g, at);
      const PageId page = Lookup(*r, g, key);
      if (page == kNullPage) break;
      hits_[g].push_back({key, page});
    }
    return hits_[g].size() * size;
  }
  // The longest prefix, up to `most` tokens, whose last window of pages is there.
  uint64_t FindRecent(RequestState* r, size_t g, uint64_t most) {
    const KvGroup& group = s_.groups[g];
    std::vector<SharedPage>& hits = hits_[g];
    for (uint64_t at = 0; at < most / group.page_size; ++at) {
      const KeyId key = KeyAt(r, g, at);
      hits.push_back({key, Lookup(*r, g, key)});
    }
    for (; most > 0; most -= s_.page_unit) {
      const uint64_t first = FirstRead(most, group.window) / group.page_size;
      const auto end = hits.begin() + static_cast<std::ptrdiff_t>(most / group.page_size);
      const bool there = std::none_of(hits.begin() + static_cast<std::ptrdiff_t>(first), end,
                                      [](const SharedPage& hit) { return hit.page == kNullPage; });
      if (there) break;
    }
    return most;
  }
  // The page that has it, kOnHost, or the null page.
  PageId Lookup(const RequestState& r, size_t g, KeyId key) const {
    if (const std::optional<PageId> page = s_.books[g]->Lookup(key)) {
      return s_.books[g]->MayShare(*page) ? *page : kNullPage;
    }
    return !r.load_failed && s_.host.Find(g, key) ? kOnHost : kNullPage;
  }
  void Cut(uint64_t tokens) {
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const KvGroup& group = s_.groups[g];
      hits_[g].resize(std::min<size_t>(hits_[g].size(), tokens / group.page_size));
      const uint64_t first = FirstRead(tokens, group.window) / group.page_size;
      for (uint64_t at = 0; at < std::min<uint64_t>(first, hits_[g].size()); ++at) {
        hits_[g][at].page = kNullPage;
      }
    }
  }

  void Hold(size_t g) {
    std::vector<SharedPage>& hits = hits_[g];
    for (size_t i = 0; i < hits.size(); ++i) {
      if (hits[i].page == kNullPage || hits[i].page == kOnHost) continue;
      if (!s_.books[g]->AddReference(hits[i].page)) return hits.resize(i);
      s_.books[g]->NoteHit(hits[i].key);
    }
  }

  void MapIn(RequestState* r, size_t g) {
    PageList& list = r->lists[g];
    list.published = list.first = list.stored = 0;
    if (hits_[g].empty()) return;
    if (std::ranges::any_of(hits_[g], [](const SharedPage& h) { return h.page == kOnHost; })) {
      return MapPartly(r, g);
    }
    shared_.clear();
    keys_.clear();
    for (const SharedPage& hit : hits_[g]) {
      if (hit.page == kNullPage) ++list.first;
      if (hit.page != kNullPage) ++s_.report.pages_shared;
      shared_.push_back(hit.page);
      keys_.push_back(hit.key);
    }
    const uint64_t tokens = shared_.size() * s_.groups[g].page_size;
    KVF_IF_HEARD (s_.tracker)
      s_.tracker.Share(
          {.req = r->id, .pages = shared_, .tokens = tokens, .keys = keys_, .pool = s_.Pool(g)});
    list.pages = shared_;
    list.published = shared_.size();
    if (g == 0) s_.report.tokens_cached += tokens;
  }

  // Runs of pages that are there are shared; for the others pages are taken, to be loaded into.
  void MapPartly(RequestState* r, size_t g) {
    PageList& list = r->lists[g];
    const std::vector<SharedPage>& hits = hits_[g];
    const uint64_t size = s_.groups[g].page_size;
    while (list.first < hits.size() && hits[list.first].page == kNullPage) ++list.first;
    list.pages.resize(list.first);
    for (size_t at = list.first; at < hits.size();) {
      shared_.clear();
      keys_.clear();
      const bool there = hits[at].page != kOnHost;
      size_t end = at;
      for (; end < hits.size() && (hits[end].page != kOnHost) == there; ++end) {
        const SharedPage& hit = hits[end];
        if (!there) wanted_.push_back({g, end, hit.key, s_.host.Find(g, hit.key)});
        shared_.push_back(hit.page);
        keys_.push_back(hit.key);
      }
      if (there) {
        s_.report.pages_shared += shared_.size();
        KVF_IF_HEARD (s_.tracker)
          s_.tracker.Share({.req = r->id,
                            .pages = shared_,
                            .tokens = shared_.size() * size,
                            .at = at,
                            .keys = keys_,
                            .pool = s_.Pool(g)});
        list.pages.insert(list.pages.end(), shared_.begin(), shared_.end());
        for (size_t i = 0; g == 0 && i < shared_.size(); ++i) s_.Holds(*r, shared_[i], false);
      } else {
        Demand demand{};
        demand[g] = end - at;
        pages_.Take(r, demand);
        list.published = std::min(list.published, at);
      }
      at = end;
    }
  }

  EngineState<TrackerT>& s_;
  PageKeeper<TrackerT>& pages_;
  Mover<TrackerT>& mover_;
  std::array<std::vector<SharedPage>, kMostGroups> hits_;
  std::vector<PageId> shared_;
  std::vector<KeyId> keys_;
  std::vector<typename Mover<TrackerT>::Wanted> wanted_;
};

}  // namespace kvfence
