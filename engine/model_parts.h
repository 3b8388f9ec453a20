// What is made once per group: position weights; and once per part of the model, that is for each
// group on each rank: memory, buffers, and the golden run's view. Part = rank * groups + group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv_groups.h"
#include "kv_memory.h"
#include "kvfence/ground_truth.h"
#include "served_model.h"
#include "step_buffers.h"

namespace kvfence {

std::vector<PositionWeights> WeightsOf(const std::vector<KvGroup>& groups);
// `weights` must outlive what is made of them.
std::vector<KvMemory> MemoryOf(const std::vector<KvGroup>& groups,
                               const std::vector<PositionWeights>& weights, uint64_t ranks);
Model ModelOf(const std::vector<KvGroup>& groups, const std::vector<PositionWeights>& weights,
              uint64_t ranks);
std::vector<uint64_t> WindowsOf(const Model& model);
std::vector<uint64_t> WidthsOf(const std::vector<KvGroup>& groups);
// The model that the config asks for, with its cache, for these groups and the config's ranks, in
// the engine of that role: the engines of a run have one model, and caches of their own formats.
std::unique_ptr<ServedModel> ModelFor(const EngineConfig& config, EngineRole role,
                                      const std::vector<KvGroup>& groups, int64_t null_page);
std::vector<StepBuffers> BuffersOf(const std::vector<KvGroup>& groups, uint64_t rows,
                                   uint64_t ranks, uint64_t first_row);

}  // namespace kvfence
