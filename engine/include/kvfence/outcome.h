// What became of each row of a step, by the ground truth: the feed of fault campaigns.
//
// The fence isn't asked: rows are judged by what they read from the simulated cache, compared with
// the request's solo golden run. Only `reasons` is the fence's word.
#pragma once

#include <cstdint>
#include <span>

#include "kvfence/fault_hooks.h"
#include "kvfence/reason.h"
#include "kvfence/types.h"

namespace kvfence {

struct RowOutcome {
  Row row;
  RequestIndex request = kNoRequest;
  RequestId id{};
  // What the kernels would have read, had nothing been sanitised, is not what the golden run read
  // (judged in full only with EngineConfig::judge_raw; else it's token_wrong).
  bool raw_wrong = false;
  bool sampled = false;      // the step ended with a token for this row
  bool published = false;    // it left (or, without a token: the row's writes count)
  bool token_wrong = false;  // what the row computed differs from the golden run
  bool withdrawn = false;    // the client had aborted the request before the step was settled
  CheckSet reasons{};        // why the fence failed the row
  uint64_t good_prefix = 0;  // of a failed row: tokens that it may keep
};

struct StepOutcome {
  StepId step;
  std::span<const RowOutcome> rows{};  // live rows
  uint64_t wild_accesses = 0;          // kernel accesses beyond the pool or the table
  bool storm = false;
};

enum class EndKind : uint8_t {
  kFinished,   // all its tokens are out
  kAborted,    // by its client
  kFenced,     // by the fence
  kRejected,   // it can't fit
  kPreempted,  // not its end: it waits again, and will be admitted as a new incarnation
};

// Called on the engine's thread; must not call the engine.
class OutcomeSink {
 public:
  virtual ~OutcomeSink() = default;
  virtual void OnStep(const StepOutcome&) {}
  // After the engine took its pages away.
  virtual void OnEnd(RequestIndex, RequestId, EndKind) {}
};

}  // namespace kvfence
