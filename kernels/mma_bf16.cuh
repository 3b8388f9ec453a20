// One tensor-core instruction, C += A * B with A 16 x 16 and B 16 x 8 in BF16, and how numbers of
// the cache become its operands.
//
// Idea: what a warp's lanes hold of A, B and C is the instruction's own layout (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"): with g = lane / 4 and t = lane % 4, of A rows g and g + 8 and of B
// column g, at k = 2t, 2t + 1, 2t + 8, 2t + 9; of C rows g and g + 8, columns 2t and 2t + 1. On the
// CPU shim the same layout is computed from what all lanes brought, so that a number in the wrong
// place shows there, and sums are cut off as a device's are. Invariant: cache numbers become BF16
// without rounding; a NaN stays one.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kvfence/bf16.h"
#include "kvfence/cuda_on_cpu.h"
#include "kvfence/fp8.h"

namespace kvfence::attention {
inline namespace KVF_KERNEL_BUILD {

#if !defined(__CUDACC__)
// c + eight products as sm_80 adds them, the roughest of the architectures that kvfence is built
// for: each is cut off at 2^-24 of the largest one's power of two, and the sum is cut to a float.
// (Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021; Xie et al., "MMA-Sim", 2025.)
inline float CutSum(float c, const double (&products)[8]) {
  double plain = double{c}, largest = std::fabs(plain);
  for (double product : products) {
    plain += product;
    if (std::fabs(product) > largest) largest = std::fabs(product);
  }
  if (!(std::fabs(plain) <= std::numeric_limits<double>::max()) || largest == 0.0) {
    return static_cast<float>(plain);
  }
  const uint64_t exponent = std::bit_cast<uint64_t>(largest) >> 52;  // biased by 1,023
  const double unit = std::bit_cast<double>((exponent - 24) << 52);
  const double units = std::bit_cast<double>((2 * 1023 + 24 - exponent) << 52);  // 1 / unit
  int64_t sum = static_cast<int64_t>(double{c} * units);
  for (double product : products) sum += static_cast<int64_t>(product * units);
  const double exact = static_cast<double>(sum) * unit;
  const auto nearest = static_cast<float>(exact);
  return std::fabs(double{nearest}) > std::fabs(exact) && std::isfinite(nearest)
             ? FloatOfBits(BitsOfFloat(nearest) - 1)
             : nearest;
}
#endif

// a: rows (g, g + 8) at k = 2t, then both at k = 2t + 8. b: k = 2t, then 2t + 8. c: row g, then
// row g + 8. Two BF16 numbers a word, the lower k in the lower half. The whole warp calls it.
__device__ __forceinline__ void MmaBf16(float (&c)[4], uint4 a, uint2 b) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
#else
  struct {
    uint32_t words[6][32];  // a.x .. a.w, b.x, b.y of each lane
  } all;
  const uint64_t brought[3] = {a.x | uint64_t{a.y} << 32, a.z | uint64_t{a.w} << 32,
                               b.x | uint64_t{b.y} << 32};
  for (int i = 0; i < 3; ++i) {
    const uint64_t* lanes = cuda_on_cpu::WarpExchange("mma.sync", ~0u, brought[i], false);
    for (int lane = 0; lane < 32; ++lane) {
      all.words[2 * i][lane] = static_cast<uint32_t>(lanes[lane]);
      all.words[2 * i + 1][lane] = static_cast<uint32_t>(lanes[lane] >> 32);
    }
  }
  const uint32_t g = cuda_on_cpu::LaneIndex() / 4, t = cuda_on_cpu::LaneIndex() % 4;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t upper = i / 2, column = 2 * t + i % 2;  // row g + 8 * upper
    double products[8];
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t of = k % 8 / 2, late = k / 8, half = 16 * (k % 2);
      const uint32_t from_a = all.words[2 * late + upper][4 * g + of] >> half;
      const uint32_t from_b = all.words[4 + late][4 * column + of] >> half;
      products[k % 8] = double{Bf16ToFloat(static_cast<uint16_t>(from_a))} *
                        double{Bf16ToFloat(static_cast<uint16_t>(from_b))};
      if (k % 8 == 7) c[i] = CutSum(c[i], products);
    }
  }
#endif
}

KVF_HD uint32_t Pair(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }

// Both halves times 2^120: exact for what comes of a code.
__device__ __forceinline__ uint32_t TimesTwoTo120(uint32_t pair) {
#if defined(__CUDACC__)
  uint32_t scaled;  // multiplication alone needs sm_90
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(scaled)
      : "r"(pair), "r"(0x7B807B80u), "r"(0x80008000u));
  return scaled;
#else
  return Pair(FloatToBf16(Bf16ToFloat(static_cast<uint16_t>(pair)) * 0x1p120f),
              FloatToBf16(Bf16ToFloat(static_cast<uint16_t>(pair >> 16)) * 0x1p120f));
#endif
}

// Bytes of low (0 to 3) and high (4 to 7), the result's lowest one by the lowest digit; a digit 8
// more gives eight times the byte's sign.
__device__ __forceinline__ uint32_t PickBytes(uint32_t low, uint32_t high, uint32_t digits) {
#if defined(__CUDACC__)
  uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(digits));
  return picked;
#else
  uint32_t picked = 0;
  for (uint32_t i = 0; i < 32; i += 8) {
    const uint32_t digit = digits >> i / 2 & 15u;
    const auto byte = static_cast<uint8_t>((digit & 4u ? high : low) >> (digit & 3u) * 8);
    picked |= (digit < 8 ? byte : byte >> 7 != 0 ? 0xFFu : 0u) << i;
  }
  return picked;
#endif
}

// Two e4m3 codes, each the high byte of a half word, whatever the low bytes are. Their exponent's
// place in BF16 is four bits further down, where its bias is 120 too large; that holds for
// subnormal codes, too. The format's only NaN is the magnitude that has no next one.
__device__ __forceinline__ uint32_t Bf16OfCodes(uint32_t codes) {
  const uint32_t magnitudes = codes & 0x7F007F00u;
  const uint32_t nans = PickBytes(magnitudes + 0x01000100u, 0, 0xBB99);
  return TimesTwoTo120(magnitudes >> 4 | (codes & 0x80008000u)) | nans;
}

// Four codes, in their order, as two pairs.
__device__ __forceinline__ uint2 Bf16OfWord(uint32_t word) {
  return {Bf16OfCodes(PickBytes(word, 0, 0x1404)), Bf16OfCodes(PickBytes(word, 0, 0x3424))};
}

// A float as the sum of two BF16 numbers, to 2^-16 of its size; infinities and NaNs stay.
struct SplitFloat {
  uint16_t high, low;
};
KVF_HD SplitFloat Split(float value) {
  const auto high = static_cast<uint16_t>(BitsOfFloat(value) >> 16);
  const float rest = value - Bf16ToFloat(high);
  const bool infinite = (BitsOfFloat(value) & 0x7FFFFFFFu) == 0x7F800000u;
  return {high, infinite ? uint16_t{0} : FloatToBf16(rest)};
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::attention
