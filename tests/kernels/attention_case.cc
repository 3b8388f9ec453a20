// Builds random batches; see attention_case.h.
#include "tests/kernels/attention_case.h"

#include <cstring>
#include <utility>

namespace kvfence {
namespace {

float RandomUnit(Rng* rng) { return static_cast<float>(rng->Between(0, 2000)) / 1000.0f - 1.0f; }
float RandomScale(Rng* rng) { return static_cast<float>(rng->Between(1, 8)) / 4.0f; }

}  // namespace

AttentionCase::AttentionCase(const Shape& shape, uint64_t seed) : shape_(shape) {
  Rng content(seed), layout(shape.layout_seed);
  for (uint32_t r = 0; r < rows(); ++r) query_tokens_ += QueryTokens(r);
  PlacePages(&layout);
  MakeCache();
  FillTokens(&content);
  FillQueries(&content);
  Describe();
}

uint32_t AttentionCase::QueryTokens(uint32_t row) const {
  return shape_.query_tokens.empty() ? shape_.seq_len_q : shape_.query_tokens[row];
}

size_t AttentionCase::o_begin(uint32_t row) const {
  size_t before = 0;
  for (uint32_t r = 0; r < row; ++r) before += QueryTokens(r);
  return before * shape_.qo_heads * ValueDim();
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

  PagedRows& a = paged();
  TableView& table = a.table;
  table.layout = shape_.csr ? TableLayout::kCsr : TableLayout::kDense;
  table.rows = rows();
  table.entries_per_page = shape_.slot_table ? shape_.page_size : 1;
  for (uint32_t r = 0; r < rows(); ++r) width_ = std::max(width_, Entries(r));
  table.width = width_;
  table.stride = width_ + 3;
  table.entries_size = shape_.csr ? EntriesBefore(rows()) : rows() * table.stride;
  table.entries = Ints(&narrow_[0], &wide_[0], table.entries_size + 1, 0);
  if (shape_.csr) {
    table.indptr = Ints(&narrow_[1], &wide_[1], rows() + 1, 0);
    table.last_page_len = Ints(&narrow_[2], &wide_[2], rows(), 0);
  } else {
    a.lengths.values = Ints(&narrow_[3], &wide_[3], rows(), 0);
    a.lengths.rows = rows();
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
      a.lengths.values.Set(r, length);
    }
  }
}

// The cache's arrays, full of NaNs.
void AttentionCase::MakeCache() {
  const uint64_t number = shape_.bf16_kv ? 2 : 1;
  const auto plane = [&](uint32_t heads, uint32_t dim, bool hnd) {
    Plane p{nullptr, heads, dim, 0, 0, 0};
    p.page = number * shape_.page_size * heads * dim;
    p.token = hnd ? number * dim : number * heads * dim;
    p.head = hnd ? number * dim * shape_.page_size : number * dim;
    return p;
  };
  const auto make = [&](int which, uint64_t bytes) {
    cache_[which] = Bytes(bytes);
    std::fill_n(cache_[which].data(), bytes, NanByte());
    return cache_[which].data();
  };
  if (!shape_.mla) {
    k_ = v_ = plane(shape_.kv_heads, shape_.head_dim, shape_.hnd);
    if (shape_.interleaved_kv) {
      k_.page = v_.page = 2 * k_.page;
      k_.data = make(0, k_.page * num_pages_);
      v_.data = k_.data + k_.page / 2;
    } else {
      k_.data = make(0, k_.page * num_pages_);
      v_.data = make(1, v_.page * num_pages_);
    }
  } else if (shape_.packed_mla) {
    k_ = plane(1, kMlaCkvDim + kMlaKpeDim, false);
    k_.data = make(0, k_.page * num_pages_);
    tail_ = k_;
    k_.dim = kMlaCkvDim;
    tail_.dim = kMlaKpeDim;
    tail_.data += kMlaCkvDim * number;
    v_ = k_;
  } else {
    k_ = plane(1, kMlaCkvDim, false);
    tail_ = plane(1, kMlaKpeDim, false);
    k_.data = make(0, k_.page * num_pages_);
    tail_.data = make(1, tail_.page * num_pages_);
    v_ = k_;
  }
}

// Writes a random number there and returns what it stands for, scales apart.
double AttentionCase::PutNumber(const Plane& plane, int64_t slot, uint32_t head, uint32_t d,
                                Rng* rng) {
  const uint64_t page = static_cast<uint64_t>(slot) / shape_.page_size;
  const uint64_t token = static_cast<uint64_t>(slot) % shape_.page_size;
  uint8_t* at = plane.data + page * plane.page + token * plane.token + head * plane.head;
  if (!shape_.bf16_kv) {
    auto code = static_cast<uint8_t>(rng->Below(256));
    if ((code & 0x7F) >= 0x68) code &= 0xBF;  // below 32, no NaN
    if (shape_.tiny_numbers) code &= 0x87;
    at[d] = code;
    return model::E4m3Value(code);
  }
  const float scale = shape_.tiny_numbers ? 0x1p-30f : 4.0f;
  const uint16_t code = FloatToBf16(RandomUnit(rng) * scale);
  std::memcpy(at + 2 * d, &code, 2);
  return model::Bf16Value(code);
}

void AttentionCase::PutNan(const Plane& plane, int64_t slot) {
  const uint64_t page = static_cast<uint64_t>(slot) / shape_.page_size;
  const uint64_t token = static_cast<uint64_t>(slot) % shape_.page_size;
  for (uint32_t h = 0; h < plane.heads; ++h) {
    uint8_t* at = plane.data + page * plane.page + token * plane.token + h * plane.head;
    std::memset(at, NanByte(), plane.dim * (shape_.bf16_kv ? 2 : 1));
  }
}

void AttentionCase::FillTokens(Rng* rng) {
  k_scales_.assign(num_pages_, NAN);
  v_scales_.assign(num_pages_, NAN);
  for (uint32_t h = 0; h < KvHeads(); ++h) {
    k_head_scales_.push_back(shape_.head_scales ? RandomScale(rng) : 1.0f);
    v_head_scales_.push_back(shape_.head_scales ? RandomScale(rng) : 1.0f);
  }
  for (uint32_t r = 0; r < rows(); ++r) {
    tokens_.emplace_back();
    double k_scale = 0.25, v_scale = shape_.mla ? 0.25 : 1.5;
    for (uint32_t t = 0; t < shape_.lengths[r]; ++t) {
      const auto page = static_cast<size_t>(pages_[r][t / shape_.page_size]);
      if (shape_.page_scales && t % shape_.page_size == 0) {
        k_scales_[page] = RandomScale(rng);
        v_scales_[page] = shape_.mla ? k_scales_[page] : RandomScale(rng);
        k_scale = 0.25 * double{k_scales_[page]};
        v_scale = (shape_.mla ? 0.25 : 1.5) * double{v_scales_[page]};
      }
      model::Token token;
      const int64_t slot = SlotAt(r, t);
      for (uint32_t h = 0; h < KvHeads(); ++h) {
        for (uint32_t d = 0; d < k_.dim; ++d) {
          token.k.push_back(PutNumber(k_, slot, h, d, rng) * k_scale * double{k_head_scales_[h]});
        }
        for (uint32_t d = 0; d < tail_.dim; ++d) {
          token.k.push_back(PutNumber(tail_, slot, h, d, rng) * k_scale);
        }
        for (uint32_t d = 0; !shape_.mla && d < v_.dim; ++d) {
          token.v.push_back(PutNumber(v_, slot, h, d, rng) * v_scale * double{v_head_scales_[h]});
        }
      }
      if (shape_.mla) token.v.assign(token.k.begin(), token.k.begin() + kMlaCkvDim);
      tokens_[r].push_back(std::move(token));
    }
  }
}

void AttentionCase::FillQueries(Rng* rng) {
  for (int i = 0; i < 2; ++i) {  // arrays are there even if they're empty
    q32_[i].reserve(1);
    q16_[i].reserve(1);
  }
  const uint32_t parts = shape_.mla ? 2 : 1;
  const uint32_t dims[2] = {shape_.mla ? kMlaCkvDim : shape_.head_dim, kMlaKpeDim};
  for (size_t i = 0; i < query_tokens_ * shape_.qo_heads; ++i) {
    for (uint32_t part = 0; part < parts; ++part) {
      const uint32_t array = shape_.packed_mla ? 0 : part;
      for (uint32_t d = 0; d < dims[part]; ++d) {
        const float value = RandomUnit(rng);
        q32_[array].push_back(value);
        q16_[array].push_back(FloatToBf16(value));
        q_.push_back(shape_.bf16 ? model::Bf16Value(q16_[array].back()) : double{value});
      }
    }
  }
  o_.reserve(1);
  o16_.reserve(1);
  o_.assign(o_size(), NAN);
  o16_.assign(o_size(), 0x7FC0);
  lse_.assign(query_tokens_ * shape_.qo_heads, NAN);
}

// Fills in the arguments of both forms' own fields.
void AttentionCase::Describe() {
  PagedRows& a = paged();
  a.rows = rows();
  a.seq_len_q = shape_.seq_len_q;
  a.causal = shape_.causal;
  a.page_size = shape_.page_size;
  a.num_pages = num_pages_;
  a.kv_type = shape_.bf16_kv ? KvType::kBf16 : KvType::kE4m3;
  a.window_left = shape_.window_left;
  a.kv_chunk_size = shape_.kv_chunk_size;
  a.lse = lse_.data();
  if (!shape_.query_tokens.empty()) {
    a.qo_indptr = Ints(&narrow_[4], &wide_[4], rows() + 1, 0);
    a.qo_tokens = query_tokens_;
    for (uint32_t r = 0; r < rows(); ++r) {
      a.qo_indptr.Set(r + 1, a.qo_indptr.Get(r) + shape_.query_tokens[r]);
    }
  }
  const auto query = [&](int array, uint32_t offset) {
    return shape_.bf16 ? FloatArray{q16_[array].data() + offset, FloatType::kBf16}
                       : FloatArray{q32_[array].data() + offset, FloatType::kF32};
  };
  const FloatArray o = shape_.bf16 ? FloatArray{o16_.data(), FloatType::kBf16}
                                   : FloatArray{o_.data(), FloatType::kF32};
  if (shape_.mla) {
    mla.num_heads = shape_.qo_heads;
    mla.q_nope = query(0, 0);
    mla.q_pe = shape_.packed_mla ? query(0, kMlaCkvDim) : query(1, 0);
    if (shape_.packed_mla) mla.q_nope_stride = mla.q_pe_stride = kMlaCkvDim + kMlaKpeDim;
    mla.o = o;
    mla.ckv_cache = k_.data;
    mla.kpe_cache = tail_.data;
    if (shape_.packed_mla) mla.ckv_token_stride = mla.kpe_token_stride = k_.token;
    mla.kv_scale = 0.25f;
    if (shape_.page_scales) mla.kv_page_scales = k_scales_.data();
    mla.sm_scale = 0.0625f;
    return;
  }
  args.num_qo_heads = shape_.qo_heads;
  args.num_kv_heads = shape_.kv_heads;
  args.head_dim = shape_.head_dim;
  args.q = query(0, 0);
  args.o = o;
  args.k_cache = k_.data;
  args.v_cache = v_.data;
  args.kv_layout = shape_.hnd ? KvLayout::kHnd : KvLayout::kNhd;
  if (shape_.interleaved_kv) args.page_stride = k_.page;
  args.k_scale = 0.25f;
  args.v_scale = 1.5f;
  if (shape_.head_scales) {
    args.k_head_scales = k_head_scales_.data();
    args.v_head_scales = v_head_scales_.data();
  }
  if (shape_.page_scales) {
    args.k_page_scales = k_scales_.data();
    args.v_page_scales = v_scales_.data();
  }
}

int64_t AttentionCase::SlotAt(uint32_t row, uint64_t position) const {
  return pages_[row][position / shape_.page_size] * int64_t{shape_.page_size} +
         static_cast<int64_t>(position % shape_.page_size);
}

int64_t AttentionCase::Entry(uint32_t row, uint64_t at) {
  const TableView& table = paged().table;
  return table.entries.Get((shape_.csr ? EntriesBefore(row) : row * table.stride) + at);
}

void AttentionCase::SetEntry(uint32_t row, uint64_t at, int64_t value) {
  const TableView& table = paged().table;
  table.entries.Set((shape_.csr ? EntriesBefore(row) : row * table.stride) + at, value);
  std::vector<model::Token>& tokens = tokens_[row];
  for (uint64_t t = at * TokensPerEntry();
       t < std::min<uint64_t>((at + 1) * TokensPerEntry(), tokens.size()); ++t) {
    tokens[t].k.clear();  // a hole: the oracle leaves it out
  }
}

void AttentionCase::SetLength(uint32_t row, int64_t length) {
  paged().lengths.values.Set(row, length);
}

void AttentionCase::SetNan(uint32_t row, uint64_t position, bool value) {
  PutNan(value ? v_ : k_, SlotAt(row, position));
  model::Token& token = tokens_[row][position];
  if (!value || shape_.mla) {
    for (uint32_t h = 0; h < KvHeads(); ++h) std::fill_n(&token.k[h * KeyDim()], k_.dim, NAN);
  }
  if (value || shape_.mla) std::fill(token.v.begin(), token.v.end(), NAN);
}

std::vector<float> AttentionCase::Run(const AttentionBackend& backend) {
  const Status status = backend({&args, shape_.mla ? &mla : nullptr});
  KVF_CHECK(status.ok(), status.message().c_str());
  std::vector<float> result = o_;
  if (shape_.bf16) std::transform(o16_.begin(), o16_.end(), result.begin(), Bf16ToFloat);
  result.insert(result.end(), lse_.begin(), lse_.end());
  return result;
}

// The tokens that the row's query token reads, from the definition in kvfence/attention.h.
std::vector<model::Token> AttentionCase::TokensRead(uint32_t row, uint32_t query) const {
  const std::vector<model::Token>& all = tokens_[row];
  const int64_t own = static_cast<int64_t>(all.size()) - QueryTokens(row) + query;
  std::vector<model::Token> read;
  for (int64_t p = 0; p < static_cast<int64_t>(all.size()); ++p) {
    const bool ahead = shape_.causal && p > own;
    const bool behind = shape_.window_left >= 0 && p < own - shape_.window_left;
    const bool hole = all[static_cast<size_t>(p)].k.empty();
    if (own >= 0 && !ahead && !behind && !hole) read.push_back(all[static_cast<size_t>(p)]);
  }
  return read;
}

std::vector<AttentionCase::Answer> AttentionCase::Expected(double rounding) const {
  std::vector<Answer> o, lse;
  model::AttentionShape s{shape_.qo_heads, KvHeads(), KeyDim(), ValueDim(), 0.0625};
  if (!shape_.mla) {
    s.sm_scale = args.sm_scale != 0 ? double{args.sm_scale} : 1 / std::sqrt(double(KeyDim()));
  }
  const double u = std::ldexp(1, -24);
  const double factor = std::max(rounding, std::ldexp(1, shape_.bf16_kv ? -16 : -20));
  size_t next = 0;
  for (uint32_t r = 0; r < rows(); ++r) {
    for (uint32_t i = 0; i < QueryTokens(r); ++i, next += shape_.qo_heads * KeyDim()) {
      const auto begin = q_.begin() + static_cast<std::ptrdiff_t>(next);
      const std::vector<double> q(begin, begin + shape_.qo_heads * KeyDim());
      const std::vector<model::Token> read = TokensRead(r, i);
      const model::AttentionResult found = model::Attention(q, read, s);
      const double n = static_cast<double>(read.size()) + 64;
      for (size_t j = 0; j < found.o.size(); ++j) {
        const double score = found.score_size[j / ValueDim()] * ((KeyDim() + 8) * u + factor);
        const double bound = found.value_size[j] * (std::expm1(2 * score) + factor + 1.5 * n * u);
        const double stored = shape_.bf16 ? std::fabs(found.o[j]) * std::ldexp(1, -8) : 0;
        o.push_back({found.o[j], bound + stored + 1e-30});
      }
      for (size_t h = 0; h < found.lse.size(); ++h) {
        const double score = found.score_size[h] * ((KeyDim() + 8) * u + factor);
        lse.push_back({found.lse[h], score + n * u * (1 + std::fabs(found.lse[h]))});
      }
    }
  }
  o.insert(o.end(), lse.begin(), lse.end());
  return o;
}

}  // namespace kvfence
