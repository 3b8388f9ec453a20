// A violation (one finding) and the sink that hears of it.
//
// A finding is data, never an exception: the fence reports it and goes on. Sinks are how metrics,
// incident records and tests hear of findings without the tracker knowing any of them.
#pragma once

#include <cstdint>

#include "kvfence/reason.h"
#include "kvfence/types.h"

namespace kvfence {

// Fields that don't apply hold -1 (or a null RequestId): a finding names a place, which is
// (row, pool, logical page), or a row, or a page of an event.
struct Violation {
  Reason reason{};
  int64_t step = -1;  // the step it belongs to, -1 for host events outside steps
  RequestId req;      // the incarnation that it ends, or that the event named
  int64_t row = -1;   // batch row
  int64_t pool = -1;  // pool index
  int64_t at = -1;    // logical page
  int64_t page = -1;  // physical page: what was found at the place
  int64_t rank = 0;
  uint64_t expected = 0;  // reason's own: tag, stamp, page, slot, length ... that was expected
  uint64_t found = 0;     // and what was there
};

// What one validate launch did: so that "no violations" can be told from "never ran" (I-12).
struct StepStats {
  StepId step;
  RankId rank;
  uint64_t rows = 0;     // rows judged, padded ones included
  uint64_t entries = 0;  // table entries compared
  uint64_t rows_failed = 0;
  uint64_t rows_unverified = 0;
  uint64_t validate_ns = 0;  // host time of validate (CPU backend), 0 where not measured
};

// Called synchronously on the thread that made the call, in the order of the findings. Must not
// call back into the fence, and must not block (I-13).
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnViolation(const Violation& violation) = 0;
  virtual void OnStep(const StepStats&) {}
  // A row of a step was not published (`reason` is the first that failed it).
  virtual void OnAbort(RequestId, Reason) {}
};

}  // namespace kvfence
