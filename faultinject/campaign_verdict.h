// When a campaign is green, when it's complete, and the sentences that say why not.
//
// Invariant: green and complete follow from the tallies alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvfence/campaign.h"
#include "kvfence/fault_kind.h"

namespace kvfence {

// A miss rate below 1 % at 95 %.
inline constexpr uint64_t kActivationsToComplete = 300;

// A kind that still lacks something after so many lacks it for good.
inline constexpr uint64_t kActivationsToGiveUp = 10 * kActivationsToComplete;

constexpr bool IsBad(Outcome outcome) {
  return outcome == Outcome::kLate || outcome == Outcome::kMissed ||
         outcome == Outcome::kCollateral || outcome == Outcome::kCrashed;
}

// What this kind still lacks, as sentences.
std::vector<std::string> MissingOf(const FaultKind& kind, const FaultTally& tally);

// Fills in red, missing, green and complete.
void JudgeCampaign(std::span<const FaultKind* const> kinds, CampaignReport* report);

}  // namespace kvfence
