// Builds random batches; see attention_case.h.
#include "tests/kernels/attention_case.h"

#include <utility>

namespace kvfence {
namespace {

constexpr uint8_t kNanCode = 0x7F;

uint8_t RandomCode(Rng* rng) {
  const auto code = static_cast<uint8_t>(rng->Below(256));
  return (code & 0x7F) >= 0x68 ? static_cast<uint8_t>(code & 0xBF) : code;  // below 32, no NaN
}

float RandomUnit(Rng* rng) { return static_cast<float>(rng->Between(0, 2000)) / 1000.0f - 1.0f; }

}  // namespace

AttentionCase::AttentionCase(const Shape& shape, uint64_t seed) : shape_(shape) {
  Rng content(seed), layout(shape.layout_seed);
  const size_t packed = size_t{shape.page_size} * shape.kv_heads * shape.head_dim;
  PlacePages(&layout);
  if (shape.interleaved_kv) {
    k_ = Bytes(2 * packed * num_pages_, kNanCode);
    args.v_cache = k_.data() + packed;
    args.page_stride = 2 * packed;
  } else {
    k_ = Bytes(packed * num_pages_, kNanCode);
    v_ = Bytes(packed * num_pages_, kNanCode);
    args.v_cache = v_.data();
  }
  args.k_cache = k_.data();
  args.rows = rows();
  args.num_qo_heads = shape.qo_heads;
  args.num_kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.page_size = shape.page_size;
  args.num_pages = num_pages_;
  args.k_scale = 0.25f;
  args.v_scale = 1.5f;
  args.window_left = shape.window_left;
  k_scales_.assign(num_pages_, NAN);
  v_scales_.assign(num_pages_, NAN);
  if (shape.page_scales) {
    args.k_page_scales = k_scales_.data();
    args.v_page_scales = v_scales_.data();
  }
  FillTokens(&content);
  o_.assign(o_size(), NAN);
  o16_.assign(o_size(), 0x7FC0);
  lse_.assign(size_t{rows()} * shape.qo_heads, NAN);
  for (size_t i = 0; i < o_size(); ++i) q_.push_back(RandomUnit(&content));
  for (float& value : q_) {
    q16_.push_back(FloatToBf16(value));
    if (shape.bf16) value = Bf16ToFloat(q16_.back());
  }
  if (shape.bf16) {
    args.q = {q16_.data(), FloatType::kBf16};
    args.o = {o16_.data(), FloatType::kBf16};
  } else {
    args.q = {q_.data(), FloatType::kF32};
    args.o = {o_.data(), FloatType::kF32};
  }
  args.lse = lse_.data();
}

IntArray AttentionCase::Ints(std::vector<int32_t>* narrow, std::vector<int64_t>* wide, size_t n,
                             int64_t fill) {
  if (shape_.wide_integers) {
    wide->assign(n, fill);
    return {wide->data(), 64};
  }
  narrow->assign(n, static_cast<int32_t>(fill));
  return {narrow->data(), 32};
}

uint64_t AttentionCase::EntriesBefore(uint32_t row) const {
  uint64_t before = 0;
  for (uint32_t r = 0; r < row; ++r) before += Entries(r);
  return before;
}

// Gives each row its pages, in an order drawn from the layout seed, and writes the table.
void AttentionCase::PlacePages(Rng* rng) {
  uint32_t needed = 0;
  for (uint32_t length : shape_.lengths) {
    needed += (length + shape_.page_size - 1) / shape_.page_size;
  }
  num_pages_ = needed + 5;
  std::vector<int64_t> order(num_pages_ - 1);
  std::iota(order.begin(), order.end(), int64_t{1});  // page 0 is the null page
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng->Below(i)]);

  TableView& table = args.table;
  table.layout = shape_.csr ? TableLayout::kCsr : TableLayout::kDense;
  table.rows = rows();
  table.entries_per_page = shape_.slot_table ? shape_.page_size : 1;
  for (uint32_t r = 0; r < rows(); ++r) width_ = std::max(width_, Entries(r));
  table.width = width_;
  table.stride = width_ + 3;
  table.entries_size = shape_.csr ? EntriesBefore(rows()) : rows() * table.stride;
  table.entries = Ints(&narrow_[0], &wide_[0], table.entries_size, 0);
  if (shape_.csr) {
    table.indptr = Ints(&narrow_[1], &wide_[1], rows() + 1, 0);
    table.last_page_len = Ints(&narrow_[2], &wide_[2], rows(), 0);
  } else {
    args.lengths.values = Ints(&narrow_[3], &wide_[3], rows(), 0);
    args.lengths.rows = rows();
  }
  size_t next = 0;
  for (uint32_t r = 0; r < rows(); ++r) {
    pages_.emplace_back();
    const uint32_t length = shape_.lengths[r];
    for (uint32_t p = 0; p * shape_.page_size < length; ++p) pages_[r].push_back(order[next++]);
    for (uint32_t e = 0; e < Entries(r); ++e) {
      const int64_t slot = SlotAt(r, uint64_t{e} * TokensPerEntry());
      table.entries.Set((shape_.csr ? EntriesBefore(r) : r * table.stride) + e,
                        slot / TokensPerEntry());
    }
    if (shape_.csr) {
      table.indptr.Set(r + 1, static_cast<int64_t>(EntriesBefore(r + 1)));
      table.last_page_len.Set(r, length == 0 ? 0 : (length - 1) % TokensPerEntry() + 1);
    } else {
      args.lengths.values.Set(r, length);
    }
  }
}

void AttentionCase::FillTokens(Rng* rng) {
  for (uint32_t r = 0; r < rows(); ++r) {
    tokens_.emplace_back();
    double k_scale = 1, v_scale = 1;
    for (uint32_t t = 0; t < shape_.lengths[r]; ++t) {
      const auto page = static_cast<size_t>(pages_[r][t / shape_.page_size]);
      if (shape_.page_scales && t % shape_.page_size == 0) {
        k_scale = k_scales_[page] = static_cast<float>(rng->Between(1, 8)) / 4.0f;
        v_scale = v_scales_[page] = static_cast<float>(rng->Between(1, 8)) / 4.0f;
      }
      model::Token token;
      token.k_scale = k_scale * 0.25;
      token.v_scale = v_scale * 1.5;
      for (size_t i = 0; i < size_t{shape_.kv_heads} * shape_.head_dim; ++i) {
        token.k.push_back(RandomCode(rng));
        token.v.push_back(RandomCode(rng));
      }
      std::copy(token.k.begin(), token.k.end(), Codes(false, SlotAt(r, t)));
      std::copy(token.v.begin(), token.v.end(), Codes(true, SlotAt(r, t)));
      tokens_[r].push_back(std::move(token));
    }
  }
}

int64_t AttentionCase::SlotAt(uint32_t row, uint64_t position) const {
  return pages_[row][position / shape_.page_size] * int64_t{shape_.page_size} +
         static_cast<int64_t>(position % shape_.page_size);
}

uint8_t* AttentionCase::Codes(bool value, int64_t slot) {
  const size_t token = size_t{shape_.kv_heads} * shape_.head_dim;
  const size_t packed = token * shape_.page_size;
  const size_t page = static_cast<size_t>(slot) / shape_.page_size;
  const size_t in_page = static_cast<size_t>(slot) % shape_.page_size * token;
  uint8_t* base = const_cast<uint8_t*>(value ? args.v_cache : args.k_cache);
  return base + page * (args.page_stride != 0 ? args.page_stride : packed) + in_page;
}

int64_t AttentionCase::Entry(uint32_t row, uint64_t at) const {
  return args.table.entries.Get((shape_.csr ? EntriesBefore(row) : row * args.table.stride) + at);
}

void AttentionCase::SetEntry(uint32_t row, uint64_t at, int64_t value) {
  args.table.entries.Set((shape_.csr ? EntriesBefore(row) : row * args.table.stride) + at, value);
  std::vector<model::Token>& tokens = tokens_[row];
  for (uint64_t t = at * TokensPerEntry();
       t < std::min<uint64_t>((at + 1) * TokensPerEntry(), tokens.size()); ++t) {
    tokens[t].k.clear();  // a hole: the oracle leaves it out
  }
}

void AttentionCase::SetLength(uint32_t row, int64_t length) {
  args.lengths.values.Set(row, length);
}

std::vector<float> AttentionCase::Run(
    const std::function<Status(const DecodeAttention&)>& backend) {
  const Status status = backend(args);
  KVF_CHECK(status.ok(), status.message().c_str());
  std::vector<float> result = o_;
  if (shape_.bf16) std::transform(o16_.begin(), o16_.end(), result.begin(), Bf16ToFloat);
  result.insert(result.end(), lse_.begin(), lse_.end());
  return result;
}

std::vector<double> AttentionCase::Expected() const {
  std::vector<double> o, lse;
  const size_t per_row = size_t{shape_.qo_heads} * shape_.head_dim;
  for (uint32_t r = 0; r < rows(); ++r) {
    const std::vector<float> q(q_.begin() + static_cast<long>(r * per_row),
                               q_.begin() + static_cast<long>((r + 1) * per_row));
    const std::vector<model::Token>& all = tokens_[r];
    std::vector<model::Token> read;
    for (size_t t = 0; t < all.size(); ++t) {
      const bool in_window =
          shape_.window_left < 0 || static_cast<int64_t>(all.size() - 1 - t) <= shape_.window_left;
      if (in_window && !all[t].k.empty()) read.push_back(all[t]);
    }
    const model::AttentionResult row = model::Attention(
        q, read, shape_.qo_heads, shape_.kv_heads, shape_.head_dim,
        args.sm_scale != 0 ? double{args.sm_scale} : 1 / std::sqrt(double{1} * shape_.head_dim));
    o.insert(o.end(), row.o.begin(), row.o.end());
    lse.insert(lse.end(), row.lse.begin(), row.lse.end());
  }
  o.insert(o.end(), lse.begin(), lse.end());
  return o;
}

}  // namespace kvfence
