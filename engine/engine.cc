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

EngineConfig ConfigOf(const EngineConfig& config, EngineRole role) {
  return role == EngineRole::kPrefill  ? PrefillSide(config)
         : role == EngineRole::kDecode ? DecodeSide(config)
                                       : config;
}

std::vector<EngineSeat> SeatsOf(const EngineConfig& config, const std::vector<TraceRequest>& trace,
                                bool faults) {
  if (!config.features.disaggregated) return {{.faults = faults}};
  const EngineSeat decode{.role = EngineRole::kDecode, .faults = faults};
  return {decode,
          {.role = EngineRole::kPrefill,
           .first_pool = GroupsOf(ConfigOf(config, decode.role), trace).size(),
           .first_row = config.rows,
           .faults = faults}};
}

Result<std::vector<std::unique_ptr<PagePool>>> MakePools(const EngineConfig& config,
                                                         const EngineSeat& seat,
                                                         const std::vector<TraceRequest>& trace) {
  std::vector<std::unique_ptr<PagePool>> pools;
  for (const KvGroup& group : GroupsOf(ConfigOf(config, seat.role), trace)) {
    const PoolId id(static_cast<uint32_t>(seat.first_pool + pools.size()));
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
