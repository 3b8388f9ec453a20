// A campaign: many runs of the reference engine with faults, beside a run without faults and one
// without the fence, and an honest account of what became of each fault.
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
#include <string>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/finding.h"
#include "kvfence/status.h"

namespace kvfence {

// The outcomes of an activated fault, in the report's order.
enum class Outcome : uint8_t {
  kPrevented,   // its raw read was wrong, nothing wrong was published, for an expected reason
  kEarly,       // ended for an expected reason before any wrong read
  kBenign,      // activated, nothing wrong read, nothing reported
  kLate,        // reported after a wrong token was published
  kMissed,      // wrong token published, nothing reported
  kCollateral,  // a request ended that held no faulted object
  kCrashed,
};
inline constexpr int kOutcomeCount = 7;
inline constexpr std::array<std::string_view, kOutcomeCount> kOutcomeNames = {
    "prevented", "early", "benign", "late", "missed", "collateral", "crashed"};

struct CampaignConfig {
  uint64_t seed = 1;
  std::string trace;                          // Mooncake JSONL; empty: the built-in generator
  uint64_t requests = 0;                      // 0: the trace's all, or the generator's default
  uint64_t steps = 0;                         // 0: until the requests are served
  uint64_t duration_seconds = 0;              // 0: no limit
  std::vector<std::string> faults = {"all"};  // kinds, "all", "none"
  Level level = Level::kFull;
  CheckSet disabled{};  // checks taken out, to show that they're needed
  Policy policy = Policy::kAbort;
  uint64_t page_size = 0;  // 0: drawn from the seed (trace runs: 64)
  uint64_t pages = 0;      // 0: drawn
  uint64_t rows = 0;       // 0: drawn
  bool until_complete = false;
  std::string log_dir;  // where one .kvlog per bad finding goes; empty: nowhere
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
  uint64_t run = 0;
  std::vector<TimelineEntry> timeline;
  std::string record;  // incident record, a JSON line
  std::string log;     // file name of its .kvlog, empty when none was written
};

struct CampaignReport {
  CampaignConfig config;
  std::vector<std::string> drawn;  // the drawn configuration, one "name=value" a line
  uint64_t runs = 0;
  uint64_t requests = 0, steps = 0, events = 0, entries_checked = 0, ownership_changes = 0;
  uint64_t tokens_published = 0, wrong_tokens_published = 0, requests_aborted = 0;
  uint64_t false_alarms = 0;
  std::vector<FaultTally> faults;
  struct CleanArm {
    uint64_t steps = 0, entries_checked = 0, violations = 0, wrong_tokens_published = 0;
  } clean_arm;
  struct OffArm {
    uint64_t wrong_tokens_published = 0;
  } off_arm;
  uint64_t device_bytes_per_page = 0, device_bytes_per_entry = 0;
  std::vector<IncidentStory> stories;  // a few; bad outcomes first
  std::vector<std::string> missing;    // what is missing to completeness, sentences
  std::vector<std::string> red;        // why it isn't green, sentences
  bool green = false, complete = false;
  bool partial = false;  // interrupted: what was finished is in it
  // Measured with a clock, so no part of what the same flags give again.
  double seconds = 0;
  double clean_tokens_per_second = 0, off_tokens_per_second = 0;
};

struct CampaignProgress {
  double fraction = 0;  // 0..1, of the planned work
  uint64_t runs = 0, steps = 0, activated = 0, bad = 0;
  double seconds = 0;
  std::string phase;  // "no-fault arm", "fence-off arm", "faults"
};

// Who listens to a campaign while it runs. All may be left out; all are called on its thread.
struct CampaignHooks {
  std::function<void(const CampaignProgress&)> progress;  // now and then
  const std::atomic<bool>* stop = nullptr;  // set: ends soon, the report is marked partial
  std::vector<EventSink*> sinks;            // every fence of the campaign reports to them, too
  std::function<void(const std::string& kind)> on_fault;  // activated
  std::function<void(const std::string& kind, Outcome)> on_outcome;
};

// Runs it on the calling thread. Refuses impossible configs.
Result<CampaignReport> RunCampaign(const CampaignConfig& config, const CampaignHooks& hooks);

// The report as one JSON object (keys as the command line's `run --json` promises). Same config,
// same bytes but for "seconds"; nothing else that a clock measured is in it.
std::string ToJson(const CampaignReport& report, int indent = 2);

}  // namespace kvfence
