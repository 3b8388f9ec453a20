// The answer of a build without nvcc.
#include "kvfence/kv_pages.h"

#include "unavailable.h"

namespace kvfence {

Status AppendPagedKvCacheCuda(const KvAppend&, void*) { return Unavailable(); }
Status HandOffPagesCuda(const KvHandOff&, void*) { return Unavailable(); }
Status PageChecksumsCuda(const KvChecksums&, void*) { return Unavailable(); }

}  // namespace kvfence
