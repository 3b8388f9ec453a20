// Plays an event log into a fence and reports: what `kvfence check` says.
//
// Idea: a log is a test of itself. Its events go to a real Fence, its steps' arrays are laid out as
// kernels would have them, its `expect` lines are held against the violations, and a ground truth
// that shares nothing with the fence counts wrong reads that were published. Invariant: the same
// log and options give the same report (I-20).
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "kvfence/event_log.h"
#include "kvfence/fence.h"
#include "kvfence/finding.h"
#include "kvfence/status.h"

namespace kvfence {

// A row that was published although it read what isn't its own: the ground truth's word.
struct WrongRead {
  uint64_t line = 0;  // of the `retire` that published it
  StepId step;
  Row row;
  RequestId req;
  uint64_t tokens = 0;
};

struct CheckOptions {
  std::optional<Level> level{};  // instead of the header's
  CheckSet disabled{};           // checks taken out, to see what only they find
  bool truth = true;             // count wrong reads that were published
  std::function<bool()> more{};  // as EventLogReaderOptions
  // Called once the header has been read, with what it says.
  std::function<void(const FenceConfig&)> on_header{};
  // Called for each violation as it's found, with its line and the request's name.
  std::function<void(uint64_t line, const Violation&, std::string_view req)> on_violation{};
  // Called for each wrong read that is published, after the violations that its line reported.
  std::function<void(const WrongRead&)> on_wrong_read{};
  std::vector<EventSink*> sinks{};   // further sinks of the fence
  IncidentLog* incidents = nullptr;  // gets the incident record of each violation
};

// A violation with what can only be known while the log is played.
struct LoggedViolation {
  uint64_t line = 0;
  Violation violation;
  std::string req;  // the request's name, empty: none
};

struct LoggedExpect {
  uint64_t line = 0;
  LogExpect expect;
  std::string req;
};

struct CheckReport {
  uint64_t events = 0;  // lines played, `expect` and the header not counted
  std::vector<LoggedViolation> violations;
  std::vector<LoggedExpect> unmet;
  std::vector<LoggedViolation> unexpected;
  // Violations beyond kMaxKeptViolations aren't kept; those of them that no `expect` seen by then
  // covers count here, and are unexpected.
  uint64_t violations_not_kept = 0;
  uint64_t wrong_reads_published = 0;
  // Why the log couldn't be read to its end, one line "FILE:LINE:COLUMN: expected ..."; all before
  // it was checked. Empty: it was.
  std::string error;
  bool cut_off = false;  // the error is that the log ends in mid-line
  Fence::Stats stats;
  std::vector<std::string> pools;  // names, for printing

  // Every `expect` met, nothing else reported, and the log read to its end.
  bool ok() const {
    return error.empty() && unmet.empty() && unexpected.empty() && violations_not_kept == 0;
  }
  // The tool's exit status: 0 ok, 1 a finding or an unmet `expect`, 2 a log that can't be read.
  int exit_code() const { return !error.empty() ? 2 : ok() ? 0 : 1; }
  // One JSON object on one line, keys as docs/events.md has them.
  std::string ToJson() const;
};

inline constexpr size_t kMaxKeptViolations = size_t{1} << 20;

// A Status: the log has no readable header, or the fence refuses its config.
Result<CheckReport> CheckLogFile(const std::string& path, const CheckOptions& options = {});
// `name` stands for the stream in errors.
Result<CheckReport> CheckLog(std::istream* in, std::string name, const CheckOptions& options = {});

}  // namespace kvfence
