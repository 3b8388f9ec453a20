// The illegal changes that a history may suffer: one of them, once.
//
// A fault is an order to the naive engine: at its nth opportunity it does the wrong thing, believes
// that it did the right one, and goes on. So what follows is what a buggy engine would do.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvfence::testing {

enum class Fault : uint8_t {
  kNone,
  // In the arrays of a step.
  kForeignEntry,  // an entry names a page of another request, or of nobody
  kSwappedEntries,
  kNullEntry,
  kStaleTable,  // the pages taken for this step are missing
  kRowSwap,     // two rows have each other's tables
  kWrongLength,
  kWrongSlot,
  kShiftedSlots,
  kSkippedWrites,  // the step's tokens are not written
  kTableChanged,   // while attention runs
  kBusyPad,        // a padded row names a live page and writes there
  kWrongPrefix,    // a shared-prefix table that isn't these rows'
  // In the bookkeeping of pages.
  kDoubleFree,    // a page that is held is freed, and later issued, once more
  kIssueHeld,     // the free list gives out a page that somebody holds
  kEarlyReissue,  // a page goes to another while a launched step or a copy still uses it
  kCowSkipped,    // a write goes to a shared page in place
  kUnpublishMissed,
  kStaleHit,       // a prefix is hit after its pages went back
  kWrongHit,       // a hit maps another page than the entry's
  kOtherIdentity,  // a hit of another adapter's prefix
  kTrimForgotten,  // rejected tokens stay in the length
  kRowForgotten,   // a row is given to a request, and the fence isn't told
  // In copies.
  kPinMissing,
  kEarlyUnpin,      // a copy's last write comes after its end
  kWriteMissing,    // a copy ends without having written one of its pages
  kLateWrite,       // a copy's write comes after the page has gone to somebody else
  kWrongCopy,       // a copy brings another page's content
  kScaleMissing,    // content arrives without its scale entry
  kFailedCopyUsed,  // a copy failed, and its pages are used all the same
  kStrayWrite,      // somebody writes into a page that isn't his
  // In the stream of events.
  kLostEvent,
  kTwiceEvent,
};
inline constexpr int kFaults = 33;

inline constexpr std::array<std::string_view, kFaults> kFaultNames = {
    "none",           "foreign_entry",  "swapped_entries",  "null_entry",    "stale_table",
    "row_swap",       "wrong_length",   "wrong_slot",       "shifted_slots", "skipped_writes",
    "table_changed",  "busy_pad",       "wrong_prefix",     "double_free",   "issue_held",
    "early_reissue",  "cow_skipped",    "unpublish_missed", "stale_hit",     "wrong_hit",
    "other_identity", "trim_forgotten", "row_forgotten",    "pin_missing",   "early_unpin",
    "write_missing",  "late_write",     "wrong_copy",       "scale_missing", "failed_copy_used",
    "stray_write",    "lost_event",     "twice_event"};

// Which fault, at which of its opportunities, and a number to choose among its forms.
struct Strike {
  Fault fault = Fault::kNone;
  uint32_t nth = 0;
  uint8_t pick = 0;
};

}  // namespace kvfence::testing
