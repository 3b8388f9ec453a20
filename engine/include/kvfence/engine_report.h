// What a run of the engine did, in numbers that depend on nothing but config, trace and seed.
#pragma once

#include <cstdint>
#include <string>

namespace kvfence {

// Percentiles over ended requests, in steps.
struct StepLatency {
  uint64_t p50 = 0, p95 = 0, max = 0;
};

struct EngineReport {
  uint64_t steps = 0;       // launched
  uint64_t idle_steps = 0;  // passes with nothing to launch
  uint64_t tokens_published = 0;
  uint64_t wrong_tokens = 0;     // of those published, by the golden run
  uint64_t other_tokens = 0;     // of those wrong, such as read differently too
  uint64_t tokens_withheld = 0;  // sampled, but the fence said no
  uint64_t tokens_computed = 0;  // prompt and decode tokens that passed through the device
  uint64_t tokens_cached = 0;    // prompt tokens found in the prefix cache
  uint64_t entries_read = 0;     // table entries that the steps needed
  uint64_t rows = 0;             // live rows launched
  uint64_t pad_rows = 0;
  uint64_t prefill_rows = 0;  // of the live ones, those with more than one new token

  uint64_t admitted = 0;  // incarnations
  uint64_t siblings = 0;  // further samples, which count as requests of their own
  uint64_t beams_replaced = 0;
  uint64_t finished = 0;
  uint64_t aborted = 0;   // by their client
  uint64_t fenced = 0;    // ended by the fence
  uint64_t rejected = 0;  // could never fit
  uint64_t preemptions = 0;
  uint64_t recomputes = 0;   // went back to their good prefix because the fence asked
  uint64_t tokens_kept = 0;  // of those prefixes
  uint64_t unfinished = 0;   // still there when max_steps was over

  uint64_t guesses = 0;  // draft tokens verified
  uint64_t guesses_right = 0;

  uint64_t pages_issued = 0;
  uint64_t pages_shared = 0;
  uint64_t pages_returned = 0;
  uint64_t pages_evicted = 0;
  uint64_t pages_copied = 0;  // before a write into a shared page
  uint64_t swaps_out = 0;
  uint64_t swaps_in = 0;
  uint64_t pages_stored = 0;  // copied to the host's tier
  uint64_t pages_loaded = 0;  // ... and from there
  uint64_t copies_failed = 0;
  uint64_t prefix_entries = 0;     // entries of shared-prefix tables
  uint64_t handoffs = 0;           // transfers to the engine that decodes
  uint64_t handoffs_whole = 0;     // of which all arrived
  uint64_t handoffs_partly = 0;    // a part arrived, and is gone on from
  uint64_t handoffs_again = 0;     // nothing of use arrived: prefilled again
  uint64_t handoffs_aborted = 0;   // the request ended under way
  uint64_t handoffs_expired = 0;   // the lease ran out under way
  uint64_t offers_expired = 0;     // ... before anybody fetched the pages: prefilled again
  uint64_t failed_over = 0;        // requests that the engine that decodes computed by itself
  uint64_t pages_handed_over = 0;  // copied and quantised
  uint64_t pages_handed_late = 0;  // of those, after some steps
  uint64_t graphs_captured = 0;    // by a pass without requests each
  uint64_t graphs_replayed = 0;    // steps
  uint64_t pages_exchanged = 0;    // for one that the prefix tree had
  uint64_t pages_slid = 0;         // left behind by a window
  uint64_t pages_published = 0;    // index entries made
  uint64_t pages_quarantined = 0;
  uint64_t row_moves = 0;
  uint64_t storms = 0;
  bool stopped = false;        // the fence said so (policy stop); requests may be left
  uint64_t wild_accesses = 0;  // kernel accesses beyond the pool or a table
  uint64_t odd_books = 0;      // allocator calls that were refused (with faults only)

  StepLatency first_token;  // from arrival in the queue
  StepLatency whole;
  // Empty: at the end every page was free, cached or apart, and the books agreed.
  std::string audit;
};

}  // namespace kvfence
