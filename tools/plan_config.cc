#include "plan_config.h"

#include <absl/flags/flag.h>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <tuple>
#include <utility>

#include "cli.h"
#include "kvfence/device_types.h"
#include "model_config.h"
#include "shared_flags.h"

ABSL_FLAG(std::string, model, "",
          "a model built in (kimi-k2.6, glm-5.2), or a config.json or its folder");
ABSL_FLAG(int64_t, layers, -1, "layers that keep a KV cache");
ABSL_FLAG(int64_t, draft_layers, -1, "further layers that draft tokens (MTP), with cache");
ABSL_FLAG(int64_t, kv_heads, -1, "grouped-query attention: KV heads, divided among the GPUs");
ABSL_FLAG(int64_t, head_dim, -1, "grouped-query attention: values of a head's key");
ABSL_FLAG(int64_t, kv_lora_rank, -1, "latent attention (MLA): the latent, whole on each GPU");
ABSL_FLAG(int64_t, rope_dim, -1, "latent attention: the rotated part of a key");
ABSL_FLAG(int64_t, index_dim, -1, "sparse attention: an indexer's key; 0: no indexer");
ABSL_FLAG(int64_t, kv_overhead, 0, "further bytes of a token's cache in each layer (scales)");
ABSL_FLAG(std::string, params, "", "parameters, drafts included: 70B, 1.03T, 671e9");
ABSL_FLAG(std::string, expert_params, "", "those in routed experts, which 4-bit formats compress");
ABSL_FLAG(std::string, bf16_params, "", "those that stay BF16 in every format");
ABSL_FLAG(int64_t, gpus, 8, "GPUs of one tensor-parallel group");
ABSL_FLAG(std::string, gpu_memory, "141GB", "memory of one GPU: 141GB, 80GiB, bytes");
ABSL_FLAG(double, utilisation, 0.87, "part of it for weights, cache and fence, above 0, up to 1");
ABSL_FLAG(std::string, reserve, "0", "of that, for anything else on each GPU: 4GiB");
ABSL_FLAG(double, sharing, 1, "requests that map a page, on average (prefix cache)");

namespace kvfence::tools {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 56, kMostCount = uint64_t{1} << 53;
constexpr int64_t kMaxLayers = 4096, kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxGpus = 65536, kMaxRows = 65536;
constexpr double kMaxSharing = 1 << 20;

struct Unit {
  std::string_view name;
  double factor;
};

// A decimal number with one of the units behind it; nullopt: anything else.
template <size_t kUnits>
std::optional<uint64_t> ParseWithUnit(std::string_view text, const std::array<Unit, kUnits>& units,
                                      uint64_t most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    const double value = std::round(number * known.factor);
    if (!(value >= 0 && value <= static_cast<double>(most))) return std::nullopt;
    return static_cast<uint64_t>(value);
  }
  return std::nullopt;
}

Status BadFlag(const std::string& name, const std::string& expected, const std::string& got) {
  return Status::Invalid("--" + name + " must be " + expected + ", got '" + got + "'");
}

Status ReadMachine(PlanMachine* machine) {
  struct Size {
    const char* name;
    int64_t value, least, most;
    uint64_t* out;
  };
  const std::array<Size, 4> sizes = {{
      {"gpus", absl::GetFlag(FLAGS_gpus), 1, kMaxGpus, &machine->gpus},
      {"page_size", absl::GetFlag(FLAGS_page_size), 1, kMaxPageSize, &machine->page_size},
      {"rows", absl::GetFlag(FLAGS_rows), 1, kMaxRows, &machine->rows},
      {"kv_overhead", absl::GetFlag(FLAGS_kv_overhead), 0, kMaxSize, &machine->kv_overhead},
  }};
  for (const Size& size : sizes) {
    const bool drawn = size.value == -1 && size.least != 0 && size.out != &machine->gpus;
    if (drawn) continue;  // the default of a flag that `run` has too
    Status status = ReadInteger(size.name, size.value, size.least, size.most, size.out);
    if (!status.ok()) return status;
  }
  const std::string memory = absl::GetFlag(FLAGS_gpu_memory);
  const std::string reserve = absl::GetFlag(FLAGS_reserve);
  const std::string expected = "a size such as 141GB, 80GiB or a number of bytes";
  const auto memory_bytes = ParseBytes(memory), reserve_bytes = ParseBytes(reserve);
  if (!memory_bytes || *memory_bytes == 0) return BadFlag("gpu_memory", expected, memory);
  if (!reserve_bytes) return BadFlag("reserve", expected, reserve);
  machine->memory = *memory_bytes;
  machine->reserve = *reserve_bytes;
  machine->utilisation = absl::GetFlag(FLAGS_utilisation);
  if (!(machine->utilisation > 0 && machine->utilisation <= 1)) {
    return BadFlag("utilisation", "above 0 and at most 1", std::to_string(machine->utilisation));
  }
  machine->sharing = absl::GetFlag(FLAGS_sharing);
  if (!(machine->sharing >= 1 && machine->sharing <= kMaxSharing)) {
    return BadFlag("sharing", "1 to " + std::to_string(static_cast<uint64_t>(kMaxSharing)),
                   std::to_string(machine->sharing));
  }
  return Status();
}

Status ReadCount(const char* name, const std::string& text, std::optional<uint64_t>* out) {
  if (text.empty()) return Status();
  *out = ParseCount(text);
  if (*out) return Status();
  return BadFlag(name, "a count such as 70B, 1.03T or 671e9", text);
}

bool GeometryIsGiven() {
  return absl::GetFlag(FLAGS_layers) != -1 || absl::GetFlag(FLAGS_kv_heads) != -1 ||
         absl::GetFlag(FLAGS_head_dim) != -1 || absl::GetFlag(FLAGS_kv_lora_rank) != -1 ||
         absl::GetFlag(FLAGS_rope_dim) != -1 || absl::GetFlag(FLAGS_index_dim) != -1 ||
         absl::GetFlag(FLAGS_draft_layers) != -1 || !absl::GetFlag(FLAGS_params).empty() ||
         !absl::GetFlag(FLAGS_expert_params).empty() || !absl::GetFlag(FLAGS_bf16_params).empty();
}

// What flags say stands above what the model's file says.
Status ReadGeometry(ModelGeometry* model) {
  const int64_t layers = absl::GetFlag(FLAGS_layers);
  const bool latent = absl::GetFlag(FLAGS_kv_lora_rank) != -1;
  const bool grouped = absl::GetFlag(FLAGS_kv_heads) != -1 || absl::GetFlag(FLAGS_head_dim) != -1;
  if (latent && grouped) {
    return Status::Invalid(
        "--kv_lora_rank is for latent attention, --kv_heads and --head_dim for grouped-query "
        "attention; give one of both");
  }
  if (grouped) model->latent = 0;
  struct Size {
    const char* name;
    int64_t value, least, most;
    uint64_t* out;
  };
  const std::array<Size, 7> sizes = {{
      {"layers", layers, 1, kMaxLayers, &model->kv_layers},
      {"draft_layers", absl::GetFlag(FLAGS_draft_layers), 0, kMaxLayers, &model->draft_layers},
      {"kv_heads", absl::GetFlag(FLAGS_kv_heads), 1, kMaxSize, &model->kv_heads},
      {"head_dim", absl::GetFlag(FLAGS_head_dim), 1, kMaxSize, &model->head_dim},
      {"kv_lora_rank", absl::GetFlag(FLAGS_kv_lora_rank), 1, kMaxSize, &model->latent},
      {"rope_dim", absl::GetFlag(FLAGS_rope_dim), 0, kMaxSize, &model->rope},
      {"index_dim", absl::GetFlag(FLAGS_index_dim), 0, kMaxSize, &model->index_dim},
  }};
  for (const Size& size : sizes) {
    Status status = ReadOptional(size.name, size.value, size.least, size.most, size.out);
    if (!status.ok()) return status;
  }
  const std::array<std::tuple<const char*, std::string, std::optional<uint64_t>*>, 3> counts = {{
      {"params", absl::GetFlag(FLAGS_params), &model->params},
      {"expert_params", absl::GetFlag(FLAGS_expert_params), &model->expert_params},
      {"bf16_params", absl::GetFlag(FLAGS_bf16_params), &model->bf16_params},
  }};
  for (const auto& [name, text, out] : counts) {
    if (Status status = ReadCount(name, text, out); !status.ok()) return status;
  }
  return Status();
}

// Without a model's file its geometry must be whole.
Status CheckWhole(ModelGeometry* model) {
  if (model->hidden != 0) return Status();
  const char* missing = nullptr;
  if (model->kv_layers == 0) {
    missing = "--layers";
  } else if (model->latent == 0 && model->kv_heads == 0) {
    missing = "--kv_heads and --head_dim (or --kv_lora_rank and --rope_dim)";
  } else if (model->latent == 0 && model->head_dim == 0) {
    missing = "--head_dim";
  } else if (model->latent != 0 && absl::GetFlag(FLAGS_rope_dim) == -1) {
    missing = "--rope_dim";
  } else if (!model->params) {
    missing = "--params";
  }
  if (missing == nullptr) {
    model->layers = model->kv_layers;
    return Status();
  }
  return Status::Invalid(std::string(missing) +
                         " is missing; a model is --model=NAME or FILE, or --layers, --kv_heads, "
                         "--head_dim and --params");
}

Result<ModelConfig> ReadModel(const std::string& asked) {
  ModelConfig config;
  if (asked.empty()) {
    config.geometry.name = "flags";
    config.format = WeightFormat::kBf16;
  } else if (const auto known = KnownModel(asked)) {
    config = *known;
  } else {
    std::error_code error;
    if (!std::filesystem::exists(asked, error)) {
      return Status::Invalid("--model: '" + asked + "' is neither a file nor a model built in" +
                             DidYouMean(asked, KnownModels()) + " (built in: kimi-k2.6, glm-5.2)");
    }
    Result<ModelConfig> read = ReadModelConfig(asked);
    if (!read.ok()) return Status::Invalid("--model: " + read.status().message());
    config = std::move(*read);
  }
  if (Status status = ReadGeometry(&config.geometry); !status.ok()) return status;
  if (Status status = CheckWhole(&config.geometry); !status.ok()) return status;
  return config;
}

Result<std::vector<WeightFormat>> ReadWeights(const ModelConfig& model) {
  std::vector<WeightFormat> formats;
  for (const std::string& name : absl::GetFlag(FLAGS_weights)) {
    const auto format = WeightFormatFromName(name);
    if (!format) return BadFlag("weights", "bf16, fp8, int4 or nvfp4", name);
    formats.push_back(*format);
  }
  if (!formats.empty()) return formats;
  if (!model.format) return Status::Invalid("--model: " + model.format_trouble);
  return std::vector<WeightFormat>{*model.format};
}

Result<std::vector<KvFormat>> ReadKv() {
  std::vector<KvFormat> formats;
  for (const std::string& name : absl::GetFlag(FLAGS_kv)) {
    const auto format = KvFormatFromName(name);
    if (!format) return BadFlag("kv", "bf16 or fp8", name);
    formats.push_back(*format);
  }
  if (formats.empty()) formats = {KvFormat::kBf16, KvFormat::kFp8};
  return formats;
}

// What Cloudflare published of its deployments (docs/plan.md has the source).
std::vector<PlanCase> PublishedCases() {
  const ModelGeometry kimi = KnownModel("kimi-k2.6")->geometry;
  const ModelGeometry glm = KnownModel("glm-5.2")->geometry;
  return {
      {kimi, WeightFormat::kInt4, KvFormat::kBf16, PublishedFigures{.tokens = 686'000}},
      {kimi, WeightFormat::kInt4, KvFormat::kFp8, PublishedFigures{.tokens = 1'370'000}},
      {glm, WeightFormat::kFp8, KvFormat::kFp8,
       PublishedFigures{.weight_gib = 705, .weight_gib_per_gpu = 88}},
      {glm, WeightFormat::kInt4, KvFormat::kFp8,
       PublishedFigures{.weight_gib = 421, .weight_gib_per_gpu = 52, .tokens = 1'180'000}},
  };
}

}  // namespace

const std::vector<std::string_view>& PlanFlags() {
  static const std::vector<std::string_view> kFlags = {
      "model",         "weights",      "kv",       "layers",     "draft_layers", "kv_heads",
      "head_dim",      "kv_lora_rank", "rope_dim", "index_dim",  "kv_overhead",  "params",
      "expert_params", "bf16_params",  "gpus",     "gpu_memory", "utilisation",  "reserve",
      "page_size",     "rows",         "sharing",  "json"};
  return kFlags;
}

Result<PlanConfig> ReadPlanConfig() {
  PlanConfig config;
  if (Status status = ReadMachine(&config.machine); !status.ok()) return status;
  const std::string asked = absl::GetFlag(FLAGS_model);
  if (asked.empty() && !GeometryIsGiven()) {
    for (const auto& [name, given] : {std::pair("weights", !absl::GetFlag(FLAGS_weights).empty()),
                                      std::pair("kv", !absl::GetFlag(FLAGS_kv).empty())}) {
      if (given) {
        return Status::Invalid("--" + std::string(name) +
                               " needs a model: --model=NAME or FILE, or --layers, --kv_heads, "
                               "--head_dim and --params");
      }
    }
    config.cases = PublishedCases();
    return config;
  }
  Result<ModelConfig> model = ReadModel(asked);
  if (!model.ok()) return Status::Invalid(model.status().message());
  Result<std::vector<WeightFormat>> weights = ReadWeights(*model);
  if (!weights.ok()) return Status::Invalid(weights.status().message());
  Result<std::vector<KvFormat>> kv = ReadKv();
  if (!kv.ok()) return Status::Invalid(kv.status().message());
  for (const WeightFormat weight : *weights) {
    for (const KvFormat format : *kv) {
      config.cases.push_back({model->geometry, weight, format, std::nullopt});
    }
  }
  return config;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  constexpr double kKi = 1024;
  static constexpr std::array<Unit, 8> kUnits = {{{"", 1},
                                                  {"B", 1},
                                                  {"MB", 1e6},
                                                  {"GB", 1e9},
                                                  {"TB", 1e12},
                                                  {"MiB", kKi * kKi},
                                                  {"GiB", kKi * kKi * kKi},
                                                  {"TiB", kKi * kKi * kKi * kKi}}};
  return ParseWithUnit(text, kUnits, kMostBytes);
}

std::optional<uint64_t> ParseCount(std::string_view text) {
  static constexpr std::array<Unit, 4> kUnits = {{{"", 1}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}};
  return ParseWithUnit(text, kUnits, kMostCount);
}

}  // namespace kvfence::tools
