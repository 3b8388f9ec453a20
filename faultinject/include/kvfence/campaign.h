// A campaign: many runs of the reference engine with faults, beside runs without faults and ones
// without the fence, and an honest account of what became of each fault.
//
// Idea: a campaign is a list of numbered runs. Each is a pure function of (config, number), and
// the report is a fold of their results in the order of their numbers. So worker processes may do
// runs out of order, shards may do them on other machines, and a killed campaign goes on where its
// journal ends: the report is the same (I-120, I-121).
//
// Ground truth is the engine's (content and solo golden runs), never the ledger. The report is
// green only if late, missed, collateral, crashed and false alarms are 0, the no-fault arm is
// silent and the fence-off arm publishes wrong tokens. It's complete only if besides each kind was
// activated often enough, at most half benign, every declared (kind, reason) pair was hit, and the
// off arm went wrong for each kind. Invariant: a pure function of the config but for `seconds`
// (I-20).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/finding.h"
#include "kvfence/status.h"
#include "kvfence/transformer_shape.h"

namespace kvfence {

// The outcomes of an activated fault, in the report's order.
enum class Outcome : uint8_t {
  kPrevented,   // its raw read was wrong, nothing wrong was published, for an expected reason
  kEarly,       // ended (or went back) for an expected reason before any wrong read
  kBenign,      // activated, nothing wrong read, nothing reported
  kLate,        // reported after a wrong token was published
  kMissed,      // wrong token published, nothing reported
  kCollateral,  // a request ended (or went back) that held no faulted object
  kCrashed,
};
inline constexpr int kOutcomeCount = 7;
inline constexpr std::array<std::string_view, kOutcomeCount> kOutcomeNames = {
    "prevented", "early", "benign", "late", "missed", "collateral", "crashed"};

// Which small transformers a campaign's engines serve: each run draws one of each list, none of
// which is empty.
struct NumericChoice {
  std::vector<AttentionForm> attention{};
  std::vector<KvType> kv{};
  std::vector<WeightType> weights{};
};

// Shard `part` of `of`: every of-th run, from the part-th on. 1 of 1: all.
struct Shard {
  uint64_t part = 1, of = 1;
};

struct CampaignConfig {
  uint64_t seed = 1;
  std::string trace;      // Mooncake JSONL; empty: the built-in generator
  uint64_t requests = 0;  // 0: the trace's all, or the generator's default
  uint64_t steps = 0;     // 0: until the requests are served
  // Of one run of the no-fault arm, which has settings of its own; 0: the default.
  uint64_t requests_per_run = 0;
  // 0: no limit. Without `requests` the runs go on until the time is over.
  uint64_t duration_seconds = 0;
  std::vector<std::string> faults = {"all"};  // kinds, or "all" or "none" alone
  std::vector<std::string> features{};        // all, none, NAME, -NAME; the rest is drawn
  std::optional<NumericChoice> numeric{};     // unset: the model of 64 bits
  uint32_t trace_scale = 1;                   // requests' lengths are divided by it (ScaleTrace)
  Level level = Level::kFull;
  CheckSet disabled{};  // checks taken out, to show that they're needed
  Policy policy = Policy::kAbort;
  uint64_t page_size = 0;  // 0: drawn from the seed (trace runs: 64)
  uint64_t pages = 0;      // 0: drawn
  uint64_t rows = 0;       // 0: drawn
  bool until_complete = false;
  Shard shard{};
  std::optional<uint64_t> only{};  // this run alone, by its number
  std::string log_dir;             // where one .kvlog per bad finding goes; empty: nowhere
};

struct FaultTally {
  std::string kind;
  char fault_class = '?';
  uint64_t activated = 0;
  std::array<uint64_t, kOutcomeCount> outcomes{};
  std::map<std::string, uint64_t> reasons;   // reason name -> answers
  std::map<uint64_t, uint64_t> delay_steps;  // steps from activation to report -> count
  uint64_t off_arm_wrong_tokens = 0;
};

// What the tally of faults of runs with several kinds at once is called.
inline constexpr std::string_view kSeveralAtOnce = "several at once";

// Which features of the engine were met, with each other and with which faults. A feature is met
// where it was on and did something.
struct FeatureCoverage {
  std::vector<std::string> features;
  std::vector<uint64_t> on, met;                        // runs, by feature
  std::map<std::pair<size_t, size_t>, uint64_t> pairs;  // runs in which both were met; a < b
  std::map<std::string, std::vector<uint64_t>> faults_by_kind;  // activated where it was met

  uint64_t features_met() const;
  uint64_t pairs_met() const;
  uint64_t pairs_all() const { return features.size() * (features.size() - 1) / 2; }
};

// One step of an incident's story, for the report's timeline.
struct TimelineEntry {
  int64_t step = -1;
  std::string what;  // fault, alloc, free, share, violation, abort, published ...
  std::string text;
  std::string request{};         // whom it concerns, empty: nobody in particular
  std::vector<int64_t> pages{};  // physical pages it names
};
struct IncidentStory {
  std::string kind;
  Outcome outcome{};
  uint64_t run = 0;  // its number: the campaign with `only` plays it again
  std::vector<TimelineEntry> timeline;
  std::string record;  // incident record, a JSON line
  std::string log;     // file name of its .kvlog, empty when none was written
};

struct CampaignReport {
  CampaignConfig config;
  std::vector<std::string> drawn;  // the drawn configuration, one "name=value" a line
  // Of "all", kinds for which the config leaves no occasion, one "KIND: why" a line.
  std::vector<std::string> left_out;
  uint64_t runs = 0;
  uint64_t requests = 0, steps = 0, events = 0, entries_checked = 0, ownership_changes = 0;
  uint64_t tokens_published = 0, wrong_tokens_published = 0, requests_aborted = 0;
  uint64_t false_alarms = 0;
  std::vector<FaultTally> faults;
  struct CleanArm {
    uint64_t requests = 0, steps = 0, entries_checked = 0, violations = 0;
    uint64_t wrong_tokens_published = 0;
    uint64_t ownership_changes = 0;
    uint64_t runs = 0;  // each with settings of its own, drawn
  } clean_arm;
  struct OffArm {
    uint64_t wrong_tokens_published = 0;
  } off_arm;
  // Runs with several kinds at once, an arm of its own: such a fault is judged by what it touched,
  // and what can't be told apart counts for all that it may be of.
  struct Several {
    uint64_t runs = 0;
    FaultTally tally;
    std::vector<uint64_t> activated;  // by kind, as in `faults`
  } several;
  // Policy recompute: what became of requests that went back to be computed again.
  struct Recompute {
    uint64_t requests = 0;   // that went back, each once
    uint64_t right = 0;      // of those, complete with nothing but right tokens
    uint64_t withdrawn = 0;  // of those, taken back by their client
    uint64_t lost() const { return requests - right - withdrawn; }
  } recompute;
  FeatureCoverage coverage;
  uint64_t device_bytes_per_page = 0, device_bytes_per_entry = 0;
  std::vector<IncidentStory> stories;  // a few; bad outcomes first
  std::vector<std::string> missing;    // what is missing to completeness, sentences
  std::vector<std::string> red;        // why it isn't green, sentences
  bool green = false, complete = false;
  bool kinds_complete = false;  // complete, as far as the kinds go that were asked for
  bool partial = false;         // interrupted: what was finished is in it
  // Measured with a clock, so no part of what the same flags give again.
  double seconds = 0;  // of all sittings, if it was resumed
  double clean_tokens_per_second = 0, off_tokens_per_second = 0;
  // Of a shard: what MergeShards needs, JSON. Empty: no shard.
  std::string shard_state;
};

struct CampaignProgress {
  double fraction = 0;  // 0..1, of the planned work
  uint64_t runs = 0, steps = 0, activated = 0, bad = 0;
  double seconds = 0;  // of this sitting
  double steps_per_second = 0;
  double seconds_left = 0;  // as things go; 0: unknown
  std::string phase;        // "no-fault arm", "faults"
};

// Who listens to a campaign while it runs, and how it's carried out: nothing here changes the
// report. All may be left out; all but `in_run` are called on the caller's thread.
struct CampaignHooks {
  std::function<void(const CampaignProgress&)> progress;  // now and then
  const std::atomic<bool>* stop = nullptr;  // set: ends soon, the report is marked partial
  std::vector<EventSink*> sinks;            // every fence of the campaign reports to them, too
  std::function<void(const std::string& kind)> on_fault;  // activated
  std::function<void(const std::string& kind, Outcome)> on_outcome;
  // Worker processes that do the runs; a run that takes its process down counts as crashed.
  // 0: on the calling thread (a debugger sees everything, and a crash ends the campaign).
  uint64_t jobs = 0;
  // Called where the run is done (in the worker): as it begins, and at each fault.
  std::function<void(uint64_t run, bool fault)> in_run;
  // Keeps what was done in this file, so that a killed campaign can go on; removed when it's over,
  // kept when it was stopped. Empty: nowhere.
  std::string journal;
  bool resume = false;  // goes on where the journal ends, if there is one
};

// Which words of the config are off, or ok. The trace isn't opened.
Status CheckCampaignConfig(const CampaignConfig& config);

// Runs it. Refuses impossible configs, and a journal of another config or program
// (kFailedPrecondition).
Result<CampaignReport> RunCampaign(const CampaignConfig& config, const CampaignHooks& hooks);

// The report as one JSON object (keys as the command line's `run --json` promises). Same config,
// same bytes but for "seconds"; nothing else that a clock measured is in it.
std::string ToJson(const CampaignReport& report, int indent = 2);

// One report of all shards of a campaign, from their reports' JSON in any order: what the campaign
// would have given unsharded, but for "seconds" (the sum). `names` stand for them in refusals:
// no shard's report, one of another campaign or program, one twice, one missing (I-120).
Result<CampaignReport> MergeShards(std::span<const std::string> reports,
                                   std::span<const std::string> names);

}  // namespace kvfence
