#include "episode_notes.h"

#include <algorithm>
#include <map>

namespace kvfence {
namespace {

constexpr size_t kLines = 48;

const char* WhatOf(NoteKind kind) {
  switch (kind) {
    case NoteKind::kAlloc:
      return "alloc";
    case NoteKind::kShare:
      return "share";
    case NoteKind::kRelease:
      return "release";
    case NoteKind::kFault:
      return "fault";
    case NoteKind::kViolation:
      return "violation";
    case NoteKind::kWrongRead:
      return "wrong read";
    case NoteKind::kWrongToken:
      return "wrong token";
    case NoteKind::kPublished:
      return "published";
    case NoteKind::kFinished:
      return "finished";
    case NoteKind::kAborted:
      return "withdrawn";
    case NoteKind::kFenced:
      return "abort";
    case NoteKind::kPreempted:
      return "preempted";
  }
  return "?";
}

std::string Who(const Note& note) {
  return note.request == kNoRequest ? std::string("nobody") : "r" + std::to_string(note.request);
}

std::string TextOf(const Note& note, const std::string& pages) {
  switch (note.kind) {
    case NoteKind::kAlloc:
      return Who(note) + " gets page" + pages;
    case NoteKind::kShare:
      return Who(note) + " maps cached page" + pages;
    case NoteKind::kRelease:
      return Who(note) + " gives up page" + pages;
    case NoteKind::kViolation: {
      std::string text(ReasonName(note.reason));
      if (note.request != kNoRequest) text += ", " + Who(note);
      if (note.row >= 0) text += ", row " + std::to_string(note.row);
      if (note.at >= 0) text += ", logical page " + std::to_string(note.at);
      if (note.page >= 0) text += ", page " + std::to_string(note.page);
      return text;
    }
    case NoteKind::kWrongRead:
      return Who(note) + " would have read what isn't its own";
    case NoteKind::kWrongToken:
      return Who(note) + " was published with a wrong result";
    case NoteKind::kPublished:
      return Who(note) + " is published, right";
    case NoteKind::kFinished:
      return Who(note) + " is complete";
    case NoteKind::kAborted:
      return Who(note) + " is taken back by its client";
    case NoteKind::kFenced:
      return Who(note) + " is ended, its token isn't published";
    case NoteKind::kPreempted:
      return Who(note) + " is preempted, and will be computed again";
    case NoteKind::kFault:
      break;
  }
  return "";
}

bool IsPageNote(NoteKind kind) {
  return kind == NoteKind::kAlloc || kind == NoteKind::kShare || kind == NoteKind::kRelease;
}

bool Holds(const std::vector<RequestIndex>& list, RequestIndex request) {
  return std::find(list.begin(), list.end(), request) != list.end();
}

bool Concerns(const Note& note, const FaultRecord& fault) {
  if (note.kind == NoteKind::kFault) return note.step == fault.step;
  // Of pages that come and go only the faulted ones matter, if there are any.
  if (IsPageNote(note.kind) && !fault.mark.pages.empty()) return fault.Names(PageId(note.page));
  if (note.request != kNoRequest) {
    return fault.Affects(note.request) || Holds(fault.bystanders, note.request);
  }
  if (note.page >= 0 && !fault.mark.pages.empty()) return fault.Names(PageId(note.page));
  return note.step >= fault.step;
}

bool Joins(const Note& a, const Note& b) {
  return a.kind == b.kind && a.step == b.step && a.request == b.request;
}

}  // namespace

std::vector<TimelineEntry> EpisodeNotes::TimelineOf(const FaultRecord& fault) const {
  std::vector<TimelineEntry> lines;
  std::map<RequestIndex, size_t> published;  // the line that says so, while nothing else happened
  size_t fault_line = 0;
  const size_t n = ring_.size();
  for (size_t i = 0; i < n; ++i) {
    const Note& note = ring_[(next_ + i) % n];
    if (!Concerns(note, fault)) continue;
    std::string pages;
    if (IsPageNote(note.kind)) {
      pages = " " + std::to_string(note.page);
      size_t more = 0;
      while (i + 1 < n && Joins(note, ring_[(next_ + i + 1) % n])) {
        const Note& next = ring_[(next_ + ++i) % n];
        if (Concerns(next, fault) && ++more < 8) pages += ", " + std::to_string(next.page);
      }
      if (more >= 8) pages += " ...";
    }
    if (note.kind == NoteKind::kPublished) {
      // Only what it publishes after the fault tells anything, and once is enough.
      if (note.step < fault.step) continue;
      if (const auto it = published.find(note.request); it != published.end()) {
        lines[it->second].text = TextOf(note, pages) + ", up to step " + std::to_string(note.step);
        continue;
      }
      published[note.request] = lines.size();
    } else {
      published.erase(note.request);
    }
    const bool is_fault = note.kind == NoteKind::kFault;
    if (is_fault) fault_line = lines.size();
    lines.push_back(
        {note.step, WhatOf(note.kind), is_fault ? fault.mark.text : TextOf(note, pages)});
  }
  // Nearest to the fault: a quarter before it, the rest after.
  const size_t first = fault_line > kLines / 4 ? fault_line - kLines / 4 : 0;
  const size_t end = std::min(lines.size(), first + kLines);
  return {lines.begin() + static_cast<std::ptrdiff_t>(first),
          lines.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace kvfence
