// The seam between an engine and the fence: the Tracker concept and the no-op tracker.
//
// An engine is a template over its tracker. With NoopTracker every hook is an empty inline function
// of an empty type: the compiled engine is the one without hooks. SwitchedTracker (integration) has
// the same hooks in front of a fence that may be absent, so no engine code differs.
#pragma once

#include <concepts>

#include "kvfence/event.h"
#include "kvfence/settlement.h"
#include "kvfence/status.h"

namespace kvfence {

// What each hook takes is an event of the event language; what it gives back is the engine's to
// obey: Retire tells which rows may be published.
template <class T>
concept Tracker = requires(T t, const AllocEvent& alloc, const StepEvent& step,
                           const RetireEvent& retire) {
  { T::kTracks } -> std::convertible_to<bool>;
  t.Alloc(alloc);
  t.Step(step);
  { t.Retire(retire) } -> std::same_as<Result<Settlement>>;
};

// One list of the hooks, so that both trackers have all of them.
#define KVF_FOR_EACH_HOOK(X)                                                                \
  X(Alloc)                                                                                  \
  X(Share)                                                                                  \
  X(Fork) X(Cow) X(Trim) X(Drop) X(Release) X(Free) X(Publish) X(Unpublish) X(Pin) X(Unpin) \
      X(Ready) X(BindRow) X(Audit) X(Write) X(Read) X(Scale) X(Rescale) X(Copy) X(Step) X(Confirm)

struct NoopTracker {
  static constexpr bool kTracks = false;
  RequestId Admit(const AdmitEvent& event) { return RequestId(event.name, 1); }
#define KVF_NOOP_HOOK(verb) \
  void verb(const verb##Event&) {}
  KVF_FOR_EACH_HOOK(KVF_NOOP_HOOK)
#undef KVF_NOOP_HOOK
  Result<Settlement> Retire(const RetireEvent& event) { return Settlement{.step = event.step}; }
};
static_assert(Tracker<NoopTracker>);

}  // namespace kvfence
