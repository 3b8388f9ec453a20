// Interned strings: request ids, transfer ids, digests, sums and identities become small integers.
//
// Invariant: the same string gives the same id for the life of the table, ids count from 1 (0 is
// "none"), and two different strings never share one: nothing is hashed into an id. Memory grows
// with the distinct strings seen. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace kvfence {

class NameTable {
 public:
  uint32_t Intern(std::string_view name) {
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    const std::string& kept = names_.emplace_back(name);
    const uint32_t id = static_cast<uint32_t>(names_.size());
    ids_.emplace(kept, id);
    return id;
  }
  // 0 when the string was never interned.
  uint32_t Find(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? 0 : found->second;
  }
  // Empty for 0 and for ids of other tables. Valid for the life of the table.
  std::string_view NameOf(uint32_t id) const {
    return id == 0 || id > names_.size() ? std::string_view() : names_[id - 1];
  }
  size_t size() const { return names_.size(); }

 private:
  std::deque<std::string> names_;  // a deque: views into it stay valid
  std::unordered_map<std::string_view, uint32_t> ids_;
};

}  // namespace kvfence
