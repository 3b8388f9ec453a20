// What no backend can run is refused here, once, in words.
#include <cstdint>
#include <string>

#include "attention_problem.h"

namespace kvfence {
namespace {

constexpr uint32_t kTile = 32;  // parts of a context are whole tiles

bool Aligned(uint64_t bytes) { return bytes % 16 == 0; }
bool Aligned(const void* p) { return Aligned(reinterpret_cast<uintptr_t>(p)); }

Status CheckShape(const DecodeAttention& a) {
  if (a.num_kv_heads == 0 || a.num_qo_heads == 0 || a.num_qo_heads % a.num_kv_heads != 0) {
    return Status::Invalid("num_qo_heads must be a positive multiple of num_kv_heads");
  }
  if (a.num_kv_heads > 65535) return Status::Invalid("num_kv_heads must be at most 65535");
  if (a.head_dim != 32 && a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) {
    return Status::Invalid("head_dim must be 32, 64, 128 or 256, not " +
                           std::to_string(a.head_dim));
  }
  if (!Aligned(a.page_stride)) return Status::Invalid("page_stride must be a multiple of 16");
  const uint64_t number = a.kv_type == KvType::kE4m3 ? 1 : 2;
  const uint64_t packed = number * a.page_size * a.num_kv_heads * a.head_dim;
  if (a.page_stride != 0 && a.page_stride < packed) {
    return Status::Invalid("page_stride is smaller than a page");
  }
  return Status();
}

Status CheckShape(const MlaDecodeAttention& a) {
  if (a.num_heads == 0) return Status::Invalid("num_heads must be at least 1");
  if (a.sm_scale == 0.0f) return Status::Invalid("MLA needs sm_scale");
  if (!Aligned(a.ckv_token_stride) || !Aligned(a.ckv_page_stride) || !Aligned(a.kpe_token_stride) ||
      !Aligned(a.kpe_page_stride)) {
    return Status::Invalid("ckv and kpe strides must be multiples of 16");
  }
  const auto refused = [&](uint32_t dim, uint64_t token, uint64_t page) {
    const uint64_t packed = uint64_t{dim} * (a.kv_type == KvType::kE4m3 ? 1 : 2);
    if (token != 0 && token < packed) return true;
    return page != 0 && page < (token != 0 ? token : packed) * a.page_size;
  };
  if (refused(kMlaCkvDim, a.ckv_token_stride, a.ckv_page_stride) ||
      refused(kMlaKpeDim, a.kpe_token_stride, a.kpe_page_stride)) {
    return Status::Invalid("a stride of ckv or kpe is smaller than what it spans");
  }
  if ((a.q_nope_stride != 0 && a.q_nope_stride < kMlaCkvDim) ||
      (a.q_pe_stride != 0 && a.q_pe_stride < kMlaKpeDim)) {
    return Status::Invalid("q_nope_stride or q_pe_stride is smaller than a head");
  }
  return Status();
}

Status CheckTable(const TableView& table, uint32_t page_size, bool have_lengths) {
  if (!table.entries.present()) return Status::Invalid("the table has no entries");
  if (table.divisor <= 0) return Status::Invalid("the table's divisor must be positive");
  if (table.entries_per_page == 0 || page_size % table.entries_per_page != 0) {
    return Status::Invalid("entries_per_page must divide page_size");
  }
  const bool csr = table.layout == TableLayout::kCsr;
  if (csr && !table.indptr.present()) return Status::Invalid("a csr table needs indptr");
  if (!have_lengths && !(csr && table.last_page_len.present())) {
    return Status::Invalid("neither lengths nor last_page_len are given");
  }
  return Status();
}

template <class Attention>
Status Check(const Attention& a) {
  if (a.page_size == 0) return Status::Invalid("page_size must be at least 1");
  if (a.seq_len_q == 0) return Status::Invalid("seq_len_q must be at least 1");
  if (a.kv_chunk_size % kTile != 0) {
    return Status::Invalid("kv_chunk_size must be a multiple of 32");
  }
  if (a.kv_chunk_size > 1u << 31) return Status::Invalid("kv_chunk_size must be at most 2^31");
  if (a.num_pages > ~0u) return Status::Invalid("num_pages must be below 2^32");
  if (Status shape = CheckShape(a); !shape.ok()) return shape;
  const attention::Problem p = attention::ProblemOf(a);
  if (uint64_t{p.seq_len_q} * p.num_qo_heads > 1u << 18) {
    return Status::Invalid("seq_len_q * heads must be at most 2^18");
  }
  if (a.rows == 0) return Status();
  if (p.q0.array.data == nullptr || (p.dim_k1 != 0 && p.q1.array.data == nullptr)) {
    return Status::Invalid("a query is missing");
  }
  if (p.o.data == nullptr) return Status::Invalid("o is missing");
  if (p.k0.data == nullptr || p.v.data == nullptr || (p.dim_k1 != 0 && p.k1.data == nullptr)) {
    return Status::Invalid("a cache is missing");
  }
  if (!Aligned(p.k0.data) || !Aligned(p.v.data) || !Aligned(p.k1.data)) {
    return Status::Invalid("caches must be 16-byte aligned");
  }
  if (a.workspace != nullptr && a.workspace_bytes < DecodeWorkspaceBytes(a)) {
    return Status::Invalid("the workspace is smaller than DecodeWorkspaceBytes");
  }
  return CheckTable(a.table, a.page_size, a.lengths.values.present());
}

}  // namespace

Status CheckDecodeAttention(const DecodeAttention& a) { return Check(a); }
Status CheckDecodeAttention(const MlaDecodeAttention& a) { return Check(a); }

}  // namespace kvfence
