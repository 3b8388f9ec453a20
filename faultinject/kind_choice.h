// Which fault kinds a campaign has: those that were asked for, if they can be put in at all.
//
// Invariant: a kind that is named and can't be put in is refused; of `all`, such a one is left out,
// and the report says so. Nothing is run for which there will never be an occasion.
#pragma once

#include <string>
#include <vector>

#include "kvfence/campaign.h"
#include "kvfence/fault_kind.h"

namespace kvfence {

struct KindChoice {
  std::vector<const FaultKind*> kinds{};  // in order, each once
  std::vector<std::string> left_out{};    // of `all`: "KIND: why", a line each
};

// Refuses unknown kinds and features, words that contradict each other, and kinds that the rest of
// the config leaves no occasion for.
Result<KindChoice> ChooseKinds(const CampaignConfig& config);

}  // namespace kvfence
