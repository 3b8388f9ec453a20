#include "kvfence/ground_truth.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence {

PositionWeights::PositionWeights(uint64_t page_size, uint64_t width)
    : page_(width), slot_(page_size) {
  for (uint64_t k = 0; k < width; ++k) page_[k] = Mix64(k) | 1;
  for (uint64_t o = 0; o < page_size; ++o) slot_[o] = Mix64(~o) | 1;
}

GoldenRun::GoldenRun(const Model* model, uint64_t salt, bool keep_sums)
    : model_(model), salt_(salt), keep_sums_(keep_sums), recent_(model->size()) {
  for (size_t part = 0; part < model->size(); ++part) {
    recent_[part].resize(static_cast<size_t>((*model)[part].window));
  }
}

void GoldenRun::Append(std::span<const uint32_t> tokens) {
  if (model_->size() == 1 && model_->front().window == 0) return AppendToOne(tokens);
  for (const uint32_t token : tokens) AppendToAll(token);
}

void GoldenRun::AppendToOne(std::span<const uint32_t> tokens) {
  const PositionWeights& weights = *model_->front().weights;
  const std::span<const uint64_t> slots = weights.slots();
  uint64_t page = position_ / slots.size();
  uint64_t offset = position_ % slots.size();
  uint64_t sum = sum_;
  size_t i = 0;
  while (i < tokens.size()) {
    const uint64_t page_weight = weights.PageWeight(page);
    const size_t end = i + std::min<size_t>(tokens.size() - i, slots.size() - offset);
    for (; i < end; ++i, ++offset) {
      sum += page_weight * slots[offset] * ContentOfToken(sum, position_ + i, tokens[i], salt_);
      if (keep_sums_) sums_.push_back(sum);
    }
    if (offset == slots.size()) {
      offset = 0;
      ++page;
    }
  }
  sum_ = sum;
  position_ += tokens.size();
}

// The token at position_ reads what is left of the sum when windows have moved on by one.
void GoldenRun::AppendToAll(uint32_t token) {
  const uint64_t p = position_;
  for (size_t part = 0; part < model_->size(); ++part) {
    std::vector<uint64_t>& recent = recent_[part];
    if (!recent.empty() && p >= recent.size()) sum_ -= recent[p % recent.size()];
  }
  const uint64_t before = sum_;
  for (size_t part = 0; part < model_->size(); ++part) {
    const PositionWeights& w = *(*model_)[part].weights;
    const uint64_t term = w.PageWeight(p / w.page_size()) * w.SlotWeight(p % w.page_size()) *
                          ContentOfToken(before, p, token, PartSalt(salt_, part));
    if (!recent_[part].empty()) recent_[part][p % recent_[part].size()] = term;
    sum_ += term;
  }
  ++position_;
  if (keep_sums_) sums_.push_back(sum_);
}

void GoldenRun::Prefill(std::span<const uint32_t> prompt) {
  KVF_CHECK(!started() && !prompt.empty(), "I-40 a golden run begins once, with a prompt");
  if (keep_sums_) sums_.push_back(0);
  Append(prompt);
}

void GoldenRun::Advance() {
  const uint32_t token = TokenOf(Result());
  Append({&token, 1});
}

}  // namespace kvfence
