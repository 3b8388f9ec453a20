#include "solo_transformer.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence {
namespace {

constexpr uint64_t kBlock = 64;  // tokens that are multiplied at a time

}  // namespace

SoloTransformer::SoloTransformer(const Transformer* model, uint64_t salt, bool keep_results)
    : model_(model), salt_(salt), keep_results_(keep_results) {
  const PlainCache::Shape shape{.heads = model->heads(),
                                .kv_heads = model->kv_heads(),
                                .key_dim = model->key_dim(),
                                .value_dim = model->value_dim(),
                                .value_is_key = model->mla(),
                                .type = model->shape().kv,
                                .scale = model->kv_scale(),
                                .sm_scale = model->sm_scale()};
  caches_.assign(model->layers().size() * model->ranks(), PlainCache(shape));
}

void SoloTransformer::Prefill(std::span<const uint32_t> prompt) {
  KVF_CHECK(length_ == 0 && !prompt.empty(), "I-40 a golden run begins once, with a prompt");
  tokens_.assign(prompt.begin(), prompt.end());
  length_ = prompt_ = prompt.size();
}

uint64_t SoloTransformer::ResultAt(uint64_t length) {
  ComputeTo(length);
  return results_[length - 1];
}
uint64_t SoloTransformer::Result() { return ResultAt(length_); }

void SoloTransformer::Advance(uint32_t sample) {
  Follow(length_, model_->TokenOf(Result(), sample));
  ++length_;
}

void SoloTransformer::Ahead(size_t n, uint32_t sample, std::vector<uint64_t>* results) {
  for (size_t i = 0; i < n; ++i) {
    results->push_back(ResultAt(length_ + i));
    if (i + 1 < n) Follow(length_ + i, model_->TokenOf(results->back(), sample));
  }
}

void SoloTransformer::Follow(uint64_t at, uint32_t token) {
  if (at < tokens_.size() && tokens_[at] == token) return;
  tokens_.resize(at);
  tokens_.push_back(token);
  if (results_.size() <= at) return;
  results_.resize(at);
  for (PlainCache& cache : caches_) cache.Truncate(at);
}

void SoloTransformer::ComputeTo(uint64_t length) {
  while (results_.size() < length) {
    const uint64_t begin = results_.size();
    ComputeBlock(begin, std::min(begin + kBlock, length));
  }
}

void SoloTransformer::ComputeBlock(uint64_t begin, uint64_t end) {
  const Transformer& m = *model_;
  const uint64_t n = end - begin;
  std::vector<TokenIn> tokens;
  for (uint64_t p = begin; p < end; ++p) {
    tokens.push_back({.id = tokens_[p], .position = static_cast<int64_t>(p), .salt = salt_});
  }
  const uint64_t queries = uint64_t{m.heads()} * m.key_dim();
  const uint64_t keys = uint64_t{m.kv_heads()} * m.key_dim();
  const uint64_t values = uint64_t{m.kv_heads()} * m.value_dim();
  const uint64_t out = uint64_t{m.heads()} * m.value_dim();
  std::vector<float> h(n * m.hidden()), x(n * m.hidden());
  std::vector<float> q(n * queries), k(n * keys), v(n * values);
  std::vector<std::vector<float>> o(m.ranks(), std::vector<float>(n * out));
  m.Embed(tokens, h.data());
  for (size_t layer = 0; layer < m.layers().size(); ++layer) {
    m.Normed(layer, h.data(), n, x.data());
    for (size_t rank = 0; rank < m.ranks(); ++rank) {
      PlainCache& cache = CacheOf(layer, rank);
      m.Queries(layer, rank, tokens, x.data(), q.data());
      m.KeysValues(layer, rank, tokens, x.data(), k.data(), v.data());
      for (uint64_t t = 0; t < n; ++t) {
        cache.Append(k.data() + t * keys, v.data() + t * values);
        cache.Attend(q.data() + t * queries, begin + t, m.layers()[layer].window,
                     o[rank].data() + t * out);
      }
    }
    m.Finish(layer, o, n, h.data());
  }
  for (uint64_t t = 0; t < n; ++t) {
    const bool wanted = keep_results_ || begin + t + 1 >= prompt_;
    results_.push_back(wanted ? m.Result(h.data() + t * m.hidden()) : 0);
  }
}

}  // namespace kvfence
