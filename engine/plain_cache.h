// A KV cache that knows no pages, and attention over it: the solo run's.
//
// Idea: a page can only be wrong where there are pages, so the run that says what is right has a
// cache of positions. Its numbers are those that a pool stores (quantised by the same codec), and
// its sums run in the order that docs/numerics.md lays down, written anew as plain loops over
// floats; nothing of kernels/attention* is used. Invariant I-152: the same tokens give the same
// bits here as paged attention on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "kvfence/attention.h"

namespace kvfence {

class PlainCache {
 public:
  struct Shape {
    uint32_t heads = 1;     // query heads
    uint32_t kv_heads = 1;  // `heads` is a multiple
    uint32_t key_dim = 0, value_dim = 0;
    bool value_is_key = false;  // MLA: a value is its key's first numbers
    KvType type = KvType::kE4m3;
    float scale = 1.0f;  // what a stored 1 stands for
    float sm_scale = 1.0f;
  };
  explicit PlainCache(const Shape& shape) : shape_(shape), heads_(shape.kv_heads) {}

  uint64_t length() const { return length_; }
  void Truncate(uint64_t length) { length_ = length; }
  // One token: k[kv_heads][key_dim], v[kv_heads][value_dim] (unused where value_is_key).
  void Append(const float* k, const float* v);
  // What the token at `position` reads, itself included, of the last `window` tokens (0: all).
  // q[heads][key_dim], o[heads][value_dim], which are BF16 numbers.
  void Attend(const float* q, uint64_t position, uint64_t window, float* o) const;

 private:
  struct Head {
    std::vector<float> keys;    // [tile][dim][32]
    std::vector<float> values;  // [position][dim]
  };
  // A query head's sums over some of the context.
  struct Sums {
    float max;
    float weights[16];  // weight i has the tokens i and i + 16 of each tile
    std::vector<float> values;
  };
  float Stored(float value) const;
  void TakeTile(const Head& head, const float* q, uint64_t tile, uint64_t begin, uint64_t end,
                Sums* sums) const;
  void AttendHead(const Head& head, const float* q, uint64_t begin, uint64_t end, float* o) const;

  Shape shape_;
  std::vector<Head> heads_;
  uint64_t length_ = 0;
};

}  // namespace kvfence
