// The flags of the small transformer: --numeric and what it's made of.
#pragma once

#include <string>

#include "kvfence/campaign.h"
#include "kvfence/status.h"

namespace kvfence::tools {

// Writes `numeric` and `trace_scale`. kInvalidArgument with one line that names the flag, also for
// flags that need --numeric and stand without it.
Status ReadNumeric(CampaignConfig* config);
// " --numeric ..." as on a command line; empty where nothing was asked for.
std::string NumericWords(const CampaignConfig& config);

}  // namespace kvfence::tools
