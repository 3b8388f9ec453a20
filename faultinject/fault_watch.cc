#include "fault_watch.h"

#include <algorithm>
#include <utility>

namespace kvfence {

size_t FaultWatch::Begin(FaultSurface& at, FaultMark mark, size_t kind) {
  FaultRecord fault;
  for (const RequestIndex request : mark.requests) fault.Affect(request);
  for (const PageId page : mark.pages) {
    for (const RequestIndex holder : at.HoldersOf(page)) fault.Affect(holder);
  }
  for (const PageId page : mark.pages) fault.Infect({page});
  fault.mark = std::move(mark);
  return Enter(std::move(fault), kind);
}

size_t FaultWatch::BeginAtStart(std::string text, size_t kind) {
  FaultRecord fault;
  fault.mark.text = std::move(text);
  return Enter(std::move(fault), kind);
}

size_t FaultWatch::Enter(FaultRecord fault, size_t kind) {
  for (FaultRecord& earlier : faults_) earlier.open &= earlier.kind != kind;
  fault.kind = kind;
  fault.step = fault.last_effect = step_;
  faults_.push_back(std::move(fault));
  Add({.step = step_, .kind = NoteKind::kFault});
  if (on_begin) on_begin(kind);
  return faults_.size() - 1;
}

void FaultWatch::Name(NameId name, RequestIndex request) { names_[name.value()] = request; }

RequestIndex FaultWatch::RequestOf(RequestId id) const {
  const auto it = names_.find(id.name().value());
  return !id || it == names_.end() ? kNoRequest : it->second;
}

bool FaultWatch::Declared(const std::vector<FaultRecord*>& faults, CheckSet reasons) const {
  return std::any_of(faults.begin(), faults.end(), [&](const FaultRecord* fault) {
    return (natures_[fault->kind].expected.mask() & reasons.mask()) != 0;
  });
}

std::vector<FaultRecord*> FaultWatch::Touch(RequestIndex request, std::optional<GroupPage> page,
                                            CheckSet reasons) {
  std::vector<FaultRecord*> touched, faults;
  const auto collect = [&](auto touches) {
    for (auto it = faults_.rbegin(); it != faults_.rend(); ++it) {
      if (!touches(*it)) continue;
      touched.push_back(&*it);
      if (it->open) faults.push_back(&*it);
    }
  };
  collect([&](const FaultRecord& fault) {
    return (request != kNoRequest && fault.Affects(request)) || (page && fault.Sick(*page));
  });
  // A page that was free since is nobody's fault but where nothing else is.
  if (touched.empty() && page) collect([&](const FaultRecord& f) { return f.Names(page->page); });
  if (faults.empty() && !touched.empty()) faults.push_back(touched.front());
  if (!reasons.empty() && !Declared(faults, reasons)) Explain(touched, reasons, &faults);
  if (faults.empty() && !faults_.empty()) {
    const auto latest = std::find_if(faults_.rbegin(), faults_.rend(), [&](FaultRecord& fault) {
      return Declared({&fault}, reasons);
    });
    faults.push_back(latest == faults_.rend() ? &faults_.back() : &*latest);
  }
  for (FaultRecord* fault : faults) fault->last_effect = step_;
  return faults;
}

// No fault of the set declares the reason: it's of one that is over, or what follows from one that
// was answered already.
void FaultWatch::Explain(const std::vector<FaultRecord*>& touched, CheckSet reasons,
                         std::vector<FaultRecord*>* faults) const {
  const auto keep = [&](auto good) {
    std::vector<FaultRecord*> kept;
    for (FaultRecord* fault : touched) {
      if (good(*fault)) kept.push_back(fault);
    }
    if (kept.empty()) return false;
    *faults = std::move(kept);
    return true;
  };
  if (keep([&](FaultRecord& fault) { return Declared({&fault}, reasons); })) return;
  keep([](const FaultRecord& f) { return f.evidence.answered; });
}

// A report answers for all faults that it may be of.
void FaultWatch::Report(const std::vector<FaultRecord*>& faults, CheckSet reasons) {
  const bool answered = Declared(faults, reasons);
  for (FaultRecord* fault : faults) {
    fault->evidence.reported = true;
    fault->evidence.answered |= answered;
    fault->reasons = fault->reasons + reasons;
    if (!fault->first_report) fault->first_report = step_;
  }
}

void FaultWatch::PageGoesTo(RequestIndex request, PageId page, bool change) {
  for (FaultRecord& fault : faults_) {
    if (!fault.Sick({page})) continue;
    fault.Affect(request);
    if (change) ++fault.changes;
  }
}

void FaultWatch::Moved(FaultSurface& at, const ContentMove& move) {
  for (FaultRecord& fault : faults_) {
    const std::pair host{move.key, move.number};
    const bool sick =
        move.from ? fault.Sick({*move.from, move.group}) : fault.sick_on_host.contains(host);
    if (!move.to) {
      if (sick) {
        fault.sick_on_host.insert(host);
      } else {
        fault.sick_on_host.erase(host);
      }
    } else if (sick) {
      fault.Infect({*move.to, move.group});
      for (const RequestIndex holder : at.HoldersOf(*move.to, move.group)) fault.Affect(holder);
    }
  }
}

void FaultWatch::StepBegins(FaultSurface& at) {
  std::vector<RowPages>& rows = launched_[at.step().value()];
  rows.clear();
  bool wrong_table = false;  // of the first row, where others read it too
  for (const StepRow& row : at.rows()) {
    if (row.request == kNoRequest) continue;
    RowPages& pages = rows.emplace_back();
    pages.request = row.request;
    for (size_t g = 0; g < at.groups(); ++g) {
      const std::span<const PageId> held = at.PagesIn(g, row.request);
      const uint64_t first = row.length_before / at.page_size_of(g);
      const uint64_t end = (row.length_before + row.new_tokens - 1) / at.page_size_of(g) + 1;
      for (uint64_t k = 0; k < held.size(); ++k) {
        if (held[k] == at.null_page()) continue;
        pages.held.push_back({held[k], g});
        if (k >= first && k < end) pages.written.push_back({held[k], g});
      }
    }
    const std::span<const PageId> held = at.PagesOf(row.request);
    for (uint64_t k = 0; rows.size() == 1 && k < std::min<uint64_t>(row.shared, held.size()); ++k) {
      wrong_table |= at.DeviceEntry(row.row, k) != held[k].value();
    }
  }
  if (!wrong_table) return;
  for (FaultRecord& fault : faults_) {
    if (!fault.Affects(rows.front().request)) continue;
    for (const RowPages& row : rows) fault.Affect(row.request);
  }
}

void FaultWatch::Spread(const StepOutcome& step) {
  const auto at = launched_.find(step.step.value());
  if (at == launched_.end()) return;
  const auto ended = [&](const RowPages& row) {
    return std::any_of(step.rows.begin(), step.rows.end(), [&](const RowOutcome& outcome) {
      return outcome.request == row.request && !outcome.published &&
             (!outcome.withdrawn || !outcome.reasons.empty());
    });
  };
  for (FaultRecord& fault : faults_) {
    for (bool more = true; std::exchange(more, false);) {
      for (const RowPages& row : at->second) {
        if (!ended(row)) continue;
        if (!fault.Affects(row.request)) {
          if (std::none_of(row.held.begin(), row.held.end(),
                           [&](const GroupPage& page) { return fault.Sick(page); })) {
            continue;
          }
          fault.Affect(row.request);
          more = true;
        }
        for (const GroupPage& page : row.written) {
          if (!fault.Infect(page)) continue;
          more = true;
          spread_.emplace_back(&fault - faults_.data(), page);
        }
      }
    }
  }
  launched_.erase(at);
}

void FaultWatch::OnViolation(const Violation& violation) {
  ++violations_;
  const RequestIndex request = RequestOf(violation.req);
  Add({.step = step_,
       .kind = NoteKind::kViolation,
       .request = request,
       .page = violation.page,
       .row = violation.row,
       .at = violation.at,
       .reason = violation.reason});
  std::optional<GroupPage> page;
  if (violation.page >= 0) {
    page = {PageId(violation.page), static_cast<size_t>(std::max<int64_t>(violation.pool, 0))};
  }
  const std::vector<FaultRecord*> faults = Touch(request, page, CheckSet(violation.reason));
  if (faults.empty()) ++false_alarms_;
  Report(faults, CheckSet(violation.reason));
  for (FaultRecord* fault : faults) {
    if (!fault->first_violation) fault->first_violation = violation;
  }
}

void FaultWatch::OnRow(const StepOutcome& step, const RowOutcome& row) {
  const bool wrong_out = row.published && row.token_wrong;
  if (wrong_out) {
    ++wrong_published_;
    comebacks_.PublishedWrong(row.request);
  }
  if (row.raw_wrong || wrong_out) {
    const std::vector<FaultRecord*> faults = Touch(row.request, {}, row.reasons);
    if (faults.empty() && wrong_out) ++wrong_without_fault_;
    for (FaultRecord* fault : faults) {
      fault->evidence.wrong_read = true;
      fault->evidence.wrong_published |= wrong_out;
      for (const FaultRecord* other : faults) {
        if (other != fault) fault->beside.insert(static_cast<size_t>(other - faults_.data()));
      }
    }
    Add({.step = step_,
         .kind = wrong_out ? NoteKind::kWrongToken : NoteKind::kWrongRead,
         .request = row.request,
         .row = static_cast<int64_t>(row.row.value())});
  } else if (row.published && row.sampled) {
    Add({.step = step_, .kind = NoteKind::kPublished, .request = row.request});
  }
  if (row.published || row.withdrawn) return;
  // Not published: the fence ended it, or sent it back.
  comebacks_.Failed(row.request, launched_.empty() ? step.step.value() : launched_.rbegin()->first);
  const std::vector<FaultRecord*> faults = Touch(row.request, {}, row.reasons);
  if (faults.empty()) {
    if (violations_ == 0) ++false_alarms_;  // else it was counted as it was reported
    return;
  }
  Report(faults, row.reasons);
  if (faults.front()->Affects(row.request)) return;
  faults.front()->evidence.collateral = true;
  faults.front()->bystanders.push_back(row.request);
}

void FaultWatch::OnStep(const StepOutcome& step) {
  Spread(step);
  for (const RowOutcome& row : step.rows) OnRow(step, row);
}

void FaultWatch::OnEnd(RequestIndex request, RequestId, EndKind kind) {
  comebacks_.Ended(request, kind);
  NoteKind note = NoteKind::kFinished;
  if (kind == EndKind::kFenced) note = NoteKind::kFenced;
  if (kind == EndKind::kAborted || kind == EndKind::kRejected) note = NoteKind::kAborted;
  if (kind == EndKind::kPreempted) note = NoteKind::kPreempted;
  Add({.step = step_, .kind = note, .request = request});
}

void FaultWatch::CameBack(FaultSurface& at, const Comebacks::Back& back) {
  const RequestIndex request = back.request;
  Add({.step = step_, .kind = NoteKind::kSentBack, .request = request});
  for (FaultRecord& fault : faults_) {
    // A later fault names it as it is now.
    if (!fault.Affects(request) || fault.step > static_cast<int64_t>(back.launched)) continue;
    bool holds = false;
    for (size_t g = 0; g < at.groups(); ++g) {
      for (const PageId page : at.PagesIn(g, request)) holds |= fault.Sick({page, g});
    }
    if (!holds) fault.Release(request);
  }
}

bool FaultWatch::StillOpen(FaultSurface& at, const FaultRecord& fault) const {
  if (step_ == fault.step) return true;
  if (step_ - fault.last_effect >= idle_) return false;
  if (fault.changes < natures_[fault.kind].changes) return true;
  for (const RequestIndex request : at.Running()) {
    if (fault.Affects(request)) return true;
  }
  return false;
}

void FaultWatch::StepDone(FaultSurface& at) {
  // Who found such a page before it was known, in the index say, will end for it too.
  for (const auto& [fault, sick] : std::exchange(spread_, {})) {
    for (const RequestIndex holder : at.HoldersOf(sick.page, sick.group)) {
      faults_[fault].Affect(holder);
    }
  }
  for (FaultRecord& fault : faults_) {
    if (incident && fault.record.empty() && fault.first_violation) {
      fault.record = incident(*fault.first_violation);
    }
    const FaultNature& nature = natures_[fault.kind];
    if (!nature.heals || step_ == fault.step || fault.changes < nature.changes) continue;
    std::erase_if(fault.sick, [&](const GroupPage& sick) {
      return at.StateOf(sick.page, sick.group) == PageState::kFree;
    });
  }
  for (const Comebacks::Back& back : comebacks_.BackBy(at.step().value())) CameBack(at, back);
  for (FaultRecord& fault : faults_) fault.open = fault.open && StillOpen(at, fault);
}

// Where the raw read of a row may have been wrong for several faults, the answer to one of them
// answers for it.
Evidence FaultWatch::EvidenceOf(size_t fault) const {
  Evidence evidence = faults_[fault].evidence;
  if (!evidence.wrong_read || evidence.reported) return evidence;
  for (const size_t other : faults_[fault].beside) {
    if (!faults_[other].evidence.answered) continue;
    evidence.reported = evidence.answered = true;
  }
  return evidence;
}

void FaultWatch::Crashed() {
  if (!faults_.empty()) faults_.back().evidence.crashed = true;
}

}  // namespace kvfence
