// A random batch for decode attention (GQA or MLA): what the rows' tokens are, a paged cache that
// holds them, and what an oracle says of it.
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
  bool mla = false;  // then kv_heads and head_dim say nothing
  uint32_t seq_len_q = 1;
  std::vector<uint32_t> query_tokens;  // by row, if they differ; at most seq_len_q each
  bool causal = true;
  bool page_scales = false;
  bool head_scales = false;
  bool bf16 = false;  // queries and outputs
  bool bf16_kv = false;
  bool hnd = false;
  bool packed_mla = false;  // ckv and kpe, and the queries, each in one piece of 576
  bool csr = false;
  bool slot_table = false;  // one entry per token
  bool wide_integers = false;
  bool interleaved_kv = false;  // K and V pages alternate in one array
  int64_t window_left = -1;
  uint32_t kv_chunk_size = 0;
  bool tiny_numbers = false;  // subnormal codes only
  uint64_t layout_seed = 1;   // where pages lie; nothing else depends on it
};

// 16-byte aligned bytes.
struct Bytes {
  explicit Bytes(size_t n = 0) : words((n + 15) / 16), size(n) {}
  uint8_t* data() { return reinterpret_cast<uint8_t*>(words.data()); }
  struct alignas(16) Word {
    uint8_t bytes[16];
  };
  std::vector<Word> words;
  size_t size;
};

// Either form of the call, as a backend under test takes it.
struct AttentionCall {
  const DecodeAttention* gqa;
  const MlaDecodeAttention* mla;  // null for GQA
};
using AttentionBackend = std::function<Status(const AttentionCall&)>;

class AttentionCase {
 public:
  explicit AttentionCase(const Shape& shape, uint64_t seed = 7);
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  // Runs `backend` and returns the outputs as floats, o of all rows and then lse of all rows.
  std::vector<float> Run(const AttentionBackend& backend);

  // The oracle's answers in the same order, and how far a float backend may be from each
  // (docs/numerics.md). `rounding` of queries and weights, where it's more than the CPU loops'.
  struct Answer {
    double value, bound;
  };
  std::vector<Answer> Expected(double rounding) const;

  const Shape& shape() const { return shape_; }
  uint32_t rows() const { return static_cast<uint32_t>(shape_.lengths.size()); }
  uint32_t QueryTokens(uint32_t row) const;
  size_t o_size() const { return query_tokens_ * shape_.qo_heads * ValueDim(); }
  size_t o_begin(uint32_t row) const;  // where the row's outputs begin
  PagedRows& paged() { return shape_.mla ? static_cast<PagedRows&>(mla) : args; }
  int64_t Entry(uint32_t row, uint64_t at);
  void SetEntry(uint32_t row, uint64_t at, int64_t value);   // also forgets the tokens it named
  void SetLength(uint32_t row, int64_t length);              // on the device only
  void SetNan(uint32_t row, uint64_t position, bool value);  // one token's numbers of all KV heads
  int64_t SlotAt(uint32_t row, uint64_t position) const;
  DecodeAttention args;
  MlaDecodeAttention mla;

 private:
  // One array of the cache, in the shape's layout.
  struct Plane {
    uint8_t* data;
    uint32_t heads, dim;
    uint64_t page, token, head;  // strides in bytes
  };
  void PlacePages(Rng* rng);
  void MakeCache();
  void FillTokens(Rng* rng);
  void FillQueries(Rng* rng);
  void Describe();
  double PutNumber(const Plane& plane, int64_t slot, uint32_t head, uint32_t d, Rng* rng);
  void PutNan(const Plane& plane, int64_t slot);
  uint64_t EntriesBefore(uint32_t row) const;
  std::vector<model::Token> TokensRead(uint32_t row, uint32_t query) const;
  uint8_t NanByte() const { return shape_.bf16_kv ? 0xFF : 0x7F; }  // NaNs are made of it
  uint32_t KvHeads() const { return shape_.mla ? 1 : shape_.kv_heads; }
  uint32_t KeyDim() const { return shape_.mla ? kMlaCkvDim + kMlaKpeDim : shape_.head_dim; }
  uint32_t ValueDim() const { return shape_.mla ? kMlaCkvDim : shape_.head_dim; }
  uint32_t TokensPerEntry() const { return shape_.slot_table ? 1 : shape_.page_size; }
  uint32_t Entries(uint32_t row) const {
    return (shape_.lengths[row] + TokensPerEntry() - 1) / TokensPerEntry();
  }
  IntArray Ints(std::vector<int32_t>* narrow, std::vector<int64_t>* wide, size_t n, int64_t fill);

  Shape shape_;
  uint32_t num_pages_ = 0, width_ = 0;
  size_t query_tokens_ = 0;
  std::vector<std::vector<int64_t>> pages_;  // of each row
  std::vector<std::vector<model::Token>> tokens_;
  std::vector<double> q_;  // [query tokens, qo_heads, key dim], as the kernels see it
  std::vector<float> o_, lse_;
  std::vector<float> q32_[2];
  std::vector<uint16_t> q16_[2], o16_;
  Bytes cache_[2];
  Plane k_{}, tail_{}, v_{};  // for MLA: ckv, kpe, and ckv again
  std::vector<float> k_scales_, v_scales_, k_head_scales_, v_head_scales_;
  std::vector<int32_t> narrow_[5];
  std::vector<int64_t> wide_[5];
};

}  // namespace kvfence
