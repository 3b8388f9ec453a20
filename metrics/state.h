// The counters themselves, and how they become Prometheus families when somebody asks.
//
// Idea: a Collectable of our own instead of a Registry. Registry counters are atomics too, but its
// histograms take a lock in Observe, which a sink must not (I-13); here every write is one relaxed
// fetch_add or store. Relaxed is enough: no counter publishes other memory.
// Invariant I-71: a histogram's count is the sum of its buckets as read, so count and +Inf bucket
// agree in every scrape, whatever runs beside it.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "families.h"
#include "kvfence/metrics.h"

namespace kvfence {

using AtomicCount = std::atomic<uint64_t>;
static_assert(AtomicCount::is_always_lock_free, "I-13: sinks never block");

inline void Add(AtomicCount& count, uint64_t n = 1) {
  count.fetch_add(n, std::memory_order_relaxed);
}
inline uint64_t Read(const AtomicCount& count) { return count.load(std::memory_order_relaxed); }

// Counts of observations per bucket (the last: above all bounds), and their sum.
template <size_t kBounds>
struct AtomicHistogram {
  void Observe(const std::array<uint64_t, kBounds>& bounds, uint64_t value) {
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
    Add(buckets[static_cast<size_t>(bucket)]);
    Add(sum, value);
  }
  std::array<AtomicCount, kBounds + 1> buckets{};
  AtomicCount sum{0};
};

// How a pass came out; order is that of the label values.
enum class PassResult : uint8_t { kClean, kViolation, kUnverified };
inline constexpr std::array<std::string_view, 3> kResultNames = {"clean", "violation",
                                                                 "unverified"};
inline constexpr std::array<std::string_view, 4> kPageStateNames = {"free", "active", "cached",
                                                                    "quarantined"};

struct FaultCounts {
  AtomicCount injected{0};
  std::array<AtomicCount, Metrics::kOutcomeNames.size()> outcomes{};
};

class MetricsState final : public prometheus::Collectable {
 public:
  // `options` have been judged by Metrics::Create.
  explicit MetricsState(Metrics::Options options)
      : options(std::move(options)),
        mode(this->options.mode),
        faults(this->options.fault_kinds.size()) {}

  // All families in the order of kFamilies (I-70). Allocates; for the scrape's thread.
  std::vector<prometheus::MetricFamily> Collect() const override;

  const Metrics::Options options;
  std::atomic<Metrics::Mode> mode;

  struct PerBackend {
    std::array<AtomicCount, kResultNames.size()> validations{};
    AtomicCount requests{0};
    AtomicCount pages{0};
    AtomicHistogram<kDurationBoundsNs.size()> duration_ns;
  };
  std::array<PerBackend, Metrics::kBackendNames.size()> backends;
  std::array<AtomicCount, kReasonCount> violations{};
  std::array<AtomicCount, kReasonCount> aborts{};
  AtomicHistogram<kBatchPagesBounds.size()> batch_pages;
  std::array<AtomicCount, kPageStateNames.size()> pages{};
  AtomicCount tag_rollovers{0};
  AtomicCount violation_log_dropped{0};
  std::atomic<int64_t> last_violation_ns{0};
  std::vector<FaultCounts> faults;  // by index in options.fault_kinds; never resized
};

}  // namespace kvfence
