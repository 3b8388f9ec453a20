// Decode attention on the CPU.
//
// The loops are written in 16-lane vectors of the compiler and built three times on x86-64: plain,
// AVX2 and AVX-512; the machine decides at run time. They are included, not called, because a
// compiler lowers vectors before it inlines. Invariant (I-22): tiles are cut by logical position,
// and every sum runs in one fixed order without fused multiply-add, so the result is the same to
// the bit wherever pages lie and whichever build of the loops runs.
#include "attention_cpu.h"

#include <algorithm>
#include <cstring>

#include "attention_core.h"

// Functions from here to KVF_TARGET_END are compiled for the instruction set named.
#if defined(__clang__)
#define KVF_TARGET_PRAGMA(text) _Pragma(#text)
#define KVF_TARGET_BEGIN(set) \
  KVF_TARGET_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define KVF_TARGET_END _Pragma("clang attribute pop")
#else
#define KVF_TARGET_PRAGMA(text) _Pragma(#text)
#define KVF_TARGET_BEGIN(set) _Pragma("GCC push_options") KVF_TARGET_PRAGMA(GCC target(set))
#define KVF_TARGET_END _Pragma("GCC pop_options")
#endif

namespace kvfence {
namespace attention {

namespace plain {
namespace {
#include "attention_vector.inc"
// In this order.
#include "attention_loops.inc"
}  // namespace
}  // namespace plain

#if defined(__x86_64__)
KVF_TARGET_BEGIN("avx2")
namespace avx2 {
namespace {
#include "attention_vector.inc"
// In this order.
#include "attention_loops.inc"
}  // namespace
}  // namespace avx2
KVF_TARGET_END

KVF_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl")
namespace avx512 {
namespace {
#include "attention_vector.inc"
// In this order.
#include "attention_loops.inc"
}  // namespace
}  // namespace avx512
KVF_TARGET_END
#endif

std::vector<CpuBuild> CpuBuilds() {
  std::vector<CpuBuild> builds = {{"plain", plain::Run}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) builds.push_back({"avx2", avx2::Run});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    builds.push_back({"avx512", avx512::Run});
  }
#endif
  return builds;
}

}  // namespace attention

Status DecodeAttentionCpu(const DecodeAttention& args) {
  if (Status status = CheckDecodeAttention(args); !status.ok()) return status;
  static const attention::CpuBuild best = attention::CpuBuilds().back();
  best.run(args);
  return Status();
}

}  // namespace kvfence
