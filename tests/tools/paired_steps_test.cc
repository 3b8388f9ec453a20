// Tests of the figures that step_overhead makes of its times (bench/paired_steps.h).
//
// Idea: rounds are invented whose true loss is known, with what a shared machine adds to each piece
// of attention: drift that meets all arms, noise, and hiccups that make one piece in twenty much
// longer. A figure is right if its interval holds the truth, and worth something if it is narrow. A
// 95 % interval misses now and then, so several machines are invented, all from fixed seeds.
#include "bench/paired_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace kvfence {
namespace {

constexpr size_t kRounds = 20, kTurns = 256, kMachines = 8;
constexpr double kPiece = 4000;  // microseconds
constexpr double kStep = kPiece * kTurns;

// About normal, of mean 0 and deviation 1.
double Normal(Rng* rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(rng->Below(1 << 20)) / (1 << 20);
  return sum;
}

struct Pair {
  StepRounds with, off;
};

// `longer`: by how much the fence makes a turn's piece longer, as a share of it. A step's own time
// is `own` longer with the fence.
Pair Invent(uint64_t seed, const std::function<double(size_t turn)>& longer, double own = 0) {
  Rng rng(seed);
  const auto piece = [&rng](double drift) {
    const double noise = 1 + 0.003 * Normal(&rng);
    return kPiece * drift * noise * (rng.Chance(1, 20) ? 1.3 : 1);
  };
  Pair pair;
  pair.with.turns.resize(kTurns);
  pair.off.turns.resize(kTurns);
  for (size_t r = 0; r < kRounds; ++r) {
    pair.off.rest.push_back(100);
    pair.with.rest.push_back(100 + own);
    for (size_t t = 0; t < kTurns; ++t) {
      // 4 % over the afternoon, and waves of 3 % within a round.
      const double at = static_cast<double>(r) + static_cast<double>(t) / kTurns;
      const double drift = 1 + 0.04 * at / kRounds + 0.03 * std::sin(9 * at);
      const double with = piece(drift) * (1 + longer(t));
      pair.with.turns[t].push_back(with);
      pair.off.turns[t].push_back(piece(drift));
    }
  }
  return pair;
}

// `near`: turns that may still find in the caches what the fence left there; all by default.
StepLosses Compared(const Pair& pair, size_t near = kTurns) {
  return CompareSteps(pair.with, pair.off, near, Rng(1));
}

bool Holds(const Interval& interval, double truth) {
  return interval.low <= truth && truth <= interval.high;
}

// Of `kMachines` intervals all are narrower than 0.1 %, and most hold the truth.
void ExpectFound(const std::function<double(size_t turn)>& longer, double truth) {
  size_t throughput = 0, p95 = 0;
  for (uint64_t seed = 1; seed <= kMachines; ++seed) {
    const StepLosses losses = Compared(Invent(seed, longer));
    EXPECT_LT(losses.throughput.high - losses.throughput.low, 0.1) << "seed " << seed;
    EXPECT_LT(losses.p95.high - losses.p95.low, 0.1) << "seed " << seed;
    throughput += Holds(losses.throughput, truth);
    p95 += Holds(losses.p95, truth);
  }
  EXPECT_GE(throughput, kMachines - 2);
  EXPECT_GE(p95, kMachines - 2);
}

TEST(PairedSteps, ASmallShiftIsFoundAmongHiccups) {
  ExpectFound([](size_t) { return 0.0005; }, 0.05);
}

TEST(PairedSteps, NoShiftIsNone) {
  ExpectFound([](size_t) { return 0.0; }, 0);
}

// 0.3 % of the step, all of it right after the fence's launches.
TEST(PairedSteps, AShiftOfTheFirstTurnsAloneIsFound) {
  const auto longer = [](size_t turn) { return turn < 2 ? 0.003 * kTurns / 2 : 0.0; };
  for (uint64_t seed = 1; seed <= kMachines; ++seed) {
    const StepLosses losses = Compared(Invent(seed, longer));
    EXPECT_GT(losses.throughput.low, 0.2) << "seed " << seed;
    EXPECT_LT(losses.throughput.high, 0.4) << "seed " << seed;
  }
}

// Behind the turns that can find anything of the fence's there is noise alone; it's told by itself.
TEST(PairedSteps, LaterTurnsAreNoLossButTold) {
  const auto longer = [](size_t turn) { return turn < 2 || turn >= kTurns - 2 ? 0.1 : 0.0; };
  const StepLosses losses = Compared(Invent(1, longer), 8);
  EXPECT_NEAR(losses.shift.value, 0.2 * kPiece, 0.02 * kPiece);
  EXPECT_TRUE(Holds(losses.later, 0.2 * kPiece));
  EXPECT_NEAR(losses.throughput.value, 100 * 0.2 / kTurns, 0.02);
  EXPECT_LT(losses.shift.high - losses.shift.low, (losses.later.high - losses.later.low) / 3);
}

TEST(PairedSteps, OwnTimeIsALoss) {
  const StepLosses losses = Compared(Invent(
      1, [](size_t) { return 0.0; }, 0.002 * kStep));
  EXPECT_DOUBLE_EQ(losses.own.value, 0.002 * kStep);
  EXPECT_NEAR(losses.throughput.value, 0.2, 0.03);
  EXPECT_NEAR(losses.p95.value, 0.2, 0.03);
}

// Without noise: two steps in twenty with a long call move the 95th step and not the median one.
TEST(PairedSteps, ARareLongCallIsSeenAtThe95thStep) {
  Pair pair;
  pair.off = {.rest = std::vector<double>(kRounds, 10), .turns = {{}}};
  pair.off.turns[0].assign(kRounds, 990);
  pair.with = pair.off;
  pair.with.rest[3] = pair.with.rest[11] = 30;
  const StepLosses losses = Compared(pair);
  EXPECT_DOUBLE_EQ(losses.throughput.value, 0);
  EXPECT_NEAR(losses.p95.value, 2, 1e-9);
  EXPECT_GE(losses.p95.high, losses.p95.value);
}

// What meets a piece in no particular turn, in fewer than half of its rounds, only they show.
TEST(PairedSteps, TheRawFiguresLeaveNothingOut) {
  Pair pair;
  pair.off.rest.assign(kRounds, 0);
  pair.off.turns.assign(kRounds, std::vector<double>(kRounds, 100));
  pair.with = pair.off;
  for (size_t r = 0; r < kRounds; ++r) pair.with.turns[r][r] += 20;
  const StepLosses losses = Compared(pair);
  EXPECT_DOUBLE_EQ(losses.throughput.value, 0);
  EXPECT_NEAR(losses.raw_throughput.value, 100 * (1 - 2000.0 / 2020), 1e-9);
  EXPECT_NEAR(losses.raw_p95.value, 1, 1e-9);
}

TEST(PairedSteps, AnEvenNumberHasItsMedianBetween) {
  EXPECT_DOUBLE_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(Median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(Median({7}), 7);
}

}  // namespace
}  // namespace kvfence
