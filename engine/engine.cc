// Parts of the engine that do not depend on its tracker, and the engine without a fence.
#include "kvfence/engine.h"

#include <algorithm>
#include <array>

#include "engine_impl.h"

namespace kvfence {

EngineConfig Completed(EngineConfig config) {
  if (config.buckets.empty()) {
    for (uint64_t bucket = 1; bucket < config.rows; bucket *= 2) config.buckets.push_back(bucket);
    config.buckets.push_back(config.rows);
  }
  return config;
}

Result<std::vector<std::unique_ptr<PagePool>>> MakePools(const EngineConfig& config,
                                                         const std::vector<TraceRequest>& trace) {
  std::vector<std::unique_ptr<PagePool>> pools;
  for (const KvGroup& group : GroupsOf(config, trace)) {
    const PoolId id(static_cast<uint32_t>(pools.size()));
    Result<std::unique_ptr<PagePool>> pool =
        pools.empty() || group.space.empty()
            ? PagePool::Create(
                  {.id = id, .pages = static_cast<int64_t>(group.pages), .order = config.reuse})
            : pools.front()->CreateSibling(id);
    if (!pool.ok()) return Status(pool.status().code(), pool.status().message());
    pools.push_back(std::move(*pool));
  }
  return pools;
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
