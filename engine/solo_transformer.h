// The small transformer's golden run: one request alone, over caches that know no pages.
//
// Idea: tokens are computed as far as somebody has asked for, in blocks, and kept; a run that went
// ahead by guesses goes back by forgetting. Invariant: results_[p] is that of the pass that ends
// behind tokens_[p], and each cache holds exactly the computed tokens.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plain_cache.h"
#include "served_model.h"
#include "transformer.h"

namespace kvfence {

class SoloTransformer final : public SoloRun {
 public:
  // `model` must outlive the run. Without keep_results, results within the prompt aren't kept.
  SoloTransformer(const Transformer* model, uint64_t salt, bool keep_results);

  std::unique_ptr<SoloRun> Copy() const override {
    return std::make_unique<SoloTransformer>(*this);
  }
  void Prefill(std::span<const uint32_t> prompt) override;
  uint64_t Result() override;
  void Advance(uint32_t sample) override;
  void Ahead(size_t n, uint32_t sample, std::vector<uint64_t>* results) override;
  uint64_t ResultAt(uint64_t length) override;

 private:
  // Sees to it that the token at `at` is `token`.
  void Follow(uint64_t at, uint32_t token);
  void ComputeTo(uint64_t length);
  void ComputeBlock(uint64_t begin, uint64_t end);
  PlainCache& CacheOf(size_t layer, size_t rank) { return caches_[layer * model_->ranks() + rank]; }

  const Transformer* model_;
  uint64_t salt_;
  bool keep_results_;
  std::vector<PlainCache> caches_;  // by layer and rank
  std::vector<uint32_t> tokens_;    // known so far, some of them ahead of length_
  std::vector<uint64_t> results_;   // of computed tokens
  uint64_t length_ = 0;
  uint64_t prompt_ = 0;
};

}  // namespace kvfence
