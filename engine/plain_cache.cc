#include "plain_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvfence/bf16.h"
#include "kvfence/fp8.h"

namespace kvfence {
namespace {

constexpr uint64_t kTile = 32;    // positions that are taken at a time
constexpr uint64_t kPart = 1024;  // positions whose sums are taken for themselves, then joined
constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896340736f;

// 2^x for x <= 0: a polynomial in x minus its nearest whole number, one rounding per operation;
// nothing below 2^-126.
float Power(float x) {
  constexpr float kWhole = 0x1.8p23f;  // a float of this size has no fraction: adding it rounds
  const float shifted = x + kWhole;
  const float rest = x - (shifted - kWhole);
  constexpr float kTerms[] = {1.5403530393e-4f,
                              1.3333558146e-3f,
                              9.6181291076e-3f,
                              5.5504108665e-2f,
                              2.4022650696e-1f,
                              6.9314718056e-1f,
                              1.0f};
  float power = 1.5252733804e-5f;
  for (const float term : kTerms) power = power * rest + term;
  const float scaled = FloatOfBits(BitsOfFloat(power) + (BitsOfFloat(shifted) << 23));
  return x < -126.0f ? 0.0f : scaled;
}
// What sums under `old_max` are multiplied by when the largest score becomes `max`.
float Keep(float old_max, float max) {
  if (max == old_max) return 1.0f;
  return old_max == kNothing ? 0.0f : Power(old_max - max);
}

// To 24 - `bits` significant bits, ties away from zero.
float Shorten(float value, uint32_t bits) {
  const uint32_t word = BitsOfFloat(value) + (1u << (bits - 1));
  return FloatOfBits(word & ~((1u << bits) - 1));
}

}  // namespace

float PlainCache::Stored(float value) const {
  if (shape_.type == KvType::kE4m3) return DecodeE4m3(EncodeE4m3(value / shape_.scale));
  const float stored = Bf16ToFloat(FloatToBf16(value / shape_.scale));
  return std::fabs(stored) < 0x1p-40f ? 0.0f : stored;
}

void PlainCache::Append(const float* k, const float* v) {
  const uint64_t tile = length_ / kTile;
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
    Head& head = heads_[h];
    head.keys.resize((tile + 1) * kTile * shape_.key_dim);
    head.values.resize((length_ + 1) * shape_.value_dim);
    float* key = head.keys.data() + tile * kTile * shape_.key_dim + length_ % kTile;
    for (uint32_t d = 0; d < shape_.key_dim; ++d) {
      key[d * kTile] = Stored(k[uint64_t{h} * shape_.key_dim + d]);
    }
    float* value = head.values.data() + length_ * shape_.value_dim;
    for (uint32_t d = 0; d < shape_.value_dim; ++d) {
      value[d] =
          shape_.value_is_key ? key[d * kTile] : Stored(v[uint64_t{h} * shape_.value_dim + d]);
    }
  }
  ++length_;
}

void PlainCache::TakeTile(const Head& head, const float* q, uint64_t tile, uint64_t begin,
                          uint64_t end, Sums* sums) const {
  const float* keys = head.keys.data() + tile * kTile * shape_.key_dim;
  const uint32_t half = shape_.key_dim / 2;
  float low[kTile] = {};
  float high[kTile] = {};
  for (uint32_t d = 0; d < half; ++d) {
    const float* key = keys + d * kTile;
    for (uint64_t t = 0; t < kTile; ++t) low[t] += q[d] * key[t];
  }
  for (uint32_t d = half; d < shape_.key_dim; ++d) {
    const float* key = keys + d * kTile;
    for (uint64_t t = 0; t < kTile; ++t) high[t] += q[d] * key[t];
  }
  const float scale = shape_.sm_scale * shape_.scale * kLog2E;
  const uint64_t from = begin > tile * kTile ? begin - tile * kTile : 0;
  const uint64_t to = std::min(end - tile * kTile, kTile);
  float scores[kTile];
  float max = sums->max;
  for (uint64_t t = 0; t < kTile; ++t) {
    scores[t] = t >= from && t < to ? (low[t] + high[t]) * scale : kNothing;
    max = std::max(max, scores[t]);
  }
  const float keep = Keep(sums->max, max);
  sums->max = max;
  for (uint64_t t = 0; t < kTile; ++t) scores[t] = Power(scores[t] - max);
  for (uint64_t i = 0; i < kTile / 2; ++i) {
    sums->weights[i] = sums->weights[i] * keep + (scores[i] + scores[i + kTile / 2]);
  }
  for (float& value : sums->values) value *= keep;
  for (uint64_t t = from; t < to; ++t) {
    const float weight = scores[t] < 0x1p-60f ? 0.0f : scores[t];
    const float used = Shorten(weight, shape_.type == KvType::kE4m3 ? 4 : 8);
    const float* value = head.values.data() + (tile * kTile + t) * shape_.value_dim;
    for (uint32_t d = 0; d < shape_.value_dim; ++d) sums->values[d] += used * value[d];
  }
}

void PlainCache::AttendHead(const Head& head, const float* q, uint64_t begin, uint64_t end,
                            float* o) const {
  float max = kNothing;
  float weight = 0.0f;
  std::vector<float> total(shape_.value_dim);
  Sums sums;
  for (uint64_t part = begin / kPart; part * kPart < end; ++part) {
    const uint64_t first = std::max(begin, part * kPart);
    const uint64_t last = std::min(end, (part + 1) * kPart);
    sums.max = kNothing;
    std::fill_n(sums.weights, 16, 0.0f);
    sums.values.assign(shape_.value_dim, 0.0f);
    for (uint64_t tile = first / kTile; tile * kTile < last; ++tile) {
      TakeTile(head, q, tile, first, last, &sums);
    }
    for (uint32_t width = 8; width > 0; width /= 2) {
      for (uint32_t i = 0; i < width; ++i) sums.weights[i] += sums.weights[i + width];
    }
    const float largest = std::max(max, sums.max);
    const float keep = max == kNothing ? 0.0f : Power(max - largest);
    const float take = Power(sums.max - largest);
    weight = weight * keep + sums.weights[0] * take;
    max = largest;
    for (uint32_t d = 0; d < shape_.value_dim; ++d) {
      total[d] = total[d] * keep + sums.values[d] * take;
    }
  }
  const float scale = shape_.scale / weight;
  for (uint32_t d = 0; d < shape_.value_dim; ++d) {
    o[d] = Bf16ToFloat(FloatToBf16(total[d] * scale));
  }
}

void PlainCache::Attend(const float* q, uint64_t position, uint64_t window, float* o) const {
  const uint64_t begin = window > 0 && position + 1 > window ? position + 1 - window : 0;
  const uint32_t group = shape_.heads / shape_.kv_heads;
  for (uint32_t h = 0; h < shape_.heads; ++h) {
    AttendHead(heads_[h / group], q + uint64_t{h} * shape_.key_dim, begin, position + 1,
               o + uint64_t{h} * shape_.value_dim);
  }
}

}  // namespace kvfence
