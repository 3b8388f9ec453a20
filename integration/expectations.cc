// See the header.
#include "expectations.h"

#include <algorithm>

namespace kvfence {

bool Agrees(const LogExpect& expect, const Violation& violation) {
  if (expect.reason != violation.reason) return false;
  const auto equal = [](const auto& wanted, int64_t found) {
    return !wanted || static_cast<int64_t>(wanted->value()) == found;
  };
  if (expect.req) {
    if (expect.req.name() != violation.req.name()) return false;
    const uint32_t inc = expect.req.incarnation();
    if (inc != 0 && inc != violation.req.incarnation()) return false;
  }
  const bool should_have_stood = violation.reason == Reason::kPageMismatch && expect.page &&
                                 static_cast<uint64_t>(expect.page->value()) == violation.expected;
  if (!should_have_stood && !equal(expect.page, violation.page)) return false;
  if (expect.at && static_cast<int64_t>(*expect.at) != violation.at) return false;
  return equal(expect.pool, violation.pool) && equal(expect.step, violation.step) &&
         equal(expect.row, violation.row) && equal(expect.rank, violation.rank);
}

std::string Expectations::NameOf(RequestId req) const {
  return req && name_of_ ? std::string(name_of_(req.name())) : std::string();
}

bool Expectations::Covered(const Violation& violation) const {
  return std::ranges::any_of(expects_[static_cast<size_t>(violation.reason)],
                             [&](const Met& met) { return Agrees(met.expect.expect, violation); });
}

void Expectations::OnViolation(const Violation& violation) {
  const std::string req = NameOf(violation.req);
  if (options_.on_violation) options_.on_violation(line_, violation, req);
  if (violation.step >= 0 && violation.row >= 0) {
    rows_named_.insert({violation.step, violation.row});
  }
  if (violations_.size() >= kMaxKeptViolations) {
    if (!Covered(violation) && not_kept_++ == 0) first_not_kept_ = line_;
    return;
  }
  by_reason_[static_cast<size_t>(violation.reason)].push_back(violations_.size());
  violations_.push_back({line_, violation, req});
}

void Expectations::OnExpect(const LogExpect& expect) {
  LoggedExpect logged{line_, expect, NameOf(expect.req)};
  if (expect.clean) {
    cleans_.push_back(std::move(logged));
    return;
  }
  const auto reason = static_cast<size_t>(expect.reason);
  const bool met = std::ranges::any_of(
      by_reason_[reason], [&](size_t i) { return Agrees(expect, violations_[i].violation); });
  expects_[reason].push_back({std::move(logged), met});
}

bool Expectations::Named(StepId step, Row row) const {
  return rows_named_.contains({static_cast<int64_t>(step.value()), row.value()});
}

void Expectations::StepOver(StepId step) {
  const auto number = static_cast<int64_t>(step.value());
  rows_named_.erase(rows_named_.lower_bound({number, INT64_MIN}),
                    rows_named_.upper_bound({number, INT64_MAX}));
}

void Expectations::Finish(CheckReport* report) {
  report->violations_not_kept = not_kept_;
  uint64_t first_line = not_kept_ > 0 ? first_not_kept_ : UINT64_MAX;
  for (const LoggedViolation& logged : violations_) {
    if (Covered(logged.violation)) continue;
    first_line = std::min(first_line, logged.line);
    report->unexpected.push_back(logged);
  }
  for (const std::vector<Met>& of_reason : expects_) {
    for (const Met& met : of_reason) {
      if (!met.met) report->unmet.push_back(met.expect);
    }
  }
  for (const LoggedExpect& clean : cleans_) {
    if (first_line <= clean.line) report->unmet.push_back(clean);
  }
  std::ranges::stable_sort(report->unmet, {}, &LoggedExpect::line);
  report->violations = std::move(violations_);
}

}  // namespace kvfence
