#include "numeric_flags.h"

#include <absl/flags/flag.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <vector>

#include "kvfence/trace.h"
#include "shared_flags.h"

ABSL_FLAG(bool, numeric, false,
          "serve a small transformer with real numbers in its cache, instead of the model of 64 "
          "bits; lengths are divided by --trace_scale");
ABSL_FLAG(std::vector<std::string>, attention, {},
          "with --numeric: gqa, mla, comma-separated, of which each run draws one; default: both");
ABSL_FLAG(int64_t, trace_scale, -1,
          "divide all requests' lengths by this, a power of two up to 512; -1: 1, with --numeric "
          "8");

namespace kvfence::tools {
namespace {

constexpr uint32_t kNumericScale = 8;

// Names of a flag's list as numbers, each once, in the order of `all`.
template <class Type>
Status ReadList(const char* flag, const std::vector<std::string>& words,
                const std::vector<Type>& all, std::string_view (*name)(Type),
                std::vector<Type>* out) {
  std::string known;
  for (const Type type : all) known += (known.empty() ? "" : ", ") + std::string(name(type));
  for (const std::string& word : words) {
    const auto it = std::ranges::find_if(all, [&](Type type) { return name(type) == word; });
    if (it == all.end()) {
      return Status::Invalid("--" + std::string(flag) + " with --numeric must be of " + known +
                             ", got '" + word + "'");
    }
    if (std::ranges::find(*out, *it) == out->end()) out->push_back(*it);
  }
  if (words.empty()) *out = all;
  std::ranges::sort(*out);
  return Status();
}

const std::vector<AttentionForm> kForms = {AttentionForm::kGqa, AttentionForm::kMla};
const std::vector<KvType> kKvTypes = {KvType::kE4m3, KvType::kBf16};
const std::vector<WeightType> kWeightTypes = {WeightType::kBf16, WeightType::kE4m3,
                                              WeightType::kInt4};

Status ReadScale(bool numeric, CampaignConfig* config) {
  const int64_t scale = absl::GetFlag(FLAGS_trace_scale);
  if (scale == -1) {
    config->trace_scale = numeric ? kNumericScale : 1;
    return Status();
  }
  if (scale < 1 || scale > int64_t{kTraceBlock} || !std::has_single_bit(uint64_t(scale))) {
    return Status::Invalid("--trace_scale must be a power of two up to " +
                           std::to_string(kTraceBlock) + ", got " + std::to_string(scale));
  }
  config->trace_scale = static_cast<uint32_t>(scale);
  return Status();
}

}  // namespace

Status ReadNumeric(CampaignConfig* config) {
  const bool numeric = absl::GetFlag(FLAGS_numeric);
  const std::vector<std::string> attention = absl::GetFlag(FLAGS_attention);
  const std::vector<std::string> kv = absl::GetFlag(FLAGS_kv);
  const std::vector<std::string> weights = absl::GetFlag(FLAGS_weights);
  if (Status status = ReadScale(numeric, config); !status.ok()) return status;
  if (!numeric) {
    const char* needs = !attention.empty() ? "attention"
                        : !kv.empty()      ? "kv"
                        : !weights.empty() ? "weights"
                                           : nullptr;
    return needs == nullptr
               ? Status()
               : Status::Invalid("--" + std::string(needs) + " of a run needs --numeric");
  }
  NumericChoice& choice = config->numeric.emplace();
  if (Status status =
          ReadList("attention", attention, kForms, AttentionFormName, &choice.attention);
      !status.ok()) {
    return status;
  }
  if (Status status = ReadList("kv", kv, kKvTypes, KvTypeName, &choice.kv); !status.ok()) {
    return status;
  }
  return ReadList("weights", weights, kWeightTypes, WeightTypeName, &choice.weights);
}

std::string NumericWords(const CampaignConfig& config) {
  std::string text;
  const auto list = [&](const char* flag, const auto& types, size_t all, auto name) {
    if (types.size() == all) return;
    std::string words;
    for (const auto type : types) words += (words.empty() ? "" : ",") + std::string(name(type));
    text += " --" + std::string(flag) + "=" + words;
  };
  if (config.numeric) {
    text = " --numeric";
    list("attention", config.numeric->attention, kForms.size(), AttentionFormName);
    list("kv", config.numeric->kv, kKvTypes.size(), KvTypeName);
    list("weights", config.numeric->weights, kWeightTypes.size(), WeightTypeName);
  }
  if (config.trace_scale != (config.numeric ? kNumericScale : 1)) {
    text += " --trace_scale=" + std::to_string(config.trace_scale);
  }
  return text;
}

}  // namespace kvfence::tools
