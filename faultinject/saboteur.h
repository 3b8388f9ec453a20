// The engine's fault hooks in a campaign: observes, and lets injectors put in faults.
//
// Idea: an injector puts in a fault only when its last one is over, so that with a single one what
// follows belongs to it. Several know nothing of each other, so that their faults may meet.
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
// occasions is taken; so many faults of each injector and no more, or requests that are sent back
// would never come to their end.
struct FaultPace {
  uint64_t gap = 4, one_in = 2;
  uint64_t most = ~uint64_t{0};
  uint64_t spare = 0;  // pages that the engine can do without
};

class Saboteur final : public FaultHooks {
 public:
  // Injectors by kind, as the watch knows them; without any it only observes.
  Saboteur(std::vector<std::unique_ptr<Injector>> injectors, FaultWatch* watch, EpisodeNotes* notes,
           Fence* fence, uint64_t pages, uint64_t seed, FaultPace pace = {});

  void AfterPlan(FaultSurface& at) override;
  void BeforeUpload(FaultSurface& at) override;
  void BeforeValidate(FaultSurface& at) override;
  void BetweenValidateAndAttention(FaultSurface& at) override;
  void AfterAttention(FaultSurface& at) override;
  bool OnConfirm(FaultSurface& at, RankId rank) override;
  void AfterRetire(FaultSurface& at) override;
  void OnAlloc(FaultSurface& at, RequestIndex request, std::vector<PageId>& pages) override;
  void OnShare(FaultSurface& at, RequestIndex request, std::vector<SharedPage>& hits) override;
  ReturnAction OnReturn(FaultSurface& at, RequestIndex request, PageId page) override;
  void OnHold(FaultSurface& at, RequestIndex request, PageId page, bool issued) override;
  void OnMove(FaultSurface& at, const ContentMove& move) override;
  void OnArrive(FaultSurface& at, const ContentMove& move, uint64_t slots) override;
  bool OnBindRow(FaultSurface& at, Row row, RequestIndex request) override;

 private:
  // What injectors and stories know of it.
  void NoteIssue(FaultSurface& at, RequestIndex request, PageId page, uint64_t logical);
  enum class State { kWaiting, kArmed, kQueued, kOpen };

  struct Hand {
    std::unique_ptr<Injector> injector;
    State state = State::kWaiting;
    int64_t arm_at = 3;
    size_t fault = 0;     // the last one it put in
    uint64_t faults = 0;  // so far
  };

  Scene SceneAt(FaultSurface& at, Hand* hand);
  // Asks the injector, if it's time for a fault. `ask(injector, scene)` true: it's in.
  template <class Ask>
  bool Try(FaultSurface& at, Hand* hand, Ask ask);
  // The same, but not each time.
  template <class Ask>
  bool Occasion(FaultSurface& at, Hand* hand, Ask ask);
  // Of all injectors.
  template <class Ask>
  void Occasions(FaultSurface& at, Ask ask) {
    for (Hand& hand : hands_) Occasion(at, &hand, ask);
  }
  int64_t StepOf(FaultSurface& at) const { return static_cast<int64_t>(at.step().value()); }

  std::vector<Hand> hands_;
  FaultWatch* watch_;
  EpisodeNotes* notes_;
  Fence* fence_;
  Observations seen_;
  Rng rng_;
  const FaultPace pace_;
};

}  // namespace kvfence
