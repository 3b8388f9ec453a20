#include "feature_choice.h"

namespace kvfence {
namespace {

constexpr FeatureMask kAll = (FeatureMask{1} << kEngineFeatures.size()) - 1;
static_assert(kEngineFeatures.size() < 64);

// What shows that a feature was at work.
struct Sign {
  std::string_view feature;
  bool (*seen)(const EngineReport&);
};
constexpr Sign kSigns[] = {
    {"prefix_cache", [](const EngineReport& r) { return r.tokens_cached > 0; }},
    // More rows of several tokens than prompts begun: some prompt was cut.
    {"chunked_prefill", [](const EngineReport& r) { return r.prefill_rows > r.admitted; }},
    {"padded_batches", [](const EngineReport& r) { return r.pad_rows > 0; }},
    {"sliding_window", [](const EngineReport& r) { return r.pages_slid > 0; }},
    // Alone in its space a group shares it with nobody.
    {"one_space", [](const EngineReport& r) { return r.pages_slid > 0 || r.guesses > 0; }},
    {"parallel_sampling", [](const EngineReport& r) { return r.siblings > 0; }},
    {"beam_search", [](const EngineReport& r) { return r.beams_replaced > 0; }},
    {"speculative", [](const EngineReport& r) { return r.guesses > 0; }},
    {"early_publish", [](const EngineReport& r) { return r.pages_published > 0; }},
    {"radix_dedupe", [](const EngineReport& r) { return r.pages_exchanged > 0; }},
    {"swap", [](const EngineReport& r) { return r.swaps_in > 0; }},
    {"host_offload", [](const EngineReport& r) { return r.pages_loaded > 0; }},
    {"cascade", [](const EngineReport& r) { return r.prefix_entries > 0; }},
    {"replayed_graphs", [](const EngineReport& r) { return r.graphs_replayed > 0; }},
    {"disaggregated", [](const EngineReport& r) { return r.handoffs_whole > 0; }},
};

}  // namespace

FeatureMask MaskOf(const EngineFeatures& features) {
  FeatureMask mask = 0;
  for (size_t i = 0; i < kEngineFeatures.size(); ++i) {
    if (features.*kEngineFeatures[i].on) mask |= FeatureMask{1} << i;
  }
  return mask;
}

EngineFeatures FeaturesOf(FeatureMask mask) {
  EngineFeatures features;
  for (size_t i = 0; i < kEngineFeatures.size(); ++i) {
    features.*kEngineFeatures[i].on = (mask >> i & 1u) != 0;
  }
  return features;
}

FeatureMask MaskOfNames(std::string_view names) {
  FeatureMask mask = 0;
  while (!names.empty()) {
    const size_t comma = names.find(',');
    for (size_t i = 0; i < kEngineFeatures.size(); ++i) {
      if (kEngineFeatures[i].name == names.substr(0, comma)) mask |= FeatureMask{1} << i;
    }
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
  }
  return mask;
}

Result<FeatureChoice> FeatureChoice::Read(const std::vector<std::string>& words) {
  FeatureChoice choice;
  FeatureMask named = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "all" || word == "none") {
      if (i > 0) return Status::Invalid("features: '" + word + "' settles all: it stands first");
      choice = word == "all" ? FeatureChoice{kAll, 0} : FeatureChoice{0, kAll};
      continue;
    }
    const bool never = !word.empty() && word[0] == '-';
    const FeatureMask bit = MaskOfNames(never ? std::string_view(word).substr(1) : word);
    if (bit == 0 || word.find(',') != std::string::npos) {
      std::string names;
      for (const EngineFeature& feature : kEngineFeatures) names += " " + std::string(feature.name);
      return Status::Invalid("unknown feature '" + word + "' (all, none, NAME or -NAME, of" +
                             names + ")");
    }
    if ((named & bit) != 0 && ((choice.off & bit) != 0) != never) {
      return Status::Invalid("features: '" + word + "' contradicts what stands before it");
    }
    named |= bit;
    choice.on = never ? choice.on & ~bit : choice.on | bit;
    choice.off = never ? choice.off | bit : choice.off & ~bit;
  }
  return choice;
}

FeatureMask FeatureChoice::Apply(FeatureMask drawn, std::span<const FaultKind* const> kinds) const {
  for (const FaultKind* kind : kinds) drawn |= MaskOfNames(kind->needs);
  for (const FaultKind* kind : kinds) drawn &= ~MaskOfNames(kind->without);
  return (drawn | on) & ~off;
}

FeatureMask ReachedBy(const EngineReport& report, FeatureMask on) {
  for (const Sign& sign : kSigns) {
    if (!sign.seen(report)) on &= ~MaskOfNames(sign.feature);
  }
  return on;
}

}  // namespace kvfence
