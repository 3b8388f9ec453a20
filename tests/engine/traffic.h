// Small traffic and drawn configurations that the engine's tests share.
#pragma once

#include <vector>

#include "kvfence/engine.h"
#include "kvfence/rng.h"
#include "kvfence/trace.h"

namespace kvfence {

inline constexpr uint64_t kLongestSmall = 1560;  // tokens of a request of SmallTrace

inline std::vector<TraceRequest> SmallTrace(uint64_t seed, uint64_t requests) {
  TraceShape shape;
  shape.seed = seed;
  shape.requests = requests;
  shape.conversations = 6;
  shape.median_message = 60;
  shape.largest_input = 1500;
  shape.median_output = 12;
  shape.largest_output = 60;
  shape.identities = 2;
  return GenerateTrace(shape);
}

// Pools from barely enough for one request to enough for many; all features that can be switched.
inline EngineConfig DrawConfig(Rng& rng) {
  EngineConfig config;
  config.seed = rng.Next();
  config.page_size = uint64_t{1} << rng.Below(7);
  config.pages = 3 + 1600 / config.page_size + rng.Below(1 + 4000 / config.page_size);
  config.rows = 1 + rng.Below(12);
  config.token_budget = 1 + rng.Below(600);
  config.reuse = rng.Chance(3, 4) ? ReuseOrder::kLifo : ReuseOrder::kFifo;
  config.reach_tile = 1 + rng.Below(6);
  config.ms_per_step = rng.Chance(1, 2) ? 0 : rng.Below(100);
  config.abort_per_mille = rng.Chance(1, 2) ? 0 : rng.Below(400);
  config.features = DrawFeatures(rng, 2, 3);
  DrawSizes(rng, kLongestSmall, &config);
  return config;
}

}  // namespace kvfence
