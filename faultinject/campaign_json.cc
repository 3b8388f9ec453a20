// The report as JSON: the keys that the command line promises.
#include <nlohmann/json.hpp>

#include "kvfence/campaign.h"
#include "story_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

Json FaultJson(const FaultTally& tally, Json json) {
  json["activated"] = tally.activated;
  for (int i = 0; i < kOutcomeCount; ++i) {
    const auto at = static_cast<size_t>(i);
    json[std::string(kOutcomeNames[at])] = tally.outcomes[at];
  }
  json["reasons"] = Json::object();
  for (const auto& [reason, count] : tally.reasons) json["reasons"][reason] = count;
  json["delay_steps"] = Json::object();
  for (const auto& [steps, count] : tally.delay_steps) {
    json["delay_steps"][std::to_string(steps)] = count;
  }
  return json;
}

Json SeveralJson(const CampaignReport& report) {
  Json json = FaultJson(report.several.tally, {{"runs", report.several.runs}});
  json["wrong_tokens_fence_off"] = report.several.tally.off_arm_wrong_tokens;
  json["by_kind"] = Json::object();
  for (size_t k = 0; k < report.faults.size() && k < report.several.activated.size(); ++k) {
    json["by_kind"][report.faults[k].kind] = report.several.activated[k];
  }
  return json;
}

std::string PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kLog:
      return "log";
    case Policy::kAbort:
      return "abort";
    case Policy::kRecompute:
      return "recompute";
    case Policy::kStop:
      return "stop";
  }
  return "?";
}

template <class Type>
Json Names(const std::vector<Type>& types, std::string_view (*name)(Type)) {
  Json names = Json::array();
  for (const Type type : types) names.push_back(std::string(name(type)));
  return names;
}
Json NumericJson(const NumericChoice& numeric) {
  return {{"attention", Names(numeric.attention, AttentionFormName)},
          {"kv", Names(numeric.kv, KvTypeName)},
          {"weights", Names(numeric.weights, WeightTypeName)}};
}

void AddTotals(const CampaignReport& report, Json* out) {
  Json& json = *out;
  json["seed"] = report.config.seed;
  json["trace"] = report.config.trace;
  json["features"] = report.config.features;
  if (report.config.numeric) json["numeric"] = NumericJson(*report.config.numeric);
  if (report.config.trace_scale != 1) json["trace_scale"] = report.config.trace_scale;
  json["level"] = std::string(LevelName(report.config.level));
  json["policy"] = PolicyName(report.config.policy);
  json["drawn"] = report.drawn;
  json["left_out"] = report.left_out;
  json["runs"] = report.runs;
  json["requests"] = report.requests;
  json["steps"] = report.steps;
  json["events"] = report.events;
  json["entries_checked"] = report.entries_checked;
  json["ownership_changes"] = report.ownership_changes;
  json["tokens_published"] = report.tokens_published;
  json["wrong_tokens_published"] = report.wrong_tokens_published;
  json["requests_aborted"] = report.requests_aborted;
  json["false_alarms"] = report.false_alarms;
}

void AddArms(const CampaignReport& report, Json* out) {
  Json& json = *out;
  json["clean_arm"] = {{"requests", report.clean_arm.requests},
                       {"steps", report.clean_arm.steps},
                       {"entries_checked", report.clean_arm.entries_checked},
                       {"violations", report.clean_arm.violations},
                       {"wrong_tokens_published", report.clean_arm.wrong_tokens_published},
                       {"ownership_changes", report.clean_arm.ownership_changes},
                       {"configurations", report.clean_arm.runs}};
  Json by_kind = Json::object();
  for (const FaultTally& tally : report.faults) by_kind[tally.kind] = tally.off_arm_wrong_tokens;
  json["off_arm"] = {{"wrong_tokens_published", report.off_arm.wrong_tokens_published},
                     {"by_kind", std::move(by_kind)}};
}

Json CoverageJson(const FeatureCoverage& coverage) {
  Json json = {{"features_met", coverage.features_met()},
               {"pairs_met", coverage.pairs_met()},
               {"pairs_all", coverage.features.empty() ? 0 : coverage.pairs_all()}};
  json["features"] = Json::array();
  for (size_t a = 0; a < coverage.features.size(); ++a) {
    json["features"].push_back(
        {{"name", coverage.features[a]}, {"on", coverage.on[a]}, {"met", coverage.met[a]}});
  }
  json["pairs"] = Json::array();
  for (size_t a = 0; a < coverage.features.size(); ++a) {
    for (size_t b = a + 1; b < coverage.features.size(); ++b) {
      const auto it = coverage.pairs.find({a, b});
      json["pairs"].push_back({{"a", coverage.features[a]},
                               {"b", coverage.features[b]},
                               {"met", it == coverage.pairs.end() ? 0 : it->second}});
    }
  }
  json["faults"] = Json::object();
  for (const auto& [kind, counts] : coverage.faults_by_kind) {
    Json& row = json["faults"][kind];
    for (size_t a = 0; a < counts.size(); ++a) row[coverage.features[a]] = counts[a];
  }
  return json;
}

}  // namespace

std::string ToJson(const CampaignReport& report, int indent) {
  Json json;
  AddTotals(report, &json);
  json["faults"] = Json::array();
  for (const FaultTally& tally : report.faults) {
    json["faults"].push_back(
        FaultJson(tally, {{"kind", tally.kind}, {"class", std::string(1, tally.fault_class)}}));
  }
  json["several_at_once"] = SeveralJson(report);
  AddArms(report, &json);
  if (report.config.policy == Policy::kRecompute) {
    json["recompute"] = {{"requests", report.recompute.requests},
                         {"ended_right", report.recompute.right},
                         {"withdrawn", report.recompute.withdrawn},
                         {"lost", report.recompute.lost()}};
  }
  json["coverage"] = CoverageJson(report.coverage);
  json["device_bytes_per_page"] = report.device_bytes_per_page;
  json["device_bytes_per_entry"] = report.device_bytes_per_entry;
  json["seconds"] = report.seconds;
  json["green"] = report.green;
  json["complete"] = report.complete;
  json["partial"] = report.partial;
  json["missing"] = report.missing;
  json["red"] = report.red;
  json["stories"] = Json::array();
  for (const IncidentStory& story : report.stories) json["stories"].push_back(StoryJson(story));
  if (!report.shard_state.empty()) json["shard"] = Json::parse(report.shard_state);
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvfence
