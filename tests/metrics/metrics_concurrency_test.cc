// Step threads beside scrape threads. Run under ThreadSanitizer (preset tsan) this also shows that
// there is no race; here it shows that nothing is lost and that every scrape makes sense by itself.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/metrics/exposition.h"
#include "tests/metrics/fixture.h"

namespace kvfence::testing {
namespace {

constexpr int kStepThreads = 3;
constexpr int kSteps = 20'000;

void StepThread(Metrics& metrics, int thread) {
  for (int i = 0; i < kSteps; ++i) {
    metrics.OnStep(Stats(4, static_cast<uint64_t>(i), 0, 0, 7'000));
    const auto reason = static_cast<Reason>((i + thread) % kReasonCount);
    metrics.OnViolation(Found(reason));
    metrics.OnAbort(RequestId(), reason);
    metrics.SetPages({1, 2, 3, 4});
    metrics.SetMode(i % 2 == 0 ? Metrics::Mode::kAbort : Metrics::Mode::kLog);
    metrics.AddTagRollovers(1);
    metrics.AddViolationLogDropped(1);
    EXPECT_TRUE(metrics.CountFaultsInjected("stale_tail").ok());
    EXPECT_TRUE(metrics.CountFaultOutcomes("stale_tail", "prevented").ok());
  }
}

bool IsCounter(const std::string& series) {
  return series.find("_total") != std::string::npos ||
         series.find("_bucket") != std::string::npos ||
         series.find("_count") != std::string::npos || series.find("_sum") != std::string::npos;
}

// I-71 and: what only grows has not shrunk since the scrape before.
void JudgeScrape(const std::map<std::string, double>& before,
                 const std::map<std::string, double>& now) {
  EXPECT_EQ(now.at("kvfence_batch_pages_bucket{le=\"+Inf\"}"), now.at("kvfence_batch_pages_count"));
  EXPECT_EQ(now.at("kvfence_validation_duration_seconds_bucket{backend=\"cpu\",le=\"+Inf\"}"),
            now.at("kvfence_validation_duration_seconds_count{backend=\"cpu\"}"));
  for (const auto& [series, value] : before) {
    if (IsCounter(series)) {
      EXPECT_GE(now.at(series), value) << series;
    }
  }
}

TEST(I71, ScrapesBesideStepsAreWholeAndNothingIsLost) {
  const auto metrics = Make(BareOptions());
  std::atomic<bool> done{false};
  std::atomic<int> scrapes{0};
  const auto scrape = [&] {
    std::map<std::string, double> before;
    do {
      const auto now = ParseExposition(metrics->RenderText());
      JudgeScrape(before, now);
      before = now;
      EXPECT_FALSE(metrics->RenderJson().empty());
      ++scrapes;
    } while (!done);
  };
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 2; ++i) scrapers.emplace_back(scrape);
  std::vector<std::thread> steppers;
  for (int i = 0; i < kStepThreads; ++i) {
    steppers.emplace_back([&metrics, i] { StepThread(*metrics, i); });
  }
  for (std::thread& thread : steppers) thread.join();
  done = true;
  for (std::thread& thread : scrapers) thread.join();
  EXPECT_GE(scrapes.load(), 2);

  const double all = 1.0 * kStepThreads * kSteps;
  const auto series = ParseExposition(metrics->RenderText());
  EXPECT_EQ(series.at("kvfence_validations_total{backend=\"cpu\",result=\"clean\"}"), all);
  EXPECT_EQ(series.at("kvfence_requests_checked_total{backend=\"cpu\"}"), 4 * all);
  EXPECT_EQ(series.at("kvfence_batch_pages_sum"), kStepThreads * (kSteps - 1.0) * kSteps / 2);
  EXPECT_EQ(series.at("kvfence_batch_pages_count"), all);
  EXPECT_EQ(series.at("kvfence_tag_rollovers_total"), all);
  EXPECT_EQ(series.at("kvfence_violation_log_dropped_total"), all);
  EXPECT_EQ(series.at("kvfence_faults_injected_total{kind=\"stale_tail\"}"), all);
  double violations = 0, aborts = 0;
  for (const std::string_view name : kReasonNames) {
    const std::string reason = "{reason=\"" + std::string(name) + "\"}";
    violations += series.at("kvfence_violations_total" + reason);
    aborts += series.at("kvfence_request_aborts_total" + reason);
  }
  EXPECT_EQ(violations, all);
  EXPECT_EQ(aborts, all);
}

}  // namespace
}  // namespace kvfence::testing
