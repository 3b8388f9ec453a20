// FP8 e4m3 ("e4m3fn"): the KV cache's number format, one codec for host and device.
//
// A code is sign, 4 exponent bits (bias 7), 3 mantissa bits. There is no infinity: 0x7F and 0xFF
// are NaN, the largest value is 448 (0x7E), the smallest 2^-9. Source of the format: Micikevicius
// et al., "FP8 formats for deep learning" (2022), table 1; OCP 8-bit floating point specification
// 1.0. Invariant: for every code that is no NaN, encode(decode(code)) == code, signed zero
// included.
#pragma once

#include <cstdint>

#include "kvfence/float_bits.h"
#include "kvfence/tag.h"

namespace kvfence {

inline constexpr float kE4m3Max = 448.0f;
inline constexpr uint8_t kE4m3Nan = 0x7F;

// The value of a code, exactly; NaN for 0x7F and 0xFF. Selects by masks, so that a loop over codes
// vectorises: a subnormal is read as (1 + m/8) * 2^-6, minus 2^-6.
KVF_HD float DecodeE4m3(uint8_t code) {
  constexpr uint32_t kRebias = (127 - 7) << 23;          // exponent bias of float minus e4m3's
  constexpr uint32_t kSmallestNormal = (127 - 6) << 23;  // 2^-6 as float bits
  const uint32_t magnitude = uint32_t{code} & 0x7Fu;
  const uint32_t shifted = magnitude << 20;
  const uint32_t subnormal =
      BitsOfFloat(FloatOfBits(shifted + kSmallestNormal) - FloatOfBits(kSmallestNormal));
  const uint32_t is_normal = 0u - static_cast<uint32_t>(magnitude >= 8);
  const uint32_t is_nan = 0u - static_cast<uint32_t>(magnitude == 0x7F);
  const uint32_t bits = ((shifted + kRebias) & is_normal) | (subnormal & ~is_normal) |
                        (0x7FC00000u & is_nan) | (uint32_t{code} & 0x80u) << 24;
  return FloatOfBits(bits);
}

// The nearest code, ties to even; magnitudes beyond 448 and infinities saturate to 448; NaN gives
// 0x7F whatever its sign. What `__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)` returns.
KVF_HD uint8_t EncodeE4m3(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7F800000u) return kE4m3Nan;
  if (magnitude >= BitsOfFloat(kE4m3Max)) return static_cast<uint8_t>(sign | 0x7Eu);
  uint32_t code;
  if (magnitude < 121u << 23) {
    // Below 2^-6: count in units of 2^-9. Adding 2^14 leaves 23 - 14 = 9 fraction bits, so the
    // addition itself rounds to nearest even; a carry into 8 units is the smallest normal's code.
    const float kShift = 16384.0f;
    code = BitsOfFloat(FloatOfBits(magnitude) + kShift) - BitsOfFloat(kShift);
  } else {
    // Keep 3 of 23 mantissa bits; a carry runs into the exponent, as it should.
    const uint32_t tie_to_even = magnitude >> 20 & 1u;
    code = ((magnitude + 0x7FFFFu + tie_to_even) >> 20) - ((127u - 7u) << 3);
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace kvfence
