// A decode step on a GPU with the fence and without: what its launches add.
//
// Idea: four arms take turns in each round: with and without, launched one by one and replayed as a
// graph. What is added is the median over the rounds of "with, less without" in the same round, so
// that drift of clocks and neighbours meets both alike. Attention stands between validate and
// confirm as it does in an engine, so confirm finds nothing in the L2, and what the fence leaves
// there is part of the difference.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <vector>

#include "gpu_attention.h"
#include "gpu_batch.h"
#include "gpu_measure.h"
#include "resampling.h"

namespace kvfence {
namespace {

constexpr double kShareOfMemory = 0.8;
constexpr uint32_t kHostCalls = 200;

// Microseconds that the host needs for the copy and the three calls, the stream being empty.
double HostUs(const DeviceBatch& batch, Gpu* gpu) {
  std::vector<double> times;
  for (uint32_t i = 0; i < kHostCalls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    batch.Bring(gpu->stream());
    batch.Launches(gpu->stream());
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
    gpu->Wait();
  }
  return MedianInPlace(times);
}

Json Compared(const std::vector<double>& with, const std::vector<double>& without) {
  const auto figures = [&](const std::vector<size_t>& picks) {
    std::vector<double> added;
    std::vector<double> base;
    for (const size_t round : picks) {
      added.push_back(with[round] - without[round]);
      base.push_back(without[round]);
    }
    return std::array<double, 2>{MedianInPlace(added), MedianInPlace(base)};
  };
  const auto found = Resampled<2>(with.size(), 1000, Rng(1), figures);
  const double base = found[1].value;
  return {{"without_us", Hundredths(base)},
          {"with_us", Hundredths(Median(with))},
          {"added_us", Hundredths(found[0].value)},
          {"added_us_low", Hundredths(found[0].low)},
          {"added_us_high", Hundredths(found[0].high)},
          {"added_percent", std::round(1e4 * 100 * found[0].value / base) / 1e4}};
}

}  // namespace

Json MeasureStep(uint32_t page_size, uint32_t layers, Gpu* gpu) {
  const AttentionShape shape = MlaShape(16, KvType::kE4m3, page_size);
  DeviceArrays memory;
  DeviceBatch batch(ShapeOfTokens(uint64_t{kGpuRows} * kGpuContext, page_size, 1), &memory);
  const auto fit = static_cast<uint64_t>(static_cast<double>(gpu->FreeBytes()) * kShareOfMemory) /
                   DeviceAttention::CacheBytes(shape, batch.pages());
  const auto caches = static_cast<uint32_t>(std::clamp<uint64_t>(fit, 1, layers));
  const DeviceAttention attention(shape, batch, caches, gpu, &memory);
  const Work without = [&](cudaStream_t stream) {
    for (uint32_t layer = 0; layer < layers; ++layer) attention.Launch(layer, stream);
  };
  const Work with = [&](cudaStream_t stream) {
    batch.Bring(stream);
    batch.Apply(stream);
    batch.Validate(stream);
    without(stream);
    batch.Confirm(stream);
  };
  with(gpu->stream());  // so that all kernels are loaded before a capture
  gpu->Wait();
  const auto times = gpu->InTurnsUs({with, without, gpu->Captured(with), gpu->Captured(without)});
  batch.MustBeClean();
  attention.MustMakeSense();
  Json row = ShapeToJson(batch.shape());
  row["layers"] = layers;
  row["caches"] = caches;
  row["launched"] = Compared(times[0], times[1]);
  row["graph"] = Compared(times[2], times[3]);
  row["host_us"] = Hundredths(HostUs(batch, gpu));
  batch.MustBeClean();
  const GpuModel model = ModelOf(*gpu);
  row["attention_floor_us"] = Hundredths(layers * AttentionFloorUs(shape, model));
  row["predicted_us"] = ToJson(PredictPass(batch.shape(), model, Submitted::kLaunched));
  row["predicted_graph_us"] = ToJson(PredictPass(batch.shape(), model, Submitted::kGraph));
  return row;
}

}  // namespace kvfence
