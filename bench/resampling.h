// Figures of paired rounds, with 95 % intervals by resampling.
//
// Idea: what the arms did in one round belongs together, since the machine's drift meets all alike;
// so whole rounds are drawn with replacement, and the spread of a figure over such draws is what
// another afternoon might have given (the percentile bootstrap, Efron 1979). Invariant: the same
// generator and the same rounds give the same intervals.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include "kvfence/rng.h"

namespace kvfence {

// The nearest of the values; for the middle, Median has no lean.
inline double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

// Reorders `values`. Of an even number it is the mean of the two in the middle: either one alone
// leans to its side, and where many medians are added up so do the leanings.
inline double MedianInPlace(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}
inline double Median(std::vector<double> values) { return MedianInPlace(values); }

struct Interval {
  double value = 0, low = 0, high = 0;  // 95 % between low and high
};

// `figures` takes a list of rounds and returns N numbers of them. They are asked for all rounds as
// they came, and for `times` lists of as many rounds drawn with replacement.
template <size_t N, class Figures>
std::array<Interval, N> Resampled(size_t rounds, size_t times, Rng rng, Figures figures) {
  std::vector<size_t> picks(rounds);
  std::iota(picks.begin(), picks.end(), size_t{0});
  const std::array<double, N> values = figures(picks);
  std::array<std::vector<double>, N> drawn;
  for (size_t i = 0; i < times; ++i) {
    for (size_t& pick : picks) pick = rng.Below(rounds);
    const std::array<double, N> again = figures(picks);
    for (size_t k = 0; k < N; ++k) drawn[k].push_back(again[k]);
  }
  std::array<Interval, N> intervals;
  for (size_t k = 0; k < N; ++k) {
    intervals[k] = {
        .value = values[k], .low = Quantile(drawn[k], 0.025), .high = Quantile(drawn[k], 0.975)};
  }
  return intervals;
}

}  // namespace kvfence
