// Packing and unpacking of weights. Nothing here is in a hot loop: weights are unpacked once.
#include "kvfence/weights.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kvfence/bf16.h"
#include "kvfence/fp8.h"

namespace kvfence {
namespace {

constexpr float kMostCode = 15.0f;  // of int4

float Round(float value) { return Bf16ToFloat(FloatToBf16(value)); }

// A scale that is a BF16 number; 1 where there is nothing to scale.
uint16_t ScaleFor(float span) {
  const uint16_t scale = FloatToBf16(span);
  return Bf16ToFloat(scale) > 0.0f ? scale : FloatToBf16(1.0f);
}

void PackBf16(std::span<const float> row, PackedWeights* to) {
  for (const float value : row) {
    const uint16_t code = FloatToBf16(value);
    to->codes.push_back(static_cast<uint8_t>(code & 0xFF));
    to->codes.push_back(static_cast<uint8_t>(code >> 8));
  }
}

void PackE4m3(std::span<const float> row, PackedWeights* to) {
  float largest = 0.0f;
  for (const float value : row) largest = std::max(largest, std::fabs(value));
  to->scales.push_back(ScaleFor(largest / kE4m3Max));
  const float scale = Bf16ToFloat(to->scales.back());
  for (const float value : row) to->codes.push_back(EncodeE4m3(value / scale));
}

void PackInt4Group(std::span<const float> group, std::vector<uint8_t>* codes, PackedWeights* to) {
  float least = 0.0f;
  float largest = 0.0f;
  for (const float value : group) {
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  to->scales.push_back(ScaleFor((largest - least) / kMostCode));
  const float scale = Bf16ToFloat(to->scales.back());
  const float zero = std::clamp(std::nearbyint(-least / scale), 0.0f, kMostCode);
  to->zeros.push_back(static_cast<uint8_t>(zero));
  for (const float value : group) {
    const float code = std::clamp(std::nearbyint(value / scale) + zero, 0.0f, kMostCode);
    codes->push_back(static_cast<uint8_t>(code));
  }
}

void PackInt4(std::span<const float> row, PackedWeights* to) {
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < row.size(); i += to->group_size) {
    PackInt4Group(row.subspan(i, to->group_size), &codes, to);
  }
  for (size_t i = 0; i < codes.size(); i += 2) {
    to->codes.push_back(static_cast<uint8_t>(codes[i] | codes[i + 1] << 4));
  }
}

}  // namespace

Result<PackedWeights> PackWeights(WeightType type, uint32_t outputs, uint32_t inputs,
                                  uint32_t group_size, std::span<const float> values) {
  if (values.size() != uint64_t{outputs} * inputs) {
    return Status::Invalid("weights: " + std::to_string(values.size()) + " values for " +
                           std::to_string(outputs) + " x " + std::to_string(inputs));
  }
  if (type == WeightType::kInt4 &&
      (group_size == 0 || inputs % group_size != 0 || inputs % 2 != 0)) {
    return Status::Invalid("int4 weights: group_size " + std::to_string(group_size) +
                           " must divide the " + std::to_string(inputs) +
                           " inputs, an even number");
  }
  PackedWeights packed{.type = type, .outputs = outputs, .inputs = inputs};
  if (type == WeightType::kInt4) packed.group_size = group_size;
  for (uint32_t o = 0; o < outputs; ++o) {
    const std::span<const float> row = values.subspan(uint64_t{o} * inputs, inputs);
    if (type == WeightType::kBf16) {
      PackBf16(row, &packed);
    } else if (type == WeightType::kE4m3) {
      PackE4m3(row, &packed);
    } else {
      PackInt4(row, &packed);
    }
  }
  return packed;
}

float WeightAt(const PackedWeights& w, uint32_t output, uint32_t input) {
  const uint64_t at = uint64_t{output} * w.inputs + input;
  if (w.type == WeightType::kBf16) {
    return Bf16ToFloat(static_cast<uint16_t>(w.codes[2 * at] | w.codes[2 * at + 1] << 8));
  }
  if (w.type == WeightType::kE4m3) {
    return Round(DecodeE4m3(w.codes[at]) * Bf16ToFloat(w.scales[output]));
  }
  const uint64_t group = uint64_t{output} * (w.inputs / w.group_size) + input / w.group_size;
  const int code = at % 2 == 0 ? w.codes[at / 2] & 15 : w.codes[at / 2] >> 4;
  return Round(static_cast<float>(code - w.zeros[group]) * Bf16ToFloat(w.scales[group]));
}

}  // namespace kvfence
