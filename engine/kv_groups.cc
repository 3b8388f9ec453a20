#include "kv_groups.h"

#include <algorithm>

namespace kvfence {
namespace {

uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

uint64_t MostTokens(const EngineConfig& config, const TraceRequest& request) {
  const uint64_t behind = !config.features.overlapped   ? 0
                          : config.features.speculative ? 2 + 2 * config.draft_tokens
                                                        : 1;
  return uint64_t{request.input_length} + request.output_length - 1 + behind;
}

std::vector<KvGroup> GroupsOf(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  uint64_t longest = 1;
  for (const TraceRequest& r : trace) longest = std::max(longest, MostTokens(config, r) + 1);
  const uint64_t tile = std::max<uint64_t>(config.reach_tile, 1);
  // Of a request that can't fit its pool no row is ever needed.
  const auto width = [&](uint64_t page_size, uint64_t pages) {
    return RoundUp(std::min(PagesFor(longest, page_size), pages), tile);
  };
  const bool one_space = config.features.one_space;
  std::vector<KvGroup> groups;
  KvGroup full;
  full.name = "full";
  full.pages = config.pages;
  full.page_size = config.page_size;
  full.width = config.width > 0 ? config.width : width(config.page_size, config.pages - 1);
  groups.push_back(full);
  if (config.features.sliding_window) {
    KvGroup swa;
    swa.name = "swa";
    swa.page_size = config.page_size;
    swa.window = config.window;
    swa.pages = one_space || config.window_pages == 0 ? config.pages : config.window_pages;
    // Its table is as long as the full one's: what lies below the window stays in it.
    swa.width = groups[0].width;
    groups.push_back(swa);
  }
  if (config.features.speculative) {
    KvGroup draft;
    draft.name = "draft";
    draft.draft = true;
    draft.page_size =
        one_space || config.draft_page_size == 0 ? config.page_size : config.draft_page_size;
    draft.pages = one_space || config.draft_pages == 0 ? config.pages : config.draft_pages;
    draft.width = RoundUp(PagesFor(groups[0].width * groups[0].page_size, draft.page_size), tile);
    groups.push_back(draft);
  }
  if (one_space && groups.size() > 1) {
    for (KvGroup& group : groups) group.space = "arena";
  }
  return groups;
}

EngineConfig PrefillSide(EngineConfig config) {
  if (config.prefill_pages > 0) config.pages = config.prefill_pages;
  config.draft_tokens = 0;  // nothing is guessed; the draft model's cache is filled all the same
  return config;
}

EngineConfig DecodeSide(EngineConfig config) {
  config.features.host_offload = false;
  return config;
}

uint64_t MostGrowth(const EngineConfig& config) {
  const uint64_t step =
      config.token_budget + (config.features.speculative ? 2 * config.draft_tokens : 0);
  return config.features.overlapped ? 2 * step : step;
}

uint64_t MostPages(const KvGroup& group, uint64_t tokens, uint64_t step) {
  const uint64_t all = PagesFor(tokens, group.page_size);
  if (group.window == 0) return all;
  return std::min(all, PagesFor(group.window + step, group.page_size) + 1);
}

}  // namespace kvfence
