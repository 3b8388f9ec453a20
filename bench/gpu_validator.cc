// The fence's launches on a GPU by themselves.
//
// Idea: by itself a launch is timed between two events of one stream, which costs it the gap to its
// neighbours; all together stand between two, behind the pass's copy. Cold: behind a read that
// emptied the L2, as after attention. Warm: many passes in a row, as fast as a device can repeat
// them. The copy beside moves as many bytes as the formula counts for validate.
#include "gpu_batch.h"
#include "gpu_measure.h"

namespace kvfence {
namespace {

constexpr uint32_t kWarmPasses = 20;

double Ratio(double measured, const PredictedTime& predicted) {
  return Hundredths(measured / predicted.Expected());
}

}  // namespace

GpuModel ModelOf(const Gpu& gpu) {
  GpuModel model{};
  model.name = gpu.properties().name;
  model.multiprocessors = static_cast<uint32_t>(gpu.properties().multiProcessorCount);
  model.tb_per_s = gpu.copy_gb_per_s / 1000;
  model.l2_mb = gpu.properties().l2CacheSize / 1e6;
  model.launch_us = gpu.launch_us;
  model.node_us = gpu.node_us;
  return model;
}

Json MeasureValidator(const BatchShape& shape, Gpu* gpu) {
  DeviceArrays memory;
  DeviceBatch batch(shape, &memory);
  const Work apply = [&](cudaStream_t stream) { batch.Apply(stream); };
  const Work validate = [&](cudaStream_t stream) { batch.Validate(stream); };
  const Work confirm = [&](cudaStream_t stream) { batch.Confirm(stream); };
  const Work bring = [&](cudaStream_t stream) { batch.Bring(stream); };
  const Work all = [&](cudaStream_t stream) { batch.Launches(stream); };
  const Work pass = [&](cudaStream_t stream) {
    batch.Bring(stream);
    batch.Launches(stream);
  };
  const std::vector<double> parts = gpu->PartsUs({bring, apply, validate, confirm});
  batch.MustBeClean();
  const double together = gpu->PartsUs({bring, all})[1];
  batch.MustBeClean();
  const double graph = gpu->PartsUs({bring, gpu->Captured(all)})[1];
  batch.MustBeClean();
  const double warm = gpu->WarmUs(pass, kWarmPasses);
  batch.MustBeClean();
  const GpuModel model = ModelOf(*gpu);
  const uint64_t bytes = ValidateBytes(shape, model.L2Bytes()).Total();
  Json row = ShapeToJson(shape);
  row["copy_us"] = Hundredths(parts[0]);
  row["apply_us"] = Hundredths(parts[1]);
  row["validate_us"] = Hundredths(parts[2]);
  row["confirm_us"] = Hundredths(parts[3]);
  row["all_us"] = Hundredths(together);
  row["all_graph_us"] = Hundredths(graph);
  row["all_warm_us"] = Hundredths(warm);
  row["validate_bytes"] = bytes;
  row["copy_of_bytes_us"] = Hundredths(gpu->CopyUs(bytes));
  row["predicted"] = PredictedLaunches(shape, model);
  row["validate_to_predicted"] =
      Ratio(parts[2], PredictValidate(shape, model, Submitted::kLaunched));
  row["all_to_predicted"] = Ratio(together, PredictFence(shape, model, Submitted::kLaunched));
  return row;
}

}  // namespace kvfence
