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

#include "engine_pages.h"
#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class PrefixCache {
 public:
  explicit PrefixCache(EngineState<TrackerT>* state) : s_(*state) {}

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
  // Pages to be taken for `tokens` tokens beside those found, and those that come out of eviction's
  // reach when they're shared.
  Demand NeedBeside(uint64_t tokens) const {
    Demand need{};
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      need[g] = PagesFor(tokens, s_.groups[g].page_size) - hits_[g].size();
      for (const SharedPage& hit : hits_[g]) {
        if (s_.books[g]->StateOf(hit.page) == PageState::kCached) ++need[g];
      }
    }
    return need;
  }
  // The request maps what was found. Returns the tokens that are there now.
  uint64_t Map(RequestState* r) {
    const uint64_t found = hits_[0].size() * s_.groups[0].page_size;
    if (s_.hooks != nullptr) {
      s_.hooks->OnShare(*s_.surface, r->index, hits_[0]);
      // A fault adds pages only where no other group must have as many.
      if (s_.groups.size() > 1) {
        Cut(std::min(found,
                     hits_[0].size() * s_.groups[0].page_size / s_.page_unit * s_.page_unit));
      }
    }
    for (size_t g = 0; g < s_.groups.size(); ++g) MapIn(r, g);
    return r->lists[0].pages.size() * s_.groups[0].page_size;
  }

  // Full pages that settled steps wrote enter the index.
  void Publish(RequestState* r) {
    if (!s_.config.features.prefix_cache) return;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      PageList& list = r->lists[g];
      const uint64_t full = r->computed / s_.groups[g].page_size;
      list.published = std::max(list.published, list.first);
      for (uint64_t& at = list.published; at < full; ++at) PublishOne(r, g, at);
    }
  }

 private:
  KeyId KeyAt(RequestState* r, size_t g, uint64_t at) const {
    const uint64_t size = s_.groups[g].page_size;
    // Groups of one page size have the same keys, each in its own index.
    std::vector<KeyId>& keys = r->lists[size == s_.groups[0].page_size ? 0 : g].keys;
    while (keys.size() <= at) {
      const uint64_t k = keys.size();
      const KeyId parent = k == 0 ? KeyId() : keys[k - 1];
      keys.push_back(ChainKey(parent, std::span(r->tokens).subspan(k * size, size), r->identity));
    }
    return keys[at];
  }

  void PublishOne(RequestState* r, size_t g, uint64_t at) {
    if (s_.hooks != nullptr && g == 0 && !s_.hooks->OnPublish(*s_.surface, r->index, at)) return;
    const KeyId key = KeyAt(r, g, at);
    if (!s_.books[g]->Publish(key, r->lists[g].pages[at], r->identity)) return;
    s_.tracker.Publish({.key = key, .req = r->id, .at = at, .pool = s_.Pool(g)});
  }

  // Tokens, up to `most`, of pages that follow each other from the start.
  uint64_t FindFull(RequestState* r, size_t g, uint64_t most) {
    const uint64_t size = s_.groups[g].page_size;
    for (uint64_t at = 0; at < most / size; ++at) {
      const KeyId key = KeyAt(r, g, at);
      const std::optional<PageId> page = s_.books[g]->Lookup(key);
      if (!page) break;
      hits_[g].push_back({key, *page});
    }
    return hits_[g].size() * size;
  }
  // The longest prefix, up to `most` tokens, whose last window of pages is there.
  uint64_t FindRecent(RequestState* r, size_t g, uint64_t most) {
    const KvGroup& group = s_.groups[g];
    std::vector<SharedPage>& hits = hits_[g];
    for (uint64_t at = 0; at < most / group.page_size; ++at) {
      const KeyId key = KeyAt(r, g, at);
      hits.push_back({key, s_.books[g]->Lookup(key).value_or(kNullPage)});
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

  void MapIn(RequestState* r, size_t g) {
    PageList& list = r->lists[g];
    list.published = list.first = 0;
    if (hits_[g].empty()) return;
    shared_.clear();
    keys_.clear();
    for (const SharedPage& hit : hits_[g]) {
      if (hit.page != kNullPage) {
        if (!s_.books[g]->AddReference(hit.page)) break;
        s_.books[g]->NoteHit(hit.key);
        ++s_.report.pages_shared;
      } else {
        ++list.first;
      }
      shared_.push_back(hit.page);
      keys_.push_back(hit.key);
    }
    const uint64_t tokens = shared_.size() * s_.groups[g].page_size;
    s_.tracker.Share(
        {.req = r->id, .pages = shared_, .tokens = tokens, .keys = keys_, .pool = s_.Pool(g)});
    list.pages = shared_;
    list.published = shared_.size();
    if (g == 0) s_.report.tokens_cached += tokens;
  }

  EngineState<TrackerT>& s_;
  std::array<std::vector<SharedPage>, kMostGroups> hits_;
  std::vector<PageId> shared_;
  std::vector<KeyId> keys_;
};

}  // namespace kvfence
