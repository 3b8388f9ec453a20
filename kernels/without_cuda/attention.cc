// The answer of a build without nvcc.
#include "kvfence/attention.h"

#include "kvfence/backend.h"

namespace kvfence {
namespace {

Status Unavailable() {
  std::string why;
  CudaAvailable(&why);
  return Status(StatusCode::kUnavailable, why);
}

}  // namespace

Status DecodeAttentionCuda(const DecodeAttention&, void*) { return Unavailable(); }
Status DecodeAttentionCuda(const MlaDecodeAttention&, void*) { return Unavailable(); }

}  // namespace kvfence
