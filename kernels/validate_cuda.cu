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

// One launch over so many items; `what` names it in errors.
template <class Kernel, class... Args>
Status LaunchOver(uint64_t items, const char* what, void* stream, Kernel kernel,
                  const Args&... args) {
  unsigned most = 0;
  if (const cudaError_t error = MostBlocks(&most); error != cudaSuccess) {
    return FromCuda(error, what);
  }
  KVF_LAUNCH(kernel, fence::FenceBlocks(items, most), fence::kFenceThreads, 0,
             static_cast<cudaStream_t>(stream), args...);
  return FromCuda(cudaGetLastError(), what);
}

}  // namespace

Status ApplyCuda(const GateView& gate, const ApplyItem* items, uint64_t count, void* stream) {
  if (count == 0) return Status();
  return LaunchOver(count, "apply", stream, fence::ApplyKernel, gate, items, count);
}

Status ValidateCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                    void* stream) {
  if (step.group_count == 0) {
    if (step.row_count == 0) return Status();
    return Status::Invalid("validate: rows without a group");
  }
  return LaunchOver(fence::FenceItems(step), "validate", stream, fence::ValidateKernel, gate, step,
                    scratch);
}

Status ConfirmCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                   void* stream) {
  if (step.row_count == 0) return Status();
  return LaunchOver(fence::FenceItems(step), "confirm", stream, fence::ConfirmKernel, gate, step,
                    scratch, ConfirmPart::kBoth);
}

}  // namespace kvfence
