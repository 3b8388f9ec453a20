// What a campaign's seed draws for all its runs: ranges, shares and paces, from which each run
// draws its own settings.
//
// Idea: swarm testing. A campaign that tries everything a little seldom goes far anywhere; one that
// leans to small pages, a pool of a quarter of the working set and much sharing goes far in its own
// direction, and another seed in another. So two draws: here once, leaning, and per run within it.
// No share is 0 or 1, so no run is impossible and every kind of fault finds its occasion.
// Invariant: a pure function of the seed (I-20).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvfence/rng.h"
#include "kvfence/trace.h"

namespace kvfence {

struct Swarm {
  static Swarm Draw(uint64_t seed);

  struct Range {
    uint64_t low = 0, high = 0;
    uint64_t Draw(Rng& rng) const { return rng.Between(low, high); }
  };
  std::vector<uint64_t> page_sizes;  // to be drawn from, some of them often
  Range rows;                        // batch rows
  Range pressure;                    // working set of a full batch over the pool, in tenths
  Range budget;                      // new tokens of a step
  std::vector<uint64_t> features;    // of 8 engines, those with feature i of kEngineFeatures
  uint64_t lifo = 0;                 // of 8 pools, those that reuse the page returned last
  uint64_t withdrawing = 0;          // of 8 runs, those whose clients take requests back
  uint64_t withdrawn_most = 0;       // per mille of their requests
  uint64_t tile_doublings = 0;       // the kernel's tile is at most this power of two, in entries
  Range message, output;             // medians, in tokens
  Range conversations, system_prompts, identities;
  uint64_t fault_gap = 0;     // most steps between one fault's end and the next
  uint64_t fault_one_in = 0;  // of so many occasions about one is taken

  // Traffic of one run, drawn with its own generator.
  TraceShape Shape(Rng& rng, uint64_t requests) const;
  // "name=value" of all that a campaign uses: a given trace brings its own traffic, with settings
  // of its own draw.
  std::vector<std::string> Lines(bool generated) const;
};

}  // namespace kvfence
