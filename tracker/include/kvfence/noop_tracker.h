// The seam between an engine and the fence: the Tracker concept and the no-op tracker.
//
// An engine is a template over its tracker. With NoopTracker every hook is an empty inline function
// of an empty type: the compiled engine is the one without hooks. SwitchedTracker (integration) has
// the same hooks in front of a fence that may be absent, so no engine code differs. An engine calls
// each hook behind KVF_IF_HEARD.
#pragma once

#include <concepts>
#include <type_traits>

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
#define KVF_FOR_EACH_HOOK(X)                                                                 \
  X(Alloc)                                                                                   \
  X(Share)                                                                                   \
  X(Fork)                                                                                    \
  X(Cow) X(Trim) X(Drop) X(Release) X(Free) X(Publish) X(Unpublish) X(Pin) X(Unpin) X(Ready) \
      X(BindRow) X(Audit) X(Write) X(Read) X(Scale) X(Rescale) X(Copy) X(Step) X(Confirm)

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

// Is there a fence behind the tracker? One whose fence may be absent says so by on().
template <class T>
bool Listens(const T& tracker) {
  if constexpr (requires { tracker.on(); }) {
    return tracker.on();
  } else {
    return T::kTracks;
  }
}

// Stands in front of each statement that calls a hook: `KVF_IF_HEARD (tracker) tracker.Free(...);`.
// With NoopTracker there's no such statement (I-141); with a fence that is absent it's one branch,
// in front of all that the event is made of (I-142).
#define KVF_IF_HEARD(tracker)                                    \
  if constexpr (std::remove_cvref_t<decltype(tracker)>::kTracks) \
    if (::kvfence::Listens(tracker))

}  // namespace kvfence
