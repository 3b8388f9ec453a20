// The loops of decode attention on the CPU, built three times on x86-64: plain, AVX2 and AVX-512;
// the machine decides at run time.
//
// They are included, not called, because a compiler lowers vectors before it inlines. Invariants:
// tiles are cut by logical position, and every sum runs in one fixed order (I-62); what is
// multiplied before it is added has so few significant bits that the product is a float: an e4m3
// code has 4 and its factor 20, a bfloat16 8 and its factor 16, and neither is so small that the
// product loses bits at the lower end. So a fused and an unfused build give the same bits (I-130).
#include "attention_cpu.h"

#include <array>
#include <cstring>
#include <type_traits>

#include "kvfence/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Functions from here to KVF_TARGET_END are compiled for the instruction set named.
#if defined(__clang__)
#define KVF_TARGET_PRAGMA(text) _Pragma(#text)
#define KVF_TARGET_BEGIN(set) \
  KVF_TARGET_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define KVF_TARGET_END _Pragma("clang attribute pop")
#define KVF_UNROLL_CPU _Pragma("unroll")
#else
#define KVF_TARGET_PRAGMA(text) _Pragma(#text)
#define KVF_TARGET_BEGIN(set) _Pragma("GCC push_options") KVF_TARGET_PRAGMA(GCC target(set))
#define KVF_TARGET_END _Pragma("GCC pop_options")
#define KVF_UNROLL_CPU _Pragma("GCC unroll 16")
// The intrinsics of GCC 12 begin some results as "undefined", and its warning takes that literally.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#define KVF_INLINE inline __attribute__((always_inline))
#define KVF_INLINE_LAMBDA __attribute__((always_inline))

namespace kvfence::attention {
namespace {

// Weights below this add nothing that a float could show.
constexpr float kLeastWeight = 0x1p-60f;
// Numbers of a bfloat16 cache below this count as zero, so that products stay exact.
constexpr float kLeastNumber = 0x1p-40f;
[[maybe_unused]] constexpr uint32_t kLeastNumberBits = (127u - 40u) << 23;

constexpr int32_t kTokenNumbers[kTile] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                          11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                          22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Every code's value times 2^-8.
struct CodeValues {
  float of[256];
  CodeValues() {
    for (unsigned code = 0; code < 256; ++code) {
      of[code] = DecodeE4m3(static_cast<uint8_t>(code)) * 0x1p-8f;
    }
  }
};
const CodeValues kE4m3Values;

}  // namespace

#define KVF_LANES 4
namespace plain {
namespace {
#include "attention_vector.inc"
// In this order.
#include "attention_decode.inc"
// In this order.
#include "attention_loops.inc"
}  // namespace
}  // namespace plain
#undef KVF_LANES

#if defined(__x86_64__)
#define KVF_LANES 8
KVF_TARGET_BEGIN("avx2,fma,f16c")
namespace avx2 {
namespace {
#include "attention_vector.inc"
// In this order.
#include "attention_decode.inc"
// In this order.
#include "attention_loops.inc"
}  // namespace
}  // namespace avx2
KVF_TARGET_END
#undef KVF_LANES

#define KVF_LANES 16
KVF_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
namespace avx512 {
namespace {
#include "attention_vector.inc"
// In this order.
#include "attention_decode.inc"
// In this order.
#include "attention_loops.inc"
}  // namespace
}  // namespace avx512
KVF_TARGET_END
#undef KVF_LANES
#endif

std::vector<CpuBuild> CpuBuilds() {
  std::vector<CpuBuild> builds = {{"plain", plain::TakeTile}};
#if defined(__x86_64__)
  const bool halves = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  if (halves) builds.push_back({"avx2", avx2::TakeTile});
  if (halves && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    builds.push_back({"avx512", avx512::TakeTile});
  }
#endif
  return builds;
}

}  // namespace kvfence::attention
