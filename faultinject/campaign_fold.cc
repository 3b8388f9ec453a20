#include "campaign_fold.h"

#include <algorithm>

#include "campaign_verdict.h"
#include "kvfence/device_types.h"
#include "kvfence/engine_features.h"

namespace kvfence {
namespace {

uint64_t MostStories(Outcome outcome) { return IsBad(outcome) ? 3 : 1; }

// Delays beyond this count as the power of two below: a histogram of bounded size.
constexpr uint64_t kExactDelays = 64;
uint64_t DelayBin(uint64_t steps) {
  uint64_t bin = steps;
  if (steps >= kExactDelays) {
    bin = kExactDelays;
    while (bin <= steps / 2) bin *= 2;
  }
  return bin;
}

void AddFault(const FaultResult& fault, FaultTally* tally) {
  ++tally->activated;
  ++tally->outcomes[static_cast<size_t>(fault.outcome)];
  for (int r = 0; r < kReasonCount; ++r) {
    const auto reason = static_cast<Reason>(r);
    if (fault.reasons.Has(reason)) ++tally->reasons[std::string(ReasonName(reason))];
  }
  if (fault.delay) ++tally->delay_steps[DelayBin(*fault.delay)];
}

void JoinTally(const FaultTally& more, FaultTally* tally) {
  tally->activated += more.activated;
  tally->off_arm_wrong_tokens += more.off_arm_wrong_tokens;
  for (size_t i = 0; i < more.outcomes.size(); ++i) tally->outcomes[i] += more.outcomes[i];
  for (const auto& [reason, count] : more.reasons) tally->reasons[reason] += count;
  for (const auto& [steps, count] : more.delay_steps) tally->delay_steps[steps] += count;
}

double PerSecond(uint64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// The first `most` by run number, of two such lists.
template <class T, class RunOf>
void KeepFirstBy(std::vector<T>* list, size_t most, RunOf run_of) {
  std::stable_sort(list->begin(), list->end(),
                   [&](const T& a, const T& b) { return run_of(a) < run_of(b); });
  if (list->size() > most) list->resize(most);
}

}  // namespace

uint64_t FeatureCoverage::features_met() const {
  return static_cast<uint64_t>(
      std::count_if(met.begin(), met.end(), [](uint64_t runs) { return runs > 0; }));
}
uint64_t FeatureCoverage::pairs_met() const {
  return static_cast<uint64_t>(
      std::count_if(pairs.begin(), pairs.end(), [](const auto& pair) { return pair.second > 0; }));
}

CampaignFold::CampaignFold(const std::vector<const FaultKind*>& kinds)
    : kinds_(kinds), of_several_(kinds.size()) {
  several_.kind = kSeveralAtOnce;
  for (const FaultKind* kind : kinds_) {
    FaultTally& tally = tallies_.emplace_back();
    tally.kind = std::string(kind->name);
    tally.fault_class = kind->fault_class;
  }
  for (const EngineFeature& feature : kEngineFeatures) {
    coverage_.features.emplace_back(feature.name);
  }
  coverage_.on.resize(kEngineFeatures.size());
  coverage_.met.resize(kEngineFeatures.size());
}

void CampaignFold::AddCoverage(const PlannedRun& planned, const CampaignRun& run) {
  const size_t n = coverage_.features.size();
  std::vector<uint64_t>* faults = nullptr;
  if (planned.kinds.size() == 1 && !run.faults.empty()) {
    faults = &coverage_.faults_by_kind[tallies_[planned.kinds[0]].kind];
    faults->resize(n);
  }
  for (size_t a = 0; a < n; ++a) {
    coverage_.on[a] += run.features >> a & 1u;
    if ((run.met >> a & 1u) == 0) continue;
    ++coverage_.met[a];
    if (faults != nullptr) (*faults)[a] += run.faults.size();
    for (size_t b = a + 1; b < n; ++b) {
      if ((run.met >> b & 1u) != 0) ++coverage_.pairs[{a, b}];
    }
  }
}

uint64_t CampaignFold::activated() const {
  uint64_t sum = several_.activated;
  for (const FaultTally& tally : tallies_) sum += tally.activated;
  return sum;
}

uint64_t CampaignFold::bad() const {
  uint64_t sum = 0;
  for (int i = 0; i < kOutcomeCount; ++i) {
    if (!IsBad(static_cast<Outcome>(i))) continue;
    const auto at = static_cast<size_t>(i);
    sum += several_.outcomes[at];
    for (const FaultTally& tally : tallies_) sum += tally.outcomes[at];
  }
  return sum;
}

void CampaignFold::Add(const PlannedRun& planned, CampaignRun run) {
  ++folded_;
  AddCoverage(planned, run);
  if (!planned.faulty()) {
    clean_.Add(run.totals);
    clean_seconds_ += run.seconds;
    off_seconds_ += run.off_seconds;
    off_tokens_ += run.off_tokens;
    bytes_per_page_ = std::max(bytes_per_page_, run.bytes_per_page);
  } else {
    faulty_.Add(run.totals);
    FaultTally& tally = planned.several() ? several_ : tallies_[planned.kinds[0]];
    tally.off_arm_wrong_tokens += run.totals.off_wrong_tokens;
    for (const FaultResult& fault : run.faults) {
      AddFault(fault, &tally);
      if (planned.several()) ++of_several_[fault.kind];
    }
    several_runs_ += planned.several() ? 1 : 0;
  }
  for (IncidentStory& story : run.stories) stories_.push_back(std::move(story));
  for (std::string& line : run.red) red_.emplace_back(planned.number, std::move(line));
  red_count_ += run.red.size();
  if (run.bad) bad_runs_.push_back(planned.number);
  KeepFirst();
}

void CampaignFold::Join(const CampaignFold& other) {
  clean_.Add(other.clean_);
  faulty_.Add(other.faulty_);
  folded_ += other.folded_;
  clean_seconds_ += other.clean_seconds_;
  off_seconds_ += other.off_seconds_;
  off_tokens_ += other.off_tokens_;
  bytes_per_page_ = std::max(bytes_per_page_, other.bytes_per_page_);
  for (size_t k = 0; k < tallies_.size(); ++k) {
    JoinTally(other.tallies_[k], &tallies_[k]);
    of_several_[k] += other.of_several_[k];
  }
  JoinTally(other.several_, &several_);
  several_runs_ += other.several_runs_;
  for (size_t a = 0; a < coverage_.features.size(); ++a) {
    coverage_.on[a] += other.coverage_.on[a];
    coverage_.met[a] += other.coverage_.met[a];
  }
  for (const auto& [pair, count] : other.coverage_.pairs) coverage_.pairs[pair] += count;
  for (const auto& [kind, counts] : other.coverage_.faults_by_kind) {
    std::vector<uint64_t>& sums = coverage_.faults_by_kind[kind];
    sums.resize(counts.size());
    for (size_t a = 0; a < counts.size(); ++a) sums[a] += counts[a];
  }
  stories_.insert(stories_.end(), other.stories_.begin(), other.stories_.end());
  bad_runs_.insert(bad_runs_.end(), other.bad_runs_.begin(), other.bad_runs_.end());
  red_.insert(red_.end(), other.red_.begin(), other.red_.end());
  red_count_ += other.red_count_;
  KeepFirst();
}

void CampaignFold::KeepFirst() {
  KeepFirstBy(&bad_runs_, kMostLogs, [](uint64_t run) { return run; });
  KeepFirstBy(&red_, kMostRed, [](const auto& line) { return line.first; });
  KeepFirstBy(&stories_, stories_.size(), [](const IncidentStory& story) { return story.run; });
  std::map<std::pair<std::string, Outcome>, uint64_t> told;
  std::erase_if(stories_, [&](const IncidentStory& story) {
    return ++told[{story.kind, story.outcome}] > MostStories(story.outcome);
  });
  for (IncidentStory& story : stories_) {
    // Logs are left by the first few bad runs, of all shards.
    if (std::find(bad_runs_.begin(), bad_runs_.end(), story.run) == bad_runs_.end()) {
      story.log.clear();
    }
  }
}

uint32_t CampaignFold::WantedStories(const PlannedRun& planned) const {
  uint32_t wanted = 0;
  if (planned.several()) {
    // Each kind has its good ones from runs of its own.
    for (int i = 0; i < kOutcomeCount; ++i) {
      if (IsBad(static_cast<Outcome>(i))) wanted |= 1u << i;
    }
    return wanted;
  }
  std::array<uint64_t, kOutcomeCount> told{};
  for (const IncidentStory& story : stories_) {
    if (story.kind == tallies_[planned.kinds[0]].kind) ++told[static_cast<size_t>(story.outcome)];
  }
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i] < MostStories(static_cast<Outcome>(i))) wanted |= 1u << i;
  }
  return wanted;
}

// Bad ones first, then what was prevented, then the rest.
std::vector<IncidentStory> CampaignFold::PickStories() const {
  const auto weight = [](const IncidentStory& story) {
    return IsBad(story.outcome) ? 0 : static_cast<int>(story.outcome) + 1;
  };
  std::vector<IncidentStory> picked = stories_;
  std::stable_sort(picked.begin(), picked.end(),
                   [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
  if (picked.size() > kMostStories) picked.resize(kMostStories);
  return picked;
}

CampaignReport CampaignFold::Report(const CampaignConfig& config, bool partial) const {
  CampaignReport report;
  report.config = config;
  report.faults = tallies_;
  report.several = {.runs = several_runs_, .tally = several_, .activated = of_several_};
  report.coverage = coverage_;
  RunTotals all = clean_;
  all.Add(faulty_);
  report.runs = all.engines;
  // The no-fault arm's requests are the same kind of traffic once more: they aren't counted twice.
  report.requests = kinds_.empty() ? clean_.requests : faulty_.requests;
  report.steps = all.steps;
  report.events = all.events;
  report.entries_checked = all.entries_checked;
  report.ownership_changes = all.ownership_changes;
  report.tokens_published = all.tokens;
  report.wrong_tokens_published = all.wrong_tokens;
  report.requests_aborted = all.aborted;
  report.false_alarms = all.false_alarms;
  report.clean_arm = {.requests = clean_.requests,
                      .steps = clean_.steps,
                      .entries_checked = clean_.entries_checked,
                      .violations = clean_.false_alarms,
                      .wrong_tokens_published = clean_.wrong_tokens,
                      .ownership_changes = clean_.ownership_changes,
                      .runs = clean_.engines};
  report.off_arm.wrong_tokens_published = faulty_.off_wrong_tokens;
  report.recompute = {.requests = faulty_.recomputed,
                      .right = faulty_.recomputed_right,
                      .withdrawn = faulty_.recomputed_withdrawn};
  report.device_bytes_per_page = bytes_per_page_;
  report.device_bytes_per_entry = bytes_per_page_ == 0 ? 0 : sizeof(Expectation);
  report.clean_tokens_per_second = PerSecond(clean_.tokens, clean_seconds_);
  report.off_tokens_per_second = PerSecond(off_tokens_, off_seconds_);
  report.stories = PickStories();
  report.partial = partial;
  for (const auto& [run, line] : red_) report.red.push_back(line);
  if (red_count_ > red_.size()) {
    report.red.push_back("and " + std::to_string(red_count_ - red_.size()) + " more of this sort");
  }
  JudgeCampaign(kinds_, &report);
  return report;
}

}  // namespace kvfence
