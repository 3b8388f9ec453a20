// What makes two campaigns the same: their config, and the program that runs them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kvfence/campaign.h"

namespace kvfence {

// Of the config all that decides about runs; the folder for logs doesn't.
nlohmann::ordered_json ConfigJson(const CampaignConfig& config);
// Throws nlohmann::json::exception where it isn't one, FieldError where a number can't be.
CampaignConfig ConfigFrom(const nlohmann::ordered_json& json);
// The first setting in which they differ ("seed is 7, not 8"); empty: none.
std::string DifferenceOf(const nlohmann::ordered_json& have, const nlohmann::ordered_json& want);

// A digest of the running program: a program built anew may draw otherwise.
std::string ProgramDigest();

}  // namespace kvfence
