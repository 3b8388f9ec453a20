// What a step costs more with the fence than without, from steps that took turns piece by piece.
//
// Idea: a step of two seconds on a shared machine comes out one per cent longer or shorter by
// chance, and what is sought is a thirtieth of that. So the two parts of the answer are taken
// apart. What the fence does itself (its calls) is small and timed by itself in each round. What it
// leaves behind can only make the attention after it slower, and attention's pieces, a part of a
// millisecond each, lie beside the same piece without a fence: of each piece the median over the
// rounds of (with - without) is taken, and these are added up. A hiccup of the machine hits one arm
// of a piece by chance and moves no median, while what the fence does to the same piece in most
// rounds does, even where it is only the first piece after its launches. Only the first pieces are
// added up, until attention has read many times what a core's caches hold: behind these nothing of
// the fence is there to be found, and thousands of pieces' noise would only hide it. What the later
// ones add up to is told by itself. A step with the fence is then the same round's step without it,
// and the fence's own time, and that shift; so the rounds' own ups and downs cancel in the
// comparison. What this can't see is a slowness that attention
// meets in fewer than half of the rounds, never at the same piece: the raw figures, each arm's own
// sums, stand beside it for that.
//
// Invariant: a function of the times alone, without clock and fence. Two arms whose pieces are
// drawn alike have an expected shift of 0 however long the tails are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "resampling.h"

namespace kvfence {

// One arm's steps, one a round, in microseconds.
struct StepRounds {
  std::vector<double> rest;                // [round]: all of a step but attention
  std::vector<std::vector<double>> turns;  // [turn][round]: a piece of attention

  // A round's whole step, as the clock had it.
  double Step(size_t round) const {
    double sum = rest[round];
    for (const std::vector<double>& turn : turns) sum += turn[round];
    return sum;
  }
  std::vector<double> Steps() const {
    std::vector<double> steps(rest.size());
    for (size_t r = 0; r < steps.size(); ++r) steps[r] = Step(r);
    return steps;
  }
};

struct StepLosses {
  Interval throughput, p95;  // per cent, by the pieces
  // Microseconds a step: the median round's own time, and attention's shift near the launches, and
  // behind that.
  Interval own, shift, later;
  Interval raw_throughput, raw_p95;  // per cent, from each arm's own sums
};

inline constexpr size_t kResamplings = 1000;

// Per cent: throughput lost, as the median round has it, and how much later the 95th step ends.
inline double ThroughputLoss(const std::vector<double>& with, const std::vector<double>& without) {
  std::vector<double> losses(with.size());
  for (size_t i = 0; i < with.size(); ++i) losses[i] = 100 * (1 - without[i] / with[i]);
  return MedianInPlace(losses);
}
inline double P95Loss(const std::vector<double>& with, const std::vector<double>& without) {
  return 100 * (Quantile(with, 0.95) / Quantile(without, 0.95) - 1);
}

// Of each turn in [begin, end) the median over the rounds `picks`, added up. `differences`:
// [turn][round].
inline double ShiftOf(const std::vector<std::vector<double>>& differences, size_t begin, size_t end,
                      const std::vector<size_t>& picks) {
  double shift = 0;
  std::vector<double> drawn(picks.size());
  for (size_t turn = begin; turn < end; ++turn) {
    for (size_t i = 0; i < picks.size(); ++i) drawn[i] = differences[turn][picks[i]];
    shift += MedianInPlace(drawn);
  }
  return shift;
}

// Both arms have the same rounds, at least one, and the same turns. `near`: how many turns after
// the launches attention may still find what the fence left in the caches; those are a loss.
inline StepLosses CompareSteps(const StepRounds& with, const StepRounds& off, size_t near,
                               Rng rng) {
  const size_t rounds = off.rest.size();
  KVF_CHECK(rounds > 0 && with.rest.size() == rounds, "rounds come in pairs");
  KVF_CHECK(with.turns.size() == off.turns.size(), "turns come in pairs");
  std::vector<std::vector<double>> differences(off.turns.size(), std::vector<double>(rounds));
  for (size_t t = 0; t < differences.size(); ++t) {
    for (size_t r = 0; r < rounds; ++r) differences[t][r] = with.turns[t][r] - off.turns[t][r];
  }
  const std::vector<double> with_steps = with.Steps(), off_steps = off.Steps();
  std::vector<double> base(rounds), fenced(rounds), raw(rounds), own(rounds);
  near = std::min(near, differences.size());
  const auto figures = [&](const std::vector<size_t>& picks) {
    const double shift = ShiftOf(differences, 0, near, picks);
    const double later = ShiftOf(differences, near, differences.size(), picks);
    for (size_t i = 0; i < rounds; ++i) {
      const size_t r = picks[i];
      own[i] = with.rest[r] - off.rest[r];
      base[i] = off_steps[r];
      raw[i] = with_steps[r];
      fenced[i] = base[i] + own[i] + shift;
    }
    return std::array{
        ThroughputLoss(fenced, base), P95Loss(fenced, base), Median(own), shift, later,
        ThroughputLoss(raw, base),    P95Loss(raw, base)};
  };
  const auto found = Resampled<7>(rounds, kResamplings, rng, figures);
  return {.throughput = found[0],
          .p95 = found[1],
          .own = found[2],
          .shift = found[3],
          .later = found[4],
          .raw_throughput = found[5],
          .raw_p95 = found[6]};
}

}  // namespace kvfence
