#include "kvfence/ground_truth.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence {

PositionWeights::PositionWeights(uint64_t page_size, uint64_t width)
    : page_(width), slot_(page_size) {
  for (uint64_t k = 0; k < width; ++k) page_[k] = Mix64(k) | 1;
  for (uint64_t o = 0; o < page_size; ++o) slot_[o] = Mix64(~o) | 1;
}

void GoldenRun::Append(std::span<const uint32_t> tokens) {
  const std::span<const uint64_t> slots = weights_->slots();
  uint64_t page = position_ / slots.size();
  uint64_t offset = position_ % slots.size();
  uint64_t sum = sum_;
  size_t i = 0;
  while (i < tokens.size()) {
    const uint64_t page_weight = weights_->PageWeight(page);
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
