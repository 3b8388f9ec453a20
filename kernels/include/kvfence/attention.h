// Decode attention over a paged FP8 KV cache (GQA): one query token per batch row.
//
// It's the consumer that the fence protects, in its plainest right form: the reference engine runs
// it, and tests show with it what sanitised rows read. An engine keeps its own kernel. CPU and CUDA
// have one meaning, which stands in kernels/attention_core.h; this header is plain C++ and names no
// CUDA type. Invariants: a masked token (null page, page outside the pool, negative entry) is not
// read and adds nothing (I-21); the result depends on logical order only, to the bit, never on
// where pages lie (I-22).
#pragma once

#include <cstdint>

#include "kvfence/status.h"
#include "kvfence/table_view.h"

namespace kvfence {

enum class FloatType : uint32_t { kF32, kBf16 };

// Floats of either type; converted on load and store.
struct FloatArray {
  void* data = nullptr;
  FloatType type = FloatType::kF32;
};

// One launch. Names are FlashInfer's where it has one. Nothing is owned; for the CUDA backend all
// pointers are device pointers. Positions p of a row with length n that are read: p < n and, with a
// window, p >= n - 1 - window_left; table entries of other positions are not looked at.
struct DecodeAttention {
  uint32_t rows = 0;
  uint32_t num_qo_heads = 0;  // a multiple of num_kv_heads: query head h reads KV head h / group
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;  // 32, 64, 128 or 256
  uint32_t page_size = 0;
  uint32_t null_page = 0;
  uint64_t num_pages = 0;

  FloatArray q;          // [rows, num_qo_heads, head_dim]
  FloatArray o;          // [rows, num_qo_heads, head_dim], written
  float* lse = nullptr;  // [rows, num_qo_heads], written if there: natural log of the sum of
                         // exp(score). (FlashInfer's is base 2: this times log2(e).)

  // Codes of fp8 e4m3, [num_pages, page_size, num_kv_heads, head_dim] ("NHD"), 16-byte aligned.
  const uint8_t* k_cache = nullptr;
  const uint8_t* v_cache = nullptr;
  uint64_t page_stride = 0;  // bytes from a page to the next, a multiple of 16; 0: as packed above.
                             // K and V pages in one array: twice the packed size
  // A stored code c stands for decode(c) * scale * page_scales[page].
  float k_scale = 1.0f;
  float v_scale = 1.0f;
  const float* k_page_scales = nullptr;  // [num_pages], optional
  const float* v_page_scales = nullptr;

  // Dense, csr or slot table, and the lengths. For csr, lengths may be absent. A length beyond what
  // the row's entries can hold is cut there.
  TableView table;
  LengthView lengths;
  int64_t window_left = -1;  // negative: no window
  float sm_scale = 0.0f;     // 0: 1 / sqrt(head_dim)
};

// Refuses geometry that no backend can run; looks at no array. ok() otherwise.
Status CheckDecodeAttention(const DecodeAttention& attention);

// Runs on the calling thread. A row without a readable token gets zeros and an lse of -infinity.
Status DecodeAttentionCpu(const DecodeAttention& attention);

// One kernel launch on `stream` (a cudaStream_t, null: the default stream). Doesn't synchronise or
// allocate; may be captured into a graph. kUnavailable in a build without CUDA, or when the launch
// itself is refused.
Status DecodeAttentionCuda(const DecodeAttention& attention, void* stream);

}  // namespace kvfence
