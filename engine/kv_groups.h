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
  bool draft = false;   // the draft model's, which writes ahead
  std::string space{};  // groups of one space draw from one free list
};

// Which of a run's engines one is. With `disaggregated` one prefills, into a pool of wide content,
// and one decodes, from a pool in which content is quantised; pools and rows of the one that
// prefills are numbered behind those of the other.
enum class EngineRole : uint8_t { kWhole, kPrefill, kDecode };
struct EngineSeat {
  EngineRole role = EngineRole::kWhole;
  uint64_t first_pool = 0;
  uint64_t first_row = 0;
  bool faults = false;  // may be put in somewhere in the run
};
// What stands in the cache is content times this (odd, so that nothing is lost).
constexpr uint64_t QuantiserOf(EngineRole role) {
  return role == EngineRole::kDecode ? 0xE4A3E4A3E4A3E4A3u : 1;
}
// What the two are configured as; they differ in pools, guesses and the host's tier.
EngineConfig PrefillSide(EngineConfig config);
EngineConfig DecodeSide(EngineConfig config);

constexpr uint64_t RanksOf(const EngineConfig& config) {
  return config.features.tensor_parallel ? config.ranks : 1;
}
std::vector<KvGroup> GroupsOf(const EngineConfig& config, const std::vector<TraceRequest>& trace);

constexpr uint64_t PagesFor(uint64_t tokens, uint64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}
// The first position that a token at `position` reads.
constexpr uint64_t FirstRead(uint64_t position, uint64_t window) {
  return window > 0 && position + 1 > window ? position + 1 - window : 0;
}
// Tokens that a request may ever have in the cache. What overlapped steps launch behind its last
// token counts.
uint64_t MostTokens(const EngineConfig& config, const TraceRequest& request);
// Tokens by which a request may grow before its windows move on.
uint64_t MostGrowth(const EngineConfig& config);
// Pages that a request of `tokens` tokens may hold at once in the group, when it grows by up to
// `step` tokens at a time.
uint64_t MostPages(const KvGroup& group, uint64_t tokens, uint64_t step);

}  // namespace kvfence
