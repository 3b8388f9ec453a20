// Attention on a GPU beside a device copy.
#include "gpu_attention.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu_measure.h"
#include "kvfence/bf16.h"

namespace kvfence {

uint64_t DeviceAttention::CacheBytes(const AttentionShape& shape, uint64_t pages) {
  return pages * shape.page_size * shape.TokenNumbers() * shape.NumberBytes();
}

void DeviceAttention::Common(const DeviceBatch& batch, PagedRows* rows) const {
  rows->rows = shape_.rows;
  rows->page_size = shape_.page_size;
  rows->num_pages = batch.pages();
  rows->kv_type = shape_.kv;
  rows->table = batch.table();
  rows->lengths = batch.lengths();
  rows->max_kv_len = shape_.tokens;
}

DeviceAttention::DeviceAttention(const AttentionShape& shape, const DeviceBatch& batch,
                                 uint32_t caches, Gpu* gpu, DeviceArrays* memory)
    : shape_(shape), caches_(caches), cache_bytes_(CacheBytes(shape, batch.pages())) {
  const uint32_t q_dim = shape.mla() ? kMlaCkvDim + kMlaKpeDim : shape.head_dim;
  const uint64_t q_numbers = uint64_t{shape.rows} * shape.qo_heads * q_dim;
  o_numbers_ = uint64_t{shape.rows} * shape.qo_heads * (shape.mla() ? kMlaCkvDim : shape.head_dim);
  cache_ = memory->Make<uint8_t>(cache_bytes_ * caches);
  auto* q = memory->Make<uint16_t>(q_numbers);
  o_ = memory->Make<uint16_t>(o_numbers_);
  LaunchFill(cache_, cache_bytes_ * caches, shape.kv, 2, gpu->stream());
  LaunchFill(q, q_numbers * sizeof(uint16_t), KvType::kBf16, 3, gpu->stream());
  gpu->Wait();
  Must(cudaMemset(o_, 0xFF, o_numbers_ * sizeof(uint16_t)), "outputs");  // NaN
  uint64_t workspace = 0;
  PagedRows* rows = nullptr;
  if (shape.mla()) {
    Common(batch, &mla_);
    mla_.num_heads = shape.qo_heads;
    mla_.q_nope = {q, FloatType::kBf16};
    mla_.q_pe = {q + kMlaCkvDim, FloatType::kBf16};
    mla_.q_nope_stride = mla_.q_pe_stride = q_dim;
    mla_.o = {o_, FloatType::kBf16};
    mla_.ckv_token_stride = mla_.kpe_token_stride = q_dim * shape.NumberBytes();
    mla_.sm_scale = 0.072f;
    workspace = DecodeWorkspaceBytes(mla_);
    rows = &mla_;
  } else {
    Common(batch, &gqa_);
    gqa_.num_qo_heads = shape.qo_heads;
    gqa_.num_kv_heads = shape.kv_heads;
    gqa_.head_dim = shape.head_dim;
    gqa_.q = {q, FloatType::kBf16};
    gqa_.o = {o_, FloatType::kBf16};
    workspace = DecodeWorkspaceBytes(gqa_);
    rows = &gqa_;
  }
  if (workspace == 0) return;
  rows->workspace = memory->Make<float>(workspace / sizeof(float));
  rows->workspace_bytes = workspace;
}

void DeviceAttention::Launch(uint32_t layer, cudaStream_t stream) const {
  const uint8_t* cache = cache_ + layer % caches_ * cache_bytes_;
  if (shape_.mla()) {
    MlaDecodeAttention args = mla_;
    args.ckv_cache = cache;
    args.kpe_cache = cache + kMlaCkvDim * shape_.NumberBytes();
    Must(DecodeAttentionCuda(args, stream), "attention");
    return;
  }
  DecodeAttention args = gqa_;
  args.k_cache = cache;
  args.v_cache = cache + cache_bytes_ / 2;
  Must(DecodeAttentionCuda(args, stream), "attention");
}

void DeviceAttention::MustMakeSense() const {
  std::vector<uint16_t> o(o_numbers_);
  CopyBack(o_, &o);
  bool any = false;
  bool finite = true;
  for (const uint16_t number : o) {
    finite = finite && (number & 0x7F80) != 0x7F80;
    any = any || (number & 0x7FFF) != 0;
  }
  if (finite && any) return;
  std::fprintf(stderr, "gpu_bench: attention (%s, pages of %u) left numbers that make no sense\n",
               shape_.Name().c_str(), shape_.page_size);
  std::exit(1);
}

Json MeasureAttention(const AttentionShape& shape, Gpu* gpu) {
  DeviceArrays memory;
  DeviceBatch batch(ShapeOfTokens(uint64_t{shape.rows} * shape.tokens, shape.page_size, 1),
                    &memory);
  const DeviceAttention attention(shape, batch, 1, gpu, &memory);
  const double us = gpu->ColdUs([&](cudaStream_t stream) { attention.Launch(0, stream); });
  attention.MustMakeSense();
  const double gb_per_s = static_cast<double>(shape.KvBytes()) / us / 1000;
  const double copy_us = gpu->CopyUs(shape.KvBytes());
  const double moved = static_cast<double>(std::min(shape.KvBytes(), Gpu::kMostCopied));
  const double copy = moved / copy_us / 1000;
  return {{"form", shape.Name()},
          {"page_size", shape.page_size},
          {"us", Hundredths(us)},
          {"kv_bytes", shape.KvBytes()},
          {"gb_per_s", Hundredths(gb_per_s)},
          {"copy_gb_per_s", Hundredths(copy)},
          {"of_copy", Hundredths(gb_per_s / copy)},
          {"of_read", Hundredths(gb_per_s / gpu->read_gb_per_s)},
          {"floor_us", Hundredths(AttentionFloorUs(shape, ModelOf(*gpu)))}};
}

}  // namespace kvfence
