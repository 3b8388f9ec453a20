// The predictions of gpu_prediction.h as JSON, for gpu_prediction, gpu_bench and their tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "gpu_prediction.h"

namespace kvfence {

using Json = nlohmann::ordered_json;

inline double Hundredths(double value) { return std::round(value * 100) / 100; }

inline Json ToJson(const PredictedTime& time) {
  return {{"launches", Hundredths(time.launch_us)},
          {"bytes", Hundredths(time.bytes_us)},
          {"floor", Hundredths(time.Floor())},
          {"expected", Hundredths(time.Expected())}};
}

inline Json ToJson(const LaunchBytes& bytes) {
  return {{"entries", bytes.entries}, {"expectations", bytes.expectations},
          {"records", bytes.records}, {"rows", bytes.rows},
          {"stores", bytes.stores},   {"total", bytes.Total()}};
}

inline Json ShapeToJson(const BatchShape& shape) {
  return {{"page_size", shape.page_size},
          {"sharing", shape.sharing},
          {"tokens", shape.Entries() * shape.page_size},
          {"entries", shape.Entries()},
          {"pages", shape.Pages()}};
}

inline Json PredictedLaunches(const BatchShape& shape, const GpuModel& gpu) {
  return {{"apply_us", ToJson(PredictApply(shape, gpu, Submitted::kLaunched))},
          {"validate_us", ToJson(PredictValidate(shape, gpu, Submitted::kLaunched))},
          {"confirm_us", ToJson(PredictConfirm(shape, gpu, Submitted::kLaunched))},
          {"all_us", ToJson(PredictFence(shape, gpu, Submitted::kLaunched))},
          {"all_graph_us", ToJson(PredictFence(shape, gpu, Submitted::kGraph))}};
}

inline Json PredictedValidator(const BatchShape& shape, const GpuModel& gpu) {
  Json row = ShapeToJson(shape);
  row["apply_bytes"] = ToJson(ApplyBytes(shape));
  row["validate_bytes"] = ToJson(ValidateBytes(shape, gpu.L2Bytes()));
  row["confirm_bytes"] = ToJson(ConfirmBytes(shape, gpu.L2Bytes()));
  row.update(PredictedLaunches(shape, gpu));
  return row;
}

inline Json PredictedAttention(const AttentionShape& shape, const GpuModel& gpu) {
  return {{"form", shape.Name()},
          {"kv_bytes", shape.KvBytes()},
          {"flops", shape.Flops()},
          {"floor_us", Hundredths(AttentionFloorUs(shape, gpu))},
          {"tensor_core_us", Hundredths(AttentionFlopsUs(shape, gpu))},
          {"own_tensor_core_us", Hundredths(OwnFlopsUs(shape, gpu))},
          {"own_kv_reads", KvReads(shape)}};
}

// A decode step of FP8 MLA with 16 heads in all layers.
inline Json PredictedStep(uint32_t page_size, const GpuModel& gpu) {
  const BatchShape shape = ShapeOfTokens(uint64_t{kGpuRows} * kGpuContext, page_size, 1);
  const double attention =
      kStepLayers * AttentionFloorUs(MlaShape(16, KvType::kE4m3, page_size), gpu);
  const PredictedTime launched = PredictPass(shape, gpu, Submitted::kLaunched);
  const PredictedTime graph = PredictPass(shape, gpu, Submitted::kGraph);
  Json row = ShapeToJson(shape);
  row["layers"] = kStepLayers;
  row["attention_floor_us"] = Hundredths(attention);
  row["added_us"] = ToJson(launched);
  row["added_graph_us"] = ToJson(graph);
  row["added_percent"] = Hundredths(100 * launched.Expected() / attention);
  row["added_graph_percent"] = Hundredths(100 * graph.Expected() / attention);
  return row;
}

inline Json PredictedOn(const GpuModel& gpu) {
  Json device = {{"device", gpu.name},
                 {"source", gpu.source},
                 {"multiprocessors", gpu.multiprocessors},
                 {"tb_per_s", gpu.tb_per_s},
                 {"l2_mb", gpu.l2_mb},
                 {"bf16_tflops", gpu.bf16_tflops},
                 {"assumed_launch_us", gpu.launch_us},
                 {"assumed_node_us", gpu.node_us}};
  for (const BatchShape& shape : ValidatorShapes()) {
    device["validator"].push_back(PredictedValidator(shape, gpu));
  }
  for (const AttentionShape& shape : AttentionShapes()) {
    if (shape.page_size == kGpuPageSizes[0]) {  // which the floor doesn't know
      device["attention"].push_back(PredictedAttention(shape, gpu));
    }
  }
  for (const uint32_t page_size : kGpuPageSizes) {
    device["step"].push_back(PredictedStep(page_size, gpu));
  }
  return device;
}

inline Json Predictions() {
  Json all = {
      {"measured", false}, {"assumed_memory_us", kMemoryUs}, {"assumed_cache_us", kCacheUs}};
  for (const GpuModel& gpu : kGpuModels) all["devices"].push_back(PredictedOn(gpu));
  return all;
}

}  // namespace kvfence
