// The engine's fault hooks in a campaign: observes, and lets one injector put in a fault at a time.
//
// Idea: a fault is put in only when the one before is closed, so that what follows belongs to it.
// Invariant: the same seed and the same engine give the same faults (I-20).
#pragma once

#include <memory>
#include <vector>

#include "episode_notes.h"
#include "fault_watch.h"
#include "injector.h"
#include "kvfence/fault_hooks.h"
#include "kvfence/rng.h"

namespace kvfence {

// How often: at most so many steps between one fault's end and the next; about one of so many
// occasions is taken.
struct FaultPace {
  uint64_t gap = 4, one_in = 2;
};

class Saboteur final : public FaultHooks {
 public:
  // A null injector only observes.
  Saboteur(std::unique_ptr<Injector> injector, FaultWatch* watch, EpisodeNotes* notes, Fence* fence,
           uint64_t pages, uint64_t seed, FaultPace pace = {});

  void AfterPlan(FaultSurface& at) override;
  void BeforeUpload(FaultSurface& at) override;
  void BeforeValidate(FaultSurface& at) override;
  void BetweenValidateAndAttention(FaultSurface& at) override;
  void AfterAttention(FaultSurface& at) override;
  void AfterRetire(FaultSurface& at) override;
  void OnAlloc(FaultSurface& at, RequestIndex request, std::vector<PageId>& pages) override;
  void OnShare(FaultSurface& at, RequestIndex request, std::vector<SharedPage>& hits) override;
  ReturnAction OnReturn(FaultSurface& at, RequestIndex request, PageId page) override;
  void OnHold(FaultSurface& at, RequestIndex request, PageId page, bool issued) override;
  void OnMove(FaultSurface& at, const ContentMove& move) override;
  bool OnBindRow(FaultSurface& at, Row row, RequestIndex request) override;

 private:
  // What injectors and stories know of it.
  void NoteIssue(FaultSurface& at, RequestIndex request, PageId page, uint64_t logical);
  enum class State { kWaiting, kArmed, kQueued, kOpen };

  Scene SceneAt(FaultSurface& at);
  // Asks the injector, now and then, if it's time for a fault. `ask(scene)` true: it's in.
  template <class Ask>
  bool Try(FaultSurface& at, Ask ask);
  // The same, but not each time.
  template <class Ask>
  bool Occasion(FaultSurface& at, Ask ask);
  int64_t StepOf(FaultSurface& at) const { return static_cast<int64_t>(at.step().value()); }

  std::unique_ptr<Injector> injector_;
  FaultWatch* watch_;
  EpisodeNotes* notes_;
  Fence* fence_;
  Observations seen_;
  Rng rng_;
  const FaultPace pace_;
  State state_ = State::kWaiting;
  int64_t arm_at_ = 3;
};

}  // namespace kvfence
