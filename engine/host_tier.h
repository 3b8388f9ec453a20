// The host's memory as a tier of the cache: content of single pages, by group and key.
//
// Idea: content is shared and never changes, so a load goes on with what it began with though the
// tier has let it go since. The oldest goes first. Invariant I-115: what is here under a key is
// what the last copy out under that key read.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
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
    return it == pages_[group].end() ? nullptr : it->second;
  }
  void Put(size_t group, KeyId key, HostPage page) {
    if (room_ == 0) return;
    Drop(group, key);
    if (order_.size() == room_) {
      const auto [g, k] = order_.front();
      Drop(g, k);
    }
    pages_[group].emplace(key.value(), std::move(page));
    order_.emplace_back(group, key);
  }
  void Drop(size_t group, KeyId key) {
    if (pages_[group].erase(key.value()) > 0) std::erase(order_, std::pair(group, key));
  }

 private:
  std::vector<std::unordered_map<uint64_t, HostPage>> pages_;  // by group; only looked up
  std::deque<std::pair<size_t, KeyId>> order_;                 // oldest first
  uint64_t room_;
};

}  // namespace kvfence
