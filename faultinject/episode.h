// One episode: a fresh engine with drawn settings serves a few requests while faults of one kind,
// or of several at once, are put in, once with the fence and once without.
//
// Invariant: a pure function of (campaign config, run number, attempt) (I-20, I-120).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comebacks.h"
#include "fault_record.h"
#include "feature_choice.h"
#include "kvfence/campaign.h"
#include "kvfence/engine.h"
#include "kvfence/fault_kind.h"
#include "kvfence/trace.h"
#include "swarm.h"

namespace kvfence {

// Where a campaign's requests come from.
class RequestSource {
 public:
  // `path` empty: the generator. Refuses an unreadable trace.
  static Result<RequestSource> Open(const CampaignConfig& config);
  bool generated() const { return trace_.empty(); }
  uint64_t size() const { return trace_.size(); }
  // n requests of long traffic without faults, from `first` on; `piece`: which of its pieces.
  std::vector<TraceRequest> Stream(uint64_t piece, uint64_t first, uint64_t n) const;
  // n requests for one episode; `first`: of the trace, which begins again when it's over.
  std::vector<TraceRequest> Slice(uint64_t episode, uint64_t first, uint64_t n) const;

 private:
  uint64_t seed_ = 0;
  Swarm swarm_;
  std::vector<TraceRequest> trace_;  // not yet scaled
  uint32_t scale_ = 1;
};

// Tokens of the longest request.
uint64_t LongestOf(const std::vector<TraceRequest>& trace);

struct EpisodePlan {
  uint64_t number = 0;
  uint64_t attempt = 0;  // engines tried before because they gave the kind no occasion
  std::vector<const FaultKind*> kinds{};  // none: the continuous arm without faults
  EngineConfig engine;
  std::vector<TraceRequest> trace;
  FenceConfig fence;
  uint64_t fault_gap = 4;               // most steps between one fault's end and the next
  uint64_t fault_one_in = 2;            // of so many occasions about one is taken
  uint64_t most_faults = ~uint64_t{0};  // of each kind
  uint64_t spare_pages = 0;             // that the engine can do without
  std::string at_start{};               // what is wrong before there is an engine; empty: nothing
};
// Draws the settings. Refuses when the given pages can't serve the longest request.
Status DrawEpisode(const CampaignConfig& config, EpisodePlan* plan);
// "name=value" of what the seed drew for the whole campaign.
std::vector<std::string> DescribeDraw(const CampaignConfig& config);
// "name=value" of what was drawn for this engine.
std::vector<std::string> Describe(const EngineConfig& engine);

// What a run of an engine came to.
struct RunResult {
  uint64_t served = 0, steps = 0, events = 0, entries_checked = 0, ownership_changes = 0;
  uint64_t tokens = 0, wrong_tokens = 0, aborted = 0;
  uint64_t violations = 0, false_alarms = 0, wrong_without_fault = 0;
  uint64_t device_bytes_pages = 0;
  Comebacks::Counts comebacks;
  uint64_t activated = 0;
  FeatureMask features = 0, reached = 0;  // that were on; that did something
  bool stopped = false;                   // interrupted
  std::string audit;                      // what was wrong with the books at the end
  std::vector<FaultRecord> faults;
  std::vector<Outcome> outcomes;       // of each fault
  std::vector<IncidentStory> stories;  // of those asked for
};

struct RunOptions {
  bool fence = true;
  // Which faults are to be told as stories; empty: none.
  std::function<bool(const FaultRecord&, Outcome)> want_story{};
  std::vector<EventSink*> sinks{};
  std::function<void(size_t kind)> on_fault{};  // which of the plan's kinds
  std::string record_to{};                      // a log of all that the fence is told; empty: none
  bool stop_at_violation = false;  // after the step in which the fence first reports anything
  std::function<bool(uint64_t steps, uint64_t ended)> go_on{};  // false: stop now
};
Result<RunResult> RunEpisode(const EpisodePlan& plan, const RunOptions& options);

}  // namespace kvfence
