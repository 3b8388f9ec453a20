// A random batch for decode attention: what the rows' tokens are, and a paged cache that holds
// them.
//
// All that no row may read (unused pages, slots past a row's end, the null page) is filled with NaN
// codes, so that a stray read shows in the output.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/bf16.h"
#include "kvfence/rng.h"
#include "tests/model/attention_model.h"

namespace kvfence {

struct Shape {
  uint32_t qo_heads = 8, kv_heads = 2, head_dim = 64, page_size = 16;
  std::vector<uint32_t> lengths = {1, 16, 17, 100};
  bool page_scales = false;
  bool bf16 = false;
  bool csr = false;
  bool slot_table = false;  // one entry per token
  bool wide_integers = false;
  bool interleaved_kv = false;  // K and V pages alternate in one array
  int64_t window_left = -1;
  uint64_t layout_seed = 1;  // where pages lie; nothing else depends on it
};

// 16-byte aligned bytes.
struct Bytes {
  explicit Bytes(size_t n, uint8_t fill = 0) : words((n + 15) / 16) {
    std::fill_n(data(), n, fill);
  }
  uint8_t* data() { return reinterpret_cast<uint8_t*>(words.data()); }
  struct alignas(16) Word {
    uint8_t bytes[16];
  };
  std::vector<Word> words;
};

class AttentionCase {
 public:
  explicit AttentionCase(const Shape& shape, uint64_t seed = 7);

  // Runs `backend` and returns the outputs as floats, o of all rows and then lse of all rows.
  std::vector<float> Run(const std::function<Status(const DecodeAttention&)>& backend);

  // The oracle's answer in the same order.
  std::vector<double> Expected() const;

  uint32_t rows() const { return static_cast<uint32_t>(shape_.lengths.size()); }
  size_t o_size() const { return size_t{rows()} * shape_.qo_heads * shape_.head_dim; }
  int64_t Entry(uint32_t row, uint64_t at) const;
  void SetEntry(uint32_t row, uint64_t at, int64_t value);  // also forgets the tokens it named
  void SetLength(uint32_t row, int64_t length);             // on the device only
  uint8_t* Codes(bool value, int64_t slot);                 // one token's codes of all KV heads
  int64_t SlotAt(uint32_t row, uint64_t position) const;
  DecodeAttention args;

 private:
  void PlacePages(Rng* rng);
  void FillTokens(Rng* rng);
  uint64_t EntriesBefore(uint32_t row) const;
  uint32_t TokensPerEntry() const { return shape_.slot_table ? 1 : shape_.page_size; }
  uint32_t Entries(uint32_t row) const {
    return (shape_.lengths[row] + TokensPerEntry() - 1) / TokensPerEntry();
  }
  IntArray Ints(std::vector<int32_t>* narrow, std::vector<int64_t>* wide, size_t n, int64_t fill);

  Shape shape_;
  uint32_t num_pages_ = 0, width_ = 0;
  std::vector<std::vector<int64_t>> pages_;  // of each row
  std::vector<std::vector<model::Token>> tokens_;
  std::vector<float> q_, o_, lse_;
  std::vector<uint16_t> q16_, o16_;
  Bytes k_{0}, v_{0};
  std::vector<float> k_scales_, v_scales_;
  std::vector<int32_t> narrow_[4];
  std::vector<int64_t> wide_[4];
};

}  // namespace kvfence
