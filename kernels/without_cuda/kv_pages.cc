// The answer of a build without nvcc.
#include "kvfence/kv_pages.h"

#include "kvfence/backend.h"

namespace kvfence {
namespace {

Status Unavailable() {
  std::string why;
  CudaAvailable(&why);
  return Status(StatusCode::kUnavailable, why);
}

}  // namespace

Status AppendPagedKvCacheCuda(const KvAppend&, void*) { return Unavailable(); }
Status HandOffPagesCuda(const KvHandOff&, void*) { return Unavailable(); }
Status PageChecksumsCuda(const KvChecksums&, void*) { return Unavailable(); }

}  // namespace kvfence
