// Stands in for validate_cuda.cu where there is no CUDA compiler: every launch is refused.
#include "kvfence/validate.h"

namespace kvfence {
namespace {
Status NoCuda() { return Status(StatusCode::kUnavailable, "built without CUDA"); }
}  // namespace

Status ApplyCuda(const GateView&, const ApplyItem*, uint64_t, void*) { return NoCuda(); }
Status ValidateCuda(const GateView&, const StepView&, const StepScratch&, void*) {
  return NoCuda();
}
Status ConfirmCuda(const GateView&, const StepView&, const StepScratch&, void*) { return NoCuda(); }

}  // namespace kvfence
