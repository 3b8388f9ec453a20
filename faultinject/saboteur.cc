#include "saboteur.h"

#include <algorithm>
#include <utility>

namespace kvfence {

Saboteur::Saboteur(std::unique_ptr<Injector> injector, FaultWatch* watch, EpisodeNotes* notes,
                   Fence* fence, uint64_t pages, uint64_t seed, FaultPace pace)
    : injector_(std::move(injector)),
      watch_(watch),
      notes_(notes),
      fence_(fence),
      rng_(seed),
      pace_(pace) {
  seen_.pages.resize(pages);
}

Scene Saboteur::SceneAt(FaultSurface& at) {
  return {.at = at,
          .rng = rng_,
          .seen = seen_,
          .fence = fence_,
          .Begin = [this](FaultSurface& surface,
                          FaultMark mark) { watch_->Begin(surface, std::move(mark)); },
          .Async =
              [this, &at](StepId not_before, std::function<bool(FaultSurface&)> work) {
                at.EnqueueAsync(not_before, [this, work = std::move(work)](FaultSurface& surface) {
                  if (state_ != State::kQueued) return;
                  watch_->SetStep(StepOf(surface));
                  state_ = work(surface) ? State::kOpen : State::kArmed;
                });
              }};
}

template <class Ask>
bool Saboteur::Try(FaultSurface& at, Ask ask) {
  if (state_ != State::kArmed || injector_ == nullptr) return false;
  watch_->SetStep(StepOf(at));
  Scene scene = SceneAt(at);
  if (!ask(scene)) return false;
  state_ = State::kOpen;
  return true;
}

template <class Ask>
bool Saboteur::Occasion(FaultSurface& at, Ask ask) {
  return state_ == State::kArmed && rng_.Chance(1, pace_.one_in) && Try(at, ask);
}

void Saboteur::AfterPlan(FaultSurface& at) {
  watch_->SetStep(StepOf(at));
  if (state_ == State::kWaiting && StepOf(at) >= arm_at_) state_ = State::kArmed;
}

void Saboteur::BeforeUpload(FaultSurface& at) {
  Occasion(at, [&](Scene& s) { return injector_->BeforeUpload(s); });
}

void Saboteur::BeforeValidate(FaultSurface& at) {
  watch_->StepBegins(at);
  Occasion(at, [&](Scene& s) { return injector_->BeforeValidate(s); });
}

void Saboteur::BetweenValidateAndAttention(FaultSurface& at) {
  Occasion(at, [&](Scene& s) { return injector_->BetweenValidateAndAttention(s); });
}

void Saboteur::AfterAttention(FaultSurface& at) {
  Occasion(at, [&](Scene& s) { return injector_->AfterAttention(s); });
}

void Saboteur::AfterRetire(FaultSurface& at) {
  if (!Occasion(at, [&](Scene& s) { return injector_->AfterRetire(s); })) {
    if (Try(at, [&](Scene& s) { return injector_->Queue(s); })) state_ = State::kQueued;
  }
  watch_->StepDone(at);
  if (state_ == State::kOpen && !watch_->open()) {
    state_ = State::kWaiting;
    arm_at_ = StepOf(at) + static_cast<int64_t>(rng_.Between(1, pace_.gap));
  }
}

void Saboteur::OnAlloc(FaultSurface& at, RequestIndex request, std::vector<PageId>& pages) {
  Occasion(at, [&](Scene& s) { return injector_->OnAlloc(s, request, pages); });
  const uint64_t held = at.PagesOf(request).size();
  for (size_t i = 0; i < pages.size(); ++i) {
    NoteIssue(at, request, pages[i], held + i);
    watch_->PageGoesTo(request, pages[i]);
  }
}

void Saboteur::NoteIssue(FaultSurface& at, RequestIndex request, PageId page, uint64_t logical) {
  PageSeen& seen = seen_.pages[static_cast<size_t>(page.value())];
  seen.former = seen.owner;
  seen.owner = {request, at.IdOf(request), logical, at.FamilyOf(request)};
  seen.shares = 0;
  if (notes_ == nullptr) return;
  notes_->Add(
      {.step = StepOf(at), .kind = NoteKind::kAlloc, .request = request, .page = page.value()});
}

void Saboteur::OnHold(FaultSurface& at, RequestIndex request, PageId page, bool issued) {
  if (issued) {
    const std::span<const PageId> pages = at.PagesOf(request);
    const auto logical = std::find(pages.begin(), pages.end(), page) - pages.begin();
    NoteIssue(at, request, page, static_cast<uint64_t>(logical));
  } else if (notes_ != nullptr) {
    notes_->Add(
        {.step = StepOf(at), .kind = NoteKind::kShare, .request = request, .page = page.value()});
  }
  watch_->PageGoesTo(request, page, issued);
}

void Saboteur::OnMove(FaultSurface& at, const ContentMove& move) { watch_->Moved(at, move); }

void Saboteur::OnShare(FaultSurface& at, RequestIndex request, std::vector<SharedPage>& hits) {
  Occasion(at, [&](Scene& s) { return injector_->OnShare(s, request, hits); });
  for (const SharedPage& hit : hits) {
    ++seen_.pages[static_cast<size_t>(hit.page.value())].shares;
    watch_->PageGoesTo(request, hit.page);
    if (notes_ != nullptr) {
      notes_->Add({.step = StepOf(at),
                   .kind = NoteKind::kShare,
                   .request = request,
                   .page = hit.page.value()});
    }
  }
}

ReturnAction Saboteur::OnReturn(FaultSurface& at, RequestIndex request, PageId page) {
  ReturnAction action = ReturnAction::kProceed;
  Occasion(at, [&](Scene& s) {
    action = injector_->OnReturn(s, request, page);
    return action != ReturnAction::kProceed;
  });
  std::vector<PageId>& returned = seen_.returned;
  if (returned.size() == Observations::kReturned) returned.erase(returned.begin());
  returned.push_back(page);
  if (notes_ != nullptr) {
    notes_->Add(
        {.step = StepOf(at), .kind = NoteKind::kRelease, .request = request, .page = page.value()});
  }
  return action;
}

bool Saboteur::OnBindRow(FaultSurface& at, Row row, RequestIndex request) {
  return !Occasion(at, [&](Scene& s) { return injector_->OnBindRow(s, row, request); });
}

}  // namespace kvfence
