// Goes through every interleaving of the small world, up to a depth.
//
// Idea: breadth first over sequences of moves, each played from the start (a fence can't be
// copied); of sequences that lead to equal worlds one is followed. Invariant: I-123, in no
// interleaving is a token published that was computed from wrong content; without a fault nothing
// is reported. One thread; memory follows the number of worlds, some 300 bytes each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kvfence/reason.h"
namespace kvfence {

// What may go wrong, once in a sequence, at any moment at which it can.
enum class SmallFault : uint8_t {
  kNone,
  kFreeHeld,      // a page goes back while its request goes on
  kIssueHeld,     // a page that a request holds is issued to the other
  kLateWrite,     // the transfer's bytes land once more, after its end
  kTableFlip,     // an entry changes between validate and attention
  kStaleEntry,    // an entry names another page, before validate
  kWrongSlot,     // a token is written into the other request's page
  kSkippedWrite,  // a token isn't written
  kLongLength,    // attention's length is one too long
};
inline constexpr int kSmallFaultCount = 9;
std::string_view SmallFaultName(SmallFault fault);

struct Exploration {
  uint64_t sequences = 0;        // of moves, each played from the start
  uint64_t states = 0;           // different worlds they led to
  uint64_t ends = 0;             // of these at the full depth
  uint64_t faulted = 0;          // worlds in which the fault is in
  uint64_t reported = 0;         // worlds in which anything was reported
  uint64_t ended_by_fence = 0;   // worlds in which the fence ended a request
  uint64_t wrong_published = 0;  // sequences that published a wrong token
  uint64_t refusals = 0;         // calls that the fence refused
  uint64_t finished = 0;         // most requests that came to their end in one sequence
  CheckSet reasons{};
  std::string first_wrong;   // the shortest sequence that publishes a wrong token, in words
  std::string first_report;  // the shortest in which anything is reported
};

struct ExploreOptions {
  uint64_t depth = 16;  // moves of a sequence
  bool fence = true;    // false: nobody looks, all is published
  // False: equal worlds are followed all the same, to see that nothing is lost by not doing so.
  bool merge = true;
  // Hears the depth that was reached and the sequences so far; false: go no further.
  std::function<bool(uint64_t, uint64_t)> on_progress{};
};

Exploration Explore(SmallFault fault, const ExploreOptions& options);

}  // namespace kvfence
