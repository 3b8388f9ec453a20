// What no backend can run is refused here, once, in words.
#include <cstdint>
#include <string>

#include "kvfence/attention.h"

namespace kvfence {
namespace {

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

Status CheckShape(const DecodeAttention& a) {
  if (a.num_kv_heads == 0 || a.num_qo_heads == 0 || a.num_qo_heads % a.num_kv_heads != 0) {
    return Status::Invalid("num_qo_heads must be a positive multiple of num_kv_heads");
  }
  if (a.num_kv_heads > 65535) return Status::Invalid("num_kv_heads must be at most 65535");
  if (a.head_dim != 32 && a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) {
    return Status::Invalid("head_dim must be 32, 64, 128 or 256, not " +
                           std::to_string(a.head_dim));
  }
  if (a.page_size == 0) return Status::Invalid("page_size must be at least 1");
  if (a.page_stride % 16 != 0) return Status::Invalid("page_stride must be a multiple of 16");
  const uint64_t packed = uint64_t{a.page_size} * a.num_kv_heads * a.head_dim;
  if (a.page_stride != 0 && a.page_stride < packed) {
    return Status::Invalid("page_stride is smaller than a page");
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

}  // namespace

Status CheckDecodeAttention(const DecodeAttention& a) {
  if (Status shape = CheckShape(a); !shape.ok()) return shape;
  if (a.rows == 0) return Status();
  if (a.q.data == nullptr || a.o.data == nullptr) return Status::Invalid("q or o is missing");
  if (a.k_cache == nullptr || a.v_cache == nullptr) {
    return Status::Invalid("k_cache or v_cache is missing");
  }
  if (!Aligned(a.k_cache) || !Aligned(a.v_cache)) {
    return Status::Invalid("k_cache and v_cache must be 16-byte aligned");
  }
  return CheckTable(a.table, a.page_size, a.lengths.values.present());
}

}  // namespace kvfence
