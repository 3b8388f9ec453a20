// The tensor-core instruction on the shim, and what it's given: codes become BF16 exactly, floats
// two BF16 numbers (I-155).
#include "kernels/mma_bf16.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvfence/rng.h"

namespace kvfence::attention {
namespace {

TEST(MmaBf16, I155EachCodeKeepsItsValue) {
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t other = 255 - code;
    const uint2 pairs = Bf16OfWord(code | other << 8 | other << 16 | code << 24);
    const uint32_t found[] = {pairs.x & 0xFFFF, pairs.x >> 16, pairs.y & 0xFFFF, pairs.y >> 16};
    const uint32_t codes[] = {code, other, other, code};
    for (int i = 0; i < 4; ++i) {
      const float here = Bf16ToFloat(static_cast<uint16_t>(found[i]));
      const float there = DecodeE4m3(static_cast<uint8_t>(codes[i]));
      if (std::isnan(there)) {
        EXPECT_TRUE(std::isnan(here)) << codes[i];
      } else {
        EXPECT_EQ(BitsOfFloat(here), BitsOfFloat(there)) << codes[i];
      }
    }
  }
}

TEST(MmaBf16, I155TwoNumbersAreTheFloatNearly) {
  Rng rng(5);
  for (int i = 0; i < 100000; ++i) {
    const uint32_t exponent = static_cast<uint32_t>(rng.Between(20, 254));
    const float value =
        FloatOfBits((static_cast<uint32_t>(rng.Next()) & 0x807FFFFFu) | exponent << 23);
    const SplitFloat two = Split(value);
    const double sum = double{Bf16ToFloat(two.high)} + double{Bf16ToFloat(two.low)};
    ASSERT_LE(std::fabs(sum - double{value}), std::fabs(double{value}) * 0x1p-16) << value;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float value : {infinity, -infinity, 0.0f, 1.5f}) {
    EXPECT_EQ(Bf16ToFloat(Split(value).high), value);
    EXPECT_EQ(Bf16ToFloat(Split(value).low), 0.0f);
  }
  const SplitFloat nan = Split(FloatOfBits(0x7F800001u));  // its upper half is an infinity's
  EXPECT_TRUE(std::isnan(Bf16ToFloat(nan.high) + Bf16ToFloat(nan.low)));
}

struct Matrices {
  float a[16][16], b[16][8], c[16][8];
};

// A warp's part of the matrices, by the layout that the PTX ISA gives for mma.m16n8k16.
__global__ void Multiply(const Matrices* in, Matrices* out) {
  const uint32_t g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto a = [&](uint32_t row, uint32_t k) {
    return Pair(FloatToBf16(in->a[row][k]), FloatToBf16(in->a[row][k + 1]));
  };
  const auto b = [&](uint32_t k) {
    return Pair(FloatToBf16(in->b[k][g]), FloatToBf16(in->b[k + 1][g]));
  };
  float c[4];
  for (uint32_t i = 0; i < 4; ++i) c[i] = in->c[g + i / 2 * 8][2 * t + i % 2];
  MmaBf16(c, {a(g, 2 * t), a(g + 8, 2 * t), a(g, 2 * t + 8), a(g + 8, 2 * t + 8)},
          {b(2 * t), b(2 * t + 8)});
  for (uint32_t i = 0; i < 4; ++i) out->c[g + i / 2 * 8][2 * t + i % 2] = c[i];
}

TEST(MmaBf16, AWarpMultipliesMatrices) {
  Rng rng(3);
  Matrices in, out{};
  const auto fill = [&](auto& matrix) {
    for (auto& row : matrix) {
      for (float& x : row) x = static_cast<float>(rng.Below(33)) - 16.0f;  // sums are exact
    }
  };
  fill(in.a);
  fill(in.b);
  fill(in.c);
  KVF_LAUNCH(Multiply, dim3(1), dim3(32), 0, nullptr, &in, &out);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = in.c[row][column];
      for (int k = 0; k < 16; ++k) sum += in.a[row][k] * in.b[k][column];
      EXPECT_EQ(out.c[row][column], sum) << row << " " << column;
    }
  }
}

// What a device's instruction adds isn't rounded; the shim mustn't be better than that.
TEST(MmaBf16, TheShimsSumsAreCutOffAsOnADevice) {
  struct Sum {
    float c, a, b, expected;  // c + sixteen times a * b
  };
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Sum& sum : {Sum{1.0f, 0x1p-12f, 0x1p-12f, 1.0f + 0x1p-20f},
                         {1.0f, 0x1p-12f, 0x1p-13f, 1.0f},    // cut off one by one
                         {-1.0f, 0x1p-12f, 0x1p-13f, -1.0f},  // towards zero on either side
                         {-1.0f, -0x1.8p-12f, 0x1p-12f, -1.0f - 0x1p-20f},
                         {0.0f, 0x1p-130f, 0x1p-3f, 0x1p-129f},  // subnormal numbers count
                         {0.0f, 0x1p127f, 1.0f, infinity},
                         {0.0f, infinity, -1.0f, -infinity}}) {
    Matrices in, out{};
    std::fill_n(&in.a[0][0], 16 * 16, sum.a);
    std::fill_n(&in.b[0][0], 16 * 8, sum.b);
    std::fill_n(&in.c[0][0], 16 * 8, sum.c);
    KVF_LAUNCH(Multiply, dim3(1), dim3(32), 0, nullptr, &in, &out);
    EXPECT_EQ(out.c[0][0], sum.expected) << sum.c << " " << sum.a << " " << sum.b;
  }
}

}  // namespace
}  // namespace kvfence::attention
