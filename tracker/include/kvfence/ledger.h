// The ledger: one rank's host truth about every page, request, index entry and pin.
//
// Fed by the events of the engine's bookkeeping, it keeps who holds which page at which logical
// index in which generation, judges what can be judged on the host, and tells the device side what
// each launched row may touch. It lives in the scheduler's process. It follows the engine: after a
// finding it goes on from what the engine did. Invariants: I-5 holders are counted by current tag;
// I-7 a page is free, live or retired; I-8 what rows may touch comes from here, never from the
// arrays under judgement. docs/events.md is its specification, verb by verb.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/device_types.h"
#include "kvfence/event.h"
#include "kvfence/finding.h"
#include "kvfence/policy.h"
#include "kvfence/status.h"

namespace kvfence {

// The ledger's deltas for its gate, in the order in which they were decided.
//
// Every Page call carries the page's whole record as it then is, so two deltas of one page merge to
// the later record with both calls' fields. Content-only calls (fields == kApplyContent) say what
// happened in the device's memory (writes, scales, copies, ends of copies, void rows): they count
// from now on. All others count from the next apply on: work that is launched goes on with what it
// was launched with.
class DeltaSink {
 public:
  virtual ~DeltaSink() = default;
  // `fields` as in ApplyItem: which parts of the record hold.
  virtual void Page(PoolId pool, uint32_t page, uint32_t fields, const PageRecord& record) = 0;
  virtual void Expect(RequestId req, PoolId pool, uint32_t at, const Expectation& expectation) = 0;
  // The request's list in this pool now has `count` entries (grown ones hold nothing until said).
  virtual void Resize(RequestId req, PoolId pool, uint32_t count) = 0;
  virtual void End(RequestId req) = 0;
  virtual void Bind(Row row, RequestId req) = 0;
  virtual void ScaleEpoch(PoolId pool, uint16_t epoch) = 0;
};

// In one step with same-step reads, a page that the reader needs is written by another row of that
// step: the reader is clean only if the writer is.
struct SameStepRead {
  uint32_t reader;  // row task
  uint32_t writer;  // row task
  uint32_t pool;
  uint32_t at;  // logical page of the reader
  int64_t page;
};

// What a launched step may touch, logical: the gate adds where its expectations lie. `chunk_begin`
// of the pool tasks is not set here.
struct StepPlan {
  std::vector<RowTask> rows;  // live rows in the event's order, then padded ones
  std::vector<PoolTask> pool_tasks;
  std::vector<Stamp> write_stamps;
  std::vector<uint32_t> late_pages;
  std::vector<SameStepRead> same_step_reads;
  uint32_t group_count = 0;
  uint64_t work = 0;
};

// One launched live row, as the ledger knows it.
struct LaunchedRow {
  Row row;
  RequestId req;
  CheckSet reasons;          // why it failed so far; empty: clean so far
  uint64_t good_prefix = 0;  // tokens known good, should it have to be recomputed
  // Of row, request, lengths, pages, tags: the same on each rank. With one rank nobody asks: 0.
  uint64_t digest = 0;
};

// What the ledger holds of one living incarnation, and of one page: for incident records and tests.
struct LedgerView {
  bool live = false;
  uint64_t length = 0;
  std::vector<std::vector<Expectation>> expectations;  // by pool, then logical page
};
struct LedgerPageView {
  PageRecord record{};             // as the device should have it when all is applied
  std::vector<bool> valid;         // by slot: holds content of work that is clean so far
  std::vector<bool> committed;     // by slot: ... that is settled
  std::vector<RequestId> holders;  // in its present generation, sorted, each once
  uint32_t index_entries = 0;      // naming its present generation
  uint32_t pins = 0;               // outstanding, of any generation
};

class Ledger : public LedgerFacts {
 public:
  // Config limits: 1 <= pages < 2^31, 1 <= page_size <= kMaxPageSize, null_page < pages; pools of
  // one space have the same number of pages. The caller has checked them. Copies the config.
  // `deltas` may be null (nobody listens); `report` too. Both are called on the calling thread.
  // `report` is called synchronously for each finding, in order; violations carry this rank.
  Ledger(const FenceConfig& config, RankId rank, DeltaSink* deltas,
         std::function<void(const Violation&)> report);
  ~Ledger() override;

  RequestId Admit(const AdmitEvent& event);
  RequestId Latest(NameId name) const;
  Status Alloc(const AllocEvent& event);
  Status Share(const ShareEvent& event);
  Status Fork(const ForkEvent& event);
  Status Cow(const CowEvent& event);
  Status Trim(const TrimEvent& event);
  Status Drop(const DropEvent& event);
  Status Release(const ReleaseEvent& event);
  Status Free(const FreeEvent& event);
  Status Publish(const PublishEvent& event);
  Status Unpublish(const UnpublishEvent& event);
  Status Pin(const PinEvent& event);
  Status Unpin(const UnpinEvent& event);
  Status Ready(const ReadyEvent& event);
  Status BindRow(const BindRowEvent& event);
  Status Audit(const AuditEvent& event);
  Status Write(const WriteEvent& event);
  Status Read(const ReadEvent& event);
  Status Scale(const ScaleEvent& event);
  Status Rescale(const RescaleEvent& event);
  Status Copy(const CopyEvent& event);

  // A step is launched: host findings on its rows are reported (such rows are doomed), lengths
  // grow, and the plan says what the device must find. The plan is valid until the next Launch.
  Status Launch(const StepEvent& event, const StepPlan** plan);
  // The device's word on the rows of a launched step (one reason mask per row task, padded rows
  // included): after validate, and again after confirm, or once at settle where the device is
  // asynchronous. Newly failed rows are void: they wrote and read nothing. Returns the rows that
  // fail in consequence (same-step readers of failed writers) after reporting them, so that the
  // caller can make them harmless too.
  std::vector<uint32_t> Judge(StepId step, std::span<const uint32_t> reasons);
  // The re-check of the step is over on this rank.
  Status Confirm(StepId step);
  // The host settles the step (in step order). Rows whose confirm is missing are `unverified`;
  // those that read writes of rows void by now are `not_committed`; both are reported. Fills
  // `rows`.
  Status Retire(StepId step, std::vector<LaunchedRow>* rows);
  // A row failed for a reason found elsewhere (another rank): void its writes as Judge does.
  void Fail(StepId step, Row row, Reason reason);

  // Has this incarnation been admitted here? A rank that schedules for itself knows only its own.
  bool Knows(RequestId req) const;
  // Is the step launched and not retired?
  bool IsLaunched(StepId step) const;
  std::span<const LaunchedRow> Launched(StepId step) const;

  // The whole state as deltas, for a gate that has nothing of it: pages that were ever issued or
  // written, what living requests expect, row bindings, scale epochs. Refused (kFailedPrecondition,
  // nothing told) while a launched step isn't retired: its writes stand in the books before they're
  // certain.
  Status Snapshot(DeltaSink* to) const;

  struct Counts {
    uint64_t ownership_changes = 0;
    uint64_t live_entries = 0;  // expectations held by live requests
    uint64_t pages_free = 0, pages_live = 0, pages_cached = 0;
  };
  Counts counts() const;

  // For incident records and policy: who holds the page now (by current tag), which index entries
  // name it in its present generation (sorted), and what a row of a step that is launched, or was
  // the last to retire, was to write.
  std::vector<RequestId> HoldersOf(PoolId pool, PageId page) const;
  std::vector<KeyId> KeysOf(PoolId pool, PageId page) const override;
  std::vector<std::pair<PoolId, PageId>> WrittenPages(StepId step, Row row) const override;
  bool IsSuspect(PoolId pool, PageId page) const override;
  bool IsCurrent(PoolId pool, PageId page, uint64_t tag) const override;
  LedgerView View(RequestId req) const;
  LedgerPageView ViewPage(PoolId pool, PageId page) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvfence
