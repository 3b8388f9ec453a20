// Weights as engines store them: BF16, FP8 e4m3 with a scale per output, and int4 by groups.
//
// Semantics are the usual ones of weight-only quantisation (w8a16, w4a16): activations stay BF16, a
// stored code stands for a BF16 number, and products of both are summed in float. The stored
// number is bf16(code * scale[output]) for e4m3, and bf16((code - zero) * scale) for int4, where
// scale and zero are of the output's group of `group_size` inputs (AWQ, GPTQ). Invariant (I-150): a
// product of a weight and a BF16 activation is a float exactly, so it doesn't matter to a sum
// whether multiply and add are fused.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvfence/status.h"

namespace kvfence {

enum class WeightType : uint32_t { kBf16, kE4m3, kInt4 };
constexpr std::string_view WeightTypeName(WeightType type) {
  return type == WeightType::kBf16 ? "bf16" : type == WeightType::kE4m3 ? "fp8" : "int4";
}

// A matrix [outputs, inputs].
struct PackedWeights {
  WeightType type = WeightType::kBf16;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  uint32_t group_size = 0;         // kInt4: divides inputs
  std::vector<uint8_t> codes{};    // row by row. kBf16: two bytes each, the lower one first; kInt4:
                                   // two in a byte, the even input in the lower half
  std::vector<uint16_t> scales{};  // BF16. kE4m3: [outputs]; kInt4: [outputs, inputs / group_size]
  std::vector<uint8_t> zeros{};    // kInt4: [outputs, inputs / group_size], 0 to 15
};

// Quantises `values` [outputs, inputs], finite ones, to the nearest codes. An int4 group's scale
// spans its least and largest value and zero; so zero is stored exactly. Refuses sizes that don't
// agree, an odd number of inputs for int4 and a group size that doesn't divide them.
Result<PackedWeights> PackWeights(WeightType type, uint32_t outputs, uint32_t inputs,
                                  uint32_t group_size, std::span<const float> values);

// What the stored number is; a BF16 number as a float. `output` and `input` must exist.
float WeightAt(const PackedWeights& weights, uint32_t output, uint32_t input);

}  // namespace kvfence
