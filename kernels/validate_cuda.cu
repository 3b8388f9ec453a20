// Launchers of the fence's three kernels.
//
// Idea: the grid follows the amount of work, up to what the device holds at once. Each call is one
// launch and nothing else: nothing synchronises, allocates or clears, so all of it can be captured
// into a CUDA graph. A replayed graph repeats its arguments: an engine that replays has to update
// the kernel nodes' parameters with each step's StepView.
#include <cuda_runtime.h>

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

// Blocks that the device has room for at once: more would only open their rows anew.
cudaError_t MostBlocks(unsigned* most) {
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  *most = static_cast<unsigned>(multiprocessors) * fence::kFenceBlocksAtOnce;
  return error;
}

}  // namespace

Status ApplyCuda(const GateView& gate, const ApplyItem* items, uint64_t count, void* stream) {
  if (count == 0) return Status();
  const auto on = static_cast<cudaStream_t>(stream);
  unsigned most = 0;
  if (const cudaError_t error = MostBlocks(&most); error != cudaSuccess) {
    return FromCuda(error, "apply");
  }
  KVF_LAUNCH(fence::ApplyKernel, fence::FenceBlocks(count, most), fence::kFenceThreads, 0, on, gate,
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
  unsigned most = 0;
  if (const cudaError_t error = MostBlocks(&most); error != cudaSuccess) {
    return FromCuda(error, "validate");
  }
  KVF_LAUNCH(fence::ValidateKernel, fence::FenceBlocks(fence::FenceItems(step), most),
             fence::kFenceThreads, 0, on, gate, step, scratch);
  return FromCuda(cudaGetLastError(), "validate");
}

Status ConfirmCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                   void* stream) {
  if (step.row_count == 0) return Status();
  const auto on = static_cast<cudaStream_t>(stream);
  unsigned most = 0;
  if (const cudaError_t error = MostBlocks(&most); error != cudaSuccess) {
    return FromCuda(error, "confirm");
  }
  KVF_LAUNCH(fence::ConfirmKernel, fence::FenceBlocks(fence::FenceItems(step), most),
             fence::kFenceThreads, 0, on, gate, step, scratch, ConfirmPart::kBoth);
  return FromCuda(cudaGetLastError(), "confirm");
}

}  // namespace kvfence
