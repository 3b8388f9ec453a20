// What the engine can be told to do, feature by feature, each switchable and combinable with all.
//
// Idea: what serving engines get wrong, they get wrong where features meet, so a campaign draws a
// set of features, prints it, counts which pairs were met and switches them off one at a time. All
// of that goes over one table, so a feature that isn't in the table doesn't exist. Sizes (windows,
// chunks, samples) stand in EngineConfig; DrawSizes (engine.h) draws them for the features that are
// on. Invariant I-110: a feature that is off leaves no trace in what the engine does.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "kvfence/rng.h"

namespace kvfence {

struct EngineFeatures {
  bool prefix_cache = true;
  bool chunked_prefill = true;
  bool padded_batches = true;
  bool sliding_window = false;
  bool one_space = false;

  friend bool operator==(const EngineFeatures&, const EngineFeatures&) = default;
};

struct EngineFeature {
  std::string_view name;
  bool EngineFeatures::*on;
  std::string_view what;  // one line for people
};

inline constexpr std::array kEngineFeatures = {
    EngineFeature{"prefix_cache", &EngineFeatures::prefix_cache,
                  "full pages are found again under chained keys, and evicted"},
    EngineFeature{"chunked_prefill", &EngineFeatures::chunked_prefill,
                  "prompts are cut into chunks of max_chunk tokens"},
    EngineFeature{"padded_batches", &EngineFeatures::padded_batches,
                  "batches are padded with null rows up to a bucket"},
    EngineFeature{
        "sliding_window", &EngineFeatures::sliding_window,
        "a second group of layers reads the last `window` tokens and frees what is behind"},
    EngineFeature{"one_space", &EngineFeatures::one_space,
                  "groups draw from one space of page ids (with one group: no effect)"},
};

// Each feature on with the chance of `on` in `of`.
inline EngineFeatures DrawFeatures(Rng& rng, uint64_t on, uint64_t of) {
  EngineFeatures features;
  for (const EngineFeature& f : kEngineFeatures) features.*f.on = rng.Chance(on, of);
  return features;
}

constexpr size_t CountFeatures(const EngineFeatures& features) {
  size_t n = 0;
  for (const EngineFeature& f : kEngineFeatures) n += features.*f.on ? 1 : 0;
  return n;
}

// "prefix_cache+padded_batches"; "none".
inline std::string FeatureNames(const EngineFeatures& features) {
  std::string names;
  for (const EngineFeature& f : kEngineFeatures) {
    if (!(features.*f.on)) continue;
    if (!names.empty()) names += '+';
    names += f.name;
  }
  return names.empty() ? "none" : names;
}

// Null for an unknown name.
constexpr const EngineFeature* FindFeature(std::string_view name) {
  for (const EngineFeature& f : kEngineFeatures) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

}  // namespace kvfence
