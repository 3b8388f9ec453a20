// The ways in which a machine without a GPU can compute decode attention, for tests.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention_cpu.h"
#include "kernels/attention_problem.h"
#include "tests/kernels/attention_case.h"

namespace kvfence {

inline attention::Problem ProblemOfCall(const AttentionCall& call) {
  return call.mla != nullptr ? attention::ProblemOf(*call.mla) : attention::ProblemOf(*call.gqa);
}
inline Status CheckCall(const AttentionCall& call) {
  return call.mla != nullptr ? CheckDecodeAttention(*call.mla) : CheckDecodeAttention(*call.gqa);
}

// The best build of the CPU loops, on the calling thread or on several.
Status RunCpu(const AttentionCall& call);
Status RunCpuThreads(const AttentionCall& call);
// One build of the CPU loops.
AttentionBackend RunBuild(const attention::CpuBuild& build);
// The CUDA source on the CPU shim: rows walked, or spread over blocks by way of a workspace, for
// contexts of up to kSpreadParts parts; a longer one is right too, but joined in another order.
inline constexpr uint32_t kSpreadParts = 4;
Status RunShim(const AttentionCall& call);
Status RunShimSpread(const AttentionCall& call);

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// What the CUDA kernel that takes the case rounds queries and weights to (docs/numerics.md).
double DeviceRounding(const AttentionCase& c);

// The first output that isn't what the oracle says, in words; empty if all are within the bound.
std::string Wrong(const std::vector<float>& found, const AttentionCase& c, double rounding = 0);

}  // namespace kvfence
