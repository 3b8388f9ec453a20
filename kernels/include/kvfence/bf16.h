// bfloat16 to float and back, for host and device.
//
// bfloat16 is the upper half of an IEEE float. Invariant: encode(decode(x)) == x for every x that
// is not a NaN; a NaN stays a NaN (quiet).
#pragma once

#include <cstdint>

#include "kvfence/float_bits.h"
#include "kvfence/tag.h"

namespace kvfence {

KVF_HD float Bf16ToFloat(uint16_t code) { return FloatOfBits(uint32_t{code} << 16); }

// Rounds to nearest, ties to even; beyond the largest bfloat16 it's infinity.
KVF_HD uint16_t FloatToBf16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  const uint32_t tie_to_even = bits >> 16 & 1u;
  return static_cast<uint16_t>((bits + 0x7FFFu + tie_to_even) >> 16);
}

}  // namespace kvfence
