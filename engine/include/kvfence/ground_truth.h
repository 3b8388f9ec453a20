// The function that stands for the model, and each request's solo golden run.
//
// Idea: let S(p) be the sum of weight(j) * content(j) over the positions j < p that a row reads, in
// all parts of the cache (groups of layers, some of which read only the last W positions).
// The content written for the token at p is Content(S(p), p, token, salt), and what the pass
// computes after it is Result(S(p + 1), p + 1, salt). So each slot holds a function of the whole
// chain of tokens up to its position, of the identity and of the pool, and a result depends on
// every slot that was read, in place: one foreign page, one lost slot or a length that is off
// changes it (a collision has the chance of 2^-64). Because S is a sum, a page's share is
// weight(page) * digest(page), and the digest is kept up to date as slots are written: a decode
// step costs one multiplication per page. The golden run computes the same chain with no cache, no
// pages and no batch around it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvfence/rng.h"

namespace kvfence {

// weight(position) = PageWeight(position / page_size) * SlotWeight(position % page_size), all odd.
class PositionWeights {
 public:
  // For positions below page_size * width.
  PositionWeights(uint64_t page_size, uint64_t width);
  uint64_t page_size() const { return slot_.size(); }
  uint64_t PageWeight(uint64_t logical_page) const { return page_[logical_page]; }
  uint64_t SlotWeight(uint64_t offset) const { return slot_[offset]; }
  std::span<const uint64_t> slots() const { return slot_; }
  std::span<const uint64_t> pages() const { return page_; }

 private:
  std::vector<uint64_t> page_;
  std::vector<uint64_t> slot_;
};

// What the KV of the token at `position` is, given what its row reads before it.
constexpr uint64_t ContentOfToken(uint64_t sum, uint64_t position, uint32_t token, uint64_t salt) {
  return Mix64(sum + salt + (position << 32 | token) * 0xD6E8FEB86659FD93u);
}
// What a pass over `length` tokens computes for its last one. The length counts by itself: a slot
// of zeros too many changes an attention's result too.
constexpr uint64_t ResultOf(uint64_t sum, uint64_t length, uint64_t salt) {
  return Mix64((sum + length * 0xA0761D6478BD642Fu) ^ ~salt);
}
// The sampled token; siblings of one request sample differently.
constexpr uint32_t TokenOf(uint64_t result, uint32_t sample = 0) {
  return static_cast<uint32_t>((sample == 0 ? result : Mix64(result + sample)) >> 33);
}
// What sets one identity's content in one pool apart.
constexpr uint64_t ContentSalt(uint32_t identity, uint32_t pool) {
  return Mix64(uint64_t{identity} << 32 | pool);
}

// The number that undoes a multiplication by the odd `factor`, modulo 2^64: each round of Newton's
// iteration doubles the bits that are right.
constexpr uint64_t InverseOf(uint64_t factor) {
  uint64_t inverse = factor;
  for (int round = 0; round < 5; ++round) inverse *= 2 - factor * inverse;
  return inverse;
}

// One part of the model's cache: a group of layers. Position j counts in what is read for position
// p only if p - j < window (0: always).
struct ModelPart {
  const PositionWeights* weights = nullptr;
  uint64_t window = 0;
};
using Model = std::vector<ModelPart>;
// Content of each part differs, though made from the same sum: that over all parts.
constexpr uint64_t PartSalt(uint64_t salt, size_t part) {
  return part == 0 ? salt : Mix64(salt + part);
}

// One request alone, without cache, pages or faults. O(prompt) at the start, then O(1) per token.
class GoldenRun {
 public:
  // With `keep_sums` the sum that each length reads is kept, for ResultAt.
  GoldenRun(const Model* model, uint64_t salt, bool keep_sums);

  bool started() const { return position_ > 0; }
  void Prefill(std::span<const uint32_t> prompt);
  // The result of the pass whose last token is at length() - 1.
  uint64_t Result() const { return ResultOf(sum_, position_, salt_); }
  // Appends the token that is sampled from Result().
  void Advance(uint32_t sample = 0);
  // Appends Result() and those of the next n - 1 tokens; the run stays where it is.
  void Ahead(size_t n, uint32_t sample, std::vector<uint64_t>* results);
  uint64_t length() const { return position_; }
  // The result of a pass that ends at `length`, 1 <= length <= length(). Needs keep_sums.
  uint64_t ResultAt(uint64_t length) const { return ResultOf(sums_[length], length, salt_); }

 private:
  void Append(std::span<const uint32_t> tokens);
  void AppendToOne(std::span<const uint32_t> tokens);  // a single part without window
  void AppendToAll(uint32_t token);

  const Model* model_;
  uint64_t salt_;
  uint64_t sum_ = 0;  // what a pass that ends at position_ reads
  uint64_t position_ = 0;
  bool keep_sums_;
  std::vector<uint64_t> sums_;  // sums_[p]: what a pass that ends at p reads
  // By part with a window: of the last `window` positions, weighted; position p's at p % window.
  std::vector<std::vector<uint64_t>> recent_;
};

}  // namespace kvfence
