// SwitchedTracker: the run-time switch, a fence that may be absent.
//
// With a null fence each hook is one predictable branch: no launches, no device memory.
#pragma once

#include "kvfence/fence.h"
#include "kvfence/noop_tracker.h"

namespace kvfence {

// A fence that may be absent. Refusals stop the process: an engine that calls the fence with words
// it doesn't understand is not protected, and must not believe it is (I-9).
class SwitchedTracker {
 public:
  static constexpr bool kTracks = true;
  explicit SwitchedTracker(Fence* fence) : fence_(fence) {}
  bool on() const { return fence_ != nullptr; }
  Fence* fence() const { return fence_; }

  RequestId Admit(const AdmitEvent& event) {
    return fence_ ? fence_->Admit(event) : RequestId(event.name, 1);
  }
#define KVF_SWITCHED_HOOK(verb)                     \
  void verb(const verb##Event& event) {             \
    if (fence_) Demand(fence_->verb(event), #verb); \
  }
  KVF_FOR_EACH_HOOK(KVF_SWITCHED_HOOK)
#undef KVF_SWITCHED_HOOK
  Result<Settlement> Retire(const RetireEvent& event) {
    return fence_ ? fence_->Retire(event) : Result<Settlement>(Settlement{.step = event.step});
  }

 private:
  static void Demand(const Status& status, const char* verb) {
    if (!status.ok()) CheckFailed(verb, 0, status.message().c_str(), "the fence refused a call");
  }
  Fence* fence_;
};
static_assert(Tracker<SwitchedTracker>);

}  // namespace kvfence
