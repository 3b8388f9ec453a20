// Shrinks an event log to a smallest one that still shows the same finding.
//
// Idea: delta debugging. Whatever may be missing is left out on trial, largest things first
// (requests, steps, lines, rows, keys, numbers of the header), steps are joined, and the rest is
// played; it stays out if the finding is reported all the same and nothing is reported that the log
// didn't report before. That second demand keeps a log from sliding into another mistake. What
// depends on something left out (a free of a page never issued, the end of a step never launched)
// goes with it.
//
// Invariant: I-100, the result can be read, reports the finding, and its own `expect` lines hold.
// The same log and options give the same bytes (I-20).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>

#include "kvfence/check_log.h"
#include "kvfence/status.h"

namespace kvfence {

struct ShrinkProgress {
  std::string_view phase;  // "requests", "steps", ...
  uint64_t plays = 0;      // trials so far
  uint64_t lines = 0;      // of the smallest so far
  uint64_t lines_before = 0;
};

struct ShrinkOptions {
  // Which finding to keep: the first of this reason, at this line, or both. Neither: the first that
  // no `expect` of the log covers, else the first.
  std::optional<Reason> reason{};
  uint64_t line = 0;
  std::function<void(const ShrinkProgress&)> progress{};  // after each trial
  const std::atomic<bool>* stop = nullptr;                // set: gives the smallest so far
  uint64_t max_plays = 0;                                 // 0: until nothing more can go
};

struct ShrunkLog {
  std::string text;         // header, events, `expect` lines
  LoggedViolation finding;  // as the log reported it
  std::vector<std::string> pools;
  uint64_t line = 0;                     // where the shrunk log reports it
  uint64_t lines_before = 0, lines = 0;  // events
  uint64_t bytes_before = 0, bytes = 0;
  uint64_t plays = 0;
  bool stopped = false;  // before nothing more could go
  // Why the log couldn't be read to its end, behind the finding; as CheckReport has them.
  std::string error;
  bool cut_off = false;
};

// Reads all of `in` into memory. kInvalidArgument: it's no log, can't be read to the finding, or
// has no such finding.
Result<ShrunkLog> ShrinkLog(std::istream* in, const std::string& name,
                            const ShrinkOptions& options = {});

}  // namespace kvfence
