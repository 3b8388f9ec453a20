// The small transformer's arithmetic: everything of a layer but the cache and attention over it.
//
// Idea: each function takes n tokens and computes each of them for itself, every sum in one fixed
// order, so that a token's numbers don't depend on the batch, chunk or rank it is computed in.
// Between operations activations are BF16, as in w16a16, w8a16 and w4a16 serving: `float` arrays
// here hold BF16 numbers. What both the served model and the solo run compute with is in this file;
// what could go wrong with pages is in neither (numeric_model.h, solo_transformer.h). Invariant
// I-151: a token's result is the same to the bit in any batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvfence/transformer_shape.h"

namespace kvfence {

// Weights, unpacked, in panels of 8 outputs: panel p, input i, output 8p + j at [(p * in + i) * 8 +
// j]; missing outputs of the last panel are zero.
struct Matrix {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  std::vector<float> panels;
};
// y[t][o] = sum over inputs, ascending, of x[t][i] * w[o][i]; floats, not rounded.
void Multiply(const Matrix& w, const float* x, uint64_t tokens, float* y);

// A token that enters a pass.
struct TokenIn {
  uint32_t id = 0;
  int64_t position = 0;
  uint64_t salt = 0;  // of the request's identity
};

// A layer belongs to one of the engine's groups, and is its `index`-th there.
struct LayerPlace {
  size_t group = 0;
  size_t index = 0;
  uint64_t window = 0;  // tokens that a token reads, itself included; 0: all
};

class Transformer {
 public:
  // `windows`: of each group. Weights come of the seed.
  Transformer(const TransformerShape& shape, std::span<const uint64_t> windows, uint64_t ranks,
              uint64_t seed);

  const TransformerShape& shape() const { return shape_; }
  std::span<const LayerPlace> layers() const { return places_; }
  uint64_t ranks() const { return ranks_; }
  bool mla() const { return shape_.attention == AttentionForm::kMla; }
  uint32_t hidden() const { return shape_.hidden; }
  // Of one rank; numbers of a key and of a value, per KV head. MLA's value is the key's first part.
  uint32_t heads() const { return shape_.heads; }
  uint32_t kv_heads() const { return mla() ? 1 : shape_.kv_heads; }
  uint32_t key_dim() const { return mla() ? kMlaCkvDim + kMlaKpeDim : shape_.head_dim; }
  uint32_t value_dim() const { return mla() ? kMlaCkvDim : shape_.head_dim; }
  float sm_scale() const;
  float kv_scale() const;  // what a stored 1 stands for

  // h[n][hidden] of the tokens.
  void Embed(std::span<const TokenIn> tokens, float* h) const;
  // x[n][hidden]: what the layer's attention is given.
  void Normed(size_t layer, const float* h, uint64_t n, float* x) const;
  // q[n][heads][key_dim] of the rank.
  void Queries(size_t layer, size_t rank, std::span<const TokenIn> tokens, const float* x,
               float* q) const;
  // k[n][kv_heads][key_dim], and v[n][kv_heads][value_dim] unless it's MLA.
  void KeysValues(size_t layer, size_t rank, std::span<const TokenIn> tokens, const float* x,
                  float* k, float* v) const;
  // Adds to h what the ranks' o[n][heads][value_dim] come to, then the layer's MLP.
  void Finish(size_t layer, std::span<const std::vector<float>> o, uint64_t n, float* h) const;
  // Of a token behind the last layer. The low 16 bits are the largest logit's token, the lowest
  // of equals; the rest is a digest of all logits' bits.
  uint64_t Result(const float* h) const;
  std::vector<float> Logits(const float* h) const;
  uint32_t TokenOf(uint64_t result, uint32_t sample) const;

 private:
  struct RankWeights {
    Matrix query, key, value;        // GQA: [heads * dim, hidden]; MLA: key is [576, hidden]
    std::vector<Matrix> up_k, up_v;  // MLA, by head: [512, 32] and [32, 512]
    Matrix output;                   // [hidden, heads * dim]
  };
  struct Layer {
    std::vector<float> attention_norm, mlp_norm, latent_norm;
    std::vector<RankWeights> ranks;
    Matrix gate, up, down;
  };
  void Rotate(int64_t position, float* pairs, uint32_t dim) const;
  void LatentQueries(const RankWeights& w, std::span<const TokenIn> tokens, const float* x,
                     float* q) const;
  void AddAttention(const Layer& layer, std::span<const std::vector<float>> o, uint64_t n,
                    float* h) const;
  void AddMlp(const Layer& layer, uint64_t n, float* h) const;

  TransformerShape shape_;
  uint64_t ranks_;
  std::vector<LayerPlace> places_;
  std::vector<Layer> layers_;
  std::vector<float> embedding_;  // [vocab][hidden]
  std::vector<float> final_norm_;
  Matrix logits_;
  std::vector<double> frequencies_;  // by pair of numbers that rotate together
  std::vector<float> rotations_;     // [position][pair] cosine and sine, of early positions
};

}  // namespace kvfence
