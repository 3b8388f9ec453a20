// The seeded generator that all simulation draws from: xoshiro256** seeded by splitmix64.
//
// The standard distributions differ between libraries and absl::BitGen is seeded randomly; with
// this one the same seed gives the same run everywhere (I-20). Formulas: Blackman and Vigna,
// "Scrambled linear pseudorandom number generators" (2018); bounded draw after Lemire (2019).
// Not thread-safe: one generator per stream of decisions, made with Fork().
#pragma once

#include <bit>
#include <cstdint>

namespace kvfence {

// One step of splitmix64: a good 64-bit mixer, used for seeding and for content functions.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      word = Mix64(seed);
    }
  }

  constexpr uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound); bound > 0. Unbiased.
  constexpr uint64_t Below(uint64_t bound) {
    const uint64_t threshold = (0 - bound) % bound;
    for (;;) {
      const uint64_t word = Next();
      if (word >= threshold) return word % bound;
    }
  }

  // Uniform in [low, high], both included.
  constexpr uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }

  // True `numerator` times out of `denominator`: integer ratios, no doubles.
  constexpr bool Chance(uint64_t numerator, uint64_t denominator) {
    return Below(denominator) < numerator;
  }

  // An independent stream for another kind of decision.
  constexpr Rng Fork(uint64_t label) { return Rng(Next() ^ Mix64(label)); }

 private:
  uint64_t state_[4] = {};
};

}  // namespace kvfence
