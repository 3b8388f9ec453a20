// Metrics as the tests want them: labels set, a clock that stands where the test put it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/metrics.h"

namespace kvfence::testing {

inline constexpr int64_t kNow = 1'700'000'000'250'000'000;  // ns

inline Metrics::Options HarnessOptions() {
  Metrics::Options options;
  options.model_name = "kimi-k2";
  options.engine = "0";
  options.fault_kinds = {"stale_tail", "early_recycle"};
  options.clock = [] { return kNow; };
  return options;
}

// No labels but a series' own, which keeps expected texts short.
inline Metrics::Options BareOptions() {
  Metrics::Options options = HarnessOptions();
  options.model_name.clear();
  options.engine.clear();
  return options;
}

inline std::unique_ptr<Metrics> Make(Metrics::Options options) {
  return Metrics::Create(std::move(options)).value();
}

inline StepStats Stats(uint64_t rows, uint64_t entries, uint64_t failed = 0,
                       uint64_t unverified = 0, uint64_t ns = 0) {
  StepStats stats;
  stats.rows = rows;
  stats.entries = entries;
  stats.rows_failed = failed;
  stats.rows_unverified = unverified;
  stats.validate_ns = ns;
  return stats;
}

inline Violation Found(Reason reason) {
  Violation violation;
  violation.reason = reason;
  return violation;
}

}  // namespace kvfence::testing
