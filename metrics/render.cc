// The two printed forms of a snapshot: Prometheus text, and JSON for foreign collectors.
//
// Both come from the same Collect(), so they can't disagree about a name, a label or a bucket.
#include <prometheus/text_serializer.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "families.h"
#include "kvfence/check.h"
#include "state.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

std::string_view TypeName(FamilyType type) {
  switch (type) {
    case FamilyType::kCounter:
      return "counter";
    case FamilyType::kGauge:
      return "gauge";
    case FamilyType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

// A bucket's bound as the text format writes it, since consumers compare these as strings.
std::string BoundText(double bound) {
  if (std::isinf(bound)) return "+Inf";
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(15);
  out << bound;
  return out.str();
}

Json SampleJson(const FamilySpec& spec, const prometheus::ClientMetric& metric) {
  Json labels = Json::object();
  for (const auto& label : metric.label) labels[label.name] = label.value;
  Json sample = {{"labels", std::move(labels)}};
  switch (spec.type) {
    case FamilyType::kCounter:
      sample["value"] = metric.counter.value;
      break;
    case FamilyType::kGauge:
      sample["value"] = metric.gauge.value;
      break;
    case FamilyType::kHistogram: {
      Json buckets = Json::array();
      for (const auto& bucket : metric.histogram.bucket) {
        buckets.push_back(Json::array({BoundText(bucket.upper_bound), bucket.cumulative_count}));
      }
      sample["buckets"] = std::move(buckets);
      sample["count"] = metric.histogram.sample_count;
      sample["sum"] = metric.histogram.sample_sum;
      break;
    }
  }
  return sample;
}

}  // namespace

std::string Metrics::RenderText() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, state_->Collect());
  return out.str();
}

std::string Metrics::RenderJson() const {
  Json families = Json::array();
  const std::vector<prometheus::MetricFamily> collected = state_->Collect();
  for (size_t i = 0; i < collected.size(); ++i) {
    const FamilySpec& spec = kFamilies[i];
    KVF_CHECK(collected[i].name == spec.name, "I-70 families are exported in the table's order");
    Json samples = Json::array();
    for (const auto& metric : collected[i].metric) samples.push_back(SampleJson(spec, metric));
    families.push_back({{"name", spec.name},
                        {"type", TypeName(spec.type)},
                        {"unit", spec.unit},
                        {"help", spec.help},
                        {"samples", std::move(samples)}});
  }
  return Json{{"families", std::move(families)}}.dump();
}

}  // namespace kvfence
