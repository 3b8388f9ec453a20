#include "fault_watch.h"

#include <algorithm>
#include <utility>

namespace kvfence {

size_t FaultWatch::Begin(FaultSurface& at, FaultMark mark) {
  FaultRecord fault;
  fault.step = fault.last_effect = step_;
  for (const RequestIndex request : mark.requests) fault.Affect(request);
  for (const PageId page : mark.pages) {
    for (const RequestIndex holder : at.HoldersOf(page)) fault.Affect(holder);
  }
  for (const PageId page : mark.pages) fault.Infect({page});
  fault.mark = std::move(mark);
  faults_.push_back(std::move(fault));
  open_ = true;
  Add({.step = step_, .kind = NoteKind::kFault});
  if (on_begin) on_begin();
  return faults_.size() - 1;
}

void FaultWatch::Name(NameId name, RequestIndex request) { names_[name.value()] = request; }

RequestIndex FaultWatch::RequestOf(RequestId id) const {
  const auto it = names_.find(id.name().value());
  return !id || it == names_.end() ? kNoRequest : it->second;
}

FaultRecord* FaultWatch::FaultOf(RequestIndex request, std::optional<GroupPage> page,
                                 CheckSet reasons) {
  const auto touched = [&](const FaultRecord& fault) {
    return (request != kNoRequest && fault.Affects(request)) || (page && fault.Sick(*page));
  };
  const bool declared = reasons.empty() || (reasons.mask() & expected_.mask()) != 0;
  FaultRecord* latest = nullptr;
  for (auto it = faults_.rbegin(); it != faults_.rend(); ++it) {
    if (!touched(*it)) continue;
    if (declared || it->evidence.answered) return &*it;
    if (latest == nullptr) latest = &*it;
  }
  if (latest != nullptr) return latest;
  for (auto it = faults_.rbegin(); page && it != faults_.rend(); ++it) {
    if (it->Names(page->page)) return &*it;
  }
  return faults_.empty() ? nullptr : &faults_.back();
}

FaultRecord* FaultWatch::Touch(RequestIndex request, std::optional<GroupPage> page,
                               CheckSet reasons) {
  FaultRecord* fault = FaultOf(request, page, reasons);
  if (fault != nullptr) fault->last_effect = step_;
  return fault;
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
  FaultRecord* fault = Touch(request, page, CheckSet(violation.reason));
  if (fault == nullptr) {
    ++false_alarms_;
    return;
  }
  fault->evidence.reported = true;
  fault->evidence.answered |= expected_.Has(violation.reason);
  fault->reasons = fault->reasons + violation.reason;
  if (!fault->first_report) fault->first_report = step_;
  if (!fault->first_violation) fault->first_violation = violation;
}

void FaultWatch::OnRow(const RowOutcome& row) {
  const bool wrong_out = row.published && row.token_wrong;
  if (wrong_out) ++wrong_published_;
  if (row.raw_wrong || wrong_out) {
    FaultRecord* fault = Touch(row.request, {}, row.reasons);
    if (fault == nullptr) {
      if (wrong_out) ++wrong_without_fault_;
    } else {
      fault->evidence.wrong_read = true;
      fault->evidence.wrong_published |= wrong_out;
    }
    Add({.step = step_,
         .kind = wrong_out ? NoteKind::kWrongToken : NoteKind::kWrongRead,
         .request = row.request,
         .row = static_cast<int64_t>(row.row.value())});
  } else if (row.published && row.sampled) {
    Add({.step = step_, .kind = NoteKind::kPublished, .request = row.request});
  }
  if (row.published || row.withdrawn) return;
  // Not published: the fence ended it.
  FaultRecord* fault = Touch(row.request, {}, row.reasons);
  if (fault == nullptr) {
    if (violations_ == 0) ++false_alarms_;  // else it was counted as it was reported
    return;
  }
  fault->evidence.reported = true;
  fault->reasons = fault->reasons + row.reasons;
  if ((row.reasons.mask() & expected_.mask()) != 0) fault->evidence.answered = true;
  if (!fault->first_report) fault->first_report = step_;
  if (fault->Affects(row.request)) return;
  fault->evidence.collateral = true;
  fault->bystanders.push_back(row.request);
}

void FaultWatch::OnStep(const StepOutcome& step) {
  Spread(step);
  for (const RowOutcome& row : step.rows) OnRow(row);
}

void FaultWatch::OnEnd(RequestIndex request, RequestId, EndKind kind) {
  NoteKind note = NoteKind::kFinished;
  if (kind == EndKind::kFenced) note = NoteKind::kFenced;
  if (kind == EndKind::kAborted || kind == EndKind::kRejected) note = NoteKind::kAborted;
  if (kind == EndKind::kPreempted) note = NoteKind::kPreempted;
  Add({.step = step_, .kind = note, .request = request});
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
    if (!heals_ || step_ == fault.step || fault.changes < changes_) continue;
    std::erase_if(fault.sick, [&](const GroupPage& sick) {
      return at.StateOf(sick.page, sick.group) == PageState::kFree;
    });
  }
  if (!open_) return;
  const FaultRecord& fault = faults_.back();
  const int64_t quiet = step_ - fault.last_effect;
  if (step_ == fault.step) return;
  if (quiet >= idle_) {
    open_ = false;
    return;
  }
  if (fault.changes < changes_) return;
  for (const RequestIndex request : at.Running()) {
    if (fault.Affects(request)) return;
  }
  open_ = false;
}

void FaultWatch::Crashed() {
  if (!faults_.empty()) faults_.back().evidence.crashed = true;
}

}  // namespace kvfence
