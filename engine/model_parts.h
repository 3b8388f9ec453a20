// What is made once per group: position weights, memory, buffers, and the golden run's view of
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_groups.h"
#include "kv_memory.h"
#include "kvfence/ground_truth.h"
#include "step_buffers.h"

namespace kvfence {

std::vector<PositionWeights> WeightsOf(const std::vector<KvGroup>& groups);
// `weights` must outlive what is made of them.
std::vector<KvMemory> MemoryOf(const std::vector<KvGroup>& groups,
                               const std::vector<PositionWeights>& weights);
Model ModelOf(const std::vector<KvGroup>& groups, const std::vector<PositionWeights>& weights);
std::vector<uint64_t> WindowsOf(const std::vector<KvGroup>& groups);
std::vector<uint64_t> WidthsOf(const std::vector<KvGroup>& groups);
std::vector<StepBuffers> BuffersOf(const std::vector<KvGroup>& groups, uint64_t rows);

}  // namespace kvfence
