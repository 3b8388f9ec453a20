#include "model_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace kvfence::tools {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxSize = uint64_t{1} << 24;  // heads, widths, ranks, words

// Reads keys of one object; the first that is wrong is kept as the reader's status.
class KeyReader {
 public:
  KeyReader(const Json& json, std::string where, std::string prefix)
      : json_(json), where_(std::move(where)), prefix_(std::move(prefix)) {}

  bool Has(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }
  // The first of the keys that is there; `what` says in words what it counts.
  uint64_t Need(std::initializer_list<const char*> keys, const char* what, uint64_t most) {
    for (const char* key : keys) {
      if (Has(key)) return Number(key, 1, most);
    }
    std::string names;
    for (const char* key : keys) {
      names += (names.empty() ? "key '" : " or '") + prefix_ + key + "'";
    }
    Complain(names + " is missing; expected " + what);
    return 0;
  }
  uint64_t Or(std::initializer_list<const char*> keys, uint64_t otherwise, uint64_t most) {
    for (const char* key : keys) {
      if (Has(key)) return Number(key, 0, most);
    }
    return otherwise;
  }
  bool Flag(const char* key) {
    if (!Has(key)) return false;
    if (json_.at(key).is_boolean()) return json_.at(key).get<bool>();
    Complain(Named(key) + ": expected true or false, found " + Shown(json_.at(key)));
    return false;
  }
  void Complain(const std::string& what) {
    if (status_.ok()) status_ = Status::Invalid(where_ + ": " + what);
  }
  std::string Named(const char* key) const { return "key '" + prefix_ + key + "'"; }
  static std::string Shown(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 40 ? text.substr(0, 37) + "..." : text;
  }
  const Json& json() const { return json_; }
  bool ok() const { return status_.ok(); }
  Status Take() { return std::move(status_); }

 private:
  uint64_t Number(const char* key, uint64_t least, uint64_t most) {
    const Json& value = json_.at(key);
    if (value.is_number_unsigned() && value.get<uint64_t>() >= least &&
        value.get<uint64_t>() <= most) {
      return value.get<uint64_t>();
    }
    Complain(Named(key) + ": expected an integer in " + std::to_string(least) + ".." +
             std::to_string(most) + ", found " + Shown(value));
    return least;
  }

  const Json& json_;
  const std::string where_, prefix_;
  Status status_;
};

void ReadAttention(KeyReader& keys, ModelGeometry* model) {
  model->heads = keys.Need({"num_attention_heads"}, "the number of attention heads", kMaxSize);
  if (keys.Has("kv_lora_rank")) {
    model->latent = keys.Need({"kv_lora_rank"}, "the latent's size", kMaxSize);
    model->rope = keys.Need({"qk_rope_head_dim"}, "the rotated part of a key", kMaxSize);
    model->nope = keys.Need({"qk_nope_head_dim"}, "the other part of a key", kMaxSize);
    model->value = keys.Need({"v_head_dim"}, "the size of a value", kMaxSize);
    model->query_rank = keys.Or({"q_lora_rank"}, 0, kMaxSize);
  } else {
    model->kv_heads = keys.Or({"num_key_value_heads"}, model->heads, kMaxSize);
    if (keys.ok() && (model->kv_heads == 0 || model->kv_heads > model->heads)) {
      keys.Complain(keys.Named("num_key_value_heads") + ": expected 1.." +
                    std::to_string(model->heads) + " (the attention heads), found " +
                    std::to_string(model->kv_heads));
    }
    if (keys.ok() && !keys.Has("head_dim") && model->hidden % model->heads != 0) {
      keys.Complain("key 'head_dim' is missing, and hidden_size " + std::to_string(model->hidden) +
                    " isn't a multiple of num_attention_heads " + std::to_string(model->heads));
    }
    if (!keys.ok()) return;
    model->head_dim = keys.Or({"head_dim"}, model->hidden / model->heads, kMaxSize);
  }
  if (!keys.Has("index_head_dim")) return;
  model->index_dim = keys.Need({"index_head_dim"}, "the indexer's key size", kMaxSize);
  model->index_heads = keys.Need({"index_n_heads"}, "the indexer's heads", kMaxSize);
  model->index_layers = model->layers;
  if (!keys.Has("indexer_types")) return;
  const Json& types = keys.json().at("indexer_types");
  if (!types.is_array() || types.size() != model->layers) {
    keys.Complain(keys.Named("indexer_types") + ": expected a list of " +
                  std::to_string(model->layers) + ", one per layer");
    return;
  }
  // A shared layer takes the choice of an earlier one: it has no indexer weights.
  for (const Json& type : types) {
    if (type == "shared") --model->index_layers;
  }
}

void ReadFeedForward(KeyReader& keys, ModelGeometry* model) {
  model->experts =
      keys.Or({"n_routed_experts", "num_local_experts", "num_experts"}, 0, uint64_t{1} << 20);
  if (model->experts == 0) {
    model->dense_layers = model->layers;
    model->dense_width = keys.Need({"intermediate_size"}, "the feed-forward's width", kMaxSize);
    return;
  }
  model->dense_layers = keys.Or({"first_k_dense_replace"}, 0, model->layers);
  if (keys.Has("mlp_layer_types") && keys.json().at("mlp_layer_types").is_array()) {
    const Json& types = keys.json().at("mlp_layer_types");
    model->dense_layers = static_cast<uint64_t>(std::count(types.begin(), types.end(), "dense"));
  }
  // Experts stand in every layer behind these; other ways to mix dense layers in aren't counted.
  for (const char* key : {"decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"}) {
    if (keys.Or({key}, 1, kMaxLayers) != 1) {
      keys.Complain(keys.Named(key) +
                    ": expected 1 (experts in every layer behind the dense ones)");
    }
  }
  if (keys.Has("mlp_only_layers") && keys.json().at("mlp_only_layers") != Json::array()) {
    keys.Complain(keys.Named("mlp_only_layers") + ": expected an empty list, found " +
                  KeyReader::Shown(keys.json().at("mlp_only_layers")));
  }
  if (model->dense_layers > 0) {
    model->dense_width = keys.Need({"intermediate_size"}, "a dense layer's width", kMaxSize);
  }
  model->expert_width =
      keys.Need({"moe_intermediate_size", "intermediate_size"}, "an expert's width", kMaxSize);
  model->shared_width = keys.Or({"shared_expert_intermediate_size"}, 0, kMaxSize) +
                        keys.Or({"n_shared_experts"}, 0, 1024) * model->expert_width;
}

// Layers whose state isn't a paged cache of the model's own shape can't be counted as if it were.
void CountKvLayers(KeyReader& keys, ModelGeometry* model) {
  model->kv_layers = model->layers;
  if (!keys.Has("layer_types")) return;
  const Json& types = keys.json().at("layer_types");
  if (!types.is_array() || types.size() != model->layers) {
    keys.Complain(keys.Named("layer_types") + ": expected a list of " +
                  std::to_string(model->layers) + ", one per layer");
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    const Json& type = types[i];
    if (type == "linear_attention") {
      --model->kv_layers;  // a state per request, outside the pool
    } else if (type != "full_attention" && type != "sliding_attention" &&
               type != "chunked_attention") {
      keys.Complain(keys.Named("layer_types") + "[" + std::to_string(i) +
                    "]: expected full_attention, sliding_attention, chunked_attention or "
                    "linear_attention, found " +
                    KeyReader::Shown(type));
    }
  }
  if (keys.ok() && model->kv_layers == 0) {
    keys.Complain(keys.Named("layer_types") + ": no layer keeps a paged cache");
  }
}

// Four bits under one of the names that checkpoints use.
bool IsFourBit(const Json& quantization) {
  if (quantization.value("bits", Json()) == 4) return true;
  const Json groups = quantization.value("config_groups", Json::object());
  if (!groups.is_object() || groups.empty() || !groups.begin()->is_object()) return false;
  const Json weights = groups.begin()->value("weights", Json::object());
  return weights.is_object() && weights.value("num_bits", Json()) == 4 &&
         weights.value("type", "int") == "int";
}

void ReadFormat(const Json& text, const Json& whole, ModelConfig* config) {
  const Json* found = nullptr;
  for (const Json* json : {&text, &whole}) {
    const auto at = json->find("quantization_config");
    if (found == nullptr && at != json->end() && at->is_object()) found = &*at;
  }
  if (found == nullptr) {
    config->format = WeightFormat::kBf16;
    return;
  }
  const Json method = found->value("quant_method", Json());
  const Json algorithm = found->value("quant_algo", Json());
  if (method == "fp8" || algorithm == "FP8") {
    config->format = WeightFormat::kFp8;
  } else if (algorithm == "NVFP4") {
    config->format = WeightFormat::kNvfp4;
  } else if (IsFourBit(*found)) {
    config->format = WeightFormat::kInt4;
  } else {
    config->format_trouble =
        "quantization_config.quant_method " + KeyReader::Shown(method) +
        " is no format that plan knows; --weights=bf16, fp8, int4 or nvfp4 says what to count";
  }
}

std::string NameOfPath(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string folder = file.parent_path().filename().string();
  return file.filename() == "config.json" && !folder.empty() ? folder : file.stem().string();
}

// The parser's own words, without its error number.
std::string Without(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return Status::Invalid(path + ": " + Without(error.what()));
  }
  if (!json.is_object()) return Status::Invalid(path + ": expected a JSON object");
  const auto part = json.find("text_config");
  const bool parts = part != json.end() && part->is_object();
  const Json& model = parts ? *part : json;
  KeyReader keys(model, path, parts ? "text_config." : "");

  ModelConfig config;
  ModelGeometry& geometry = config.geometry;
  geometry.name = NameOfPath(path);
  geometry.layers = keys.Need({"num_hidden_layers"}, "the number of layers", kMaxLayers);
  geometry.draft_layers = keys.Or({"num_nextn_predict_layers"}, 0, kMaxLayers);
  geometry.hidden = keys.Need({"hidden_size"}, "the width of the residual stream", kMaxSize);
  geometry.vocab = keys.Need({"vocab_size"}, "the number of words", kMaxSize);
  geometry.tied = keys.Flag("tie_word_embeddings");
  if (keys.ok()) ReadAttention(keys, &geometry);
  if (keys.ok()) ReadFeedForward(keys, &geometry);
  if (keys.ok()) CountKvLayers(keys, &geometry);
  if (!keys.ok()) return keys.Take();
  ReadFormat(model, json, &config);
  return config;
}

Result<ModelConfig> ReadModelConfig(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const std::string file = folder ? path + "/config.json" : path;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return Status(StatusCode::kUnavailable, file + ": can't be opened");
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  if (stream.bad()) return Status(StatusCode::kUnavailable, file + ": can't be read");
  return ParseModelConfig(text, file);
}

const std::vector<std::string_view>& KnownModels() {
  static const std::vector<std::string_view> kNames = {"kimi-k2.6", "glm-5.2"};
  return kNames;
}

// Shapes as in the models' config.json; docs/plan.md says where they were read.
std::optional<ModelConfig> KnownModel(std::string_view name) {
  ModelConfig config;
  if (name == "kimi-k2.6") {
    config.geometry = {.name = "kimi-k2.6",
                       .layers = 61,
                       .heads = 64,
                       .latent = 512,
                       .rope = 64,
                       .nope = 128,
                       .value = 128,
                       .query_rank = 1536,
                       .hidden = 7168,
                       .vocab = 163840,
                       .dense_layers = 1,
                       .dense_width = 18432,
                       .expert_width = 2048,
                       .shared_width = 2048,
                       .experts = 384,
                       .other_params = 400'000'000};
    config.format = WeightFormat::kInt4;
    return config;
  }
  if (name == "glm-5.2") {
    config.geometry = {.name = "glm-5.2",
                       .layers = 78,
                       .draft_layers = 1,
                       .heads = 64,
                       .latent = 512,
                       .rope = 64,
                       .nope = 192,
                       .value = 256,
                       .query_rank = 2048,
                       .index_dim = 128,
                       .index_heads = 32,
                       .index_layers = 21,
                       .hidden = 6144,
                       .vocab = 154880,
                       .dense_layers = 3,
                       .dense_width = 12288,
                       .expert_width = 2048,
                       .shared_width = 2048,
                       .experts = 256};
    config.format = WeightFormat::kFp8;
    return config;
  }
  return std::nullopt;
}

}  // namespace kvfence::tools
