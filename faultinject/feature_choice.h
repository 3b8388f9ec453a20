// Which features of the engine a campaign's runs may have: what was asked for, what a fault kind
// needs, what is left to the seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/engine.h"
#include "kvfence/fault_kind.h"
#include "kvfence/status.h"

namespace kvfence {

// Bit i: feature i of kEngineFeatures.
using FeatureMask = uint64_t;
FeatureMask MaskOf(const EngineFeatures& features);
EngineFeatures FeaturesOf(FeatureMask mask);
// Of names, comma-separated; unknown ones have no bit.
FeatureMask MaskOfNames(std::string_view names);

struct FeatureChoice {
  FeatureMask on = 0, off = 0;  // always, never; what is in neither is drawn

  // `words`: first perhaps "all" or "none", which settles each feature that isn't named; NAME is
  // always on, -NAME never. Refuses unknown ones, and those that contradict each other.
  static Result<FeatureChoice> Read(const std::vector<std::string>& words);
  // What the kinds need comes before what was drawn, what they can't do with before that, what was
  // asked for before all.
  FeatureMask Apply(FeatureMask drawn, std::span<const FaultKind* const> kinds) const;
};

// Which of the features that were on did something, by what the engine counted. Of a feature that
// can't but act (identities, ranks, steps that overlap) it's taken for granted.
FeatureMask ReachedBy(const EngineReport& report, FeatureMask on);

}  // namespace kvfence
