// Fence: what an engine embeds. Each method is a verb of the event language (docs/events.md).
//
// Idea: the engine says what its bookkeeping does (ownership and content verbs), hands over the
// very arrays its kernels will read (Step), and asks before it publishes (Retire). The fence joins
// the ledger (host truth), the journal and one gate per rank. Invariant: a row is published only
// with a complete clean verdict of that very step on every rank (I-9).
//
// Threads: one thread at a time (the scheduler's); Retire may come from another thread if calls
// don't overlap. Status is a refusal: the call's words were off and it had no effect. What the
// engine's bookkeeping got wrong is never a refusal: it goes to the sinks as a Violation.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/device_types.h"
#include "kvfence/event.h"
#include "kvfence/finding.h"
#include "kvfence/log_names.h"
#include "kvfence/settlement.h"
#include "kvfence/status.h"

namespace kvfence {

class EventLogWriter;
class IncidentLog;

class Fence {
 public:
  // `sinks` must outlive the fence; they're called on the calling thread, in the given order.
  static Result<std::unique_ptr<Fence>> Create(const FenceConfig& config,
                                               std::vector<EventSink*> sinks = {});
  ~Fence();
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  // Interned strings; the same string gives the same id for the life of the fence.
  NameId Intern(std::string_view name);
  std::string_view NameOf(NameId id) const;
  IdentityId InternIdentity(std::span<const IdentityField> fields);
  const NameLookup& names() const;
  // The latest incarnation of a name, null when it was never admitted.
  RequestId Latest(NameId name) const;

  RequestId Admit(const AdmitEvent& event);
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

  // Journal + apply + validate. When it returns, on the CPU backend, failing rows are harmless in
  // the arrays.
  Status Step(const StepEvent& event);
  // Re-check after the last layer; stores stamp and fill of what clean rows wrote.
  Status Confirm(const ConfirmEvent& event);
  // Settles the oldest launched step. The result's views live until the next Retire.
  Result<Settlement> Retire(const RetireEvent& event);

  // From now on every call is written down, before it acts, so that a log shows the arrays as the
  // kernels would have read them; null: no more. `writer` must outlive the fence or the next
  // Record. For the CPU backend: step tables are read through their pointers.
  void Record(EventLogWriter* writer);

  // From now on the incident record of each finding goes to `log`, at the end of the call that made
  // it; what a header's geometry found, at once. Null: no more. `log` must outlive the fence or the
  // next LogIncidents. No decision depends on it.
  void LogIncidents(IncidentLog* log);

  // The verdict reasons of a launched row of a step, as known now (CPU backend: right after Step).
  CheckSet RowReasons(StepId step, RankId rank, Row row) const;

  struct Stats {
    uint64_t events = 0;
    uint64_t ownership_changes = 0;  // pages issued, shared, let go or returned
    uint64_t entries_checked = 0;
    uint64_t steps = 0;
    uint64_t violations = 0;
    uint64_t rows_aborted = 0;
    uint64_t device_bytes_pages = 0;         // page records
    uint64_t device_bytes_expectations = 0;  // chunks in use
    uint64_t live_entries = 0;
    uint64_t launch_ns = 0;  // time in apply, validate and confirm (CPU backend)
  };
  Stats stats() const;
  const FenceConfig& config() const;

  // The incident record of a violation, as one JSON line: holders and last events of its page as
  // they are now. Between calls, not from within a sink.
  std::string IncidentJson(const Violation& violation) const;
  // The device's record of a page (CPU backend), for fault campaigns to damage as a stray write of
  // the device would. Null beyond the pool.
  PageRecord* DeviceRecord(RankId rank, PoolId pool, PageId page);

 private:
  class Impl;
  explicit Fence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvfence
