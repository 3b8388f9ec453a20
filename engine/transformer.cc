#include "transformer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kvfence/bf16.h"
#include "kvfence/check.h"
#include "kvfence/rng.h"

namespace kvfence {
namespace {

constexpr uint32_t kLatentHead = 32;     // MLA: a head's numbers before absorption
constexpr uint32_t kPanel = 8;           // outputs side by side
constexpr int64_t kEarly = 2048;         // positions whose rotations are kept
constexpr double kRotationBase = 10000;  // RoPE's usual base
constexpr uint64_t kTokenBits = 16;
using Four = float __attribute__((vector_size(16)));

float Round(float value) { return Bf16ToFloat(FloatToBf16(value)); }

// kTokens tokens, one panel of outputs.
template <uint64_t kTokens>
void MultiplyPanel(const float* panel, const float* x, uint32_t inputs, float (*sums)[kPanel]) {
  Four low[kTokens] = {};
  Four high[kTokens] = {};
  for (uint32_t i = 0; i < inputs; ++i) {
    Four w[2];
    __builtin_memcpy(w, panel + uint64_t{i} * kPanel, sizeof w);
    for (uint64_t t = 0; t < kTokens; ++t) {
      const float one = x[t * inputs + i];
      low[t] += w[0] * one;
      high[t] += w[1] * one;
    }
  }
  for (uint64_t t = 0; t < kTokens; ++t) {
    __builtin_memcpy(sums[t], &low[t], sizeof(Four));
    __builtin_memcpy(sums[t] + 4, &high[t], sizeof(Four));
  }
}

// x / rms(x) * weight, both steps rounded to BF16.
void NormInto(const float* x, std::span<const float> weight, float* y) {
  float squares = 0.0f;
  for (size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const float mean = squares / static_cast<float>(weight.size());
  const float scale = 1.0f / std::sqrt(mean + 1e-6f);
  for (size_t i = 0; i < weight.size(); ++i) y[i] = Round(Round(x[i] * scale) * weight[i]);
}

void RoundAll(float* values, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) values[i] = Round(values[i]);
}

// A float of 16 significant bits, so that its product with a BF16 number is exact.
float Short(double value) {
  const uint32_t bits = BitsOfFloat(static_cast<float>(value));
  return FloatOfBits((bits + 0x80u) & ~0xFFu);
}

// Draws weights, packs them as they'd be stored, and unpacks what is stored.
class Weights {
 public:
  Weights(const TransformerShape& shape, uint64_t seed) : shape_(shape), rng_(seed) {}

  // Uniform in +-gain * sqrt(3 / inputs): outputs are about as large as inputs, times the gain.
  Matrix Draw(uint32_t outputs, uint32_t inputs, WeightType type, float gain = 1.0f) {
    std::vector<float> values(uint64_t{outputs} * inputs);
    const float most = gain * std::sqrt(3.0f / static_cast<float>(inputs));
    for (float& value : values) value = most * Unit();
    Result<PackedWeights> packed = PackWeights(type, outputs, inputs, shape_.group_size, values);
    KVF_CHECK(packed.ok(), "the transformer's shape was checked");
    Matrix matrix{.inputs = inputs, .outputs = outputs, .panels = {}};
    matrix.panels.resize(uint64_t{(outputs + kPanel - 1) / kPanel} * inputs * kPanel);
    for (uint32_t o = 0; o < outputs; ++o) {
      for (uint32_t i = 0; i < inputs; ++i) {
        matrix.panels[(uint64_t{o / kPanel} * inputs + i) * kPanel + o % kPanel] =
            WeightAt(*packed, o, i);
      }
    }
    return matrix;
  }
  std::vector<float> Norm(uint32_t n) {
    std::vector<float> weights(n);
    for (float& weight : weights) weight = Round(1.0f + 0.1f * Unit());
    return weights;
  }
  // Uniform in (-1, 1).
  float Unit() {
    return static_cast<float>(static_cast<int64_t>(rng_.Next() >> 40) - (int64_t{1} << 23)) *
           0x1p-23f;
  }

 private:
  const TransformerShape& shape_;
  Rng rng_;
};

}  // namespace

Status CheckTransformerShape(const TransformerShape& s) {
  struct Range {
    const char* name;
    uint32_t value, least, most;
  };
  for (const Range& r :
       {Range{"layers", s.layers, 1, 64}, Range{"hidden", s.hidden, 8, 8192},
        Range{"heads", s.heads, 1, 256}, Range{"kv_heads", s.kv_heads, 1, 256},
        Range{"mlp", s.mlp, 8, 32768}, Range{"vocab", s.vocab, 2, 1u << kTokenBits}}) {
    if (r.value >= r.least && r.value <= r.most) continue;
    return Status::Invalid("numeric: " + std::string(r.name) + " must be " +
                           std::to_string(r.least) + " to " + std::to_string(r.most) + ", not " +
                           std::to_string(r.value));
  }
  if (s.attention == AttentionForm::kGqa && s.heads % s.kv_heads != 0) {
    return Status::Invalid("numeric: heads must be a multiple of kv_heads");
  }
  if (s.head_dim != 32 && s.head_dim != 64 && s.head_dim != 128 && s.head_dim != 256) {
    return Status::Invalid("numeric: head_dim must be 32, 64, 128 or 256, not " +
                           std::to_string(s.head_dim));
  }
  if (s.vocab % 2 != 0) return Status::Invalid("numeric: vocab must be even");
  if (s.weights == WeightType::kInt4) {
    const bool divides = s.group_size > 0 && s.group_size % 2 == 0 &&
                         s.hidden % s.group_size == 0 && s.mlp % s.group_size == 0 &&
                         kLatentHead % s.group_size == 0 && s.head_dim % s.group_size == 0;
    if (!divides) {
      return Status::Invalid("numeric: group_size must be even and divide hidden, mlp, head_dim " +
                             std::string("and 32, not ") + std::to_string(s.group_size));
    }
  }
  return Status();
}

void Multiply(const Matrix& w, const float* x, uint64_t tokens, float* y) {
  float sums[4][kPanel];
  for (uint32_t first = 0; first < w.outputs; first += kPanel) {
    const float* panel = w.panels.data() + uint64_t{first} * w.inputs;
    const uint32_t outputs = std::min(kPanel, w.outputs - first);
    for (uint64_t t = 0; t < tokens;) {
      const uint64_t n = tokens - t >= 4 ? 4 : 1;
      if (n == 4) {
        MultiplyPanel<4>(panel, x + t * w.inputs, w.inputs, sums);
      } else {
        MultiplyPanel<1>(panel, x + t * w.inputs, w.inputs, sums);
      }
      for (uint64_t i = 0; i < n; ++i) {
        std::copy_n(sums[i], outputs, y + (t + i) * w.outputs + first);
      }
      t += n;
    }
  }
}

Transformer::Transformer(const TransformerShape& shape, std::span<const uint64_t> windows,
                         uint64_t ranks, uint64_t seed)
    : shape_(shape), ranks_(ranks) {
  for (uint32_t index = 0; index < shape.layers; ++index) {
    for (size_t g = 0; g < windows.size(); ++g) {
      if (index > 0 && g > 0) continue;
      places_.push_back({.group = g, .index = index, .window = windows[g]});
    }
  }
  Weights draw(shape_, Mix64(seed ^ 0x4E756D));
  const WeightType type = shape.weights;
  for (float& value : (embedding_.resize(uint64_t{shape.vocab} * shape.hidden), embedding_)) {
    value = Round(draw.Unit());
  }
  for (size_t l = 0; l < places_.size(); ++l) {
    Layer& layer = layers_.emplace_back();
    layer.attention_norm = draw.Norm(shape.hidden);
    layer.mlp_norm = draw.Norm(shape.hidden);
    if (mla()) layer.latent_norm = draw.Norm(kMlaCkvDim);
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      RankWeights& w = layer.ranks.emplace_back();
      // Larger than usual, so that attention looks at few tokens and each of them matters.
      constexpr float kSharp = 3.0f;
      const uint32_t head = mla() ? kLatentHead : shape.head_dim;
      w.query = draw.Draw(heads() * (mla() ? kLatentHead + kMlaKpeDim : head), shape.hidden, type,
                          kSharp);
      if (!mla() || rank == 0) w.key = draw.Draw(kv_heads() * key_dim(), shape.hidden, type);
      if (!mla()) w.value = draw.Draw(kv_heads() * head, shape.hidden, type);
      for (uint32_t h = 0; mla() && h < heads(); ++h) {
        w.up_k.push_back(draw.Draw(kMlaCkvDim, kLatentHead, type, 0.25f));
        w.up_v.push_back(draw.Draw(kLatentHead, kMlaCkvDim, type));
      }
      w.output = draw.Draw(shape.hidden, heads() * head, type);
    }
    layer.gate = draw.Draw(shape.mlp, shape.hidden, type);
    layer.up = draw.Draw(shape.mlp, shape.hidden, type);
    layer.down = draw.Draw(shape.hidden, shape.mlp, type);
  }
  final_norm_ = draw.Norm(shape.hidden);
  logits_ = draw.Draw(shape.vocab, shape.hidden, WeightType::kBf16, 2.0f);
  const uint32_t rotated = mla() ? kMlaKpeDim : shape.head_dim;
  for (uint32_t i = 0; i < rotated / 2; ++i) {
    frequencies_.push_back(std::pow(kRotationBase, -2.0 * i / rotated));
  }
  for (int64_t position = 0; position < kEarly; ++position) {
    for (const double f : frequencies_) {
      rotations_.push_back(Short(std::cos(static_cast<double>(position) * f)));
      rotations_.push_back(Short(std::sin(static_cast<double>(position) * f)));
    }
  }
}

float Transformer::sm_scale() const {
  return 1.0f / std::sqrt(static_cast<float>(mla() ? kLatentHead + kMlaKpeDim : shape_.head_dim));
}
float Transformer::kv_scale() const { return shape_.kv == KvType::kE4m3 ? 0.05f : 1.0f; }

// An identity's adapter is a vector of its own, added to each embedding.
void Transformer::Embed(std::span<const TokenIn> tokens, float* h) const {
  for (size_t t = 0; t < tokens.size(); ++t) {
    const float* row = embedding_.data() + uint64_t{tokens[t].id % shape_.vocab} * shape_.hidden;
    for (uint32_t d = 0; d < shape_.hidden; ++d) {
      const auto drawn = static_cast<int32_t>(Mix64(tokens[t].salt + d) >> 33);
      const float adapter = (static_cast<float>(drawn) * 0x1p-30f - 1.0f) * 0.5f;
      h[t * shape_.hidden + d] = Round(row[d] + Round(adapter));
    }
  }
}

void Transformer::Normed(size_t layer, const float* h, uint64_t n, float* x) const {
  for (uint64_t t = 0; t < n; ++t) {
    NormInto(h + t * shape_.hidden, layers_[layer].attention_norm, x + t * shape_.hidden);
  }
}

// Number i of a head goes round with number i + dim / 2.
void Transformer::Rotate(int64_t position, float* pairs, uint32_t dim) const {
  const uint32_t half = dim / 2;
  const float* early =
      position < kEarly ? rotations_.data() + static_cast<uint64_t>(position) * dim : nullptr;
  for (uint32_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    const float cosine = early != nullptr ? early[2 * i] : Short(std::cos(angle));
    const float sine = early != nullptr ? early[2 * i + 1] : Short(std::sin(angle));
    const float a = pairs[i];
    const float b = pairs[i + half];
    pairs[i] = Round(a * cosine - b * sine);
    pairs[i + half] = Round(b * cosine + a * sine);
  }
}

void Transformer::LatentQueries(const RankWeights& w, std::span<const TokenIn> tokens,
                                const float* x, float* q) const {
  const uint32_t before = kLatentHead + kMlaKpeDim;
  std::vector<float> raw(tokens.size() * heads() * before);
  Multiply(w.query, x, tokens.size(), raw.data());
  RoundAll(raw.data(), raw.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (uint32_t h = 0; h < heads(); ++h) {
      const float* head = raw.data() + (t * heads() + h) * before;
      float* to = q + (t * heads() + h) * key_dim();
      Multiply(w.up_k[h], head, 1, to);
      RoundAll(to, kMlaCkvDim);
      std::copy_n(head + kLatentHead, kMlaKpeDim, to + kMlaCkvDim);
      Rotate(tokens[t].position, to + kMlaCkvDim, kMlaKpeDim);
    }
  }
}

void Transformer::Queries(size_t layer, size_t rank, std::span<const TokenIn> tokens,
                          const float* x, float* q) const {
  const RankWeights& w = layers_[layer].ranks[rank];
  if (mla()) return LatentQueries(w, tokens, x, q);
  Multiply(w.query, x, tokens.size(), q);
  RoundAll(q, tokens.size() * w.query.outputs);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (uint32_t h = 0; h < heads(); ++h) {
      Rotate(tokens[t].position, q + (t * heads() + h) * shape_.head_dim, shape_.head_dim);
    }
  }
}

// MLA's latent is the same on all ranks, as tensor parallelism has it.
void Transformer::KeysValues(size_t layer, size_t rank, std::span<const TokenIn> tokens,
                             const float* x, float* k, float* v) const {
  const RankWeights& w = layers_[layer].ranks[mla() ? 0 : rank];
  Multiply(w.key, x, tokens.size(), k);
  RoundAll(k, tokens.size() * w.key.outputs);
  if (mla()) {
    for (size_t t = 0; t < tokens.size(); ++t) {
      float* latent = k + t * key_dim();
      NormInto(latent, layers_[layer].latent_norm, latent);
      Rotate(tokens[t].position, latent + kMlaCkvDim, kMlaKpeDim);
    }
    return;
  }
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (uint32_t h = 0; h < kv_heads(); ++h) {
      Rotate(tokens[t].position, k + (t * kv_heads() + h) * shape_.head_dim, shape_.head_dim);
    }
  }
  Multiply(w.value, x, tokens.size(), v);
  RoundAll(v, tokens.size() * w.value.outputs);
}

void Transformer::AddAttention(const Layer& layer, std::span<const std::vector<float>> o,
                               uint64_t n, float* h) const {
  std::vector<float> sum(n * shape_.hidden);
  std::vector<float> part(n * shape_.hidden);
  std::vector<float> values;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const RankWeights& w = layer.ranks[rank];
    const float* heads_out = o[rank].data();
    if (mla()) {
      values.resize(n * heads() * kLatentHead);
      for (uint64_t i = 0; i < n * heads(); ++i) {
        Multiply(w.up_v[i % heads()], heads_out + i * kMlaCkvDim, 1,
                 values.data() + i * kLatentHead);
      }
      RoundAll(values.data(), values.size());
      heads_out = values.data();
    }
    Multiply(w.output, heads_out, n, part.data());
    // The all-reduce, in the ranks' order.
    for (uint64_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  for (uint64_t i = 0; i < sum.size(); ++i) h[i] = Round(h[i] + Round(sum[i]));
}

// down(silu(gate(x)) * up(x)).
void Transformer::AddMlp(const Layer& layer, uint64_t n, float* h) const {
  std::vector<float> x(n * shape_.hidden);
  std::vector<float> gate(n * shape_.mlp);
  std::vector<float> up(n * shape_.mlp);
  for (uint64_t t = 0; t < n; ++t) {
    NormInto(h + t * shape_.hidden, layer.mlp_norm, x.data() + t * shape_.hidden);
  }
  Multiply(layer.gate, x.data(), n, gate.data());
  Multiply(layer.up, x.data(), n, up.data());
  for (uint64_t i = 0; i < gate.size(); ++i) {
    const double g = static_cast<double>(Round(gate[i]));
    const float silu = Round(static_cast<float>(g / (1.0 + std::exp(-g))));
    gate[i] = Round(silu * Round(up[i]));
  }
  Multiply(layer.down, gate.data(), n, x.data());
  for (uint64_t i = 0; i < x.size(); ++i) h[i] = Round(h[i] + Round(x[i]));
}

void Transformer::Finish(size_t layer, std::span<const std::vector<float>> o, uint64_t n,
                         float* h) const {
  AddAttention(layers_[layer], o, n, h);
  AddMlp(layers_[layer], n, h);
}

std::vector<float> Transformer::Logits(const float* h) const {
  std::vector<float> x(shape_.hidden);
  NormInto(h, final_norm_, x.data());
  std::vector<float> logits(shape_.vocab);
  Multiply(logits_, x.data(), 1, logits.data());
  return logits;
}

uint64_t Transformer::Result(const float* h) const {
  const std::vector<float> logits = Logits(h);
  uint64_t digest = 0;
  uint64_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool number = logits[i] == logits[i];
    digest = Mix64(digest ^ (number ? BitsOfFloat(logits[i]) : 0x7FC00000u));
    if (logits[i] > logits[best]) best = i;
  }
  return digest << kTokenBits | best;
}

// Greedy; a further sample is drawn by the logits' own digest.
uint32_t Transformer::TokenOf(uint64_t result, uint32_t sample) const {
  if (sample == 0) return static_cast<uint32_t>(result & ((1u << kTokenBits) - 1));
  return static_cast<uint32_t>(Mix64(result + sample) % shape_.vocab);
}

}  // namespace kvfence
