// Launches append, hand-off and checksums on a device; the kernels stand in kv_pages_cuda.cuh.
#include <cuda_runtime_api.h>

#include "kv_pages_cuda.cuh"

namespace kvfence {
namespace {

Status LaunchStatus() {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    return Status(StatusCode::kUnavailable, cudaGetErrorString(error));
  }
  return Status();
}

}  // namespace

Status AppendPagedKvCacheCuda(const KvAppend& append, void* stream) {
  if (Status status = CheckKvAppend(append); !status.ok()) return status;
  pages::LaunchAppend(append, static_cast<cudaStream_t>(stream));
  return LaunchStatus();
}
Status HandOffPagesCuda(const KvHandOff& hand_off, void* stream) {
  if (Status status = CheckKvHandOff(hand_off); !status.ok()) return status;
  pages::LaunchHandOff(hand_off, static_cast<cudaStream_t>(stream));
  return LaunchStatus();
}
Status PageChecksumsCuda(const KvChecksums& checksums, void* stream) {
  if (Status status = CheckKvChecksums(checksums); !status.ok()) return status;
  pages::LaunchChecksums(checksums, static_cast<cudaStream_t>(stream));
  return LaunchStatus();
}

}  // namespace kvfence
