// Launchers of the fence's three kernels.
//
// Idea: the grid follows the amount of work; scratch is zeroed by memset nodes in stream order,
// arrays that lie side by side by one of them. Nothing synchronises or allocates, so all of it can
// be captured into a CUDA graph. A replayed graph repeats its arguments: an engine that replays has
// to update the kernel nodes' parameters with each step's StepView.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "kvfence/validate.h"
#include "validate_cuda.cuh"

namespace kvfence {
namespace {

Status FromCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return Status();
  return Status(StatusCode::kUnavailable, std::string(what) + ": " + cudaGetErrorString(error));
}

struct Bytes {
  uintptr_t begin;
  size_t size;
};

// Zeroes what validate counts in; neighbours in memory share one memset.
cudaError_t ZeroScratch(const StepView& step, const StepScratch& scratch, cudaStream_t stream) {
  const auto bytes = [](auto* data, uint64_t count) {
    return Bytes{reinterpret_cast<uintptr_t>(data), count * sizeof(*data)};
  };
  std::array<Bytes, 6> parts = {
      bytes(scratch.verdicts, step.row_count),     bytes(scratch.row_reasons, step.row_count),
      bytes(scratch.group_done, step.group_count), bytes(scratch.group_failed, step.group_count),
      bytes(scratch.counters, kCounters),          bytes(scratch.finding_count, 1)};
  std::sort(parts.begin(), parts.end(),
            [](const Bytes& a, const Bytes& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < parts.size();) {
    Bytes run = parts[i++];
    while (i < parts.size() && run.begin + run.size == parts[i].begin) run.size += parts[i++].size;
    if (run.size == 0) continue;
    const cudaError_t error =
        cudaMemsetAsync(reinterpret_cast<void*>(run.begin), 0, run.size, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

Status ApplyCuda(const GateView& gate, const ApplyItem* items, uint64_t count, void* stream) {
  if (count == 0) return Status();
  const auto on = static_cast<cudaStream_t>(stream);
  KVF_LAUNCH(fence::ApplyKernel, fence::FenceBlocks(count), fence::kFenceThreads, 0, on, gate,
             items, count);
  return FromCuda(cudaGetLastError(), "apply");
}

Status ValidateCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                    void* stream) {
  if (step.group_count == 0) {
    if (step.row_count == 0) return Status();
    return Status::Invalid("validate: rows without a group");
  }
  const auto on = static_cast<cudaStream_t>(stream);
  const cudaError_t zeroed = ZeroScratch(step, scratch, on);
  if (zeroed != cudaSuccess) return FromCuda(zeroed, "validate");
  KVF_LAUNCH(fence::ValidateKernel, fence::FenceBlocks(fence::FenceItems(step)),
             fence::kFenceThreads, 0, on, gate, step, scratch);
  return FromCuda(cudaGetLastError(), "validate");
}

Status ConfirmCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                   void* stream) {
  if (step.row_count == 0) return Status();
  const auto on = static_cast<cudaStream_t>(stream);
  KVF_LAUNCH(fence::ConfirmKernel, fence::FenceBlocks(fence::FenceItems(step)),
             fence::kFenceThreads, 0, on, gate, step, scratch, ConfirmPart::kBoth);
  return FromCuda(cudaGetLastError(), "confirm");
}

}  // namespace kvfence
