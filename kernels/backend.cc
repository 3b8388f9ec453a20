// The list of backends; CudaAvailable is in backend_cuda.cu or without_cuda/backend.cc.
#include "kvfence/backend.h"

namespace kvfence {

std::vector<Backend> AvailableBackends() {
  std::vector<Backend> backends = {Backend::kCpu};
  if (CudaAvailable(nullptr)) backends.push_back(Backend::kCuda);
  return backends;
}

}  // namespace kvfence
