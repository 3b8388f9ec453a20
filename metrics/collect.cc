// From counters to families: the label sets, and the histograms made cumulative.
//
// Every loop here runs over a closed set of label values, so a series is there before its first
// event (I-70). Info families are the exception by nature: they show the one value that holds.
#include <limits>
#include <string>
#include <utility>

#include "families.h"
#include "kvfence/build_info.h"
#include "state.h"

namespace kvfence {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

MetricType TypeOf(FamilyType type) {
  switch (type) {
    case FamilyType::kCounter:
      return MetricType::Counter;
    case FamilyType::kGauge:
      return MetricType::Gauge;
    case FamilyType::kHistogram:
      return MetricType::Histogram;
  }
  return MetricType::Untyped;
}

// Whole seconds and the rest apart: today's nanoseconds don't fit a double's 53 bits.
double UnixSeconds(int64_t ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  return static_cast<double>(ns / kSecond) + static_cast<double>(ns % kSecond) / 1e9;
}

// Fills one family after the other; adds the constant labels to each sample.
class Collector {
 public:
  explicit Collector(const Metrics::Options& options) : options_(options) {}

  void Begin(Family family) {
    const FamilySpec& spec = SpecOf(family);
    MetricFamily& made = families_.emplace_back();
    made.name = spec.name;
    made.help = spec.help;
    made.type = TypeOf(spec.type);
  }

  void Value(const Labels& labels, double value) {
    ClientMetric& metric = Sample(labels);
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }
  void Value(const Labels& labels, const AtomicCount& count) {
    Value(labels, static_cast<double>(Read(count)));
  }

  // `unit`: how many of the bounds' unit make one of the family's.
  template <size_t kBounds>
  void Histogram(const Labels& labels, const std::array<uint64_t, kBounds>& bounds,
                 const AtomicHistogram<kBounds>& histogram, double unit) {
    ClientMetric::Histogram& made = Sample(labels).histogram;
    made.sample_sum = static_cast<double>(Read(histogram.sum)) / unit;
    for (size_t i = 0; i <= kBounds; ++i) {
      made.sample_count += Read(histogram.buckets[i]);
      const double bound = i < kBounds ? static_cast<double>(bounds[i]) / unit
                                       : std::numeric_limits<double>::infinity();
      made.bucket.push_back({made.sample_count, bound});
    }
  }

  std::vector<MetricFamily> Take() && { return std::move(families_); }

 private:
  ClientMetric& Sample(const Labels& labels) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    if (!options_.model_name.empty()) metric.label.push_back({"model_name", options_.model_name});
    if (!options_.engine.empty()) metric.label.push_back({"engine", options_.engine});
    for (const auto& [name, value] : labels) {
      metric.label.push_back({std::string(name), std::string(value)});
    }
    return metric;
  }

  const Metrics::Options& options_;
  std::vector<MetricFamily> families_;
};

void CollectInfo(const MetricsState& state, Collector& out) {
  const BuildInfo& build = ThisBuild();
  out.Begin(Family::kBuildInfo);
  out.Value({{"version", build.version}, {"cuda", build.cuda}, {"revision", build.revision}}, 1.0);
  const auto mode = static_cast<size_t>(state.mode.load(std::memory_order_relaxed));
  out.Begin(Family::kModeInfo);
  out.Value({{"mode", Metrics::kModeNames[mode]}}, 1.0);
}

void CollectChecks(const MetricsState& state, Collector& out) {
  const auto& backends = Metrics::kBackendNames;
  out.Begin(Family::kValidations);
  for (size_t b = 0; b < backends.size(); ++b) {
    for (size_t r = 0; r < kResultNames.size(); ++r) {
      out.Value({{"backend", backends[b]}, {"result", kResultNames[r]}},
                state.backends[b].validations[r]);
    }
  }
  out.Begin(Family::kRequestsChecked);
  for (size_t b = 0; b < backends.size(); ++b) {
    out.Value({{"backend", backends[b]}}, state.backends[b].requests);
  }
  out.Begin(Family::kPagesChecked);
  for (size_t b = 0; b < backends.size(); ++b) {
    out.Value({{"backend", backends[b]}}, state.backends[b].pages);
  }
}

void CollectFindings(const MetricsState& state, Collector& out) {
  out.Begin(Family::kViolations);
  for (size_t r = 0; r < kReasonCount; ++r) {
    out.Value({{"reason", kReasonNames[r]}}, state.violations[r]);
  }
  out.Begin(Family::kRequestAborts);
  for (size_t r = 0; r < kReasonCount; ++r) {
    out.Value({{"reason", kReasonNames[r]}}, state.aborts[r]);
  }
}

void CollectCostAndPages(const MetricsState& state, Collector& out) {
  out.Begin(Family::kValidationDuration);
  for (size_t b = 0; b < Metrics::kBackendNames.size(); ++b) {
    out.Histogram({{"backend", Metrics::kBackendNames[b]}}, kDurationBoundsNs,
                  state.backends[b].duration_ns, 1e9);
  }
  out.Begin(Family::kBatchPages);
  out.Histogram({}, kBatchPagesBounds, state.batch_pages, 1.0);
  out.Begin(Family::kPages);
  for (size_t s = 0; s < kPageStateNames.size(); ++s) {
    out.Value({{"state", kPageStateNames[s]}}, state.pages[s]);
  }
  out.Begin(Family::kTagRollovers);
  out.Value({}, state.tag_rollovers);
  out.Begin(Family::kViolationLogDropped);
  out.Value({}, state.violation_log_dropped);
  out.Begin(Family::kLastViolation);
  out.Value({}, UnixSeconds(state.last_violation_ns.load(std::memory_order_relaxed)));
}

void CollectFaults(const MetricsState& state, Collector& out) {
  const std::vector<std::string>& kinds = state.options.fault_kinds;
  if (kinds.empty()) return;
  out.Begin(Family::kFaultsInjected);
  for (size_t k = 0; k < kinds.size(); ++k) {
    out.Value({{"kind", kinds[k]}}, state.faults[k].injected);
  }
  out.Begin(Family::kFaultOutcomes);
  for (size_t k = 0; k < kinds.size(); ++k) {
    for (size_t o = 0; o < Metrics::kOutcomeNames.size(); ++o) {
      out.Value({{"kind", kinds[k]}, {"outcome", Metrics::kOutcomeNames[o]}},
                state.faults[k].outcomes[o]);
    }
  }
}

}  // namespace

std::vector<MetricFamily> MetricsState::Collect() const {
  Collector out(options);
  CollectInfo(*this, out);
  CollectChecks(*this, out);
  CollectFindings(*this, out);
  CollectCostAndPages(*this, out);
  CollectFaults(*this, out);
  return std::move(out).Take();
}

}  // namespace kvfence
