// Decode attention over a paged KV cache, FP8 or BF16: GQA/MHA, and MLA in its absorbed form.
//
// It's the consumer that the fence protects: the numeric run computes with it, and tests show with
// it what sanitised rows read. An engine may keep its own kernel. Names and order follow FlashInfer
// (GQA, csr, ckv/kpe) and FlashMLA (seq_len_q, causal). CPU and CUDA have one meaning, which stands
// in kernels/attention_core.h; this header is plain C++ and names no CUDA type. Invariants: a
// masked token (null page, page outside the pool, negative entry) is not read and adds nothing
// (I-61); the result depends on logical order only, to the bit, never on where pages lie, on
// threads or on a workspace (I-62); on the CPU, products are exact before they are added (I-130).
#pragma once

#include <cstdint>

#include "kvfence/cpu_threads.h"
#include "kvfence/status.h"
#include "kvfence/table_view.h"

namespace kvfence {

enum class FloatType : uint32_t { kF32, kBf16 };

// Floats of either type; converted on load and store.
struct FloatArray {
  void* data = nullptr;
  FloatType type = FloatType::kF32;
};

enum class KvType : uint32_t {
  kE4m3,  // codes of fp8 e4m3, one byte each
  kBf16,
};
enum class KvLayout : uint32_t {
  kNhd,  // [num_pages, page_size, num_kv_heads, head_dim]
  kHnd,  // [num_pages, num_kv_heads, page_size, head_dim]
};

// Positions that one part of a row's context has, unless kv_chunk_size says otherwise.
inline constexpr uint32_t kDefaultKvChunkSize = 1024;

// What both forms of attention have: rows, their tokens, and where these lie. Nothing is owned; for
// the CUDA backend all pointers are device pointers.
//
// A row of length n with m query tokens (the last m of the n): query token i stands at position
// n - m + i. It reads positions p < n, if causal p <= its own, and with a window p >= its own -
// window_left. Table entries that no query token reads are not looked at.
struct PagedRows {
  uint32_t rows = 0;
  uint32_t seq_len_q = 1;  // query tokens of a row (speculative verify: 1 + drafted)
  // Rows with different numbers of query tokens: those of row r are the tokens qo_indptr[r] up to
  // qo_indptr[r + 1] of q and o, at most seq_len_q of them, out of qo_tokens. Absent: seq_len_q
  // each, row by row.
  IntArray qo_indptr;  // [rows + 1]
  uint64_t qo_tokens = 0;
  bool causal = true;
  int64_t window_left = -1;  // negative: no window

  uint32_t page_size = 0;
  uint32_t null_page = 0;
  uint64_t num_pages = 0;  // below 2^32
  KvType kv_type = KvType::kE4m3;
  // kBf16 only: every stored number is one that e4m3 has too, as in a pool whose pages are handed
  // to an e4m3 pool. The CPU's bits are then those of an e4m3 cache of the same numbers.
  bool e4m3_numbers = false;
  // Dense, csr or slot table, and the lengths. For csr, lengths may be absent. A length beyond what
  // the row's entries can hold is cut there.
  TableView table;
  LengthView lengths;

  float* lse = nullptr;  // [query tokens, heads], written if there: natural log of the sum of
                         // exp(score). (FlashInfer's is base 2: this times log2(e).)

  // The context is cut at multiples of this, each part is computed for itself, and the parts are
  // joined in order: the result's bits depend on it, and on nothing else of how work is spread.
  // A multiple of 32, at most 2^31; 0: kDefaultKvChunkSize.
  uint32_t kv_chunk_size = 0;
  // CUDA: contexts up to this length are spread over blocks, part by part, by way of the workspace
  // (DecodeWorkspaceBytes says how large). 0, or no workspace: one block walks a row.
  uint64_t max_kv_len = 0;
  float* workspace = nullptr;
  uint64_t workspace_bytes = 0;
};

// GQA and MHA: one launch.
struct DecodeAttention : PagedRows {
  uint32_t num_qo_heads = 0;  // a multiple of num_kv_heads: query head h reads KV head h / group
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;  // 32, 64, 128 or 256

  FloatArray q;  // [query tokens, num_qo_heads, head_dim]
  FloatArray o;  // the same shape, written

  const void* k_cache = nullptr;  // 16-byte aligned
  const void* v_cache = nullptr;
  KvLayout kv_layout = KvLayout::kNhd;
  uint64_t page_stride = 0;  // bytes from a page to the next, a multiple of 16; 0: packed. K and V
                             // pages in one array: twice the packed size
  // A stored number c stands for c * k_scale * k_head_scales[head] * k_page_scales[page].
  float k_scale = 1.0f;
  float v_scale = 1.0f;
  const float* k_head_scales = nullptr;  // [num_kv_heads], optional
  const float* v_head_scales = nullptr;
  const float* k_page_scales = nullptr;  // [num_pages], optional
  const float* v_page_scales = nullptr;
  float sm_scale = 0.0f;  // 0: 1 / sqrt(head_dim)
};

inline constexpr uint32_t kMlaCkvDim = 512;
inline constexpr uint32_t kMlaKpeDim = 64;

// MLA (DeepSeek, Kimi, GLM), absorbed: each token has one latent of 512 numbers that serves all
// heads as key and value, and 64 rotated ones that belong to the key only.
struct MlaDecodeAttention : PagedRows {
  uint32_t num_heads = 0;
  FloatArray q_nope;  // [query tokens, num_heads, 512]
  FloatArray q_pe;    // [query tokens, num_heads, 64]
  // Numbers from a head to the next, 0: packed. FlashMLA's q of 576 in one piece: 576 for both, and
  // q_pe.data 512 numbers behind q_nope.data.
  uint32_t q_nope_stride = 0;
  uint32_t q_pe_stride = 0;
  FloatArray o;  // [query tokens, num_heads, 512], written

  const void* ckv_cache = nullptr;  // [num_pages, page_size, 512], 16-byte aligned
  const void* kpe_cache = nullptr;  // [num_pages, page_size, 64]
  // Bytes from a token to the next and from a page to the next, multiples of 16; 0: packed.
  // FlashMLA's 576 in one piece: token strides of 576 numbers, kpe 512 numbers behind ckv.
  uint64_t ckv_token_stride = 0, ckv_page_stride = 0;
  uint64_t kpe_token_stride = 0, kpe_page_stride = 0;
  float kv_scale = 1.0f;                  // of both parts
  const float* kv_page_scales = nullptr;  // [num_pages], optional
  float sm_scale = 0.0f;                  // must be given: the heads before absorption set it
};

// Refuses geometry that no backend can run; looks at no array. ok() otherwise.
Status CheckDecodeAttention(const DecodeAttention& attention);
Status CheckDecodeAttention(const MlaDecodeAttention& attention);

// Runs on the calling thread, and on those of `threads` if given. A query token without a readable
// token gets zeros and an lse of -infinity. Bounds on the error: docs/numerics.md.
Status DecodeAttentionCpu(const DecodeAttention& attention, CpuThreads* threads = nullptr);
Status DecodeAttentionCpu(const MlaDecodeAttention& attention, CpuThreads* threads = nullptr);

// Bytes of workspace that a CUDA launch with this max_kv_len needs to spread rows; 0: none.
uint64_t DecodeWorkspaceBytes(const DecodeAttention& attention);
uint64_t DecodeWorkspaceBytes(const MlaDecodeAttention& attention);

// One kernel launch on `stream` (a cudaStream_t, null: the default stream), two when rows are
// spread. Doesn't synchronise or allocate; may be captured into a graph. kUnavailable in a build
// without CUDA, or when the launch itself is refused.
Status DecodeAttentionCuda(const DecodeAttention& attention, void* stream);
Status DecodeAttentionCuda(const MlaDecodeAttention& attention, void* stream);

}  // namespace kvfence
