// The parts of the engine that don't depend on its tracker, and the two engines that ship.
#include "kvfence/engine.h"

#include <algorithm>

#include "engine_impl.h"

namespace kvfence {
namespace {

constexpr uint64_t kMostRows = 65536;
constexpr uint64_t kMostPageSize = 16383;  // as the device's page records count
constexpr uint64_t kMostWidth = uint64_t{1} << 24;

}  // namespace

Status CheckEngineConfig(const EngineConfig& c) {
  if (c.page_size == 0 || c.page_size > kMostPageSize) {
    return Status::Invalid("page_size must be 1 to " + std::to_string(kMostPageSize) + ", not " +
                           std::to_string(c.page_size));
  }
  if (c.pages < 2) {
    return Status::Invalid("pages must be at least 2 (one of them is the null page), not " +
                           std::to_string(c.pages));
  }
  if (c.pages > (uint64_t{1} << 31) - 1) return Status::Invalid("pages must be below 2^31");
  if (c.pages > (uint64_t{1} << 34) / c.page_size) {
    return Status(StatusCode::kResourceExhausted,
                  "pages * page_size is more than the simulated device has (2^34 slots)");
  }
  if (c.rows == 0 || c.rows > kMostRows) {
    return Status::Invalid("rows must be 1 to " + std::to_string(kMostRows) + ", not " +
                           std::to_string(c.rows));
  }
  if (c.width > kMostWidth) return Status::Invalid("width must be at most 2^24");
  if (c.token_budget == 0 || c.token_budget > (uint64_t{1} << 30)) {
    return Status::Invalid("token_budget must be 1 to 2^30, not " + std::to_string(c.token_budget));
  }
  if (c.abort_per_mille > 1000) return Status::Invalid("abort_per_mille must be at most 1000");
  if (!std::is_sorted(c.buckets.begin(), c.buckets.end())) {
    return Status::Invalid("buckets must grow");
  }
  return Status();
}

EngineConfig Completed(EngineConfig config) {
  if (config.buckets.empty()) {
    for (uint64_t bucket = 1; bucket < config.rows; bucket *= 2) config.buckets.push_back(bucket);
    config.buckets.push_back(config.rows);
  }
  return config;
}

uint64_t TableWidth(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  if (config.width > 0) return config.width;
  uint64_t longest = 1;
  for (const TraceRequest& r : trace) {
    longest = std::max(longest, uint64_t{r.input_length} + r.output_length);
  }
  // A request that can't fit the pool is rejected, so no row needs more than the pool has.
  const uint64_t pages =
      std::min((longest + config.page_size - 1) / config.page_size, config.pages - 1);
  const uint64_t tile = std::max<uint64_t>(config.reach_tile, 1);
  return (pages + tile - 1) / tile * tile;
}

FenceConfig FenceConfigFor(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  FenceConfig fence;
  const uint64_t width = TableWidth(config, trace);
  PoolConfig& pool = fence.pools.emplace_back();
  pool.name = "full";
  pool.pages = config.pages;
  pool.page_size = config.page_size;
  pool.width = width;
  fence.rows = config.rows;
  fence.width = width;
  fence.frees = Frees::kExplicit;
  fence.reuse = Reuse::kRetired;
  fence.policy = config.policy;
  return fence;
}

// The steps below which 50 and 95 in a hundred lie, and the most.
StepLatency Percentiles(std::vector<uint32_t>* steps) {
  if (steps->empty()) return {};
  std::sort(steps->begin(), steps->end());
  const size_t n = steps->size();
  return {.p50 = (*steps)[(n - 1) / 2], .p95 = (*steps)[(n - 1) * 95 / 100], .max = steps->back()};
}

template class Engine<NoopTracker>;

}  // namespace kvfence
