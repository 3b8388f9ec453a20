#include "kv_groups.h"

#include <algorithm>

namespace kvfence {
namespace {

uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

uint64_t Longest(const std::vector<TraceRequest>& trace) {
  uint64_t longest = 1;
  for (const TraceRequest& r : trace) {
    longest = std::max(longest, uint64_t{r.input_length} + r.output_length);
  }
  return longest;
}

}  // namespace

std::vector<KvGroup> GroupsOf(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  const uint64_t longest = Longest(trace);
  const uint64_t tile = std::max<uint64_t>(config.reach_tile, 1);
  // Of a request that can't fit its pool no row is ever needed.
  const auto width = [&](uint64_t page_size, uint64_t pages) {
    return RoundUp(std::min(PagesFor(longest, page_size), pages), tile);
  };
  const bool one_space = config.features.one_space;
  std::vector<KvGroup> groups;
  KvGroup& full = groups.emplace_back();
  full.name = "full";
  full.pages = config.pages;
  full.page_size = config.page_size;
  full.width = config.width > 0 ? config.width : width(config.page_size, config.pages - 1);
  if (config.features.sliding_window) {
    KvGroup swa;
    swa.name = "swa";
    swa.page_size = config.page_size;
    swa.window = config.window;
    swa.pages = one_space || config.window_pages == 0 ? config.pages : config.window_pages;
    // Its table is as long as the full one's: what lies below the window stays in it.
    swa.width = full.width;
    groups.push_back(swa);
  }
  if (one_space && groups.size() > 1) {
    for (KvGroup& group : groups) group.space = "arena";
  }
  return groups;
}

uint64_t MostPages(const KvGroup& group, uint64_t tokens, uint64_t step) {
  const uint64_t all = PagesFor(tokens, group.page_size);
  if (group.window == 0) return all;
  return std::min(all, PagesFor(group.window + step, group.page_size) + 1);
}

}  // namespace kvfence
