// Launches the decode attention kernel on a device; the kernel stands in attention_cuda.cuh.
#include <cuda_runtime_api.h>

#include "attention_cuda.cuh"

namespace kvfence {

Status DecodeAttentionCuda(const DecodeAttention& args, void* stream) {
  if (Status status = CheckDecodeAttention(args); !status.ok()) return status;
  if (args.rows == 0) return Status();
  attention::LaunchDecodeAttention(args, static_cast<cudaStream_t>(stream));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    return Status(StatusCode::kUnavailable, cudaGetErrorString(error));
  }
  return Status();
}

}  // namespace kvfence
