// Watches one run of the engine: collects what the ground truth and the fence say, and lays it to
// the fault that it belongs to.
//
// Idea: a request is affected by a fault if the fault names it, or if it held a faulted object at
// or after the activation. Faulted are the pages that the fault names; where their content is moved
// to; what rows that ended for the fault were to write; and a shared table that is made of a wrong
// row. What happens to an affected request belongs to that fault, or, where several faults stand at
// once, to all those that affect it: they can't be told apart. What happens to any other belongs to
// the latest fault, as collateral. A request that was sent back to be computed again is no
// longer affected, unless it still holds a faulted object. Without any fault a report is a false
// alarm. Invariant: the engine's feed decides (what was read, what was published), the ledger is
// never asked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comebacks.h"
#include "episode_notes.h"
#include "fault_record.h"
#include "kvfence/finding.h"
#include "kvfence/outcome.h"

namespace kvfence {

// What the watch must know of a kind.
struct FaultNature {
  CheckSet expected{};   // the reasons that may answer
  uint64_t changes = 0;  // a fault whose effect comes when its page next changes hands isn't over
                         // before that happened so many times
  bool heals = true;     // after that a faulted page is harmless as soon as it's free
};

class FaultWatch : public OutcomeSink, public EventSink {
 public:
  // `natures`: of the kinds that are put in; `idle`: a fault is over after so many steps without
  // effect.
  FaultWatch(std::vector<FaultNature> natures, int64_t idle)
      : natures_(std::move(natures)), idle_(idle) {}

  // --- the injector's side ------------------------------------------------------------------
  // A fault of that kind is about to be put in. Returns its number.
  size_t Begin(FaultSurface& at, FaultMark mark, size_t kind = 0);
  // One that is there before there is an engine.
  size_t BeginAtStart(std::string text, size_t kind);
  bool open(size_t fault) const { return faults_[fault].open; }
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
  std::function<void(size_t kind)> on_begin{};
  EpisodeNotes* notes = nullptr;

  void OnStep(const StepOutcome& step) override;
  void OnEnd(RequestIndex request, RequestId id, EndKind kind) override;
  void OnViolation(const Violation& violation) override;
  void OnStep(const StepStats&) override {}

  std::span<const FaultRecord> faults() const { return faults_; }
  // What is known of a fault in the end.
  Evidence EvidenceOf(size_t fault) const;
  Comebacks::Counts comebacks() const { return comebacks_.counts(); }
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
  size_t Enter(FaultRecord fault, size_t kind);
  // The faults that answer for it, together: all open ones that affect the request or whose faulted
  // page it is, else the latest that was; where there is none, those that ever named the page. If
  // none of them declares any of `reasons`, then those that are over and do, else those that were
  // answered already. If no fault affects or names it, the latest that declares any of them, else
  // the latest of all. Empty: there was no fault. Something was seen of them.
  std::vector<FaultRecord*> Touch(RequestIndex request, std::optional<GroupPage> page,
                                  CheckSet reasons);
  void Explain(const std::vector<FaultRecord*>& touched, CheckSet reasons,
               std::vector<FaultRecord*>* faults) const;
  bool Declared(const std::vector<FaultRecord*>& faults, CheckSet reasons) const;
  void Report(const std::vector<FaultRecord*>& faults, CheckSet reasons);
  bool StillOpen(FaultSurface& at, const FaultRecord& fault) const;
  // Rows that ended, and with them whoever relies on what they were to write.
  void Spread(const StepOutcome& step);
  void OnRow(const StepOutcome& step, const RowOutcome& row);
  // A request that went back holds what it holds now, and nothing else.
  void CameBack(FaultSurface& at, const Comebacks::Back& back);
  RequestIndex RequestOf(RequestId id) const;
  void Add(const Note& note) {
    if (notes != nullptr) notes->Add(note);
  }

  const std::vector<FaultNature> natures_;
  const int64_t idle_;
  int64_t step_ = 0;
  std::vector<FaultRecord> faults_;
  std::map<uint64_t, std::vector<RowPages>> launched_;  // by step, of those not settled
  std::vector<std::pair<size_t, GroupPage>> spread_;  // faults, and pages they have just spread to
  std::unordered_map<uint32_t, RequestIndex> names_;  // only looked up, never iterated
  Comebacks comebacks_;
  uint64_t false_alarms_ = 0;
  uint64_t violations_ = 0;
  uint64_t wrong_published_ = 0;
  uint64_t wrong_without_fault_ = 0;
};

}  // namespace kvfence
