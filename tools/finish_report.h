// The end of a campaign, however it came about: its report's files, its words, its exit code.
#pragma once

#include <string>
#include <string_view>

#include "kvfence/campaign.h"

namespace kvfence::tools {

// Writes report.json and report.html into the folder `out` and tells people or programs. `command`
// makes the report again. Returns the exit code.
int FinishReport(std::string_view verb, const std::string& out, const CampaignReport& report,
                 const std::string& command);

}  // namespace kvfence::tools
