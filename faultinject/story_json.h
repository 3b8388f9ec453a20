// Incident stories as JSON and back.
#pragma once

#include <nlohmann/json.hpp>

#include "kvfence/campaign.h"

namespace kvfence {

nlohmann::ordered_json StoryJson(const IncidentStory& story);
// Throws nlohmann::json::exception where it isn't one.
IncidentStory StoryFrom(const nlohmann::ordered_json& json);

}  // namespace kvfence
