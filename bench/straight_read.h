// The fastest straight read of memory that one thread makes here: what attention is measured
// against.
//
// Idea: vector loads in order, folded by XOR so that none can be left out. No stores, no waits for
// what was loaded before, so the hardware's prefetchers do their best.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvfence {

inline uint64_t ReadPlain(const uint8_t* data, uint64_t bytes) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    sum ^= word;
  }
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) inline uint64_t ReadAvx2(const uint8_t* data, uint64_t bytes) {
  __m256i sum[4] = {};
  for (uint64_t i = 0; i + 128 <= bytes; i += 128) {
    for (int j = 0; j < 4; ++j) {
      const auto* at = reinterpret_cast<const __m256i*>(data + i + 32 * j);
      sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(at));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1) ^
                               _mm256_extract_epi64(all, 2) ^ _mm256_extract_epi64(all, 3));
}
#endif

// Reads bytes [data, data + bytes) but for a rest of less than 128; returns their XOR, folded.
inline uint64_t StraightRead(const uint8_t* data, uint64_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return ReadAvx2(data, bytes);
#endif
  return ReadPlain(data, bytes);
}

}  // namespace kvfence
