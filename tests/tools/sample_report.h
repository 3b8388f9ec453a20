// A made-up campaign report with everything in it that a real one may have, for tests of what is
// shown. Numbers are arbitrary but add up.
#pragma once

#include "kvfence/campaign.h"

namespace kvfence::tools {

// Green and complete, three kinds, two stories.
CampaignReport SampleReport();
// The same, gone wrong: a missed fault, a false alarm, why-lines.
CampaignReport SampleRedReport();

}  // namespace kvfence::tools
