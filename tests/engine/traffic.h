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

// Conversations with system prompts, at a sixteenth of their length: what the small transformer is
// served with.
inline std::vector<TraceRequest> ShortTrace(uint64_t seed, uint64_t requests, uint32_t identities) {
  TraceShape shape;
  shape.seed = seed;
  shape.requests = requests;
  shape.conversations = 5;
  shape.median_message = 120;
  shape.largest_input = 1800;
  shape.median_output = 96;
  shape.largest_output = 240;
  shape.identities = identities;
  return ScaleTrace(GenerateTrace(shape), 16);
}

inline uint64_t WantedTokens(const std::vector<TraceRequest>& trace) {
  uint64_t tokens = 0;
  for (const TraceRequest& r : trace) tokens += r.output_length;
  return tokens;
}

// All small transformers that tests and runs use, one by one.
inline std::vector<TransformerShape> Shapes() {
  std::vector<TransformerShape> shapes;
  for (const AttentionForm form : {AttentionForm::kGqa, AttentionForm::kMla}) {
    for (const KvType kv : {KvType::kE4m3, KvType::kBf16}) {
      for (const WeightType weights : {WeightType::kBf16, WeightType::kE4m3, WeightType::kInt4}) {
        shapes.push_back(SmallTransformer(form, kv, weights));
      }
    }
  }
  return shapes;
}

// The features whose events the naive books understand; the fence itself judges the others.
inline EngineFeatures NaiveFeatures(EngineFeatures features) {
  EngineFeatures naive{.prefix_cache = features.prefix_cache,
                       .chunked_prefill = features.chunked_prefill,
                       .padded_batches = features.padded_batches,
                       .sliding_window = features.sliding_window,
                       .one_space = features.one_space};
  naive.mixed_identity = features.mixed_identity;
  return naive;
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
