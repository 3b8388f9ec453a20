// What happened lately in an episode, kept small, for the timelines of incident stories; and who
// had which page before, which injectors ask.
//
// Invariant: notes never influence an outcome (I-16).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fault_record.h"
#include "kvfence/campaign.h"
#include "kvfence/fault_hooks.h"

namespace kvfence {

enum class NoteKind : uint8_t {
  kAlloc,
  kShare,
  kRelease,
  kFault,
  kViolation,
  kWrongRead,
  kWrongToken,
  kPublished,
  kFinished,
  kAborted,
  kFenced,
  kSentBack,
  kPreempted,
};

struct Note {
  int64_t step = -1;
  NoteKind kind{};
  RequestIndex request = kNoRequest;
  int64_t page = -1;
  int64_t row = -1;
  int64_t at = -1;
  Reason reason{};
};

class EpisodeNotes {
 public:
  void Add(const Note& note) {
    if (ring_.size() < kCapacity) {
      ring_.push_back(note);
    } else {
      ring_[next_ % kCapacity] = note;
    }
    ++next_;
  }
  // Those that concern the fault, oldest first, as lines for people.
  std::vector<TimelineEntry> TimelineOf(const FaultRecord& fault) const;

 private:
  static constexpr size_t kCapacity = 1 << 14;
  std::vector<Note> ring_;
  size_t next_ = 0;
};

// Who got a page when, for injectors.
struct PageTenure {
  RequestIndex request = kNoRequest;
  RequestId id{};
  uint64_t at = 0;      // logical page
  uint64_t family = 0;  // FaultSurface::FamilyOf
};
struct PageSeen {
  PageTenure owner;   // it was last issued to
  PageTenure former;  // it was issued to before
  uint64_t shares = 0;
};
struct Observations {
  std::vector<PageSeen> pages;     // by page
  std::vector<PageId> returned{};  // given back lately, oldest first, at most kReturned
  static constexpr size_t kReturned = 64;
  uint64_t spare_pages = 0;  // that the engine can do without
};

}  // namespace kvfence
