// What writes, moves and sums pages of a KV cache: append with quantisation, the hand-off from a
// BF16 prefill pool to an FP8 decode pool, and page checksums.
//
// Names follow FlashInfer (append_paged_kv_cache) and vLLM (slot_mapping). CPU and CUDA have one
// meaning, which stands in kernels/kv_pages_core.h, and give the same bits. Invariants: nothing is
// written to the null page or outside the pool (I-131); a stored code is the nearest one, and
// values beyond the format's largest saturate to it, counted (I-132); a checksum depends on every
// number, on which token, head and dim it stands for, and on its scales, and not on the layout of
// the pool (I-133).
#pragma once

#include <cstdint>

#include "kvfence/attention.h"
#include "kvfence/device_types.h"

namespace kvfence {

// A pool's arrays. For the CUDA backend all pointers are device pointers.
struct KvPages {
  void* k_cache = nullptr;  // 16-byte aligned
  void* v_cache = nullptr;  // null: there is only k (MLA: one head of 576)
  KvType type = KvType::kE4m3;
  KvLayout layout = KvLayout::kNhd;
  uint64_t page_stride = 0;  // bytes from a page to the next, a multiple of 16; 0: packed
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;  // a multiple of 8
  uint32_t page_size = 0;
  uint32_t null_page = 0;
  uint64_t num_pages = 0;
  // A stored number c stands for c * scale * head_scales[head] * page_scales[page].
  float k_scale = 1.0f;
  float v_scale = 1.0f;
  const float* k_head_scales = nullptr;  // [num_kv_heads], optional
  const float* v_head_scales = nullptr;
  float* k_page_scales = nullptr;  // [num_pages], optional
  float* v_page_scales = nullptr;
};

// What a launch counts (added to): numbers that saturated, and tokens or pages that were not
// written because they name no page of the pool.
struct KvCounts {
  unsigned long long saturated = 0;
  unsigned long long skipped = 0;
};

// Writes each token's keys and values to its slot, in the pool's format, with the scales that its
// page has. A negative slot is skipped.
struct KvAppend {
  KvPages pages;
  uint64_t tokens = 0;
  FloatArray k;                // [tokens, num_kv_heads, head_dim]
  FloatArray v;                // the same; ignored without v_cache
  IntArray slots;              // [tokens], page * page_size + offset
  KvCounts* counts = nullptr;  // optional
};
Status CheckKvAppend(const KvAppend& append);
Status AppendPagedKvCacheCpu(const KvAppend& append);
Status AppendPagedKvCacheCuda(const KvAppend& append, void* stream);

// Copies pages from one pool to another, which may differ in type, layout and place but not in
// heads, dims and page size. Where `to` has page scales, each page gets its own: the largest
// magnitude among the first tokens[i] tokens, over the format's largest number. Slots behind
// tokens[i] are written as zero, so that nothing of an earlier owner stays.
struct KvHandOff {
  KvPages from;
  KvPages to;
  uint64_t count = 0;
  IntArray from_pages;  // [count]
  IntArray to_pages;    // [count], no page twice
  IntArray tokens;      // [count], optional: page_size each
  // Both or neither: stamp and fill go along with the content, after it. Tag, flags and scale mark
  // are `to`'s own.
  const PageRecord* from_records = nullptr;  // [from.num_pages]
  PageRecord* to_records = nullptr;          // [to.num_pages]
  KvCounts* counts = nullptr;                // optional
};
Status CheckKvHandOff(const KvHandOff& hand_off);
Status HandOffPagesCpu(const KvHandOff& hand_off);
Status HandOffPagesCuda(const KvHandOff& hand_off, void* stream);

// The checksum of each page's first tokens[i] tokens; 0 for what is no page of the pool.
struct KvChecksums {
  KvPages pages;
  uint64_t count = 0;
  IntArray page_list;        // [count]
  IntArray tokens;           // [count], optional: page_size each
  uint64_t* sums = nullptr;  // [count], written
};
Status CheckKvChecksums(const KvChecksums& checksums);
Status PageChecksumsCpu(const KvChecksums& checksums);
Status PageChecksumsCuda(const KvChecksums& checksums, void* stream);

}  // namespace kvfence
