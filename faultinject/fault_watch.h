// Watches one run of the engine: collects what the ground truth and the fence say, and lays it to
// the fault that it belongs to.
//
// Idea: a request is affected by a fault if the fault names it, or if it held a faulted object at
// or after the activation. Faulted are the pages that the fault names; where their content is moved
// to; what rows that ended for the fault were to write; and a shared table that is made of a wrong
// row. What happens to an affected request belongs to that fault; what happens to any other belongs
// to the latest fault, as collateral. Without any fault a report is a false alarm. Invariant: the
// engine's feed decides (what was read, what was published), the ledger is never asked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "episode_notes.h"
#include "fault_record.h"
#include "kvfence/finding.h"
#include "kvfence/outcome.h"

namespace kvfence {

class FaultWatch : public OutcomeSink, public EventSink {
 public:
  // `expected`: the reasons that may answer. `changes`: a fault whose effect comes when its page
  // next changes hands isn't over before that happened so many times; `heals`: after that a faulted
  // page is harmless as soon as it's free; `idle`: the next fault may be put in after so many steps
  // without effect.
  FaultWatch(CheckSet expected, uint64_t changes, bool heals, int64_t idle)
      : expected_(expected), changes_(changes), heals_(heals), idle_(idle) {}

  // --- the injector's side ------------------------------------------------------------------
  // A fault is about to be put in. Returns its number.
  size_t Begin(FaultSurface& at, FaultMark mark);
  bool open() const { return open_; }
  // A page went to a request: whoever gets a faulted one is affected. `change`: it's issued, or
  // found in the index.
  void PageGoesTo(RequestIndex request, PageId page, bool change = true);
  // Content moved: where faulted content goes is faulted.
  void Moved(FaultSurface& at, const ContentMove& move);
  // The step is about to be validated: what its rows hold and write.
  void StepBegins(FaultSurface& at);
  // The step is over.
  void StepDone(FaultSurface& at);
  void SetStep(int64_t step) { step_ = step; }
  // The engine threw.
  void Crashed();

  // --- the run's side -----------------------------------------------------------------------
  // Which request the fence means; set where the run names its requests.
  void Name(NameId name, RequestIndex request);
  std::function<std::string(const Violation&)> incident{};  // makes the record of a violation
  std::function<void()> on_begin{};
  EpisodeNotes* notes = nullptr;

  void OnStep(const StepOutcome& step) override;
  void OnEnd(RequestIndex request, RequestId id, EndKind kind) override;
  void OnViolation(const Violation& violation) override;
  void OnStep(const StepStats&) override {}

  std::span<const FaultRecord> faults() const { return faults_; }
  uint64_t false_alarms() const { return false_alarms_; }
  uint64_t violations() const { return violations_; }
  uint64_t wrong_published() const { return wrong_published_; }
  // Wrong results that no fault can answer for, as none was there.
  uint64_t wrong_without_fault() const { return wrong_without_fault_; }

 private:
  // What a row of a launched step holds, and which part of that it writes.
  struct RowPages {
    RequestIndex request = kNoRequest;
    std::vector<GroupPage> held{};
    std::vector<GroupPage> written{};
  };
  // The fault that answers for it: the latest that affects the request or whose faulted page it
  // is, and that was answered already where only consequences (no declared reason) are reported;
  // else the latest that ever named the page; else the latest of all; null: none.
  FaultRecord* FaultOf(RequestIndex request, std::optional<GroupPage> page, CheckSet reasons);
  FaultRecord* Touch(RequestIndex request, std::optional<GroupPage> page, CheckSet reasons);
  // Rows that ended, and with them whoever relies on what they were to write.
  void Spread(const StepOutcome& step);
  void OnRow(const RowOutcome& row);
  RequestIndex RequestOf(RequestId id) const;
  void Add(const Note& note) {
    if (notes != nullptr) notes->Add(note);
  }

  CheckSet expected_;
  uint64_t changes_;
  bool heals_;
  int64_t idle_;
  int64_t step_ = 0;
  bool open_ = false;
  std::vector<FaultRecord> faults_;
  std::map<uint64_t, std::vector<RowPages>> launched_;  // by step, of those not settled
  std::vector<std::pair<size_t, GroupPage>> spread_;  // faults, and pages they have just spread to
  std::unordered_map<uint32_t, RequestIndex> names_;  // only looked up, never iterated
  uint64_t false_alarms_ = 0;
  uint64_t violations_ = 0;
  uint64_t wrong_published_ = 0;
  uint64_t wrong_without_fault_ = 0;
};

}  // namespace kvfence
