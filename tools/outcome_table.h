// The fault x outcome table and the run's summary, for people at a terminal.
#pragma once

#include <cstdio>
#include <string>

#include "kvfence/campaign.h"

namespace kvfence::tools {

void PrintReport(const CampaignReport& report, const std::string& command, bool fancy,
                 std::FILE* out);

}  // namespace kvfence::tools
