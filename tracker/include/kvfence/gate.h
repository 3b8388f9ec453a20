// The gate: one rank's device side. Page records, expectation tables, and the three launches.
//
// It takes journal batches in sequence, keeps expectations in chunks so that its memory follows
// live pages (I-15), judges each launched step on the very arrays the kernels read, and answers
// with one verdict word per row. A batch that is missing, repeated or damaged leaves the gate
// `lost`: from then on every row is unverified (I-11), until a snapshot comes. This gate runs the
// CPU backend; records and tables are plain memory. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/event.h"
#include "kvfence/finding.h"
#include "kvfence/journal.h"
#include "kvfence/ledger.h"
#include "kvfence/validate.h"

namespace kvfence {

class Gate : public Journal::Immediate {
 public:
  Gate(const FenceConfig& config, RankId rank);
  ~Gate() override;

  // Takes one batch: its deltas are on the device before the next Validate. A snapshot that isn't
  // older than what the gate has replaces all of it.
  void Apply(const JournalBatch& batch);
  // The feed is broken: lost, as after a batch that never came.
  void Lose() { lost_ = true; }
  // As built: nothing known, waiting for batch 1 of a new ledger. Passes in flight are unverified
  // and store nothing any more.
  void Restart();
  void Stamp(PoolId pool, uint32_t page, const PageRecord& record) override;

  // One judged pass, kept until Forget. `reasons` has one mask per row task of the plan.
  struct Pass {
    StepId step;
    std::vector<uint32_t> reasons;
    std::vector<DeviceFinding> findings;  // new ones of the last call, in row, pool, page order
    bool findings_cut = false;
    uint64_t entries = 0;
    uint64_t validate_ns = 0;
  };
  // Judges the step's arrays; failing rows are harmless in them when it returns.
  const Pass& Validate(const StepEvent& event, const StepPlan& plan);
  // Where no plan came for the step: each of the event's rows and pads is unverified, and harmless
  // in the event's arrays. A pass like any other: row tasks in the event's order.
  const Pass& Condemn(const StepEvent& event);
  // Makes further rows harmless before attention reads them.
  void Sanitise(StepId step, std::span<const uint32_t> row_tasks);
  // Rows that failed on the host since validate: confirm stores nothing for them.
  void FailRow(StepId step, uint32_t row_task, uint32_t reasons);
  // Once more asks once more, until the next batch is applied.
  const Pass& Confirm(StepId step);
  // A later step is about to be launched. In stream order a pass's own stores come before that, so
  // passes that aren't confirmed yet are asked and stored now; what only their confirm can tell
  // (other tables, copies that end inside the step) is asked there. Calls f for each such pass with
  // its new findings.
  void ConfirmEarly(const std::function<void(const Pass&)>& f);
  bool Confirmed(StepId step) const;
  // The row tasks of a pass that is still kept, and their verdict words; empty when it isn't.
  std::span<const RowTask> Rows(StepId step) const;
  std::span<const VerdictWord> Verdicts(StepId step) const;
  // The step has settled: its scratch may be used again.
  void Forget(StepId step);

  bool lost() const { return lost_; }
  uint64_t page_bytes() const;
  uint64_t expectation_bytes() const;  // chunks in use
  uint64_t live_entries() const { return live_entries_; }
  uint64_t launch_ns() const { return launch_ns_; }  // in apply, validate and confirm
  // The device's record of a page, and a way to damage it: fault injection flips tags here.
  PageRecord& RecordForTest(PoolId pool, uint32_t page);

 private:
  template <class F>
  uint64_t Timed(F launch);
  struct Held;      // a request's chunks
  struct InFlight;  // a pass and the copies of what it was launched with
  class Requests;

  void ApplyDelta(const JournalDelta& delta);
  void ResizeList(uint64_t request, uint32_t pool, uint32_t count);
  uint32_t TakeChunk();
  void Place(const StepEvent& event, const StepPlan& plan, InFlight& pass);
  StepView ViewOf(InFlight& pass) const;
  GateView Device();
  void AskAgain(InFlight& pass);
  void LeaveOutReturned(const InFlight& pass, PoolTask& task, std::vector<uint32_t>& late);
  void KeepExpected(InFlight& pass);
  void FollowContent(InFlight& pass);
  InFlight* Find(StepId step) const;
  void Collect(InFlight& pass);

  const FenceConfig config_;
  const RankId rank_;
  uint64_t next_sequence_ = 1;
  bool lost_ = false;
  std::vector<std::vector<PageRecord>> records_;  // [space]
  std::vector<uint32_t> space_of_pool_;
  std::vector<PoolState> pools_;
  std::vector<uint64_t> row_requests_;
  std::vector<Expectation> arena_;
  std::vector<uint32_t> free_chunks_;
  uint32_t chunks_in_use_ = 0;
  uint64_t live_entries_ = 0;
  uint64_t launch_ns_ = 0;
  std::unique_ptr<Requests> requests_;
  std::vector<ApplyItem> items_;
  std::vector<std::unique_ptr<InFlight>> passes_;  // oldest first
  std::vector<std::unique_ptr<InFlight>> spare_;
};

}  // namespace kvfence
