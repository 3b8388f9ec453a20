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
  bool parallel_sampling = false;
  bool beam_search = false;
  bool speculative = false;
  bool overlapped = false;
  bool early_publish = false;
  bool radix_dedupe = false;
  bool mixed_identity = false;
  bool swap = false;
  bool host_offload = false;
  bool tensor_parallel = false;
  bool cascade = false;
  bool replayed_graphs = false;
  bool disaggregated = false;

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
    EngineFeature{"parallel_sampling", &EngineFeatures::parallel_sampling,
                  "requests fork after their prompt; shared partial pages are copied on write"},
    EngineFeature{"beam_search", &EngineFeatures::beam_search,
                  "a sibling ends and is forked anew from another (with siblings only)"},
    EngineFeature{"speculative", &EngineFeatures::speculative,
                  "a draft group of layers; draft_tokens guesses are verified per decode row"},
    EngineFeature{"overlapped", &EngineFeatures::overlapped,
                  "a step is launched before the one before is settled"},
    EngineFeature{"early_publish", &EngineFeatures::early_publish,
                  "pages enter the index when the step that fills them is scheduled"},
    EngineFeature{"radix_dedupe", &EngineFeatures::radix_dedupe,
                  "a computed page that the tree has already is exchanged for the tree's"},
    EngineFeature{"mixed_identity", &EngineFeatures::mixed_identity,
                  "requests differ in media and salt too, and share only what agrees in all"},
    EngineFeature{"swap", &EngineFeatures::swap,
                  "preempted requests are copied to the host and back, asynchronously"},
    EngineFeature{"host_offload", &EngineFeatures::host_offload,
                  "cached pages are stored on the host too, and loaded when they're hit there"},
    EngineFeature{"tensor_parallel", &EngineFeatures::tensor_parallel,
                  "several ranks with memory and tables of their own, one verdict"},
    EngineFeature{"cascade", &EngineFeatures::cascade,
                  "what all rows of a step have in common is read through one prefix table"},
    EngineFeature{"replayed_graphs", &EngineFeatures::replayed_graphs,
                  "decode batches of a bucket are replayed from its captured graph's buffers"},
    EngineFeature{"disaggregated", &EngineFeatures::disaggregated,
                  "one engine prefills and another decodes; pages are handed over and quantised"},
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
