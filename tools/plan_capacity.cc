#include "plan_capacity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "kvfence/check.h"
#include "kvfence/device_types.h"

namespace kvfence::tools {
namespace {

constexpr std::array<std::string_view, 4> kWeightNames = {"bf16", "fp8", "int4", "nvfp4"};
constexpr std::array<std::string_view, 2> kKvNames = {"bf16", "fp8"};

// Block formats: values that share a scale, and the scale's bytes.
constexpr uint64_t kFp8Block = 128 * 128, kFp8Scale = 4;
constexpr uint64_t kInt4Block = 32, kInt4Scale = 2;
constexpr uint64_t kNvfp4Block = 16, kNvfp4Scale = 1;
constexpr uint64_t kIndexBlock = 128, kIndexScale = 4;  // of an indexer's key, within one token

constexpr uint64_t kChunkBytes = kChunkEntries * sizeof(Expectation);
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxParameters = uint64_t{1} << 53;

// Products and sums that stay at the largest value rather than wrap.
uint64_t Times(std::initializer_list<uint64_t> factors) {
  uint64_t product = 1;
  bool over = false;
  for (const uint64_t factor : factors) {
    if (factor == 0) return 0;
    over = over || __builtin_mul_overflow(product, factor, &product);
  }
  return over ? kMost : product;
}

uint64_t Plus(std::initializer_list<uint64_t> terms) {
  uint64_t sum = 0;
  for (const uint64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return kMost;
  }
  return sum;
}

uint64_t CeilDiv(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

uint64_t AttentionOf(const ModelGeometry& model) {
  if (model.latent == 0) {
    return Times({2, model.hidden, model.head_dim, Plus({model.heads, model.kv_heads})});
  }
  const uint64_t query = Times({model.heads, model.nope + model.rope});
  return Plus({model.query_rank == 0 ? Times({model.hidden, query})
                                     : Times({model.query_rank, Plus({model.hidden, query})}),
               Times({model.hidden, model.latent + model.rope}),
               Times({model.latent, model.heads, model.nope + model.value}),
               Times({model.heads, model.value, model.hidden})});
}

ParameterCount CountShapes(const ModelGeometry& model) {
  const uint64_t all = model.layers + model.draft_layers;
  const uint64_t with_experts = model.experts == 0 ? 0 : all - model.dense_layers;
  const uint64_t indexer =
      Plus({Times({std::max(model.query_rank, uint64_t{1}), model.index_heads, model.index_dim}),
            Times({model.hidden, model.index_dim + model.index_heads})});
  const uint64_t indexers = model.index_dim == 0 ? 0 : model.index_layers + model.draft_layers;
  ParameterCount count;
  // Gated feed-forward: gate, up and down.
  count.experts = Times({with_experts, model.experts, 3, model.hidden, model.expert_width});
  count.matrices = Plus({Times({all, AttentionOf(model)}), Times({indexers, indexer}),
                         Times({with_experts, 3, model.hidden, model.shared_width}),
                         Times({all - with_experts, 3, model.hidden, model.dense_width}),
                         Times({model.draft_layers, 2, model.hidden, model.hidden})});
  count.kept = Plus({Times({model.tied ? uint64_t{1} : 2, model.vocab, model.hidden}),
                     Times({with_experts, model.experts, model.hidden}), model.other_params});
  return count;
}

uint64_t Halves(uint64_t values) { return CeilDiv(values, 2); }

}  // namespace

std::string_view NameOf(WeightFormat format) { return kWeightNames[static_cast<size_t>(format)]; }
std::string_view NameOf(KvFormat format) { return kKvNames[static_cast<size_t>(format)]; }

std::optional<WeightFormat> WeightFormatFromName(std::string_view name) {
  const auto found = std::find(kWeightNames.begin(), kWeightNames.end(), name);
  if (found == kWeightNames.end()) return std::nullopt;
  return static_cast<WeightFormat>(found - kWeightNames.begin());
}

std::optional<KvFormat> KvFormatFromName(std::string_view name) {
  const auto found = std::find(kKvNames.begin(), kKvNames.end(), name);
  if (found == kKvNames.end()) return std::nullopt;
  return static_cast<KvFormat>(found - kKvNames.begin());
}

Result<ParameterCount> CountParameters(const ModelGeometry& model) {
  if (model.dense_layers > model.layers) {
    return Status::Invalid("the model has " + std::to_string(model.layers) +
                           " layers, but its first " + std::to_string(model.dense_layers) +
                           " are said to be dense");
  }
  ParameterCount count;
  if (model.hidden != 0) count = CountShapes(model);
  if (model.expert_params) count.experts = *model.expert_params;
  if (model.bf16_params) count.kept = *model.bf16_params;
  if (model.params) {
    const uint64_t told = Plus({count.experts, count.kept});
    if (*model.params < told) {
      return Status::Invalid("--params: " + std::to_string(*model.params) +
                             " is less than what experts and uncompressed parameters take, " +
                             std::to_string(told));
    }
    count.matrices = *model.params - told;
  }
  if (Plus({count.experts, count.matrices, count.kept}) > kMaxParameters) {
    return Status::Invalid("the shapes add up to more than 2^53 parameters");
  }
  return count;
}

uint64_t WeightBytes(const ParameterCount& count, WeightFormat format) {
  // Four-bit checkpoints compress the routed experts; where a model has none, every matrix.
  const uint64_t small = count.experts != 0 ? count.experts : count.matrices;
  const uint64_t rest = count.total() - small;
  switch (format) {
    case WeightFormat::kBf16:
      return 2 * count.total();
    case WeightFormat::kFp8: {
      const uint64_t values = count.experts + count.matrices;
      return values + kFp8Scale * CeilDiv(values, kFp8Block) + 2 * count.kept;
    }
    case WeightFormat::kInt4:
      return Halves(small) + kInt4Scale * CeilDiv(small, kInt4Block) + 2 * rest;
    case WeightFormat::kNvfp4:
      return Halves(small) + kNvfp4Scale * CeilDiv(small, kNvfp4Block) + 2 * rest;
  }
  KVF_CHECK(false, "a weight format without bytes");
}

uint64_t KvBytesPerToken(const ModelGeometry& model, KvFormat format, const PlanMachine& machine) {
  const uint64_t element = format == KvFormat::kBf16 ? 2 : 1;
  const uint64_t values = model.latent != 0
                              ? model.latent + model.rope
                              : Times({2, model.head_dim, CeilDiv(model.kv_heads, machine.gpus)});
  const uint64_t index =
      model.index_dim == 0 ? 0
                           : model.index_dim + kIndexScale * CeilDiv(model.index_dim, kIndexBlock);
  const uint64_t layers =
      (model.kv_layers != 0 ? model.kv_layers : model.layers) + model.draft_layers;
  return Times({layers, Plus({Times({element, values}), index, machine.kv_overhead})});
}

uint64_t FenceBytes(uint64_t pages, const PlanMachine& machine) {
  const double entries = std::ceil(static_cast<double>(pages) * machine.sharing);
  return Plus({Times({pages, sizeof(PageRecord)}),
               Times({static_cast<uint64_t>(entries), sizeof(Expectation)}),
               Times({machine.rows, kChunkBytes})});
}

Result<Capacity> PlanCapacity(const ModelGeometry& model, WeightFormat weights, KvFormat kv,
                              const PlanMachine& machine) {
  Result<ParameterCount> count = CountParameters(model);
  if (!count.ok()) return Status::Invalid(count.status().message());
  Capacity plan;
  plan.weight_bytes = WeightBytes(*count, weights);
  plan.weight_bytes_per_gpu = CeilDiv(plan.weight_bytes, machine.gpus);
  plan.kv_bytes_per_token = KvBytesPerToken(model, kv, machine);
  const auto usable =
      static_cast<uint64_t>(std::floor(static_cast<double>(machine.memory) * machine.utilisation));
  const uint64_t taken = Plus({plan.weight_bytes_per_gpu, machine.reserve});
  if (taken >= usable) return plan;
  plan.kv_pool_bytes = usable - taken;

  const auto used = [&](uint64_t pages) {
    return Plus(
        {Times({pages, machine.page_size, plan.kv_bytes_per_token}), FenceBytes(pages, machine)});
  };
  // The largest number of pages that fits (I-140), by halves: the sum only grows with pages.
  uint64_t fits = 0, too_many = uint64_t{1} << 32;
  if (used(too_many) <= plan.kv_pool_bytes) {
    return Status::Invalid("--page_size=" + std::to_string(machine.page_size) +
                           " makes more pages than 32 bits can number");
  }
  while (too_many - fits > 1) {
    const uint64_t middle = fits + (too_many - fits) / 2;
    (used(middle) <= plan.kv_pool_bytes ? fits : too_many) = middle;
  }
  if (fits < 2) return plan;  // the null page alone is no cache
  plan.pages = fits;
  plan.tokens = (fits - 1) * machine.page_size;
  plan.fence_bytes = FenceBytes(fits, machine);
  KVF_CHECK(used(fits) <= plan.kv_pool_bytes && used(fits + 1) > plan.kv_pool_bytes,
            "I-140: cache and fence fill the pool and don't leave it");
  return plan;
}

}  // namespace kvfence::tools
