#include "story_json.h"

#include <algorithm>
#include <utility>

#include "strict_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json StoryJson(const IncidentStory& story) {
  Json json;
  json["kind"] = story.kind;
  json["outcome"] = std::string(kOutcomeNames[static_cast<size_t>(story.outcome)]);
  json["run"] = story.run;
  json["timeline"] = Json::array();
  for (const TimelineEntry& entry : story.timeline) {
    Json line = {{"step", entry.step}, {"what", entry.what}, {"text", entry.text}};
    if (!entry.request.empty()) line["request"] = entry.request;
    if (!entry.pages.empty()) line["pages"] = entry.pages;
    json["timeline"].push_back(std::move(line));
  }
  if (!story.record.empty()) json["record"] = Json::parse(story.record, nullptr, false);
  if (!story.log.empty()) json["log"] = story.log;
  return json;
}

IncidentStory StoryFrom(const Json& json) {
  IncidentStory story;
  json.at("kind").get_to(story.kind);
  const auto outcome = json.at("outcome").get<std::string>();
  const auto at = std::find(kOutcomeNames.begin(), kOutcomeNames.end(), outcome);
  // The last one, should it be none of ours: nothing gets better by being misread.
  const auto index = std::min<std::ptrdiff_t>(at - kOutcomeNames.begin(), kOutcomeCount - 1);
  story.outcome = static_cast<Outcome>(index);
  story.run = CountOf(json.at("run"), "stories: run");
  for (const Json& line : json.at("timeline")) {
    TimelineEntry& entry = story.timeline.emplace_back();
    line.at("step").get_to(entry.step);
    line.at("what").get_to(entry.what);
    line.at("text").get_to(entry.text);
    entry.request = line.value("request", std::string());
    entry.pages = line.value("pages", std::vector<int64_t>());
  }
  if (const auto record = json.find("record"); record != json.end()) {
    story.record = record->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  story.log = json.value("log", std::string());
  return story;
}

}  // namespace kvfence
