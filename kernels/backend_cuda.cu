// Asks the CUDA runtime for a device.
#include <cuda_runtime_api.h>

#include "kvfence/backend.h"

namespace kvfence {

bool CudaAvailable(std::string* why) {
  int devices = 0;  // left unwritten when the call fails
  const cudaError_t error = cudaGetDeviceCount(&devices);
  cudaGetLastError();  // no driver is an answer here, not an error for a later call to find
  if (error == cudaSuccess && devices > 0) return true;
  if (why != nullptr) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    *why = driver == 0            ? "no CUDA driver on this machine"
           : error == cudaSuccess ? "no CUDA device"
                                  : cudaGetErrorString(error);
  }
  return false;
}

}  // namespace kvfence
