// Runs and folds as JSON: what travels between processes, machines and sittings.
//
// Numbers stand in arrays, in the order of the structs: these lines are ours alone, written and
// read by one program, and a reader that finds another shape refuses it.
#include <nlohmann/json.hpp>

#include "campaign_fold.h"
#include "story_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

Json NumbersOf(const RunTotals& totals) {
  Json json = Json::array();
  RunTotals::ForEach([&](uint64_t RunTotals::*member) { json.push_back(totals.*member); });
  return json;
}

RunTotals TotalsFrom(const Json& json) {
  RunTotals totals;
  size_t at = 0;
  RunTotals::ForEach([&](uint64_t RunTotals::*member) { json.at(at++).get_to(totals.*member); });
  return totals;
}

template <class Map>
Json PairsOf(const Map& map) {
  Json json = Json::array();
  for (const auto& [key, count] : map) json.push_back({key, count});
  return json;
}

template <class Map>
void PairsFrom(const Json& json, Map* map) {
  for (const Json& pair : json) {
    (*map)[pair.at(0).get<typename Map::key_type>()] = pair.at(1).get<uint64_t>();
  }
}

Json TallyOf(const FaultTally& tally) {
  return {{"kind", tally.kind},
          {"activated", tally.activated},
          {"outcomes", tally.outcomes},
          {"reasons", PairsOf(tally.reasons)},
          {"delays", PairsOf(tally.delay_steps)},
          {"off", tally.off_arm_wrong_tokens}};
}

void TallyFrom(const Json& json, FaultTally* tally) {
  json.at("activated").get_to(tally->activated);
  json.at("outcomes").get_to(tally->outcomes);
  PairsFrom(json.at("reasons"), &tally->reasons);
  PairsFrom(json.at("delays"), &tally->delay_steps);
  json.at("off").get_to(tally->off_arm_wrong_tokens);
}

Json StoriesOf(const std::vector<IncidentStory>& stories) {
  Json json = Json::array();
  for (const IncidentStory& story : stories) json.push_back(StoryJson(story));
  return json;
}

CampaignRun RunFrom(const Json& json) {
  CampaignRun run;
  json.at("run").get_to(run.number);
  run.totals = TotalsFrom(json.at("totals"));
  for (const Json& one : json.at("faults")) {
    FaultResult& fault = run.faults.emplace_back();
    fault.outcome = static_cast<Outcome>(one.at(0).get<int>());
    fault.reasons = CheckSet(one.at(1).get<uint32_t>());
    fault.kind = one.at(2).get<size_t>();
    if (one.size() > 3) fault.delay = one.at(3).get<uint64_t>();
  }
  for (const Json& story : json.at("stories")) run.stories.push_back(StoryFrom(story));
  json.at("red").get_to(run.red);
  json.at("features").at(0).get_to(run.features);
  json.at("features").at(1).get_to(run.met);
  json.at("bytes").get_to(run.bytes_per_page);
  const auto flags = json.at("flags").get<unsigned>();
  run.bad = (flags & 1u) != 0;
  run.logged = (flags & 2u) != 0;
  run.cut = (flags & 4u) != 0;
  json.at("refused").get_to(run.refused);
  json.at("clock").at(0).get_to(run.seconds);
  json.at("clock").at(1).get_to(run.off_seconds);
  json.at("clock").at(2).get_to(run.off_tokens);
  return run;
}

}  // namespace

std::string ToLine(const CampaignRun& run) {
  Json faults = Json::array();
  for (const FaultResult& fault : run.faults) {
    Json one = {static_cast<int>(fault.outcome), fault.reasons.mask(), fault.kind};
    if (fault.delay) one.push_back(*fault.delay);
    faults.push_back(std::move(one));
  }
  const unsigned flags = (run.bad ? 1u : 0u) | (run.logged ? 2u : 0u) | (run.cut ? 4u : 0u);
  const Json json = {{"run", run.number},
                     {"totals", NumbersOf(run.totals)},
                     {"faults", std::move(faults)},
                     {"stories", StoriesOf(run.stories)},
                     {"red", run.red},
                     {"features", {run.features, run.met}},
                     {"bytes", run.bytes_per_page},
                     {"flags", flags},
                     {"refused", run.refused},
                     {"clock", {run.seconds, run.off_seconds, run.off_tokens}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<CampaignRun> RunFromLine(std::string_view line) {
  try {
    return RunFrom(Json::parse(line));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

Json CampaignFold::ToJson(bool clock) const {
  Json json = {{"folded", folded_},
               {"clean", NumbersOf(clean_)},
               {"faulty", NumbersOf(faulty_)},
               {"bytes", bytes_per_page_},
               {"tallies", Json::array()},
               {"bad_runs", bad_runs_},
               {"red", red_},
               {"red_count", red_count_},
               {"stories", StoriesOf(stories_)}};
  json["coverage"] = {{"features", coverage_.features},
                      {"on", coverage_.on},
                      {"met", coverage_.met},
                      {"pairs", coverage_.pairs},
                      {"faults", coverage_.faults_by_kind}};
  for (const FaultTally& tally : tallies_) json["tallies"].push_back(TallyOf(tally));
  json["several"] = {{"runs", several_runs_}, {"tally", TallyOf(several_)}, {"kinds", of_several_}};
  if (clock) json["clock"] = {clean_seconds_, off_seconds_, off_tokens_};
  return json;
}

bool CampaignFold::FromJson(const Json& json) {
  CampaignFold read(kinds_);
  try {
    json.at("folded").get_to(read.folded_);
    read.clean_ = TotalsFrom(json.at("clean"));
    read.faulty_ = TotalsFrom(json.at("faulty"));
    json.at("bytes").get_to(read.bytes_per_page_);
    if (json.at("tallies").size() != read.tallies_.size()) return false;
    for (size_t k = 0; k < read.tallies_.size(); ++k) {
      const Json& tally = json.at("tallies").at(k);
      if (tally.at("kind") != read.tallies_[k].kind) return false;
      TallyFrom(tally, &read.tallies_[k]);
    }
    const Json& several = json.at("several");
    several.at("runs").get_to(read.several_runs_);
    TallyFrom(several.at("tally"), &read.several_);
    if (several.at("kinds").size() != read.of_several_.size()) return false;
    several.at("kinds").get_to(read.of_several_);
    json.at("bad_runs").get_to(read.bad_runs_);
    json.at("red").get_to(read.red_);
    json.at("red_count").get_to(read.red_count_);
    for (const Json& story : json.at("stories")) read.stories_.push_back(StoryFrom(story));
    const Json& coverage = json.at("coverage");
    if (coverage.at("features") != read.coverage_.features ||
        coverage.at("on").size() != read.coverage_.features.size() ||
        coverage.at("met").size() != read.coverage_.features.size()) {
      return false;
    }
    coverage.at("on").get_to(read.coverage_.on);
    coverage.at("met").get_to(read.coverage_.met);
    coverage.at("pairs").get_to(read.coverage_.pairs);
    coverage.at("faults").get_to(read.coverage_.faults_by_kind);
    if (const auto clock = json.find("clock"); clock != json.end()) {
      clock->at(0).get_to(read.clean_seconds_);
      clock->at(1).get_to(read.off_seconds_);
      clock->at(2).get_to(read.off_tokens_);
    }
  } catch (const Json::exception&) {
    return false;
  }
  *this = std::move(read);
  return true;
}

}  // namespace kvfence
