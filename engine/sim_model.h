// The model of 64 bits (kvfence/ground_truth.h) and its cache, as the engine serves it: the one for
// long traces.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attention.h"
#include "kv_memory.h"
#include "model_parts.h"
#include "served_model.h"

namespace kvfence {

class SimModel final : public ServedModel {
 public:
  // The cache holds content times `quantiser`, which is odd. Kernels compute slots in `index_bits`.
  SimModel(const std::vector<KvGroup>& groups, uint64_t ranks, int64_t null_page,
           uint64_t quantiser = 1, uint64_t index_bits = kWideIndex);

  void Run(std::span<const StepBuffers> parts, PassResult* out) override { pass_.Run(parts, out); }
  void Try(std::span<const StepBuffers> parts, PassResult* out) override;
  uint32_t TokenOf(uint64_t result, uint32_t sample) const override;
  std::unique_ptr<SoloRun> Alone(uint64_t salt, bool keep_results) const override;
  void CopyPage(size_t group, uint64_t from, uint64_t to) override;
  HostPage ReadPage(size_t group, uint64_t page) const override;
  void WritePage(size_t group, uint64_t page, uint64_t tokens, const HostPage& content) override;
  void FetchPage(ServedModel* from, size_t group, uint64_t from_page, uint64_t to_page,
                 uint64_t tokens) override;
  uint64_t SumOf(size_t group, uint64_t page, uint64_t tokens) const override;
  void SwapSlots(uint64_t page, uint64_t a, uint64_t b) override;
  void Scribble(int64_t page, uint64_t first, uint64_t n, uint64_t seed) override;

 private:
  size_t groups_;
  uint64_t quantiser_;
  std::vector<PositionWeights> weights_;  // by group
  std::vector<KvMemory> kv_;              // by part
  Model model_;
  AttentionPass pass_;
  UndoLog undo_;
};

}  // namespace kvfence
