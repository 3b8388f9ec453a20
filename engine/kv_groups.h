// KV cache groups: layers that share one pool, one table and one page size (vLLM's name for them).
//
// Idea: everything that exists once per pool is made by walking this list: fence pools, allocators,
// memory, tables, buffers. Group 0 is full attention; a request has one length over all groups.
// Invariant I-111: a group whose feature is off isn't there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvfence/engine.h"

namespace kvfence {

inline constexpr size_t kMostGroups = 4;

struct KvGroup {
  std::string name;
  uint64_t pages = 0;  // the null page counted
  uint64_t page_size = 0;
  uint64_t width = 0;   // table entries per row
  uint64_t window = 0;  // tokens that one token reads, itself included; 0: all
  std::string space{};  // groups of one space draw from one free list
};

std::vector<KvGroup> GroupsOf(const EngineConfig& config, const std::vector<TraceRequest>& trace);

constexpr uint64_t PagesFor(uint64_t tokens, uint64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}
// The first position that a token at `position` reads.
constexpr uint64_t FirstRead(uint64_t position, uint64_t window) {
  return window > 0 && position + 1 > window ? position + 1 - window : 0;
}
// Pages that a request of `tokens` tokens may hold at once in the group, when it grows by up to
// `step` tokens at a time.
uint64_t MostPages(const KvGroup& group, uint64_t tokens, uint64_t step);

}  // namespace kvfence
