// Drawing an episode's settings and requests from the campaign's seed.
#include <algorithm>

#include "episode.h"

namespace kvfence {
namespace {

TraceShape ShapeOf(uint64_t seed, uint64_t requests, uint32_t conversations) {
  TraceShape shape;
  shape.seed = seed;
  shape.requests = requests;
  shape.median_message = 50;
  shape.largest_input = 900;
  shape.median_output = 12;
  shape.largest_output = 48;
  shape.conversations = conversations;
  shape.system_prompts = 2;
  shape.identities = 2;
  return shape;
}

uint64_t PagesOf(uint64_t tokens, uint64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

Status TooFew(uint64_t pages, uint64_t page_size, uint64_t longest) {
  return Status::Invalid("pages=" + std::to_string(pages) + " can't hold the longest request (" +
                         std::to_string(longest) + " tokens): at page_size " +
                         std::to_string(page_size) + " it takes at least " +
                         std::to_string(PagesOf(longest, page_size) + 1) +
                         " (one of them is the null page)");
}

// The page size: given, or drawn from those at which the given number of pages will do.
Status DrawPageSize(const CampaignConfig& config, bool generated, uint64_t longest, Rng& rng,
                    uint64_t* page_size) {
  constexpr std::array<uint64_t, 8> kSizes = {1, 4, 4, 8, 8, 16, 16, 32};
  *page_size = config.page_size != 0 ? config.page_size
               : generated           ? kSizes[rng.Below(kSizes.size())]
                                     : 64;
  if (config.pages == 0) return Status();
  while (config.page_size == 0 && *page_size < 32 && PagesOf(longest, *page_size) >= config.pages) {
    *page_size *= 2;
  }
  if (PagesOf(longest, *page_size) >= config.pages) {
    return TooFew(config.pages, *page_size, longest);
  }
  return Status();
}

}  // namespace

uint64_t LongestOf(const std::vector<TraceRequest>& trace) {
  uint64_t longest = 1;
  for (const TraceRequest& r : trace) {
    longest = std::max(longest, uint64_t{r.input_length} + r.output_length);
  }
  return longest;
}

Result<RequestSource> RequestSource::Open(const CampaignConfig& config) {
  RequestSource source;
  source.seed_ = config.seed;
  if (config.trace.empty()) return source;
  Result<std::vector<TraceRequest>> trace = ReadTrace(config.trace);
  if (!trace.ok()) return Status(trace.status().code(), trace.status().message());
  source.trace_ = std::move(*trace);
  return source;
}

std::vector<TraceRequest> RequestSource::All(uint64_t n) const {
  if (generated()) return GenerateTrace(ShapeOf(Mix64(seed_), n, 12));
  return {trace_.begin(), trace_.begin() + static_cast<std::ptrdiff_t>(std::min(n, size()))};
}

std::vector<TraceRequest> RequestSource::Slice(uint64_t episode, uint64_t served,
                                               uint64_t n) const {
  if (generated()) return GenerateTrace(ShapeOf(Mix64(seed_) ^ Mix64(~episode), n, 4));
  std::vector<TraceRequest> slice;
  for (uint64_t i = 0; i < n; ++i) slice.push_back(trace_[(served + i) % size()]);
  return slice;
}

Status DrawEpisode(const CampaignConfig& config, EpisodePlan* plan) {
  Rng rng(Mix64(config.seed) + Mix64(plan->number * 2 + (plan->kind == nullptr ? 1 : 0)));
  const bool generated = config.trace.empty();
  const uint64_t longest = LongestOf(plan->trace);
  EngineConfig& e = plan->engine;
  e.seed = rng.Next();
  if (Status status = DrawPageSize(config, generated, longest, rng, &e.page_size); !status.ok()) {
    return status;
  }
  const uint64_t rows = rng.Between(4, 9);
  e.rows = config.rows != 0 ? config.rows : generated ? rows : 4 * rows;
  // A pool far smaller than what the rows would like to have.
  const uint64_t need = PagesOf(longest, e.page_size) + 1;
  const uint64_t pages = need + need * rng.Between(plan->kind == nullptr ? 8 : 2, 24) / 16 + 2;
  e.pages = config.pages != 0 ? config.pages : generated ? pages : pages + 3 * need;
  e.token_budget = generated ? rng.Between(64, 400) : rng.Between(2048, 8192);
  e.max_chunk = rng.Chance(1, 2) ? 0 : e.token_budget / rng.Between(2, 4);
  e.reuse = rng.Chance(3, 4) ? ReuseOrder::kLifo : ReuseOrder::kFifo;
  e.reach_tile = uint64_t{1} << rng.Below(4);
  if (plan->kind != nullptr && plan->kind->name == "row_tail")
    e.reach_tile = rng.Chance(1, 2) ? 4 : 8;
  // A trace that was given says all that its clients did: none of its requests is taken back.
  const uint64_t taken_back = rng.Chance(1, 2) ? rng.Between(10, 150) : 0;
  e.abort_per_mille = generated ? taken_back : 0;
  e.policy = config.policy;
  e.max_steps = plan->kind == nullptr ? config.steps : 0;
  e.judge_raw = plan->kind != nullptr;
  if (Status status = CheckEngineConfig(e); !status.ok()) return status;
  plan->fence = FenceConfigFor(e, plan->trace);
  plan->fence.level = config.level;
  plan->fence.disabled = config.disabled;
  return Status();
}

std::vector<std::string> Describe(const EngineConfig& e) {
  const auto line = [](const char* name, uint64_t value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  return {line("page_size", e.page_size),
          line("pages", e.pages),
          line("rows", e.rows),
          line("token_budget", e.token_budget),
          line("max_chunk", e.max_chunk),
          line("reach_tile", e.reach_tile),
          std::string("reuse=") + (e.reuse == ReuseOrder::kLifo ? "lifo" : "fifo"),
          line("abort_per_mille", e.abort_per_mille)};
}

}  // namespace kvfence
