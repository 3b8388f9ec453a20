#include "model_parts.h"

#include "numeric_model.h"
#include "sim_model.h"

namespace kvfence {

std::vector<PositionWeights> WeightsOf(const std::vector<KvGroup>& groups) {
  std::vector<PositionWeights> weights;
  for (const KvGroup& group : groups) weights.emplace_back(group.page_size, group.width);
  return weights;
}

std::vector<KvMemory> MemoryOf(const std::vector<KvGroup>& groups,
                               const std::vector<PositionWeights>& weights, uint64_t ranks) {
  std::vector<KvMemory> memory;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    for (size_t g = 0; g < groups.size(); ++g) memory.emplace_back(groups[g].pages, &weights[g]);
  }
  return memory;
}

Model ModelOf(const std::vector<KvGroup>& groups, const std::vector<PositionWeights>& weights,
              uint64_t ranks) {
  Model model;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    for (size_t g = 0; g < groups.size(); ++g) model.push_back({&weights[g], groups[g].window});
  }
  return model;
}

std::vector<uint64_t> WindowsOf(const Model& model) {
  std::vector<uint64_t> windows;
  for (const ModelPart& part : model) windows.push_back(part.window);
  return windows;
}

std::vector<uint64_t> WidthsOf(const std::vector<KvGroup>& groups) {
  std::vector<uint64_t> widths;
  for (const KvGroup& group : groups) widths.push_back(group.width);
  return widths;
}

std::unique_ptr<ServedModel> ModelFor(const EngineConfig& config, EngineRole role,
                                      const std::vector<KvGroup>& groups, int64_t null_page) {
  const uint64_t ranks = RanksOf(config);
  if (!config.numeric) {
    return std::make_unique<SimModel>(groups, ranks, null_page, QuantiserOf(role),
                                      config.index_bits);
  }
  return std::make_unique<NumericModel>(*config.numeric, groups, ranks,
                                        static_cast<uint32_t>(null_page), config.seed,
                                        role == EngineRole::kPrefill);
}

std::vector<StepBuffers> BuffersOf(const std::vector<KvGroup>& groups, uint64_t rows,
                                   uint64_t ranks, uint64_t first_row) {
  std::vector<StepBuffers> buffers;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    for (const KvGroup& group : groups) buffers.emplace_back(rows, group.width, first_row);
  }
  return buffers;
}

}  // namespace kvfence
