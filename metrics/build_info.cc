// The revision comes from a header written at every build (revision.cmake), so that it can't go
// stale between configurations; only this file is compiled again when it changes.
#include "kvfence/build_info.h"

#include "kvfence_revision.h"

namespace kvfence {

const BuildInfo& ThisBuild() {
  static constexpr BuildInfo kBuild{KVFENCE_VERSION, KVFENCE_CUDA_VERSION, KVFENCE_REVISION};
  return kBuild;
}

}  // namespace kvfence
