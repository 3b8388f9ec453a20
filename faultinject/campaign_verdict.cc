#include "campaign_verdict.h"

#include <algorithm>

namespace kvfence {
namespace {

std::vector<std::string> SilentReasons(const FaultKind& kind, const FaultTally& tally) {
  std::vector<std::string> silent;
  for (int r = 0; r < kReasonCount; ++r) {
    const auto reason = static_cast<Reason>(r);
    std::string name(ReasonName(reason));
    if (kind.reasons.Has(reason) && !tally.reasons.contains(name)) {
      silent.push_back(std::move(name));
    }
  }
  return silent;
}

void RedOutcomes(const FaultTally& tally, std::vector<std::string>* red) {
  for (int i = 0; i < kOutcomeCount; ++i) {
    const uint64_t n = tally.outcomes[static_cast<size_t>(i)];
    if (n == 0 || !IsBad(static_cast<Outcome>(i))) continue;
    red->push_back(tally.kind + ": " + std::to_string(n) + " of " +
                   std::to_string(tally.activated) + " " +
                   std::string(kOutcomeNames[static_cast<size_t>(i)]));
  }
}

// Declared reasons that never answered, though the fault was put in so often that a campaign which
// is to be complete would give up, or it did go on to its end: a dead check. Seldom answered is no
// reason: what a campaign's draw leaves out makes some answers rare in all of its runs.
void RedReasons(const FaultKind& kind, const FaultTally& tally, bool to_the_end,
                std::vector<std::string>* red) {
  if (tally.activated < kActivationsToGiveUp && !to_the_end) return;
  for (const std::string& reason : SilentReasons(kind, tally)) {
    red->push_back(tally.kind + ": " + reason + " never answered in " +
                   std::to_string(tally.activated) + " activations");
  }
}

}  // namespace

std::vector<std::string> MissingOf(const FaultKind& kind, const FaultTally& tally) {
  std::vector<std::string> missing;
  if (tally.activated < kActivationsToComplete) {
    missing.push_back(tally.kind + ": activated " + std::to_string(tally.activated) + " times of " +
                      std::to_string(kActivationsToComplete));
  }
  const uint64_t benign = tally.outcomes[static_cast<size_t>(Outcome::kBenign)];
  if (benign * 2 > tally.activated) {
    missing.push_back(tally.kind + ": " + std::to_string(benign) + " of " +
                      std::to_string(tally.activated) + " were benign, more than half");
  }
  for (const std::string& reason : SilentReasons(kind, tally)) {
    missing.push_back(tally.kind + ": never answered by " + reason);
  }
  if (!kind.bookkeeping_only && tally.off_arm_wrong_tokens == 0) {
    missing.push_back(tally.kind + ": no wrong token without the fence");
  }
  return missing;
}

void JudgeCampaign(std::span<const FaultKind* const> kinds, CampaignReport* report) {
  std::vector<std::string>& red = report->red;
  // A part of a campaign needn't have all arms, and one that was interrupted didn't get there yet.
  const bool part = report->config.shard.of > 1 || report->config.only || report->partial;
  const bool to_the_end =
      report->config.until_complete && !part && report->config.duration_seconds == 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    RedOutcomes(report->faults[k], &red);
    RedReasons(*kinds[k], report->faults[k], to_the_end, &red);
  }
  RedOutcomes(report->several.tally, &red);
  if (report->false_alarms != 0) {
    red.push_back(std::to_string(report->false_alarms) + " false alarms");
  }
  if (report->clean_arm.violations != 0) {
    red.push_back("the no-fault arm isn't silent: " + std::to_string(report->clean_arm.violations) +
                  " reports");
  }
  if (report->clean_arm.wrong_tokens_published != 0) {
    red.push_back("the no-fault arm published " +
                  std::to_string(report->clean_arm.wrong_tokens_published) + " wrong tokens");
  }
  if (const uint64_t lost = report->recompute.lost(); lost != 0 && !report->partial) {
    red.push_back(std::to_string(lost) + " of " + std::to_string(report->recompute.requests) +
                  " requests that went back to be computed again didn't end right");
  }
  if (report->clean_arm.steps == 0 && !part) red.push_back("the no-fault arm served nothing");
  const bool harmful = std::any_of(kinds.begin(), kinds.end(),
                                   [](const FaultKind* kind) { return !kind->bookkeeping_only; });
  if (harmful && !part && report->off_arm.wrong_tokens_published == 0) {
    red.push_back("the fence-off arm published no wrong token: the faults prove nothing");
  }
  report->green = red.empty();
  for (size_t k = 0; k < kinds.size(); ++k) {
    for (std::string& line : MissingOf(*kinds[k], report->faults[k])) {
      report->missing.push_back(std::move(line));
    }
  }
  report->kinds_complete = report->green && report->missing.empty();
  const CampaignConfig& config = report->config;
  if (config.duration_seconds != 0 && config.shard.of == 1 && report->requests < config.requests) {
    report->missing.push_back("time was up: " + std::to_string(report->requests) + " of " +
                              std::to_string(config.requests) + " requests were served");
  } else if (report->requests == 0) {
    report->missing.push_back("no request was served to its end");
  }
  if (kinds.size() < FaultKinds().size()) report->missing.push_back("not all fault kinds were run");
  if (report->config.only) report->missing.push_back("one run of the campaign was done alone");
  if (report->config.shard.of > 1) {
    report->missing.push_back("this is shard " + std::to_string(report->config.shard.part) +
                              " of " + std::to_string(report->config.shard.of) +
                              ": kvfence merge joins their reports");
  }
  if (report->partial) report->missing.push_back("the run was interrupted");
  report->complete = report->green && report->missing.empty();
}

}  // namespace kvfence
