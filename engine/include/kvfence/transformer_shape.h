// The small transformer that the engine can serve instead of the model of 64 bits: its shape and
// its number formats.
//
// Idea: seeded random weights make no sense of language, but everything that a page can do to an
// answer goes through them as it does in a large model: keys and values are quantised into the
// cache, attention reads them there, and a token is the largest of the logits. Layers: the engine's
// first group has `layers`, each other group (window, draft) one; on several ranks each has `heads`
// and `kv_heads` heads of its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "kvfence/attention.h"
#include "kvfence/status.h"
#include "kvfence/weights.h"

namespace kvfence {

enum class AttentionForm : uint32_t { kGqa, kMla };
constexpr std::string_view AttentionFormName(AttentionForm form) {
  return form == AttentionForm::kGqa ? "gqa" : "mla";
}
constexpr std::string_view KvTypeName(KvType type) {
  return type == KvType::kE4m3 ? "fp8" : "bf16";
}

struct TransformerShape {
  AttentionForm attention = AttentionForm::kGqa;
  KvType kv = KvType::kE4m3;
  WeightType weights = WeightType::kBf16;  // of the layers; embedding and logits are BF16
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;      // query heads
  uint32_t kv_heads = 2;   // GQA; MLA has one latent for all
  uint32_t head_dim = 64;  // GQA; MLA: 512 + 64 in the cache, 32 + 64 per head before absorption
  uint32_t mlp = 128;
  uint32_t vocab = 512;
  uint32_t group_size = 32;  // of int4 weights
};

// The one that runs and tests use: MLA's latent is eight times a GQA head, so it gets fewer heads.
constexpr TransformerShape SmallTransformer(AttentionForm attention, KvType kv,
                                            WeightType weights) {
  TransformerShape shape{.attention = attention, .kv = kv, .weights = weights};
  if (attention == AttentionForm::kMla) shape.heads = 2;
  return shape;
}

// Which words of the shape can't be, or ok.
Status CheckTransformerShape(const TransformerShape& shape);

}  // namespace kvfence
