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
    : model_(model), salt_(salt), keep_sums_(keep_sums), recent_(model->size()) {}

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
    const uint64_t window = (*model_)[part].window;
    if (window != 0 && p >= window) sum_ -= recent_[part][p % window];
  }
  const uint64_t before = sum_;
  for (size_t part = 0; part < model_->size(); ++part) {
    const PositionWeights& w = *(*model_)[part].weights;
    const uint64_t term = w.PageWeight(p / w.page_size()) * w.SlotWeight(p % w.page_size()) *
                          ContentOfToken(before, p, token, PartSalt(salt_, part));
    const uint64_t window = (*model_)[part].window;
    if (window != 0 && p < window) recent_[part].push_back(term);
    if (window != 0 && p >= window) recent_[part][p % window] = term;
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

void GoldenRun::Advance(uint32_t sample) {
  const uint32_t token = TokenOf(Result(), sample);
  Append({&token, 1});
}

// Goes on and comes back: only what the windows forget on the way has to be kept.
void GoldenRun::Ahead(size_t n, uint32_t sample, std::vector<uint64_t>* results) {
  const uint64_t sum = sum_, position = position_;
  std::vector<uint64_t> forgotten;  // by token, then by part with a window
  for (size_t i = 0; i < n; ++i) {
    results->push_back(Result());
    if (i + 1 == n) break;
    for (size_t part = 0; part < recent_.size(); ++part) {
      const uint64_t window = (*model_)[part].window;
      if (window != 0 && position_ >= window)
        forgotten.push_back(recent_[part][position_ % window]);
    }
    Advance(sample);
  }
  for (; position_ > position; --position_) {
    for (size_t part = recent_.size(); part-- > 0;) {
      const uint64_t window = (*model_)[part].window;
      if (window == 0) continue;
      if (position_ <= window) {
        recent_[part].pop_back();
        continue;
      }
      recent_[part][(position_ - 1) % window] = forgotten.back();
      forgotten.pop_back();
    }
  }
  sum_ = sum;
  if (keep_sums_) sums_.resize(position_ + 1);
}

}  // namespace kvfence
