// The answer of a build without nvcc.
#include "kvfence/attention.h"

#include "kvfence/backend.h"

namespace kvfence {

Status DecodeAttentionCuda(const DecodeAttention&, void*) {
  std::string why;
  CudaAvailable(&why);
  return Status(StatusCode::kUnavailable, why);
}

}  // namespace kvfence
