// The answer of a build without nvcc.
#include "kvfence/attention.h"

#include "unavailable.h"

namespace kvfence {

Status DecodeAttentionCuda(const DecodeAttention&, void*) { return Unavailable(); }
Status DecodeAttentionCuda(const MlaDecodeAttention&, void*) { return Unavailable(); }

}  // namespace kvfence
