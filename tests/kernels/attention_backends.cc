#include "tests/kernels/attention_backends.h"

#include <sstream>

#include "kernels/attention_cuda.cuh"

namespace kvfence {

Status RunCpu(const AttentionCall& call) {
  return call.mla != nullptr ? DecodeAttentionCpu(*call.mla) : DecodeAttentionCpu(*call.gqa);
}

Status RunCpuThreads(const AttentionCall& call) {
  static CpuThreads threads(3);
  return call.mla != nullptr ? DecodeAttentionCpu(*call.mla, &threads)
                             : DecodeAttentionCpu(*call.gqa, &threads);
}

AttentionBackend RunBuild(const attention::CpuBuild& build) {
  return [build](const AttentionCall& call) {
    if (Status status = CheckCall(call); !status.ok()) return status;
    attention::RunOnCpu(ProblemOfCall(call), build, nullptr);
    return Status();
  };
}

Status RunShim(const AttentionCall& call) {
  if (Status status = CheckCall(call); !status.ok()) return status;
  attention::LaunchDecodeAttention(ProblemOfCall(call), nullptr);
  return Status();
}

Status RunShimSpread(const AttentionCall& call) {
  if (Status status = CheckCall(call); !status.ok()) return status;
  attention::Problem problem = ProblemOfCall(call);
  uint64_t bytes = 0;
  problem.max_kv_len = kSpreadParts * attention::ChunkSize(problem);
  if (call.mla != nullptr) {
    MlaDecodeAttention a = *call.mla;
    a.max_kv_len = problem.max_kv_len;
    bytes = DecodeWorkspaceBytes(a);
  } else {
    DecodeAttention a = *call.gqa;
    a.max_kv_len = problem.max_kv_len;
    bytes = DecodeWorkspaceBytes(a);
  }
  std::vector<float> workspace(bytes / sizeof(float), NAN);
  problem.workspace = workspace.data();
  attention::LaunchDecodeAttention(problem, nullptr);
  return Status();
}

double DeviceRounding(const AttentionCase& c) {
  const attention::Problem problem = ProblemOfCall({&c.args, c.shape().mla ? &c.mla : nullptr});
  return attention::PaysOnTensorCores(problem) ? 0x1p-15 : 0;
}

std::string Wrong(const std::vector<float>& found, const AttentionCase& c, double rounding) {
  const std::vector<AttentionCase::Answer> expected = c.Expected(rounding);
  std::ostringstream text;
  if (found.size() != expected.size()) {
    text << found.size() << " outputs for " << expected.size();
    return text.str();
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const double value = expected[i].value;
    const double here = double{found[i]};
    if (std::isnan(value) ? std::isnan(here) : here == value) continue;
    if (std::fabs(here - value) <= expected[i].bound) continue;
    text << "output " << i << " of " << c.shape().lengths.size() << " rows: " << here << " for "
         << value << ", may differ by " << expected[i].bound;
    return text.str();
  }
  return "";
}

}  // namespace kvfence
