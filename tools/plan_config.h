// The flags of `kvfence plan`, read and judged: which models, formats and machine to count.
//
// Invariant: a mistake is one line that names the flag, or the file and key, and what was expected;
// nothing is counted then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/status.h"
#include "plan_capacity.h"

namespace kvfence::tools {

// What somebody published for a case, to be shown beside what is counted.
struct PublishedFigures {
  double weight_gib = 0, weight_gib_per_gpu = 0;  // 0: not published
  uint64_t tokens = 0;                            // 0: not published
};

struct PlanCase {
  ModelGeometry model;
  WeightFormat weights = WeightFormat::kBf16;
  KvFormat kv = KvFormat::kBf16;
  std::optional<PublishedFigures> published;
};

struct PlanConfig {
  PlanMachine machine;
  std::vector<PlanCase> cases;
};

// All flags of the verb, in the order in which its help shows them.
const std::vector<std::string_view>& PlanFlags();
Result<PlanConfig> ReadPlanConfig();

// "141GB", "80 GiB", "1024": bytes; nullopt: no such size, or beyond 2^56.
std::optional<uint64_t> ParseBytes(std::string_view text);
// "1.03T", "70B", "671e9": a count; nullopt: no such count, or beyond 2^53.
std::optional<uint64_t> ParseCount(std::string_view text);

}  // namespace kvfence::tools
