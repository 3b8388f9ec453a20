// The e4m3 and bfloat16 codecs: every code, and rounding at and around every midpoint.
#include "kvfence/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kvfence/bf16.h"
#include "kvfence/rng.h"
#include "tests/model/attention_model.h"

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#define KVF_TEST_CUDA_FP8 1
#endif

namespace kvfence {
namespace {

// Values at which an encoder could go wrong: each code's value, each midpoint, one float to either
// side of both, far beyond the range, and random bit patterns.
std::vector<float> InterestingFloats() {
  std::vector<float> values = {0.0f,
                               448.0f,
                               464.0f,
                               480.0f,
                               1e9f,
                               1e-9f,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max()};
  for (unsigned code = 0; code < 0x7E; ++code) {
    const auto here = static_cast<float>(model::E4m3Value(code));
    const float middle = (here + static_cast<float>(model::E4m3Value(code + 1))) / 2;
    for (float v : {here, middle}) {
      values.push_back(v);
      values.push_back(std::nextafterf(v, 1e9f));
      values.push_back(std::nextafterf(v, -1e9f));
    }
  }
  Rng rng(11);
  for (int i = 0; i < 20000; ++i) {
    const float v = FloatOfBits(static_cast<uint32_t>(rng.Next()));
    if (!std::isnan(v)) values.push_back(v);
  }
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

TEST(Fp8, DecodesAll256CodesExactly) {
  for (unsigned code = 0; code < 256; ++code) {
    const double expected = model::E4m3Value(code);
    const float found = DecodeE4m3(static_cast<uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << code;
    } else {
      EXPECT_EQ(found, expected) << code;
    }
    EXPECT_EQ(std::signbit(found), code >= 0x80) << code;
  }
}

TEST(Fp8, EncodeUndoesDecode) {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    EXPECT_EQ(EncodeE4m3(DecodeE4m3(static_cast<uint8_t>(code))), code);
  }
}

TEST(Fp8, EncodesToTheNearestCodeTiesToEvenAndSaturates) {
  for (float v : InterestingFloats()) {
    ASSERT_EQ(EncodeE4m3(v), model::E4m3Nearest(double{v})) << v;
  }
}

TEST(Fp8, NanBecomesTheOneNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(EncodeE4m3(nan), kE4m3Nan);
  EXPECT_EQ(EncodeE4m3(-nan), kE4m3Nan);
  EXPECT_EQ(EncodeE4m3(FloatOfBits(0x7F800001u)), kE4m3Nan);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(-0.0f), 0x8000);
  EXPECT_EQ(FloatToBf16(FloatOfBits(0x3F808000u)), 0x3F80);  // tie: down to even
  EXPECT_EQ(FloatToBf16(FloatOfBits(0x3F818000u)), 0x3F82);  // tie: up to even
  EXPECT_EQ(FloatToBf16(FloatOfBits(0x3F808001u)), 0x3F81);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(FloatOfBits(0x7F800001u)))));
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(code));
    if (!std::isnan(value)) {
      ASSERT_EQ(FloatToBf16(value), code);
    }
  }
}

TEST(Fp8, AgreesWithTheToolkitsOwnCodec) {
#if defined(KVF_TEST_CUDA_FP8)
  for (unsigned code = 0; code < 256; ++code) {
    __nv_fp8_e4m3 theirs;
    theirs.__x = static_cast<__nv_fp8_storage_t>(code);
    const auto value = static_cast<float>(theirs);
    const float ours = DecodeE4m3(static_cast<uint8_t>(code));
    EXPECT_TRUE(value == ours || (std::isnan(value) && std::isnan(ours))) << code;
  }
  for (float v : InterestingFloats()) {
    ASSERT_EQ(EncodeE4m3(v), __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3)) << v;
  }
  EXPECT_EQ(EncodeE4m3(std::nanf("")),
            __nv_cvt_float_to_fp8(std::nanf(""), __NV_SATFINITE, __NV_E4M3));
#else
  GTEST_SKIP() << "cuda_fp8.h was not found when this test was compiled";
#endif
}

}  // namespace
}  // namespace kvfence
