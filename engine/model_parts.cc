#include "model_parts.h"

namespace kvfence {

std::vector<PositionWeights> WeightsOf(const std::vector<KvGroup>& groups) {
  std::vector<PositionWeights> weights;
  for (const KvGroup& group : groups) weights.emplace_back(group.page_size, group.width);
  return weights;
}

std::vector<KvMemory> MemoryOf(const std::vector<KvGroup>& groups,
                               const std::vector<PositionWeights>& weights) {
  std::vector<KvMemory> memory;
  for (size_t g = 0; g < groups.size(); ++g) memory.emplace_back(groups[g].pages, &weights[g]);
  return memory;
}

Model ModelOf(const std::vector<KvGroup>& groups, const std::vector<PositionWeights>& weights) {
  Model model;
  for (size_t g = 0; g < groups.size(); ++g) model.push_back({&weights[g], groups[g].window});
  return model;
}

std::vector<uint64_t> WindowsOf(const std::vector<KvGroup>& groups) {
  std::vector<uint64_t> windows;
  for (const KvGroup& group : groups) windows.push_back(group.window);
  return windows;
}

std::vector<uint64_t> WidthsOf(const std::vector<KvGroup>& groups) {
  std::vector<uint64_t> widths;
  for (const KvGroup& group : groups) widths.push_back(group.width);
  return widths;
}

std::vector<StepBuffers> BuffersOf(const std::vector<KvGroup>& groups, uint64_t rows) {
  std::vector<StepBuffers> buffers;
  for (const KvGroup& group : groups) buffers.emplace_back(rows, group.width);
  return buffers;
}

}  // namespace kvfence
