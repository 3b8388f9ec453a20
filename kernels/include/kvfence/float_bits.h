// The bits of a float as an integer and back, on host and device (std::bit_cast is host-only).
#pragma once

#include <cstdint>
#include <cstring>

#include "kvfence/tag.h"

namespace kvfence {

KVF_HD float FloatOfBits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

KVF_HD uint32_t BitsOfFloat(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

}  // namespace kvfence
