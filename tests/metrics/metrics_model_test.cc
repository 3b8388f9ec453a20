// Random events against a naive oracle: a map from series to value, and lists of observations.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "kvfence/rng.h"
#include "tests/metrics/exposition.h"
#include "tests/metrics/fixture.h"

namespace kvfence::testing {
namespace {

// What README.md says, read literally. Buckets are counted anew from all observations.
struct Model {
  std::map<std::string, double> values;
  std::vector<double> durations;  // seconds
  std::vector<double> batches;

  void Step(const StepStats& stats) {
    const std::string_view result = stats.rows_unverified ? "unverified"
                                    : stats.rows_failed   ? "violation"
                                                          : "clean";
    values[Named("kvfence_validations_total", {{"backend", "cpu"}, {"result", result}})] += 1;
    values["kvfence_requests_checked_total{backend=\"cpu\"}"] += static_cast<double>(stats.rows);
    values["kvfence_pages_checked_total{backend=\"cpu\"}"] += static_cast<double>(stats.entries);
    batches.push_back(static_cast<double>(stats.entries));
    if (stats.validate_ns) durations.push_back(static_cast<double>(stats.validate_ns) * 1e-9);
  }

  // The model's value for a series; 0 for what no event has touched.
  double Expected(const std::string& series) const {
    const auto histogram = [&](const std::vector<double>& seen) {
      if (series.find("_sum") != std::string::npos) {
        double sum = 0;
        for (const double v : seen) sum += v;
        return sum;
      }
      const size_t le = series.find("le=\"");
      if (le == std::string::npos) return static_cast<double>(seen.size());
      const double bound = std::stod(series.substr(le + 4));  // reads +Inf too
      double count = 0;
      for (const double v : seen) count += v <= bound * (1 + 1e-12);
      return count;
    };
    if (series.find("duration") != std::string::npos) {
      if (series.find("\"cuda\"") != std::string::npos) return 0;
      return histogram(durations);
    }
    if (series.find("batch_pages") != std::string::npos) {
      return histogram(batches);
    }
    const auto it = values.find(series);
    return it == values.end() ? 0 : it->second;
  }
};

// Values near the bounds of the buckets are the interesting ones.
uint64_t NearABound(Rng& rng, const std::vector<uint64_t>& bounds) {
  const uint64_t bound = bounds[rng.Between(0, bounds.size() - 1)];
  return bound - 1 + rng.Between(0, 2);
}

void PlayOne(Rng& rng, Metrics& metrics, Model& model) {
  const auto reason = static_cast<Reason>(rng.Between(0, kReasonCount - 1));
  switch (rng.Between(0, 6)) {
    case 0:
      metrics.OnViolation(Found(reason));
      model.values[Named("kvfence_violations_total", {{"reason", ReasonName(reason)}})] += 1;
      model.values["kvfence_last_violation_timestamp_seconds"] = 1'700'000'000.25;
      break;
    case 1:
      metrics.OnAbort(RequestId(), reason);
      model.values[Named("kvfence_request_aborts_total", {{"reason", ReasonName(reason)}})] += 1;
      break;
    case 2: {
      const PageCounts pages{rng.Next() >> 20, rng.Next() >> 20, rng.Next() >> 20, 0};
      metrics.SetPages(pages);
      model.values["kvfence_pages{state=\"free\"}"] = static_cast<double>(pages.free);
      model.values["kvfence_pages{state=\"active\"}"] = static_cast<double>(pages.active);
      model.values["kvfence_pages{state=\"cached\"}"] = static_cast<double>(pages.cached);
      break;
    }
    case 3: {
      const uint64_t n = rng.Between(0, 3);
      ASSERT_TRUE(metrics.CountOutcome("stale_tail", "early", n).ok());
      model.values["kvfence_fault_outcomes_total{kind=\"stale_tail\",outcome=\"early\"}"] +=
          static_cast<double>(n);
      break;
    }
    default: {
      const uint64_t rows = rng.Between(0, 300);
      const uint64_t entries = NearABound(rng, {1, 16, 64, 4096, 65536, 1048576});
      const uint64_t failed = rng.Between(0, 1);
      const uint64_t unverified = rng.Between(0, 1);
      const uint64_t ns =
          NearABound(rng, {1, 5'000, 10'000, 15'000, 100'000, 2'000'000, 20'000'000});
      const StepStats stats = Stats(rows, entries, failed, unverified, ns);
      metrics.OnStep(stats);
      model.Step(stats);
    }
  }
}

TEST(MetricsModel, RandomEventsComeOutAsInTheOracle) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const auto metrics = Make(BareOptions());
    Model model;
    for (int i = 0; i < 400; ++i) PlayOne(rng, *metrics, model);
    for (const auto& [series, value] : ParseExposition(metrics->RenderText())) {
      if (series.find("_info{") != std::string::npos) continue;
      const double expected = model.Expected(series);
      EXPECT_NEAR(value, expected, 1e-9 * expected) << series << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kvfence::testing
