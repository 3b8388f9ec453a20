// The inside of the facade: one ledger, journal and gate per rank, and what is common to all ranks.
//
// Idea: ownership events go to the ledger of each rank they hold for; a launched step goes to one
// rank. A finding that several ranks make of one event is reported once (the ranks agree, so it's
// one finding). Steps are settled over all ranks: the union of their reasons decides (I-9).
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kvfence/event_log_writer.h"
#include "kvfence/fence.h"
#include "kvfence/gate.h"
#include "kvfence/history.h"
#include "kvfence/incident.h"
#include "kvfence/incident_log.h"
#include "kvfence/journal.h"
#include "kvfence/ledger.h"
#include "kvfence/log_names.h"
#include "kvfence/policy.h"

namespace kvfence {

class Fence::Impl {
 public:
  Impl(const FenceConfig& config, std::vector<EventSink*> sinks);

  struct Rank {
    std::unique_ptr<Journal> journal;
    std::unique_ptr<Ledger> ledger;
    std::unique_ptr<Gate> gate;
    std::vector<StepId> launched;  // not retired on this rank, oldest first
    uint64_t retired = 0;          // 1 + the newest step that has
    // Found before the step's confirm was said: reported there.
    std::vector<Violation> found_early;
  };
  // A step of which at least one rank is launched and not all are retired.
  struct OpenStep {
    StepId step;
    bool decided = false;  // its rows' fate over all ranks
    std::vector<Violation> violations;
    SettlementStore store;
    std::set<Row> told;  // rows whose abort the sinks have heard of
  };

  // Passes the event to the ledger of each rank it holds for, as one event.
  template <class E>
  Status ToLedgers(const E& event, RankId rank, Status (Ledger::*verb)(const E&)) {
    if (recorder != nullptr) recorder->On(event);
    const Heard heard = Begin();
    comparing_ranks = rank == kAllRanks && ranks.size() > 1;
    Status status;
    for (size_t r = 0; r < ranks.size() && status.ok(); ++r) {
      if (rank != kAllRanks && rank.value() != r) continue;
      status = (ranks[r].ledger.get()->*verb)(event);
      if (ranks[r].journal->pending() > kMostDeltas) ApplyEarly(ranks[r]);
    }
    comparing_ranks = false;
    ReportCompared();
    return status;
  }
  // The same for events of movers outside the stream, which stamp device records at once.
  template <class E>
  Status ToDevices(const E& event, RankId rank, Status (Ledger::*verb)(const E&)) {
    for (Rank& r : ranks) r.journal->SetImmediate(r.gate.get());
    Status status = ToLedgers(event, rank, verb);
    for (Rank& r : ranks) r.journal->SetImmediate(nullptr);
    return status;
  }

  // Bookkeeping waits for the next step; where none comes it goes to the gate in batches of this
  // size, when no pass runs.
  static constexpr size_t kMostDeltas = 4096;
  void ApplyEarly(Rank& rank);

  // One event, from where it's heard to where its call ends: its findings are told apart from
  // those of the one before, and their incident records are made when the books stand.
  class Heard {
   public:
    explicit Heard(Impl* impl) : impl_(impl) {}
    ~Heard() { impl_->LogIncidents(); }
    Heard(const Heard&) = delete;
    Heard& operator=(const Heard&) = delete;

   private:
    Impl* impl_;
  };
  [[nodiscard]] Heard Begin();
  void LogIncidents() const;
  void Report(const Violation& violation);
  // Of what the ranks found at one place of an event, the first reason that applies is reported.
  void ReportCompared();
  void Note(PoolId pool, std::span<const PageId> pages, PageVerb verb, RequestId req);
  Status CheckRank(RankId rank) const;
  Status CheckStep(const StepEvent& event) const;

  // The findings of a pass, as violations.
  std::vector<Violation> Findings(const Rank& rank, const Gate::Pass& pass) const;
  void ConfirmEarlierPasses(Rank& rank);
  void ConfirmPass(Rank& rank, StepId step);
  void ReportEarly(Rank& rank, StepId step);
  // The ledger learns what a confirm found.
  void JudgeConfirmed(Rank& rank, const Gate::Pass& pass);
  OpenStep& Open(StepId step);
  OpenStep* FindOpen(StepId step);
  void DecideOverRanks(OpenStep& open);
  void DecideRow(StepId step, Rank& rank, const LaunchedRow& row);
  void CutPrefixes(OpenStep& open) const;
  // Of the share that was just judged: keys whose entry is of another generation.
  void NoteStaleKeys(const ShareEvent& event);
  Status RetireOn(Rank& rank, OpenStep& open);

  FenceConfig config;
  std::vector<EventSink*> sinks;
  LogNames names;
  EventLogWriter* recorder = nullptr;
  const Fence* facade = nullptr;
  IncidentLog* incidents = nullptr;
  bool auditing = false;  // an audit event is being played
  std::vector<Rank> ranks;
  std::deque<OpenStep> open_steps;  // oldest first
  std::vector<Violation> event_findings;
  bool comparing_ranks = false;          // an event for all ranks is being judged by each
  std::vector<Violation> compared;       // what they found at its places, until all have judged
  std::vector<Violation> suspect_pages;  // what was found of pages outside steps since last retire
  std::vector<KeyId> stale_keys;         // index entries that misled a request since last retire
  PageHistory history;
  Stats stats;
  int64_t last_step = -1;
  SettlementStore result;
  std::vector<LaunchedRow> retired_rows;  // a rank's, while it retires; kept for its memory
};

// Start-up geometry (reason `geometry`): arithmetic that would wrap, pools that overlap, page sizes
// that disagree inside one space. Each breach is one violation; nothing is refused.
std::vector<Violation> CheckGeometry(const FenceConfig& config);
// What can't be a fence at all: no pools, a page size of 0, a pool of one page.
Status CheckConfig(const FenceConfig& config);

}  // namespace kvfence
