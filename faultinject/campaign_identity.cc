#include "campaign_identity.h"

#include <xxhash.h>

#include <cstdio>
#include <fstream>
#include <vector>

#include "kvfence/trace.h"
#include "strict_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

template <class Type>
std::vector<int> Numbers(const std::vector<Type>& types) {
  std::vector<int> numbers;
  for (const Type type : types) numbers.push_back(static_cast<int>(type));
  return numbers;
}
template <class Type>
void ReadNumbers(const Json& json, const char* field, Type last, std::vector<Type>* types) {
  for (const Json& number : json) {
    types->push_back(static_cast<Type>(CountOf(number, field, static_cast<uint64_t>(last))));
  }
}

}  // namespace

Json ConfigJson(const CampaignConfig& c) {
  Json json = {{"seed", c.seed},
               {"trace", c.trace},
               {"requests", c.requests},
               {"steps", c.steps},
               {"requests_per_run", c.requests_per_run},
               {"duration", c.duration_seconds},
               {"faults", c.faults},
               {"features", c.features},
               {"level", static_cast<int>(c.level)},
               {"disabled", c.disabled.mask()},
               {"policy", static_cast<int>(c.policy)},
               {"page_size", c.page_size},
               {"pages", c.pages},
               {"rows", c.rows},
               {"until_complete", c.until_complete},
               {"shard", {c.shard.part, c.shard.of}}};
  if (c.only) json["only"] = *c.only;
  if (c.trace_scale != 1) json["trace_scale"] = c.trace_scale;
  if (c.numeric) {
    json["attention"] = Numbers(c.numeric->attention);
    json["kv"] = Numbers(c.numeric->kv);
    json["weights"] = Numbers(c.numeric->weights);
  }
  return json;
}

CampaignConfig ConfigFrom(const Json& json) {
  CampaignConfig c;
  c.seed = CountOf(json.at("seed"), "seed", ~uint64_t{0});
  json.at("trace").get_to(c.trace);
  c.requests = CountOf(json.at("requests"), "requests");
  c.steps = CountOf(json.at("steps"), "steps");
  c.requests_per_run = CountOf(json.at("requests_per_run"), "requests_per_run");
  c.duration_seconds = CountOf(json.at("duration"), "duration");
  json.at("faults").get_to(c.faults);
  json.at("features").get_to(c.features);
  c.level =
      static_cast<Level>(CountOf(json.at("level"), "level", static_cast<uint64_t>(Level::kAudit)));
  c.disabled = CheckSet(static_cast<uint32_t>(
      CountOf(json.at("disabled"), "disabled", (uint64_t{1} << kReasonCount) - 1)));
  c.policy = static_cast<Policy>(
      CountOf(json.at("policy"), "policy", static_cast<uint64_t>(Policy::kStop)));
  c.page_size = CountOf(json.at("page_size"), "page_size");
  c.pages = CountOf(json.at("pages"), "pages");
  c.rows = CountOf(json.at("rows"), "rows");
  json.at("until_complete").get_to(c.until_complete);
  c.shard.part = CountOf(json.at("shard").at(0), "shard");
  c.shard.of = CountOf(json.at("shard").at(1), "shard");
  if (const auto only = json.find("only"); only != json.end()) c.only = CountOf(*only, "only");
  if (const auto scale = json.find("trace_scale"); scale != json.end()) {
    c.trace_scale = static_cast<uint32_t>(CountOf(*scale, "trace_scale", kTraceBlock));
  }
  if (json.contains("attention")) {
    NumericChoice& numeric = c.numeric.emplace();
    ReadNumbers(json.at("attention"), "attention", AttentionForm::kMla, &numeric.attention);
    ReadNumbers(json.at("kv"), "kv", KvType::kBf16, &numeric.kv);
    ReadNumbers(json.at("weights"), "weights", WeightType::kInt4, &numeric.weights);
  }
  return c;
}

std::string DifferenceOf(const Json& have, const Json& want) {
  for (const auto& [key, value] : want.items()) {
    const auto it = have.find(key);
    if (it == have.end()) return key + " isn't set, not " + value.dump();
    if (*it != value) return key + " is " + it->dump() + ", not " + value.dump();
  }
  for (const auto& [key, value] : have.items()) {
    if (!want.contains(key)) return key + " is " + value.dump() + ", not unset";
  }
  return "";
}

std::string ProgramDigest() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  std::vector<char> block(1 << 18);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    XXH3_64bits_update(state, block.data(), static_cast<size_t>(file.gcount()));
  }
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits_digest(state)));
  XXH3_freeState(state);
  return text;
}

}  // namespace kvfence
