// Tests of what is predicted for devices (bench/gpu_prediction.h): bytes counted by hand, times by
// the formula, and that the kept result and the table of docs/gpu.md are what the program says.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "bench/gpu_prediction_json.h"
#include "kernels/attention_mma.cuh"
#include "kernels/validate_cuda.cuh"

namespace kvfence {
namespace {

// 2 rows of 3 pages of 4 tokens.
BatchShape TwoRows(uint32_t sharing) {
  BatchShape shape;
  shape.rows = 2;
  shape.pages_per_row = 3;
  shape.page_size = 4;
  shape.tail = 3;
  shape.sharing = sharing;
  return shape;
}
constexpr uint64_t kAnyL2 = 1 << 20;

// What the formulas take from the kernels, whose headers a CUDA program can't include beside them.
static_assert(kFenceBlockThreads == fence::kFenceThreads);
static_assert(kFenceBlocksAtOnce == fence::kFenceBlocksAtOnce);
static_assert(kMmaHeads == attention::kMmaLines);
static_assert(kFewestMmaHeads == attention::kFewestMmaLines);

TEST(PredictedBytes, OfValidateByHand) {
  const LaunchBytes bytes = ValidateBytes(TwoRows(1), kAnyL2);
  EXPECT_EQ(bytes.entries, 6u * 4);
  EXPECT_EQ(bytes.expectations, 6u * 16);
  EXPECT_EQ(bytes.records, 6u * 16);
  // A row: its tasks 72 + 64, length 4, slot and pointer 12, binding 8, a chunk id 4; verdict,
  // reasons and its group's words 24, zeroed and written; a stamp noted.
  EXPECT_EQ(bytes.rows, 2u * (72 + 64 + 4 + 12 + 8 + 4 + 2 * 24 + 8));
  EXPECT_EQ(bytes.stores, 0u);
  EXPECT_EQ(bytes.Total(), 24u + 96 + 96 + 440);
}

TEST(PredictedBytes, OfConfirmAndApplyByHand) {
  const LaunchBytes confirm = ConfirmBytes(TwoRows(1), kAnyL2);
  EXPECT_EQ(confirm.rows, 2u * (164 + 8 + 4 + 16));
  EXPECT_EQ(confirm.stores, 2u * 32);
  EXPECT_EQ(confirm.Total(), 24u + 96 + 96 + 384 + 64);
  const LaunchBytes apply = ApplyBytes(TwoRows(1));
  EXPECT_EQ(apply.Total(), 2u * (3 * 32 + 32 + 40));
}

TEST(PredictedBytes, SharingSavesRecordsAndASmallCacheCostsSectors) {
  const LaunchBytes shared = ValidateBytes(TwoRows(2), kAnyL2);
  EXPECT_EQ(shared.records, 4u * 16);  // two pages in common, and each row's last
  EXPECT_EQ(shared.expectations, 6u * 16);
  EXPECT_EQ(ValidateBytes(TwoRows(2), 2 * 4 * 16 - 1).records, 6u * 32);
  EXPECT_EQ(ValidateBytes(TwoRows(2), 2 * 4 * 16).records, 4u * 16);
}

TEST(PredictedBytes, OfAttention) {
  EXPECT_EQ(MlaShape(16, KvType::kE4m3, 64).KvBytes(), 64ull * 8192 * 576);
  EXPECT_EQ(GqaShape(8, KvType::kBf16, 1).KvBytes(), 64ull * 8192 * 2 * 8 * 128 * 2);
  EXPECT_EQ(MlaShape(16, KvType::kE4m3, 64).Flops(), 64ull * 8192 * 16 * 2 * (512 + 512 + 64));
}

TEST(PredictedShapes, AreWholePagesOfAllTokens) {
  for (const BatchShape& shape : ValidatorShapes()) {
    const uint64_t tokens = shape.Entries() * shape.page_size;
    EXPECT_GE(tokens, kValidatorTokens);
    EXPECT_LT(tokens, kValidatorTokens + shape.rows * shape.page_size);
    EXPECT_EQ(shape.Before() + 1, uint64_t{shape.pages_per_row} * shape.page_size);
  }
}

TEST(PredictedTimes, AreLaunchesAndTheLongerOfBytesAndWaits) {
  GpuModel gpu = kGpuModels[0];
  gpu.launch_us = 2;
  gpu.node_us = 1;
  const BatchShape shape = TwoRows(1);
  const PredictedTime launched = PredictValidate(shape, gpu, Submitted::kLaunched);
  EXPECT_DOUBLE_EQ(launched.launch_us, 2);
  EXPECT_DOUBLE_EQ(launched.bytes_us, 656 / (gpu.tb_per_s * 1e6));
  // One block and one round: the task, found and opened (0.5 + 4 x 0.15), a page (0.15 + 2 x 0.5),
  // the end (0.6), the last block (1.2).
  EXPECT_NEAR(launched.waits_us, 1.1 + 1.15 + 0.6 + 1.2, 1e-9);
  EXPECT_DOUBLE_EQ(launched.Expected(), 2 + launched.waits_us);
  EXPECT_DOUBLE_EQ(launched.Floor(), 2 + launched.bytes_us);
  EXPECT_DOUBLE_EQ(PredictValidate(shape, gpu, Submitted::kGraph).launch_us, 1);
  const PredictedTime all = PredictFence(shape, gpu, Submitted::kLaunched);
  EXPECT_DOUBLE_EQ(all.launch_us, 6);
  EXPECT_DOUBLE_EQ(PredictPass(shape, gpu, Submitted::kLaunched).launch_us, 8);
  EXPECT_DOUBLE_EQ(all.Expected(), PredictApply(shape, gpu, Submitted::kLaunched).Expected() +
                                       launched.Expected() +
                                       PredictConfirm(shape, gpu, Submitted::kLaunched).Expected());
  gpu.tb_per_s = 1e-5;  // then bytes are the longer
  EXPECT_DOUBLE_EQ(PredictValidate(shape, gpu, Submitted::kLaunched).Expected(), 2 + 65.6);
}

// 16 heads at a time, padded, each query and weight twice.
TEST(PredictedTimes, OfTheKernelsOwnMultiplications) {
  const GpuModel& gpu = kGpuModels[0];
  const auto times = [&](const AttentionShape& shape) {
    return OwnFlopsUs(shape, gpu) / AttentionFlopsUs(shape, gpu);
  };
  EXPECT_DOUBLE_EQ(times(MlaShape(128, KvType::kE4m3, 64)), 2);
  EXPECT_DOUBLE_EQ(times(GqaShape(8, KvType::kE4m3, 64)), 4);
  EXPECT_DOUBLE_EQ(times(GqaShape(4, KvType::kE4m3, 64)), 8);
  EXPECT_DOUBLE_EQ(times(GqaShape(1, KvType::kE4m3, 64)), 0);
  EXPECT_EQ(KvReads(MlaShape(128, KvType::kE4m3, 64)), 8u);
  EXPECT_EQ(KvReads(MlaShape(16, KvType::kE4m3, 64)), 1u);
}

TEST(PredictedTimes, OfTheStepsAttentionAreTheKnownFloor) {
  const double us = 61 * AttentionFloorUs(MlaShape(16, KvType::kE4m3, 64), kGpuModels[0]);
  EXPECT_NEAR(us, 3840, 5);
}

std::string Read(const std::string& name) {
  std::ifstream file(std::string(KVFENCE_SOURCE_DIR) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(PredictedResults, AreKeptAsTheProgramSaysThem) {
  const Json kept = Json::parse(Read("bench/results/gpu_prediction.json"));
  EXPECT_TRUE(kept == Predictions()) << "gpu_prediction --json > bench/results/gpu_prediction.json";
}

TEST(PredictedResults, StandInTheDocs) {
  const std::string docs = Read("docs/gpu.md");
  const Json all = Predictions();
  const Json& device = all["devices"][0];
  for (const Json& row : device["validator"]) {
    char line[200];
    const auto number = [&](const char* launch, const char* kind) {
      return row[launch][kind].get<double>();
    };
    std::snprintf(
        line, sizeof line, "| %d | %dx | %.2f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |",
        row["page_size"].get<int>(), row["sharing"].get<int>(),
        row["validate_bytes"]["total"].get<double>() / 1e6, number("validate_us", "floor"),
        number("validate_us", "expected"), number("all_us", "floor"), number("all_us", "expected"),
        number("all_graph_us", "floor"), number("all_graph_us", "expected"));
    EXPECT_NE(docs.find(line), std::string::npos) << line;
  }
  for (const Json& row : device["attention"]) {
    char line[200];
    std::snprintf(line, sizeof line, "| %s | %.0f | %.1f | %.1f |",
                  row["form"].get<std::string>().c_str(), row["kv_bytes"].get<double>() / 1e6,
                  row["floor_us"].get<double>(), row["tensor_core_us"].get<double>());
    EXPECT_NE(docs.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace kvfence
