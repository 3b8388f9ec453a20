// Launches the decode attention kernels on a device; they stand in attention_cuda.cuh.
#include <cuda_runtime_api.h>

#include "attention_cuda.cuh"

namespace kvfence {
namespace {

template <class Attention>
Status Launch(const Attention& args, void* stream) {
  if (Status status = CheckDecodeAttention(args); !status.ok()) return status;
  attention::LaunchDecodeAttention(attention::ProblemOf(args), static_cast<cudaStream_t>(stream));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    return Status(StatusCode::kUnavailable, cudaGetErrorString(error));
  }
  return Status();
}

}  // namespace

Status DecodeAttentionCuda(const DecodeAttention& args, void* stream) {
  return Launch(args, stream);
}
Status DecodeAttentionCuda(const MlaDecodeAttention& args, void* stream) {
  return Launch(args, stream);
}

}  // namespace kvfence
