#include "saboteur.h"

#include <algorithm>
#include <utility>

namespace kvfence {

Saboteur::Saboteur(std::vector<std::unique_ptr<Injector>> injectors, FaultWatch* watch,
                   EpisodeNotes* notes, Fence* fence, uint64_t pages, uint64_t seed, FaultPace pace)
    : watch_(watch), notes_(notes), fence_(fence), rng_(seed), pace_(pace) {
  for (auto& injector : injectors) hands_.push_back({.injector = std::move(injector)});
  seen_.pages.resize(pages);
  seen_.spare_pages = pace.spare;
}

Scene Saboteur::SceneAt(FaultSurface& at, Hand* hand) {
  return {.at = at,
          .rng = rng_,
          .seen = seen_,
          .fence = fence_,
          .Begin =
              [this, hand](FaultSurface& surface, FaultMark mark) {
                const auto kind = static_cast<size_t>(hand - hands_.data());
                ++hand->faults;
                hand->fault = watch_->Begin(surface, std::move(mark), kind);
              },
          .Async =
              [this, hand, &at](StepId not_before, std::function<bool(FaultSurface&)> work) {
                at.EnqueueAsync(not_before,
                                [this, hand, work = std::move(work)](FaultSurface& surface) {
                                  if (hand->state != State::kQueued) return;
                                  watch_->SetStep(StepOf(surface));
                                  hand->state = work(surface) ? State::kOpen : State::kArmed;
                                });
              }};
}

template <class Ask>
bool Saboteur::Try(FaultSurface& at, Hand* hand, Ask ask) {
  if (hand->state != State::kArmed) return false;
  watch_->SetStep(StepOf(at));
  Scene scene = SceneAt(at, hand);
  if (!ask(*hand->injector, scene)) return false;
  hand->state = State::kOpen;
  return true;
}

template <class Ask>
bool Saboteur::Occasion(FaultSurface& at, Hand* hand, Ask ask) {
  return hand->state == State::kArmed && rng_.Chance(1, pace_.one_in) && Try(at, hand, ask);
}

void Saboteur::AfterPlan(FaultSurface& at) {
  watch_->SetStep(StepOf(at));
  for (Hand& hand : hands_) {
    if (hand.faults >= pace_.most) continue;
    if (hand.state == State::kWaiting && StepOf(at) >= hand.arm_at) hand.state = State::kArmed;
  }
}

void Saboteur::BeforeUpload(FaultSurface& at) {
  Occasions(at, [](Injector& injector, Scene& s) { return injector.BeforeUpload(s); });
}

void Saboteur::BeforeValidate(FaultSurface& at) {
  watch_->StepBegins(at);
  Occasions(at, [](Injector& injector, Scene& s) { return injector.BeforeValidate(s); });
}

void Saboteur::BetweenValidateAndAttention(FaultSurface& at) {
  Occasions(at,
            [](Injector& injector, Scene& s) { return injector.BetweenValidateAndAttention(s); });
}

void Saboteur::AfterAttention(FaultSurface& at) {
  Occasions(at, [](Injector& injector, Scene& s) { return injector.AfterAttention(s); });
}

bool Saboteur::OnConfirm(FaultSurface& at, RankId rank) {
  for (Hand& hand : hands_) {
    const auto ask = [&](Injector& i, Scene& s) { return i.OnConfirm(s, rank); };
    if (Occasion(at, &hand, ask)) return false;
  }
  return true;
}

void Saboteur::AfterRetire(FaultSurface& at) {
  for (Hand& hand : hands_) {
    if (Occasion(at, &hand, [](Injector& i, Scene& s) { return i.AfterRetire(s); })) continue;
    if (Try(at, &hand, [](Injector& i, Scene& s) { return i.Queue(s); })) {
      hand.state = State::kQueued;
    }
  }
  watch_->StepDone(at);
  for (Hand& hand : hands_) {
    if (hand.state != State::kOpen || watch_->open(hand.fault)) continue;
    hand.state = State::kWaiting;
    hand.arm_at = StepOf(at) + static_cast<int64_t>(rng_.Between(1, pace_.gap));
  }
}

void Saboteur::OnAlloc(FaultSurface& at, RequestIndex request, std::vector<PageId>& pages) {
  Occasions(at, [&](Injector& injector, Scene& s) { return injector.OnAlloc(s, request, pages); });
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

void Saboteur::OnArrive(FaultSurface& at, const ContentMove& move, uint64_t slots) {
  if (move.group != 0) return;
  Occasions(at, [&](Injector& injector, Scene& s) { return injector.OnArrive(s, move, slots); });
}

void Saboteur::OnShare(FaultSurface& at, RequestIndex request, std::vector<SharedPage>& hits) {
  Occasions(at, [&](Injector& injector, Scene& s) { return injector.OnShare(s, request, hits); });
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
  for (Hand& hand : hands_) {
    if (action != ReturnAction::kProceed) break;
    Occasion(at, &hand, [&](Injector& injector, Scene& s) {
      action = injector.OnReturn(s, request, page);
      return action != ReturnAction::kProceed;
    });
  }
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
  for (Hand& hand : hands_) {
    const auto ask = [&](Injector& i, Scene& s) { return i.OnBindRow(s, row, request); };
    if (Occasion(at, &hand, ask)) return false;
  }
  return true;
}

}  // namespace kvfence
