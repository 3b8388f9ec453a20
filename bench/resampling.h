// Figures of paired rounds, with 95 % intervals by resampling.
//
// Idea: two arms' rounds belong together in pairs, since the machine's drift meets both alike; so
// whole rounds are drawn with replacement, and the spread of the figure over such draws is what
// another afternoon might have given (the percentile bootstrap, Efron 1979).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kvfence/rng.h"

namespace kvfence {

inline double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

struct Interval {
  double value = 0, low = 0, high = 0;  // 95 % between low and high
};

// `figure` of two arms' rounds, with an interval from 2,000 resamplings of whole rounds.
template <class Figure>
Interval Resampled(const std::vector<double>& with, const std::vector<double>& without, Rng rng,
                   Figure figure) {
  Interval interval{.value = figure(with, without)};
  std::vector<double> figures, a(with.size()), b(with.size());
  for (int i = 0; i < 2000; ++i) {
    for (size_t k = 0; k < a.size(); ++k) {
      const size_t pick = rng.Below(with.size());
      a[k] = with[pick];
      b[k] = without[pick];
    }
    figures.push_back(figure(a, b));
  }
  interval.low = Quantile(figures, 0.025);
  interval.high = Quantile(figures, 0.975);
  return interval;
}

}  // namespace kvfence
