// What a launch answers in a build without nvcc: the reason that CudaAvailable gives.
#pragma once

#include <string>

#include "kvfence/backend.h"
#include "kvfence/status.h"

namespace kvfence {

inline Status Unavailable() {
  std::string why;
  CudaAvailable(&why);
  return Status(StatusCode::kUnavailable, why);
}

}  // namespace kvfence
