// Views of the arrays that attention and append kernels read: tables, write slots, lengths.
//
// Idea: the fence understands the field's layouts without conversion and never owns these arrays.
// All are indexed by batch row. Every array carries its integer width. Pointers are device pointers
// for the CUDA backend and plain memory for the CPU backend. POD, usable in kernels; a null `data`
// means "not there". Negative values and values beyond the pool are legal to represent: judging
// them is what the fence is for.
#pragma once

#include <cstdint>

#include "kvfence/tag.h"

namespace kvfence {

// Integers of 32 or 64 bits, as engines have both.
struct IntArray {
  void* data = nullptr;
  uint32_t bits = 32;

  KVF_HD bool present() const { return data != nullptr; }
  KVF_HD int64_t Get(uint64_t i) const {
    return bits == 32 ? static_cast<int64_t>(static_cast<const volatile int32_t*>(data)[i])
                      : static_cast<const volatile int64_t*>(data)[i];
  }
  KVF_HD void Set(uint64_t i, int64_t value) const {
    if (bits == 32) {
      static_cast<volatile int32_t*>(data)[i] = static_cast<int32_t>(value);
    } else {
      static_cast<volatile int64_t*>(data)[i] = value;
    }
  }
};

// Three layouts of the field: dense page table (vLLM, TensorRT-LLM, FlashAttention), csr
// (FlashInfer), and the dense slot table (SGLang req_to_token), which is dense with
// entries_per_page = page_size and a row_map.
enum class TableLayout : uint32_t {
  kDense,  // entries[r * stride + k], k < width, r = row_map[row] or row
  kCsr,    // entries[indptr[row] + k], k < indptr[row + 1] - indptr[row]
};

// What the fence may do to a failing row of this table.
enum class SanitiseMode : uint32_t {
  kInPlace,  // a per-step copy: entries become the null page
  kRestore,  // the engine's only copy: as in place, and put back after confirm (needs `saved`)
  kNever,    // live and shared with others: only the verdict (sanitise the plan made from it)
};

struct TableView {
  TableLayout layout = TableLayout::kDense;
  SanitiseMode sanitise = SanitiseMode::kInPlace;
  IntArray entries{};
  uint64_t entries_size = 0;  // how many integers `entries` has: nothing beyond is touched
  uint64_t stride = 0;        // dense: integers from one row to the next
  uint64_t width = 0;         // dense: entries of a row that may be read
  uint32_t rows = 0;          // rows that the table (or indptr) has
  IntArray indptr{};          // csr: rows + 1
  IntArray last_page_len{};   // csr: rows, valid tokens in the last page
  IntArray row_map{};         // optional: batch row -> table row (req_pool_indices, idx_mapping)
  IntArray saved{};           // kRestore: as large as `entries`
  // Entry decode, for engines that pack flags, split pages into kernel blocks or list slots:
  // u = (entry & mask) / divisor; page = u / entries_per_page, and the entry with index i of a row
  // must have u % entries_per_page == i % entries_per_page. A negative entry is no page at all.
  int64_t mask = -1;
  int64_t divisor = 1;
  uint32_t entries_per_page = 1;
};

// Write slots, one per new token, row by row: those of row r are slots[indptr[r] .. indptr[r+1]).
// Negative (or the pool's skip slot): the token is not written.
struct SlotView {
  IntArray slots{};
  uint64_t slots_size = 0;
  IntArray indptr{};  // rows + 1; query_start_loc
  uint32_t rows = 0;
};

// Length of each batch row as attention uses it, new tokens included. For csr tables it may be
// absent: then last_page_len and indptr say it.
struct LengthView {
  IntArray values{};
  uint32_t rows = 0;
};

}  // namespace kvfence
