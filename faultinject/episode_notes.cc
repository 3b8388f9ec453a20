#include "episode_notes.h"

#include <algorithm>
#include <map>
#include <utility>

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
    case NoteKind::kSentBack:
      return "sent back";
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
    case NoteKind::kSentBack:
      return Who(note) + " went back to what was good of it, to be computed again";
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
    return fault.Affects(note.request) || Holds(fault.bystanders, note.request) ||
           Holds(fault.recovered, note.request);
  }
  if (note.page >= 0 && !fault.mark.pages.empty()) return fault.Names(PageId(note.page));
  return note.step >= fault.step;
}

bool Joins(const Note& a, const Note& b) {
  return a.kind == b.kind && a.step == b.step && a.request == b.request;
}

// What the fault's own line names: its pages, and its request if it's one.
void NameFaulted(const FaultMark& mark, TimelineEntry* entry) {
  entry->text = mark.text;
  if (mark.requests.size() == 1) entry->request = "r" + std::to_string(mark.requests[0]);
  for (const PageId page : mark.pages) entry->pages.push_back(static_cast<int64_t>(page.value()));
}

std::string ListOf(const std::vector<int64_t>& pages) {
  constexpr size_t kListed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(pages.size(), kListed); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(pages[i]);
  }
  return pages.size() > kListed ? text + " ..." : text;
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
    TimelineEntry entry;
    entry.step = note.step;
    entry.what = WhatOf(note.kind);
    if (note.request != kNoRequest) entry.request = Who(note);
    if (note.page >= 0) entry.pages.push_back(note.page);
    if (IsPageNote(note.kind)) {
      while (i + 1 < n && Joins(note, ring_[(next_ + i + 1) % n])) {
        const Note& next = ring_[(next_ + ++i) % n];
        if (Concerns(next, fault)) entry.pages.push_back(next.page);
      }
    }
    entry.text = TextOf(note, ListOf(entry.pages));
    if (note.kind == NoteKind::kPublished) {
      // Only what it publishes after the fault tells anything, and once is enough.
      if (note.step < fault.step) continue;
      if (const auto it = published.find(note.request); it != published.end()) {
        lines[it->second].text = entry.text + ", up to step " + std::to_string(note.step);
        continue;
      }
      published[note.request] = lines.size();
    } else {
      published.erase(note.request);
    }
    if (note.kind == NoteKind::kFault) {
      fault_line = lines.size();
      NameFaulted(fault.mark, &entry);
    }
    lines.push_back(std::move(entry));
  }
  // Nearest to the fault: a quarter before it, the rest after.
  const size_t first = fault_line > kLines / 4 ? fault_line - kLines / 4 : 0;
  const size_t end = std::min(lines.size(), first + kLines);
  return {lines.begin() + static_cast<std::ptrdiff_t>(first),
          lines.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace kvfence
