// The simulated device: several streams of queued work, executed in a seeded interleaving.
//
// Idea: what a GPU does concurrently is here a sequence that a seed picks: whenever the host waits,
// the device takes the next operation of some stream that has one. Operations of one stream run in
// order; between streams any order may come, and the same seed gives the same (I-20). Everything
// runs on the calling thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>

#include "kvfence/rng.h"

namespace kvfence {

// Stream 0 computes (uploads, validate, attention, confirm); the others copy, the last two between
// engines.
inline constexpr uint32_t kComputeStream = 0;
inline constexpr uint32_t kStreamCount = 6;

class SimDevice {
 public:
  using Op = std::function<void()>;
  // How far a stream must have come: the number of its operations up to the one meant.
  using Ticket = uint64_t;

  explicit SimDevice(uint64_t seed) : rng_(seed) {}

  // Queues `op`. It doesn't begin before the clock has reached `not_before`, nor (an event that the
  // stream waits for) before the compute stream has finished `after`. An operation may enqueue
  // others, but must not wait.
  Ticket Enqueue(uint32_t stream, Op op, uint64_t not_before = 0, Ticket after = 0);
  // The last operation that was queued on the compute stream.
  Ticket LastCompute() const { return Last(kComputeStream); }
  Ticket Last(uint32_t stream) const { return streams_[stream].enqueued; }
  // Has all that was queued there been run?
  bool Idle(uint32_t stream) const { return streams_[stream].queue.empty(); }
  // The clock is the engine's step number; it never goes back.
  void SetClock(uint64_t clock);
  // Runs operations until `stream` has finished the one of `ticket`. Operations of other streams
  // run before, between and after those, as the seed has it; those left stay queued.
  void Wait(uint32_t stream, Ticket ticket);
  // Drops what has not begun (the run is over). Returns how many operations that were.
  uint64_t Discard();
  uint64_t executed() const { return executed_; }

 private:
  struct Queued {
    Op op;
    uint64_t not_before;
    Ticket after;
  };
  struct Stream {
    std::deque<Queued> queue;
    Ticket enqueued = 0;
    Ticket finished = 0;
  };
  bool Ready(const Stream& stream) const {
    return !stream.queue.empty() && stream.queue.front().not_before <= clock_ &&
           stream.queue.front().after <= streams_[kComputeStream].finished;
  }
  void RunFront(Stream* stream);

  std::array<Stream, kStreamCount> streams_;
  Rng rng_;
  uint64_t clock_ = 0;
  uint64_t executed_ = 0;
};

}  // namespace kvfence
