// Holds a log's `expect` lines against the violations that its events made.
//
// An `expect` is met if, by its line, a violation that agrees with all its keys has been reported;
// it covers every violation that agrees, before it or after it. `clean` is met if all violations up
// to its line are covered, by whichever line of the log. So coverage is decided when the log has
// ended.
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

#include "kvfence/check_log.h"
#include "kvfence/finding.h"

namespace kvfence {

// Does the violation agree with all keys that the expectation gives? `page` also agrees with the
// page that should have stood where a page_mismatch was found.
bool Agrees(const LogExpect& expect, const Violation& violation);

class Expectations : public EventSink {
 public:
  explicit Expectations(const CheckOptions& options) : options_(options) {}

  // The line whose event is being played.
  void set_line(uint64_t line) { line_ = line; }
  uint64_t line() const { return line_; }
  // How requests are named; set once the fence lives (violations before it name none).
  void set_names(std::function<std::string_view(NameId)> name_of) { name_of_ = std::move(name_of); }

  void OnViolation(const Violation& violation) override;
  void OnExpect(const LogExpect& expect);
  // Has this row of this step been named by a violation?
  bool Named(StepId step, Row row) const;
  // Forgets the rows of a step that is over.
  void StepOver(StepId step);

  // The log is over: fills violations, unmet and unexpected.
  void Finish(CheckReport* report);

 private:
  struct Met {
    LoggedExpect expect;
    bool met = false;
  };
  std::string NameOf(RequestId req) const;
  bool Covered(const Violation& violation) const;

  const CheckOptions& options_;
  std::function<std::string_view(NameId)> name_of_;
  uint64_t line_ = 1;
  std::vector<LoggedViolation> violations_;
  std::array<std::vector<size_t>, kReasonCount> by_reason_;  // indices of violations_
  std::array<std::vector<Met>, kReasonCount> expects_;
  std::vector<LoggedExpect> cleans_;
  std::set<std::pair<int64_t, int64_t>> rows_named_;  // step, row
  uint64_t not_kept_ = 0;
  uint64_t first_not_kept_ = 0;  // line of the first one that counts
};

}  // namespace kvfence
