// The report as one HTML file: no network, data embedded, readable by someone who did not run it.
#pragma once

#include <string>

#include "kvfence/campaign.h"

namespace kvfence::tools {

// `command` is the command line that makes this report again.
std::string HtmlReport(const CampaignReport& report, const std::string& command);

}  // namespace kvfence::tools
