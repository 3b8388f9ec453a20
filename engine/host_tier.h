// The host's memory as a tier of the cache: content of single pages, by group and key.
//
// Idea: content is shared and never changes, so a load goes on with what it began with though the
// tier has let it go since. The oldest goes first. Invariant I-115: what is here under a key is
// what the last copy out under that key read.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvfence/types.h"
#include "served_model.h"

namespace kvfence {

class HostTier {
 public:
  HostTier(size_t groups, uint64_t pages) : pages_(groups), room_(pages) {}

  uint64_t size() const { return order_.size(); }
  HostPage Find(size_t group, KeyId key) const {
    const auto it = pages_[group].find(key.value());
    return it == pages_[group].end() ? nullptr : it->second.page;
  }
  void Put(size_t group, KeyId key, HostPage page) {
    if (room_ == 0) return;
    Drop(group, key);
    if (order_.size() == room_) {
      const auto [g, k] = order_.front();
      Drop(g, k);
    }
    order_.emplace_back(group, key);
    pages_[group].emplace(key.value(), Kept{std::move(page), std::prev(order_.end())});
  }
  void Drop(size_t group, KeyId key) {
    const auto it = pages_[group].find(key.value());
    if (it == pages_[group].end()) return;
    order_.erase(it->second.place);
    pages_[group].erase(it);
  }

 private:
  using Order = std::list<std::pair<size_t, KeyId>>;
  struct Kept {
    HostPage page;
    Order::iterator place;
  };

  std::vector<std::unordered_map<uint64_t, Kept>> pages_;  // by group; only looked up
  Order order_;                                            // oldest first
  uint64_t room_;
};

}  // namespace kvfence
