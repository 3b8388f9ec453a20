// The answer of a build without nvcc.
#include "kvfence/backend.h"

namespace kvfence {

bool CudaAvailable(std::string* why) {
  if (why != nullptr) *why = "this build has no CUDA backend (no nvcc when it was configured)";
  return false;
}

}  // namespace kvfence
