// The shapes that are predicted and measured on a GPU. Plain C++.
//
// Idea: prediction and measurement name a shape by the same struct, so that they can't speak of
// different work. The validator's: 1.37M tokens in 64 rows, what the cache of an H200 may hold.
// Attention's and the step's: 64 rows of 8,192 tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvfence/attention.h"
#include "validator_batch.h"

namespace kvfence {

inline constexpr uint64_t kValidatorTokens = 1'370'000;
inline constexpr uint32_t kGpuRows = 64;
inline constexpr uint32_t kGpuContext = 8192;
inline constexpr uint32_t kStepLayers = 61;
inline constexpr uint32_t kGpuPageSizes[] = {64, 16, 1};

// Rows of at least tokens / rows tokens, in whole pages that the step's token completes.
inline BatchShape ShapeOfTokens(uint64_t tokens, uint32_t page_size, uint32_t sharing) {
  BatchShape shape;
  shape.rows = kGpuRows;
  const uint64_t row = (tokens + kGpuRows - 1) / kGpuRows;
  shape.pages_per_row = static_cast<uint32_t>((row + page_size - 1) / page_size);
  shape.page_size = page_size;
  shape.tail = page_size - 1;
  shape.sharing = sharing;
  return shape;
}

// Sharing 3: rows 0 to 2, 3 to 5 and so on hold the same pages but for the last one (which is
// written), so that three table entries stand for a physical page; the 64th row has no partner.
inline std::vector<BatchShape> ValidatorShapes() {
  std::vector<BatchShape> shapes;
  for (const uint32_t page_size : kGpuPageSizes) {
    for (const uint32_t sharing : {1u, 3u}) {
      shapes.push_back(ShapeOfTokens(kValidatorTokens, page_size, sharing));
    }
  }
  return shapes;
}

struct AttentionShape {
  uint32_t qo_heads = 0;
  uint32_t kv_heads = 0;  // 0: MLA
  uint32_t head_dim = 0;
  KvType kv = KvType::kE4m3;
  uint32_t page_size = 0;
  uint32_t rows = kGpuRows;
  uint32_t tokens = kGpuContext;

  bool mla() const { return kv_heads == 0; }
  uint64_t NumberBytes() const { return kv == KvType::kE4m3 ? 1 : 2; }
  // Numbers that a token has in the cache.
  uint64_t TokenNumbers() const {
    return mla() ? kMlaCkvDim + kMlaKpeDim : uint64_t{2} * kv_heads * head_dim;
  }
  // What one launch reads of the cache: each token's numbers once.
  uint64_t KvBytes() const { return uint64_t{rows} * tokens * TokenNumbers() * NumberBytes(); }
  // Multiplications and additions: a score and a share of a value for each head and token.
  uint64_t Flops() const {
    const uint64_t numbers = mla() ? 2 * kMlaCkvDim + kMlaKpeDim : 2 * head_dim;
    return 2 * uint64_t{rows} * tokens * qo_heads * numbers;
  }
  std::string Name() const {
    const std::string heads = mla() ? "mla, " + std::to_string(qo_heads) + " heads"
                                    : "gqa, group " + std::to_string(qo_heads / kv_heads);
    return heads + (kv == KvType::kE4m3 ? ", fp8" : ", bf16");
  }
};

inline AttentionShape MlaShape(uint32_t heads, KvType kv, uint32_t page_size) {
  AttentionShape shape;
  shape.qo_heads = heads;
  shape.kv = kv;
  shape.page_size = page_size;
  return shape;
}
inline AttentionShape GqaShape(uint32_t group, KvType kv, uint32_t page_size) {
  AttentionShape shape = MlaShape(8 * group, kv, page_size);
  shape.kv_heads = 8;
  shape.head_dim = 128;
  return shape;
}

inline std::vector<AttentionShape> AttentionShapes() {
  std::vector<AttentionShape> shapes;
  for (const KvType kv : {KvType::kE4m3, KvType::kBf16}) {
    for (const uint32_t page_size : kGpuPageSizes) {
      for (const uint32_t group : {1u, 4u, 8u}) shapes.push_back(GqaShape(group, kv, page_size));
      for (const uint32_t heads : {16u, 128u}) shapes.push_back(MlaShape(heads, kv, page_size));
    }
  }
  return shapes;
}

}  // namespace kvfence
