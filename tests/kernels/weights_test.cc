// Packed weights against the formats' definitions: what a code stands for, and that it's the
// nearest one. I-150.
#include "kvfence/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvfence/rng.h"
#include "tests/model/attention_model.h"

namespace kvfence {
namespace {

constexpr uint32_t kOutputs = 24, kInputs = 96, kGroup = 32;

std::vector<float> Drawn(uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values;
  for (uint32_t i = 0; i < kOutputs * kInputs; ++i) {
    const double unit = static_cast<double>(rng.Below(2001)) / 1000 - 1;
    // Some rows are large, some all of one sign, some zero.
    const uint32_t row = i / kInputs;
    const double size = row % 5 == 0 ? 40 : 0.3;
    values.push_back(static_cast<float>(row % 7 == 3   ? std::fabs(unit) * size + 0.1
                                        : row % 7 == 5 ? 0
                                                       : unit * size));
  }
  return values;
}

// bf16(x) by the format's definition: the nearer of the two numbers around it, ties to even.
double NearestBf16(double x) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, exponent - 8);
  return std::nearbyint(x / unit) * unit;
}

// The matrix by its bytes, read as the header says, in doubles.
double NaiveAt(const PackedWeights& w, uint32_t o, uint32_t i) {
  const uint32_t at = o * kInputs + i;
  switch (w.type) {
    case WeightType::kBf16:
      return model::Bf16Value(w.codes[2 * at] + 256u * w.codes[2 * at + 1]);
    case WeightType::kE4m3:
      return NearestBf16(model::E4m3Value(w.codes[at]) * model::Bf16Value(w.scales[o]));
    case WeightType::kInt4:
      break;
  }
  const uint32_t group = o * (kInputs / kGroup) + i / kGroup;
  const unsigned byte = w.codes[at / 2];
  const unsigned code = at % 2 == 0 ? byte % 16 : byte / 16;
  return NearestBf16((static_cast<double>(code) - w.zeros[group]) *
                     model::Bf16Value(w.scales[group]));
}

TEST(Weights, AreWhatTheirBytesStandFor) {
  for (const WeightType type : {WeightType::kBf16, WeightType::kE4m3, WeightType::kInt4}) {
    SCOPED_TRACE(WeightTypeName(type));
    auto packed = PackWeights(type, kOutputs, kInputs, kGroup, Drawn(1));
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    for (uint32_t o = 0; o < kOutputs; ++o) {
      for (uint32_t i = 0; i < kInputs; ++i) {
        ASSERT_EQ(WeightAt(*packed, o, i), NaiveAt(*packed, o, i)) << o << " " << i;
      }
    }
  }
}

// No other code of the same scale and zero is nearer.
TEST(Weights, AreTheNearestCodes) {
  const std::vector<float> values = Drawn(2);
  auto fp8 = PackWeights(WeightType::kE4m3, kOutputs, kInputs, kGroup, values);
  auto int4 = PackWeights(WeightType::kInt4, kOutputs, kInputs, kGroup, values);
  for (uint32_t o = 0; o < kOutputs; ++o) {
    for (uint32_t i = 0; i < kInputs; ++i) {
      const double value = values[o * kInputs + i];
      const double scale = model::Bf16Value(fp8->scales[o]);
      const double stored = model::E4m3Value(fp8->codes[o * kInputs + i]) * scale;
      const double best = model::E4m3Value(model::E4m3Nearest(value / scale)) * scale;
      ASSERT_LE(std::fabs(stored - value), std::fabs(best - value) + 1e-6 * scale) << o << " " << i;
      const uint32_t group = o * (kInputs / kGroup) + i / kGroup;
      const double step = model::Bf16Value(int4->scales[group]);
      double nearest = 1e30;
      for (int code = 0; code < 16; ++code) {
        nearest = std::fmin(nearest, std::fabs((code - int4->zeros[group]) * step - value));
      }
      const unsigned byte = int4->codes[(o * kInputs + i) / 2];
      const int code = static_cast<int>(i % 2 == 0 ? byte % 16 : byte / 16);
      const double error = std::fabs((code - int4->zeros[group]) * step - value);
      ASSERT_LE(error, nearest + 1e-6 * step) << o << " " << i;
      ASSERT_LE(error, 0.75 * step) << "the group's span is covered: " << o << " " << i;
    }
  }
}

// A product with a BF16 activation fits a float's 24 bits.
TEST(Weights, I150_ProductsWithBf16AreExact) {
  Rng rng(3);
  for (const WeightType type : {WeightType::kBf16, WeightType::kE4m3, WeightType::kInt4}) {
    auto packed = PackWeights(type, kOutputs, kInputs, kGroup, Drawn(3));
    for (uint32_t o = 0; o < kOutputs; ++o) {
      for (uint32_t i = 0; i < kInputs; ++i) {
        const float weight = WeightAt(*packed, o, i);
        const auto x =
            static_cast<float>(model::Bf16Value(0x3C00u + static_cast<unsigned>(rng.Below(0x300))));
        ASSERT_EQ(static_cast<double>(weight * x), double{weight} * double{x});
      }
    }
  }
}

TEST(Weights, RefuseWhatDoesNotAgree) {
  const std::vector<float> values(64);
  EXPECT_FALSE(PackWeights(WeightType::kBf16, 8, 9, 1, values).ok());
  EXPECT_FALSE(PackWeights(WeightType::kInt4, 8, 8, 0, values).ok());
  EXPECT_FALSE(PackWeights(WeightType::kInt4, 8, 8, 3, values).ok());
  EXPECT_FALSE(PackWeights(WeightType::kInt4, 64, 1, 1, values).ok());
  EXPECT_TRUE(PackWeights(WeightType::kInt4, 8, 8, 8, values).ok());
}

}  // namespace
}  // namespace kvfence
