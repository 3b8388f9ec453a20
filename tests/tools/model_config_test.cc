// Reading a model's config.json: the shapes that it states, and what it can't state.
#include "model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Latent() {
  return json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2",
    "num_hidden_layers": 61, "num_nextn_predict_layers": 0, "hidden_size": 7168,
    "vocab_size": 163840, "tie_word_embeddings": false, "num_attention_heads": 64,
    "num_key_value_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 384,
    "n_shared_experts": 1,
    "quantization_config": {"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}})");
}

json Grouped() {
  return json::parse(R"({"num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "torch_dtype": "bfloat16"})");
}

ModelConfig Parsed(const json& config) {
  Result<ModelConfig> read = ParseModelConfig(config.dump(), "m/config.json");
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : ModelConfig{};
}

std::string Refused(const json& config) {
  Result<ModelConfig> read = ParseModelConfig(config.dump(), "m/config.json");
  EXPECT_FALSE(read.ok());
  return read.ok() ? "" : read.status().message();
}

TEST(ModelConfig, ReadsTheBuiltInModelFromItsFile) {
  const ModelConfig read = Parsed(Latent());
  ModelGeometry built_in = KnownModel("kimi-k2.6")->geometry;
  built_in.other_params = 0;  // its vision tower is no key
  EXPECT_EQ(read.geometry.name, "m");
  EXPECT_EQ(read.format, WeightFormat::kInt4);
  const ParameterCount count = CountParameters(read.geometry).value();
  const ParameterCount expected = CountParameters(built_in).value();
  EXPECT_EQ(count.experts, expected.experts);
  EXPECT_EQ(count.matrices, expected.matrices);
  EXPECT_EQ(count.kept, expected.kept);
  EXPECT_EQ(KvBytesPerToken(read.geometry, KvFormat::kBf16, {}), 61u * 576 * 2);
}

TEST(ModelConfig, ReadsAMultimodalModelsTextPart) {
  json whole;
  whole["vision_config"] = {{"num_hidden_layers", 27}};
  whole["text_config"] = Latent();
  EXPECT_EQ(Parsed(whole).geometry.layers, 61u);
  EXPECT_EQ(Parsed(whole).format, WeightFormat::kInt4);
  whole["text_config"].erase("num_hidden_layers");
  EXPECT_THAT(Refused(whole), HasSubstr("key 'text_config.num_hidden_layers' is missing"));
}

TEST(ModelConfig, CountsADenseModel) {
  const ModelConfig read = Parsed(Grouped());
  EXPECT_EQ(read.format, WeightFormat::kBf16);
  EXPECT_EQ(read.geometry.head_dim, 128u);
  // 8.03 billion, as the model's card states.
  EXPECT_NEAR(static_cast<double>(CountParameters(read.geometry).value().total()), 8.03e9, 1e7);
  json tied = Grouped();
  tied["tie_word_embeddings"] = true;
  EXPECT_EQ(CountParameters(read.geometry).value().total() -
                CountParameters(Parsed(tied).geometry).value().total(),
            uint64_t{128256} * 4096);
}

TEST(ModelConfig, CountsSparseAttentionsIndexers) {
  json config = Latent();
  config["index_head_dim"] = 128;
  config["index_n_heads"] = 32;
  EXPECT_EQ(Parsed(config).geometry.index_layers, 61u);
  config["indexer_types"] = std::vector<std::string>(61, "shared");
  config["indexer_types"][0] = "full";
  EXPECT_EQ(Parsed(config).geometry.index_layers, 1u);
  config["indexer_types"] = json::array({"full"});
  EXPECT_THAT(Refused(config), HasSubstr("'indexer_types': expected a list of 61"));
}

TEST(ModelConfig, CountsOnlyLayersThatKeepACache) {
  json config = Grouped();
  config["layer_types"] = std::vector<std::string>(32, "linear_attention");
  config["layer_types"][3] = "full_attention";
  EXPECT_EQ(KvBytesPerToken(Parsed(config).geometry, KvFormat::kFp8, {.gpus = 1}), 2u * 8 * 128);
  config["layer_types"][3] = "linear_attention";
  EXPECT_THAT(Refused(config), HasSubstr("no layer keeps a paged cache"));
  config["layer_types"][7] = "mamba";
  EXPECT_THAT(Refused(config), HasSubstr("'layer_types'[7]"));
}

TEST(ModelConfig, SaysFileKeyAndWhatWasExpected) {
  const auto with = [](const char* key, const json& value) {
    json config = Grouped();
    config[key] = value;
    return Refused(config);
  };
  EXPECT_EQ(with("num_hidden_layers", 0),
            "m/config.json: key 'num_hidden_layers': expected an integer in 1..4096, found 0");
  EXPECT_THAT(with("num_hidden_layers", -3), HasSubstr("found -3"));
  EXPECT_THAT(with("num_hidden_layers", "sixty"), HasSubstr("found \"sixty\""));
  EXPECT_THAT(with("hidden_size", 4096.5), HasSubstr("'hidden_size': expected an integer"));
  EXPECT_THAT(with("hidden_size", 4097), HasSubstr("isn't a multiple of num_attention_heads 32"));
  EXPECT_THAT(with("num_key_value_heads", 64), HasSubstr("expected 1..32 (the attention heads)"));
  EXPECT_THAT(with("tie_word_embeddings", "no"), HasSubstr("expected true or false"));
  EXPECT_THAT(with("kv_lora_rank", 512), HasSubstr("'qk_rope_head_dim' is missing"));
  json sparse = Latent();
  sparse["first_k_dense_replace"] = 62;
  EXPECT_THAT(Refused(sparse), HasSubstr("'first_k_dense_replace': expected an integer in 0..61"));
  sparse = Latent();
  sparse["decoder_sparse_step"] = 2;
  EXPECT_THAT(Refused(sparse), HasSubstr("'decoder_sparse_step': expected 1"));
}

TEST(ModelConfig, SaysWhereTheTextIsNoJson) {
  EXPECT_THAT(ParseModelConfig("{\n\"a\": }", "f.json").status().message(),
              HasSubstr("f.json: parse error at line 2"));
  EXPECT_EQ(ParseModelConfig("[]", "f.json").status().message(), "f.json: expected a JSON object");
}

TEST(ModelConfig, KnowsTheFormatsOfCheckpoints) {
  const auto format = [](const json& quantization) {
    json config = Grouped();
    config["quantization_config"] = quantization;
    return Parsed(config);
  };
  EXPECT_EQ(format({{"quant_method", "fp8"}, {"fmt", "e4m3"}}).format, WeightFormat::kFp8);
  EXPECT_EQ(format({{"quant_method", "awq"}, {"bits", 4}}).format, WeightFormat::kInt4);
  EXPECT_EQ(format({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}).format,
            WeightFormat::kNvfp4);
  const ModelConfig unknown = format({{"quant_method", "gptq"}, {"bits", 3}});
  EXPECT_FALSE(unknown.format.has_value());
  EXPECT_THAT(unknown.format_trouble, HasSubstr("--weights=bf16, fp8, int4 or nvfp4"));
}

TEST(ModelConfig, ReadsAFileOrItsFolder) {
  const Scratch scratch;
  scratch.Write("config.json", Grouped().dump());
  EXPECT_TRUE(ReadModelConfig(scratch.Path("config.json")).ok());
  EXPECT_TRUE(ReadModelConfig(scratch.Path("")).ok());
  const Result<ModelConfig> none = ReadModelConfig(scratch.Path("none.json"));
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(none.status().message(), HasSubstr("none.json: can't be opened"));
}

}  // namespace
}  // namespace kvfence::tools
