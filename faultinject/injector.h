// Injectors: one per fault kind; each knows at which hook its fault enters and how.
//
// Idea: an injector looks at the scene, and if there is something worth corrupting it says so
// (Scene::Begin, before the corruption, so that what the fence reports at once is laid to it),
// corrupts it and returns true. All choices come from the scene's Rng. Invariant: an injector that
// returns false changed nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "episode_notes.h"
#include "fault_record.h"
#include "kvfence/engine.h"
#include "kvfence/fault_hooks.h"
#include "kvfence/fence.h"
#include "kvfence/rng.h"

namespace kvfence {

// What an injector sees, and what it may do.
struct Scene {
  FaultSurface& at;
  Rng& rng;
  const Observations& seen;
  Fence* fence;  // null in the fence-off arm
  // A fault is about to be put in.
  std::function<void(FaultSurface&, FaultMark)> Begin;
  // Work on a copy stream, at a seeded moment from step `not_before` on. It returns whether the
  // fault was put in; if not, the injector is asked again later.
  std::function<void(StepId not_before, std::function<bool(FaultSurface&)> work)> Async;
};

class Injector {
 public:
  virtual ~Injector() = default;
  // Before there is an engine: what it will be like, in words; empty: nothing was changed.
  virtual std::string AtStart(Rng&, EngineConfig*) { return ""; }
  virtual bool BeforeUpload(Scene&) { return false; }
  virtual bool BeforeValidate(Scene&) { return false; }
  virtual bool BetweenValidateAndAttention(Scene&) { return false; }
  virtual bool AfterAttention(Scene&) { return false; }
  virtual bool AfterRetire(Scene&) { return false; }
  // True: the work was queued, and says later whether the fault was put in.
  virtual bool Queue(Scene&) { return false; }
  virtual bool OnAlloc(Scene&, RequestIndex, std::vector<PageId>&) { return false; }
  virtual bool OnArrive(Scene&, const ContentMove&, uint64_t /*slots*/) { return false; }
  virtual bool OnShare(Scene&, RequestIndex, std::vector<SharedPage>&) { return false; }
  // kProceed: nothing was put in.
  virtual ReturnAction OnReturn(Scene&, RequestIndex, PageId) { return ReturnAction::kProceed; }
  // True: confirm isn't launched on that rank.
  virtual bool OnConfirm(Scene&, RankId) { return false; }
  // True: the fence isn't told.
  virtual bool OnBindRow(Scene&, Row, RequestIndex) { return false; }
};

// Null for unknown kinds.
std::unique_ptr<Injector> MakeInjector(std::string_view kind);
// The parts of it.
std::unique_ptr<Injector> MakePageInjector(std::string_view kind);
std::unique_ptr<Injector> MakeTableInjector(std::string_view kind);
std::unique_ptr<Injector> MakeStepInjector(std::string_view kind);
std::unique_ptr<Injector> MakeEntryInjector(std::string_view kind);
std::unique_ptr<Injector> MakeLateInjector(std::string_view kind);
std::unique_ptr<Injector> MakeContentInjector(std::string_view kind);
std::unique_ptr<Injector> MakeBooksInjector(std::string_view kind);
std::unique_ptr<Injector> MakeIdentityInjector(std::string_view kind);
std::unique_ptr<Injector> MakeStartInjector(std::string_view kind);

// --- choosing ------------------------------------------------------------------------------------

// Live rows of the step for which `good` holds.
template <class F>
std::vector<const StepRow*> RowsWhere(FaultSurface& at, F good) {
  std::vector<const StepRow*> rows;
  for (const StepRow& row : at.rows()) {
    if (row.request != kNoRequest && good(row)) rows.push_back(&row);
  }
  return rows;
}
template <class T>
const T* PickOf(Rng& rng, const std::vector<T>& from) {
  return from.empty() ? nullptr : &from[rng.Below(from.size())];
}
// Any of the live rows for which `good` holds; null: there's none.
template <class F>
const StepRow* PickRow(Scene& s, F good) {
  const std::vector<const StepRow*> rows = RowsWhere(s.at, good);
  const StepRow* const* row = PickOf(s.rng, rows);
  return row == nullptr ? nullptr : *row;
}
// A page of some running request other than `but` in which there is content, and how many slots of
// it are committed.
struct Target {
  RequestIndex request = kNoRequest;
  PageId page{};
  uint64_t at = 0;
  uint64_t slots = 0;
};
Target PickTarget(FaultSurface& at, Rng& rng, RequestIndex but);

inline std::string Name(RequestIndex request) { return "r" + std::to_string(request); }
inline std::string Name(PageId page) { return "page " + std::to_string(page.value()); }
inline std::string Name(Row row) { return "row " + std::to_string(row.value()); }

}  // namespace kvfence
