#include "campaign_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "campaign_fold.h"
#include "campaign_verdict.h"
#include "kind_choice.h"

namespace kvfence {
namespace {

constexpr uint64_t kDefaultRequests = 16000;  // about a minute on one core
constexpr uint64_t kCleanRequestsUntilComplete = 20000;
constexpr uint64_t kCleanPiece = 1000;
constexpr uint64_t kEpisodeRequests = 24;
constexpr uint64_t kLeastEpisodeRequests = 8;
constexpr uint64_t kMostEpisodesOfAKind = 600;
constexpr uint64_t kMostAtOnce = 4;  // kinds
constexpr uint64_t kWithoutEnd = std::numeric_limits<uint64_t>::max() / 4;

uint64_t Ceil(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

namespace {

// What decides by what was done so far can't be decided by one shard.
Status CheckShard(const CampaignConfig& config) {
  const Shard& shard = config.shard;
  if (shard.of == 0 || shard.part == 0 || shard.part > shard.of) {
    return Status::Invalid("shard must be K/N with 1 <= K <= N, got " + std::to_string(shard.part) +
                           "/" + std::to_string(shard.of));
  }
  if (shard.of == 1) return Status();
  const char* open = config.until_complete          ? "until=complete"
                     : config.duration_seconds != 0 ? "duration"
                     : config.steps != 0            ? "steps"
                                                    : nullptr;
  if (open != nullptr) {
    return Status::Invalid(
        "shard: its runs must be known beforehand, so requests says how many, "
        "not " +
        std::string(open));
  }
  if (config.only) return Status::Invalid("shard: only=N names a run by itself");
  return Status();
}

}  // namespace

Status CheckCampaignConfig(const CampaignConfig& config) {
  if (config.level == Level::kOff) {
    return Status::Invalid("level must be map, full or audit (a campaign has its own off arm)");
  }
  const std::optional<NumericChoice>& n = config.numeric;
  if (n && (n->attention.empty() || n->kv.empty() || n->weights.empty())) {
    return Status::Invalid("numeric: none of its lists may be empty");
  }
  if (!std::has_single_bit(config.trace_scale) || config.trace_scale > kTraceBlock) {
    return Status::Invalid("trace_scale must be a power of two up to " +
                           std::to_string(kTraceBlock) + ", got " +
                           std::to_string(config.trace_scale));
  }
  if (Result<KindChoice> kinds = ChooseKinds(config); !kinds.ok()) {
    return Status(kinds.status().code(), kinds.status().message());
  }
  return CheckShard(config);
}

Result<CampaignPlan> CampaignPlan::Make(const CampaignConfig& config) {
  if (Status status = CheckCampaignConfig(config); !status.ok()) return status;
  CampaignPlan plan;
  plan.config_ = config;
  plan.kinds_ = ChooseKinds(config).value().kinds;
  for (size_t k = 0; k < plan.kinds_.size(); ++k) {
    if (!plan.kinds_[k]->at_start()) plan.together_.push_back(k);
  }
  Result<RequestSource> source = RequestSource::Open(config);
  if (!source.ok()) return Status(source.status().code(), source.status().message());
  plan.source_ = std::move(*source);
  plan.CountRuns();
  return plan;
}

void CampaignPlan::CountRuns() {
  const bool generated = source_.generated();
  const bool timed = config_.duration_seconds != 0 && config_.requests == 0;
  endless_ = timed && generated && !config_.until_complete && config_.steps == 0;
  const uint64_t given = config_.requests != 0    ? config_.requests
                         : !generated             ? source_.size()
                         : config_.until_complete ? kCleanRequestsUntilComplete
                                                  : kDefaultRequests;
  // A trace is served as one stream, and so is what ends after so many steps.
  const bool whole = !generated || config_.steps != 0;
  clean_requests_ = generated ? given : std::min(given, source_.size());
  const uint64_t piece = config_.requests_per_run != 0 ? config_.requests_per_run : kCleanPiece;
  piece_ = whole ? clean_requests_ : piece;
  clean_runs_ = Ceil(clean_requests_, piece_);
  if (kinds_.empty()) return;
  const bool counted = !(config_.until_complete && config_.requests == 0);
  wanted_ = counted ? given : 0;
  episode_ = kEpisodeRequests;
  if (counted) {
    episode_ = std::min(episode_, std::max(wanted_ / slots(), kLeastEpisodeRequests));
    fault_runs_ = std::max(slots(), Ceil(wanted_, episode_));
  }
  if (config_.until_complete) {
    fault_runs_ = std::max(fault_runs_, slots() * kMostEpisodesOfAKind);
  }
  if (timed && !config_.until_complete) fault_runs_ = kWithoutEnd;
}

PlannedRun CampaignPlan::CleanRun(uint64_t number, uint64_t piece) const {
  PlannedRun run{.number = number, .round = piece, .requests = piece_};
  run.first_request = piece * piece_;
  if (!endless_) run.requests = std::min(piece_, clean_requests_ - piece * piece_);
  return run;
}

PlannedRun CampaignPlan::FaultRun(uint64_t number, uint64_t slot) const {
  PlannedRun run{.number = number, .requests = episode_};
  run.round = slot / slots();
  run.first_request = slot * episode_;
  const size_t kind = slot % slots();
  if (kind < kinds_.size()) {
    run.kinds = {kind};
    return run;
  }
  Rng rng(Mix64(config_.seed) ^ Mix64(number + 0x5EED));
  const uint64_t n = rng.Between(2, std::min<uint64_t>(kMostAtOnce, together_.size()));
  while (run.kinds.size() < n) {
    const size_t drawn = together_[rng.Below(together_.size())];
    if (std::find(run.kinds.begin(), run.kinds.end(), drawn) == run.kinds.end()) {
      run.kinds.push_back(drawn);
    }
  }
  return run;
}

std::vector<const FaultKind*> CampaignPlan::KindsOf(const PlannedRun& run) const {
  std::vector<const FaultKind*> kinds;
  for (const size_t at : run.kinds) kinds.push_back(kinds_[at]);
  return kinds;
}

std::optional<PlannedRun> CampaignPlan::At(uint64_t number) const {
  if (number == 0) return std::nullopt;
  const uint64_t at = number - 1;
  if (endless_) {
    const uint64_t cycle = 1 + kRoundsPerCleanRun * slots();
    if (at % cycle == 0) return CleanRun(number, at / cycle);
    return FaultRun(number, at / cycle * (cycle - 1) + at % cycle - 1);
  }
  if (at < clean_runs_) return CleanRun(number, at);
  if (at - clean_runs_ < fault_runs_) return FaultRun(number, at - clean_runs_);
  return std::nullopt;
}

bool CampaignPlan::Mine(uint64_t number) const {
  if (config_.only) return number == *config_.only;
  return (number - 1) % config_.shard.of == config_.shard.part - 1;
}

bool CampaignPlan::Wants(const PlannedRun& run, const CampaignFold& fold) const {
  if (!run.faulty() || run.round == 0 || config_.only) return true;
  if (config_.steps != 0 && fold.fault_steps() >= config_.steps) return false;
  if (!config_.until_complete) return true;
  const uint64_t activated =
      run.several() ? fold.several().activated : fold.tally(run.kinds[0]).activated;
  // What didn't come in so many won't come.
  const bool enough =
      activated >= kActivationsToGiveUp ||
      (run.several() ? activated >= kActivationsToComplete
                     : MissingOf(*kinds_[run.kinds[0]], fold.tally(run.kinds[0])).empty());
  if (run.round < kMostEpisodesOfAKind && !enough) return true;
  return fold.fault_requests() < wanted_;
}

double CampaignPlan::Fraction(const CampaignFold& fold, uint64_t running, double seconds) const {
  double by_time = 0;
  if (config_.duration_seconds != 0) {
    by_time = seconds / static_cast<double>(config_.duration_seconds);
    if (endless_ || fault_runs_ == kWithoutEnd) return std::min(by_time, 1.0);
  }
  const double shards = static_cast<double>(config_.shard.of);
  const auto served = static_cast<double>(fold.clean_requests() + running);
  const double clean = std::min(1.0, shards * served / static_cast<double>(clean_requests_));
  if (kinds_.empty()) return std::max(clean, std::min(by_time, 1.0));
  double faults = 0;
  if (wanted_ != 0) {
    faults = shards * static_cast<double>(fold.fault_requests()) / static_cast<double>(wanted_);
  }
  if (config_.until_complete) {
    double sum = 0;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      const FaultTally& tally = fold.tally(k);
      const double done = static_cast<double>(tally.activated) / kActivationsToComplete;
      sum += MissingOf(*kinds_[k], tally).empty() ? 1.0 : std::min(0.9, done);
    }
    const double complete = sum / static_cast<double>(kinds_.size());
    faults = wanted_ == 0 ? complete : std::min(faults, complete);
  }
  return std::min(1.0, std::max(0.15 * clean + 0.85 * std::min(faults, 1.0), by_time));
}

}  // namespace kvfence
