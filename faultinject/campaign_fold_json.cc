// Runs and folds as JSON: what travels between processes, machines and sittings.
//
// Numbers stand in arrays, in the order of the structs: these lines are ours alone, written and
// read by one program, and a reader that finds another shape refuses it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "campaign_fold.h"
#include "story_json.h"
#include "strict_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

Json NumbersOf(const RunTotals& totals) {
  Json json = Json::array();
  RunTotals::ForEach([&](uint64_t RunTotals::*member) { json.push_back(totals.*member); });
  return json;
}

RunTotals TotalsFrom(const Json& json, const std::string& field) {
  RunTotals totals;
  size_t n = 0, at = 0;
  RunTotals::ForEach([&](uint64_t RunTotals::*) { ++n; });
  std::vector<uint64_t> numbers(n);
  CountsOf(json, field, &numbers);
  RunTotals::ForEach([&](uint64_t RunTotals::*member) { totals.*member = numbers[at++]; });
  return totals;
}

template <class Map>
Json PairsOf(const Map& map) {
  Json json = Json::array();
  for (const auto& [key, count] : map) json.push_back({key, count});
  return json;
}

Json TallyOf(const FaultTally& tally) {
  return {{"kind", tally.kind},
          {"activated", tally.activated},
          {"outcomes", tally.outcomes},
          {"reasons", PairsOf(tally.reasons)},
          {"delays", PairsOf(tally.delay_steps)},
          {"off", tally.off_arm_wrong_tokens}};
}

void TallyFrom(const Json& json, const std::string& name, FaultTally* tally) {
  const std::string field = name + " of " + tally->kind;
  tally->activated = CountOf(json.at("activated"), field + ": activated");
  CountsOf(json.at("outcomes"), field + ": outcomes", &tally->outcomes);
  uint64_t outcomes = 0;
  for (const uint64_t count : tally->outcomes) outcomes += count;
  if (outcomes != tally->activated) {
    throw FieldError(field + ": outcomes are " + std::to_string(outcomes) + " in all, activated " +
                     std::to_string(tally->activated));
  }
  for (const Json& pair : json.at("reasons")) {
    const auto reason = pair.at(0).get<std::string>();
    if (!ReasonFromName(reason)) throw FieldError(field + ": reasons: unknown " + reason);
    tally->reasons[reason] = CountOf(pair.at(1), field + ": reasons: " + reason);
  }
  for (const Json& pair : json.at("delays")) {
    const uint64_t steps = CountOf(pair.at(0), field + ": delays: steps");
    tally->delay_steps[steps] = CountOf(pair.at(1), field + ": delays");
  }
  tally->off_arm_wrong_tokens = CountOf(json.at("off"), field + ": off");
}

void CoverageFrom(const Json& json, const std::vector<FaultTally>& tallies, FeatureCoverage* c) {
  if (json.at("features") != c->features) throw FieldError("coverage: features are others");
  CountsOf(json.at("on"), "coverage: on", &c->on);
  CountsOf(json.at("met"), "coverage: met", &c->met);
  const uint64_t last = c->features.size() - 1;
  for (const Json& pair : json.at("pairs")) {
    const uint64_t a = CountOf(pair.at(0).at(0), "coverage: pairs", last);
    const uint64_t b = CountOf(pair.at(0).at(1), "coverage: pairs", last);
    c->pairs[{a, b}] = CountOf(pair.at(1), "coverage: pairs");
  }
  for (const auto& [kind, counts] : json.at("faults").items()) {
    if (std::ranges::find(tallies, kind, &FaultTally::kind) == tallies.end()) {
      throw FieldError("coverage: faults: unknown " + kind);
    }
    std::vector<uint64_t>& read = c->faults_by_kind[kind];
    read.resize(c->features.size());
    CountsOf(counts, "coverage: faults: " + kind, &read);
  }
}

Json StoriesOf(const std::vector<IncidentStory>& stories) {
  Json json = Json::array();
  for (const IncidentStory& story : stories) json.push_back(StoryJson(story));
  return json;
}

CampaignRun RunFrom(const Json& json) {
  CampaignRun run;
  run.number = CountOf(json.at("run"), "run");
  run.totals = TotalsFrom(json.at("totals"), "totals");
  for (const Json& one : json.at("faults")) {
    FaultResult& fault = run.faults.emplace_back();
    fault.outcome = static_cast<Outcome>(CountOf(one.at(0), "faults: outcome", kOutcomeCount - 1));
    fault.reasons = CheckSet(static_cast<uint32_t>(
        CountOf(one.at(1), "faults: reasons", (uint64_t{1} << kReasonCount) - 1)));
    fault.kind = CountOf(one.at(2), "faults: kind", FaultKinds().size() - 1);
    if (one.size() > 3) fault.delay = CountOf(one.at(3), "faults: delay");
  }
  for (const Json& story : json.at("stories")) run.stories.push_back(StoryFrom(story));
  json.at("red").get_to(run.red);
  run.features = CountOf(json.at("features").at(0), "features", ~uint64_t{0});
  run.met = CountOf(json.at("features").at(1), "features", ~uint64_t{0});
  run.bytes_per_page = CountOf(json.at("bytes"), "bytes");
  const uint64_t flags = CountOf(json.at("flags"), "flags", 7);
  run.bad = (flags & 1u) != 0;
  run.logged = (flags & 2u) != 0;
  run.cut = (flags & 4u) != 0;
  json.at("refused").get_to(run.refused);
  run.seconds = SecondsOf(json.at("clock").at(0), "clock");
  run.off_seconds = SecondsOf(json.at("clock").at(1), "clock");
  run.off_tokens = CountOf(json.at("clock").at(2), "clock");
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
  } catch (const FieldError&) {
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

Status CampaignFold::FromJson(const Json& json) {
  CampaignFold read(kinds_);
  try {
    read.folded_ = CountOf(json.at("folded"), "folded");
    read.clean_ = TotalsFrom(json.at("clean"), "clean");
    read.faulty_ = TotalsFrom(json.at("faulty"), "faulty");
    read.bytes_per_page_ = CountOf(json.at("bytes"), "bytes");
    const Json& tallies = json.at("tallies");
    if (tallies.size() != read.tallies_.size()) throw FieldError("tallies are of other kinds");
    for (size_t k = 0; k < read.tallies_.size(); ++k) {
      FaultTally& tally = read.tallies_[k];
      if (tallies.at(k).at("kind") != tally.kind) throw FieldError("tallies are of other kinds");
      TallyFrom(tallies.at(k), "tallies", &tally);
    }
    const Json& several = json.at("several");
    read.several_runs_ = CountOf(several.at("runs"), "several: runs");
    TallyFrom(several.at("tally"), "several", &read.several_);
    CountsOf(several.at("kinds"), "several: kinds", &read.of_several_);
    for (const Json& run : json.at("bad_runs")) read.bad_runs_.push_back(CountOf(run, "bad_runs"));
    for (const Json& line : json.at("red")) {
      read.red_.emplace_back(CountOf(line.at(0), "red"), line.at(1).get<std::string>());
    }
    read.red_count_ = CountOf(json.at("red_count"), "red_count");
    for (const Json& story : json.at("stories")) read.stories_.push_back(StoryFrom(story));
    CoverageFrom(json.at("coverage"), read.tallies_, &read.coverage_);
    if (const auto clock = json.find("clock"); clock != json.end()) {
      read.clean_seconds_ = SecondsOf(clock->at(0), "clock");
      read.off_seconds_ = SecondsOf(clock->at(1), "clock");
      read.off_tokens_ = CountOf(clock->at(2), "clock");
    }
  } catch (const Json::exception&) {
    return Status::Invalid("has not the form of a campaign's state");
  } catch (const FieldError& error) {
    return Status::Invalid(error.what());
  }
  *this = std::move(read);
  return Status();
}

}  // namespace kvfence
