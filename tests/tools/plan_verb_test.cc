// `kvfence plan` as a user meets it: the published cases, the object, and words for what can't be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "plan_config.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

json PlanJson(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "--json"});
  const Ran ran = RunTool(arguments);
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  return json::parse(ran.out);
}

std::string Refused(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  const Ran ran = RunTool(arguments);
  EXPECT_EQ(ran.code, kExitUsage) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  EXPECT_THAT(ran.err, StartsWith("kvfence plan: "));
  return ran.err;
}

TEST(PlanVerb, PrintsThePublishedCasesWithoutArguments) {
  const Ran ran = RunTool({"plan"});
  EXPECT_EQ(ran.code, kExitClean);
  EXPECT_EQ(ran.err, "");
  for (const char* word : {"kimi-k2.6", "glm-5.2", "686K tokens", "1.37M tokens", "705 GiB",
                           "88 per GPU", "421 GiB", "52 per GPU", "1.18M tokens", "docs/plan.md"}) {
    EXPECT_THAT(ran.out, HasSubstr(word));
  }
}

TEST(PlanVerb, TheObjectAgreesWithWhatWasPublished) {
  const json object = PlanJson({});
  ASSERT_EQ(object["rows"].size(), 4u);
  int compared = 0;
  for (const json& row : object["rows"]) {
    SCOPED_TRACE(row.dump());
    for (const char* key :
         {"model", "weights", "kv", "weight_bytes", "weight_bytes_per_gpu", "kv_bytes_per_token",
          "kv_pool_bytes", "tokens", "pages", "fence_bytes"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_LE(row["tokens"].get<uint64_t>() * row["kv_bytes_per_token"].get<uint64_t>() +
                  row["fence_bytes"].get<uint64_t>(),
              row["kv_pool_bytes"].get<uint64_t>());
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const json& published = row["published"];
    const auto near = [&](const char* key, double counted, double most) {
      if (!published.contains(key)) return;
      EXPECT_NEAR(counted / published[key].get<double>(), 1, most) << key;
      ++compared;
    };
    near("tokens", row["tokens"], 0.005);
    near("weight_gib", row["weight_bytes"].get<double>() / kGiB, 0.003);
    near("weight_gib_per_gpu", row["weight_bytes_per_gpu"].get<double>() / kGiB, 0.01);
  }
  EXPECT_EQ(compared, 7);
}

TEST(PlanVerb, WordsForPeopleGoToStandardErrorBesideTheObject) {
  const Ran ran = RunTool({"plan", "--json"});
  EXPECT_THAT(ran.err, HasSubstr("kimi-k2.6"));
  EXPECT_EQ(json::parse(ran.out)["machine"]["gpus"], 8);
}

TEST(PlanVerb, CrossesTheFormatsThatAreAsked) {
  const json object = PlanJson({"--model=glm-5.2", "--weights=fp8,int4,nvfp4", "--kv=bf16,fp8"});
  ASSERT_EQ(object["rows"].size(), 6u);
  EXPECT_EQ(object["rows"][0]["weights"], "fp8");
  EXPECT_EQ(object["rows"][5]["kv"], "fp8");
  EXPECT_FALSE(object["rows"][0].contains("published"));
}

TEST(PlanVerb, AFormatThatDoesntFitBesideOneThatDoesIsARow) {
  const json object = PlanJson({"--model=glm-5.2", "--weights=bf16,int4", "--kv=fp8"});
  EXPECT_EQ(object["rows"][0]["tokens"], 0);
  EXPECT_GT(object["rows"][1]["tokens"], 1'000'000);
  const Ran ran = RunTool({"plan", "--model=glm-5.2", "--weights=bf16,int4", "--kv=fp8"});
  EXPECT_THAT(ran.out, HasSubstr("doesn't fit"));
}

TEST(PlanVerb, FlagsAloneMakeAModel) {
  const json object = PlanJson({"--layers=80", "--kv_heads=8", "--head_dim=128", "--params=70.6B",
                                "--weights=fp8", "--kv=fp8", "--gpus=4", "--gpu_memory=80GB",
                                "--utilisation=0.9", "--page_size=16", "--rows=128"});
  const json& row = object["rows"][0];
  EXPECT_EQ(row["kv_bytes_per_token"], 80 * 2 * 2 * 128);
  EXPECT_EQ(row["weight_bytes"], 70'600'000'000 + 4 * ((70'600'000'000 + 16383) / 16384));
  EXPECT_EQ(row["tokens"], (row["pages"].get<uint64_t>() - 1) * 16);
  const json latent = PlanJson({"--layers=61", "--kv_lora_rank=512", "--rope_dim=64",
                                "--params=1.03T", "--expert_params=1.01T", "--weights=int4"});
  EXPECT_EQ(latent["rows"][0]["kv_bytes_per_token"], 61 * 576 * 2);
}

TEST(PlanVerb, FlagsStandAboveTheFile) {
  const Scratch scratch;
  const std::string file =
      scratch.Write("my-model.json",
                    R"({"num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
          "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})");
  const std::string model = "--model=" + scratch.Path("my-model.json");
  const json plain = PlanJson({model, "--kv=fp8", "--gpus=1"})["rows"][0];
  EXPECT_EQ(plain["model"], "my-model");
  EXPECT_EQ(plain["kv_bytes_per_token"], 32 * 2 * 8 * 128);
  const json fewer = PlanJson({model, "--kv=fp8", "--gpus=1", "--layers=8"})["rows"][0];
  EXPECT_EQ(fewer["kv_bytes_per_token"], 8 * 2 * 8 * 128);
  EXPECT_EQ(fewer["weight_bytes"], plain["weight_bytes"]) << "the other layers have weights still";
}

TEST(PlanVerb, SharingAndPageSizeAreTheFencesPrice) {
  const auto fence = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--model=kimi-k2.6", "--kv=fp8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return PlanJson(arguments)["rows"][0];
  };
  const json coarse = fence({"--page_size=64"}), fine = fence({"--page_size=1"});
  EXPECT_LT(coarse["fence_bytes"].get<uint64_t>(), 2'000'000u);
  EXPECT_GT(fine["fence_bytes"].get<uint64_t>(), 40'000'000u);
  EXPECT_LT(fine["tokens"].get<uint64_t>(), coarse["tokens"].get<uint64_t>());
  const json shared = fence({"--page_size=1", "--sharing=3"});
  EXPECT_EQ(shared["fence_bytes"].get<uint64_t>(),
            shared["pages"].get<uint64_t>() * 16 * 4 + 256 * 64 * 16);
}

TEST(PlanVerb, MistakesNameTheFlagAndWhatWasExpected) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"--gpus=0", "--gpus must be 1..65536, got 0"},
      {"--gpus=-1", "--gpus must be 1..65536, got -1"},
      {"--gpus=eight", "--gpus: 'eight' isn't valid"},
      {"--gpu_memory=141", "no KV cache fits"},
      {"--gpu_memory=141gigs", "--gpu_memory must be a size such as 141GB"},
      {"--gpu_memory=-4GB", "--gpu_memory must be a size"},
      {"--gpu_memory=0", "--gpu_memory must be a size"},
      {"--reserve=much", "--reserve must be a size"},
      {"--reserve=120GB", "no KV cache fits"},
      {"--reserve=140GB", "expected more than 0"},
      {"--utilisation=0", "--utilisation must be above 0 and at most 1"},
      {"--utilisation=1.2", "--utilisation must be above 0 and at most 1"},
      {"--utilisation=nan", "--utilisation must be above 0 and at most 1"},
      {"--page_size=0", "--page_size must be 1..16383, got 0"},
      {"--page_size=16384", "--page_size must be 1..16383, got 16384"},
      {"--rows=0", "--rows must be 1..65536, got 0"},
      {"--sharing=0.5", "--sharing must be 1 to 1048576"},
      {"--weights=fp4", "--weights needs a model"},
      {"--kv=fp8", "--kv needs a model"},
      {"--layer=8", "did you mean '--layers'?"},
      {"--layers=8", "--kv_heads and --head_dim (or --kv_lora_rank and --rope_dim) is missing"},
      {"--params=70B", "--layers is missing"},
      {"--model=kimi", "did you mean 'kimi-k2.6'?"},
      {"kimi-k2.6", "takes no words, got 'kimi-k2.6'"},
  };
  for (const auto& [argument, says] : mistakes) {
    SCOPED_TRACE(argument);
    EXPECT_THAT(Refused({argument}), HasSubstr(says));
  }
  const std::string model = "--model=glm-5.2";
  EXPECT_THAT(Refused({model, "--weights=fp4"}), HasSubstr("--weights must be bf16, fp8, int4"));
  EXPECT_THAT(Refused({model, "--kv=int8"}), HasSubstr("--kv must be bf16 or fp8, got 'int8'"));
  EXPECT_THAT(Refused({model, "--layers=0"}), HasSubstr("--layers must be 1..4096, got 0"));
  EXPECT_THAT(Refused({model, "--params=lots"}), HasSubstr("--params must be a count such as"));
  EXPECT_THAT(Refused({model, "--params=1B"}), HasSubstr("--params: 1000000000 is less than"));
  EXPECT_THAT(Refused({model, "--kv_lora_rank=512", "--kv_heads=8"}),
              HasSubstr("give one of both"));
  EXPECT_THAT(Refused({"--layers=80", "--kv_heads=8", "--params=7B"}),
              HasSubstr("--head_dim is missing"));
  EXPECT_THAT(Refused({"--layers=1", "--kv_heads=1", "--head_dim=1", "--params=1", "--kv=fp8",
                       "--gpu_memory=40TB", "--page_size=1"}),
              HasSubstr("--page_size=1 makes more pages than 32 bits can number"));
}

TEST(PlanVerb, SaysHowManyGpusItTakes) {
  const std::string words = Refused({"--model=glm-5.2", "--weights=bf16"});
  EXPECT_THAT(words, HasSubstr("weights in bf16 take 175.4 GiB of each GPU"));
  EXPECT_THAT(words, HasSubstr("expected --gpus of at least 13"));
  EXPECT_GT(PlanJson({"--model=glm-5.2", "--weights=bf16", "--gpus=13"})["rows"][0]["tokens"], 0);
}

TEST(PlanVerb, AModelFilesMistakeNamesFileAndKey) {
  const Scratch scratch;
  scratch.Write("config.json", R"({"num_hidden_layers": "many"})");
  const std::string words = Refused({"--model=" + scratch.Path("")});
  EXPECT_THAT(words, HasSubstr("config.json: key 'num_hidden_layers': expected an integer"));
}

TEST(PlanConfig, ReadsSizesAndCounts) {
  EXPECT_EQ(ParseBytes("141GB"), 141'000'000'000u);
  EXPECT_EQ(ParseBytes("80 GiB"), uint64_t{80} << 30);
  EXPECT_EQ(ParseBytes("0.5TiB"), uint64_t{1} << 39);
  EXPECT_EQ(ParseBytes("1024"), 1024u);
  EXPECT_EQ(ParseCount("1.03T"), 1'030'000'000'000u);
  EXPECT_EQ(ParseCount("671e9"), 671'000'000'000u);
  for (const char* text : {"", "GB", "1.5.2GB", "1gb", "-1", "1e30", "nan", "inf", "12 GB x"}) {
    EXPECT_FALSE(ParseBytes(text)) << text;
    EXPECT_FALSE(ParseCount(text)) << text;
  }
}

}  // namespace
}  // namespace kvfence::tools
