// What one run of a campaign came to: the unit that travels from a worker, stands in the journal
// and is folded into the report.
//
// Invariant: all of it but the clock's figures is a pure function of (config, number) (I-120).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/campaign.h"
#include "kvfence/reason.h"

namespace kvfence {

// Sums, in the order in which they're written down.
struct RunTotals {
  uint64_t engines = 0;  // engines that served; a run may need several (its fault wasn't activated)
  uint64_t requests = 0, steps = 0, events = 0, entries_checked = 0, ownership_changes = 0;
  uint64_t tokens = 0, wrong_tokens = 0, aborted = 0, false_alarms = 0;
  uint64_t off_wrong_tokens = 0;
  // Policy recompute: requests that went back, ended right all the same, were taken back since.
  uint64_t recomputed = 0, recomputed_right = 0, recomputed_withdrawn = 0;

  template <class F>
  static void ForEach(F f) {
    for (const auto member :
         {&RunTotals::engines, &RunTotals::requests, &RunTotals::steps, &RunTotals::events,
          &RunTotals::entries_checked, &RunTotals::ownership_changes, &RunTotals::tokens,
          &RunTotals::wrong_tokens, &RunTotals::aborted, &RunTotals::false_alarms,
          &RunTotals::off_wrong_tokens, &RunTotals::recomputed, &RunTotals::recomputed_right,
          &RunTotals::recomputed_withdrawn}) {
      f(member);
    }
  }
  void Add(const RunTotals& other) {
    ForEach([&](uint64_t RunTotals::*member) { this->*member += other.*member; });
  }
};

struct FaultResult {
  size_t kind = 0;  // of the campaign's
  Outcome outcome{};
  CheckSet reasons{};
  std::optional<uint64_t> delay{};  // steps from activation to the first report
};

struct CampaignRun {
  uint64_t number = 0;
  RunTotals totals;
  std::vector<FaultResult> faults;
  std::vector<IncidentStory> stories;  // of those that were asked for
  std::vector<std::string> red;        // what keeps a campaign from being green, sentences
  uint64_t features = 0, met = 0;      // bits of kEngineFeatures: on; on and did something
  uint64_t bytes_per_page = 0;
  bool bad = false;     // to be looked into: deserves a log
  bool logged = false;  // was looked into, and this is its last word
  bool cut = false;     // stopped before its end: counts for a report that's marked partial only
  std::string refused;  // impossible settings: the campaign ends with this
  // Measured with a clock; of no-fault runs.
  double seconds = 0, off_seconds = 0;
  uint64_t off_tokens = 0;
};

// One line, without what a clock measured unless `clock`.
std::string ToLine(const CampaignRun& run);
// Nothing: it isn't one.
std::optional<CampaignRun> RunFromLine(std::string_view line);

}  // namespace kvfence
