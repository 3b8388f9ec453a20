// The flags of `kvfence run`, read and judged before anything is made: folder, port, campaign.
#pragma once

#include <cstdint>
#include <string>

#include "kvfence/campaign.h"
#include "kvfence/status.h"

namespace kvfence::tools {

struct RunConfig {
  CampaignConfig campaign;
  std::string out;            // folder
  int64_t metrics_port = -1;  // -1: don't serve
  uint64_t jobs = 1;          // worker processes
  bool resume = false;
  std::string backend;  // "cpu" or "cuda"
};

// All flags of the verb, in the order in which its help shows them.
const std::vector<std::string_view>& RunFlags();
// kInvalidArgument with one line that names the flag.
Result<RunConfig> ReadRunConfig();
// The command line that makes the same report again, quoted for a shell. It goes to a folder of its
// own beside the config's `log_dir` (none is named where there's none): OUT-again, or OUT-`beside`.
std::string CommandOf(const CampaignConfig& config, const std::string& beside = "again");

}  // namespace kvfence::tools
