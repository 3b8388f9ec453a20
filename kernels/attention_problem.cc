#include "attention_problem.h"

namespace kvfence {
namespace attention {
namespace {

Problem Common(const PagedRows& rows, uint32_t qo_heads, uint32_t kv_heads) {
  Problem p = {};
  static_cast<PagedRows&>(p) = rows;
  p.num_qo_heads = qo_heads;
  p.num_kv_heads = kv_heads;
  return p;
}

KvPlane Packed(const void* data, const DecodeAttention& a) {
  const uint64_t head = uint64_t{a.head_dim} * (a.kv_type == KvType::kE4m3 ? 1 : 2);
  const uint64_t page = head * a.num_kv_heads * a.page_size;
  const bool nhd = a.kv_layout == KvLayout::kNhd;
  KvPlane plane;
  plane.data = static_cast<const uint8_t*>(data);
  plane.page_stride = a.page_stride != 0 ? a.page_stride : page;
  plane.token_stride = nhd ? head * a.num_kv_heads : head;
  plane.head_stride = nhd ? head : head * a.page_size;
  return plane;
}

KvPlane Latent(const void* data, const PagedRows& a, uint32_t dim, uint64_t token, uint64_t page) {
  KvPlane plane;
  plane.data = static_cast<const uint8_t*>(data);
  plane.token_stride = token != 0 ? token : uint64_t{dim} * (a.kv_type == KvType::kE4m3 ? 1 : 2);
  plane.page_stride = page != 0 ? page : plane.token_stride * a.page_size;
  plane.head_stride = 0;
  return plane;
}

}  // namespace

Problem ProblemOf(const DecodeAttention& a) {
  Problem p = Common(a, a.num_qo_heads, a.num_kv_heads);
  p.dim_k0 = p.dim_v = a.head_dim;
  p.q0 = {a.q, a.head_dim};
  p.o = a.o;
  p.k0 = Packed(a.k_cache, a);
  p.v = Packed(a.v_cache, a);
  const float sm_scale =
      a.sm_scale != 0.0f ? a.sm_scale : 1.0f / sqrtf(static_cast<float>(a.head_dim));
  p.score_scale = sm_scale * a.k_scale * kLog2E;
  p.value_scale = a.v_scale;
  p.k_head_scales = a.k_head_scales;
  p.v_head_scales = a.v_head_scales;
  p.k_page_scales = a.k_page_scales;
  p.v_page_scales = a.v_page_scales;
  return p;
}

Problem ProblemOf(const MlaDecodeAttention& a) {
  Problem p = Common(a, a.num_heads, 1);
  p.dim_k0 = p.dim_v = kMlaCkvDim;
  p.dim_k1 = kMlaKpeDim;
  p.q0 = {a.q_nope, a.q_nope_stride != 0 ? a.q_nope_stride : kMlaCkvDim};
  p.q1 = {a.q_pe, a.q_pe_stride != 0 ? a.q_pe_stride : kMlaKpeDim};
  p.o = a.o;
  p.k0 = p.v = Latent(a.ckv_cache, a, kMlaCkvDim, a.ckv_token_stride, a.ckv_page_stride);
  p.k1 = Latent(a.kpe_cache, a, kMlaKpeDim, a.kpe_token_stride, a.kpe_page_stride);
  p.score_scale = a.sm_scale * a.kv_scale * kLog2E;
  p.value_scale = a.kv_scale;
  p.k_page_scales = p.v_page_scales = a.kv_page_scales;
  return p;
}

uint32_t SpreadParts(const Problem& p) {
  const uint64_t parts = (p.max_kv_len + ChunkSize(p) - 1) / ChunkSize(p);
  constexpr uint64_t kMost = 65535;  // of a grid's third dimension
  return static_cast<uint32_t>(parts < 2 ? 1 : MinOf(parts, kMost));
}

namespace {

uint64_t WorkspaceBytes(const Problem& p) {
  const uint32_t parts = SpreadParts(p);
  if (parts == 1) return 0;
  const uint64_t lines = uint64_t{p.rows} * p.seq_len_q * p.num_qo_heads;
  return lines * parts * PartialFloats(p.dim_v) * sizeof(float);
}

}  // namespace
}  // namespace attention

uint64_t DecodeWorkspaceBytes(const DecodeAttention& a) {
  return attention::WorkspaceBytes(attention::ProblemOf(a));
}
uint64_t DecodeWorkspaceBytes(const MlaDecodeAttention& a) {
  return attention::WorkspaceBytes(attention::ProblemOf(a));
}

}  // namespace kvfence
