// How many tokens of KV cache fit: a model's geometry and formats in, bytes, pages and tokens out.
//
// Idea: everything is counted per GPU of one tensor-parallel group, from the shapes of the model's
// matrices; docs/plan.md has each formula with its source. Nothing is measured and nothing is
// fitted but what the caller says (utilisation, reserve). Invariant I-140: cache and fence together
// stay within the pool, and one more page would not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvfence/status.h"

namespace kvfence::tools {

enum class WeightFormat { kBf16, kFp8, kInt4, kNvfp4 };
enum class KvFormat { kBf16, kFp8 };

std::string_view NameOf(WeightFormat format);
std::string_view NameOf(KvFormat format);
std::optional<WeightFormat> WeightFormatFromName(std::string_view name);
std::optional<KvFormat> KvFormatFromName(std::string_view name);

// A decoder's shapes, each counted as its config.json counts it. `hidden` 0: only the KV geometry
// is known, and `params` is given.
struct ModelGeometry {
  std::string name{};
  uint64_t layers = 0;        // num_hidden_layers
  uint64_t draft_layers = 0;  // num_nextn_predict_layers: weights and cache like another layer
  uint64_t kv_layers = 0;     // layers with a paged cache, drafts not counted; 0: all

  // Grouped-query attention (heads share kv_heads), or latent attention where latent > 0.
  uint64_t heads = 0, kv_heads = 0, head_dim = 0;
  uint64_t latent = 0;      // kv_lora_rank
  uint64_t rope = 0;        // qk_rope_head_dim
  uint64_t nope = 0;        // qk_nope_head_dim
  uint64_t value = 0;       // v_head_dim
  uint64_t query_rank = 0;  // q_lora_rank, 0: no low-rank query

  // The indexer of sparse attention: one key per token and layer, kept in FP8 with scales.
  uint64_t index_dim = 0, index_heads = 0;
  uint64_t index_layers = 0;  // layers with indexer weights, drafts not counted

  uint64_t hidden = 0, vocab = 0;
  bool tied = false;          // embedding and output head are one matrix
  uint64_t dense_layers = 0;  // first layers without experts
  uint64_t dense_width = 0, expert_width = 0, shared_width = 0;
  uint64_t experts = 0;       // routed experts per layer, 0: a dense model
  uint64_t other_params = 0;  // BF16 in every format, a vision tower for instance

  std::optional<uint64_t> params{};         // all of them, instead of what the shapes add up to
  std::optional<uint64_t> expert_params{};  // those in routed experts
  std::optional<uint64_t> bf16_params{};    // those that no format compresses
};

// What the formats distinguish; norms and biases (below 1 in 10,000) are not counted.
struct ParameterCount {
  uint64_t experts = 0;   // matrices of routed experts
  uint64_t matrices = 0;  // all other matrices that multiply activations
  uint64_t kept = 0;      // embedding, output head, routers: BF16 in every format

  uint64_t total() const { return experts + matrices + kept; }
};

struct PlanMachine {
  uint64_t gpus = 8;                  // one tensor-parallel group
  uint64_t memory = 141'000'000'000;  // bytes of one GPU
  double utilisation = 0.87;          // of the memory, for weights, cache and fence
  uint64_t reserve = 0;               // bytes of that for anything else
  uint64_t page_size = 64;            // tokens
  uint64_t rows = 256;                // of the largest batch
  double sharing = 1;                 // requests that map a page, on average
  uint64_t kv_overhead = 0;           // bytes that each token has besides, in each layer
};

// All but weight_bytes is of one GPU.
struct Capacity {
  uint64_t weight_bytes = 0, weight_bytes_per_gpu = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_pool_bytes = 0;  // what weights and reserve leave: cache and fence; 0: nothing fits
  uint64_t pages = 0;          // the null page counted
  uint64_t tokens = 0;         // without the null page
  uint64_t fence_bytes = 0;
};

// kInvalidArgument: shapes that can't be, or that add up to more than 2^53 parameters.
Result<ParameterCount> CountParameters(const ModelGeometry& model);
uint64_t WeightBytes(const ParameterCount& count, WeightFormat format);
// On each GPU: latent attention keeps one copy per GPU, grouped-query attention divides its heads.
uint64_t KvBytesPerToken(const ModelGeometry& model, KvFormat format, const PlanMachine& machine);
// The fence's device memory for that many pages: records, expectations, a chunk for each row.
uint64_t FenceBytes(uint64_t pages, const PlanMachine& machine);
// kInvalidArgument: as CountParameters, or more pages than 32 bits can number. Where the weights
// leave no room for a page that isn't the null page, pages and tokens are 0, which is no error.
Result<Capacity> PlanCapacity(const ModelGeometry& model, WeightFormat weights, KvFormat kv,
                              const PlanMachine& machine);

}  // namespace kvfence::tools
