// Append, hand-off and checksum as CUDA kernels, for nvcc and for the CPU shim.
//
// Idea: a thread takes one head of one token; append spreads them over the grid, the other two give
// each page a block. A page's scale is the largest magnitude of all threads, found before anything
// is written; maxima and sums of integers don't depend on order, so the bits are the CPU's.
#pragma once

#include "kv_pages_core.h"
#include "kvfence/cuda_on_cpu.h"

namespace kvfence::pages {
inline namespace KVF_KERNEL_BUILD {

inline constexpr unsigned kPageThreads = 128;

__device__ inline void AddCount(unsigned long long* counter, uint64_t n) {
  if (n != 0) atomicAdd(counter, static_cast<unsigned long long>(n));
}

__global__ void __launch_bounds__(kPageThreads) AppendKernel(const KVF_GRID_CONSTANT KvAppend a) {
  const uint32_t heads = a.pages.num_kv_heads * Sides(a.pages);
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.tokens * heads) return;
  const uint64_t token = i / heads;
  const auto which = static_cast<uint32_t>(i % heads);
  const auto side = static_cast<Side>(which / a.pages.num_kv_heads);
  const uint32_t saturated = AppendHead(a, side, token, which % a.pages.num_kv_heads);
  if (a.counts == nullptr) return;
  AddCount(&a.counts->saturated, saturated);
  if (which == 0) AddCount(&a.counts->skipped, SlotIsWrong(a, token) ? 1 : 0);
}

// grid (pages), block (kPageThreads).
__global__ void __launch_bounds__(kPageThreads, 8)
    HandOffKernel(const KVF_GRID_CONSTANT KvHandOff h) {
  KVF_SHARED_ARRAY(unsigned, largest, 2);
  const Move move = MoveOf(h, blockIdx.x);
  if (!move.valid) {
    if (h.counts != nullptr && threadIdx.x == 0) AddCount(&h.counts->skipped, 1);
    return;
  }
  const uint32_t heads = h.to.num_kv_heads;
  const uint32_t items = h.to.page_size * heads;
  if (threadIdx.x < 2) largest[threadIdx.x] = 0;
  __syncthreads();
  float key_scale = 1.0f, value_scale = 1.0f;
  for (uint32_t s = 0; s < Sides(h.to); ++s) {
    const auto side = static_cast<Side>(s);
    if (PageScales(h.to, side) == nullptr) continue;
    for (uint32_t i = threadIdx.x; i < move.tokens * heads; i += blockDim.x) {
      // Floats that are not negative are in the order of their bits.
      atomicMax(&largest[s], BitsOfFloat(LargestOfHead(h, side, move, i / heads, i % heads)));
    }
  }
  __syncthreads();
  for (uint32_t s = 0; s < Sides(h.to); ++s) {
    float* scales = PageScales(h.to, static_cast<Side>(s));
    if (scales == nullptr) continue;
    const float scale = PageScaleOf(h.to, FloatOfBits(largest[s]));
    if (threadIdx.x == 0) scales[move.to] = scale;
    key_scale = s == 0 ? scale : key_scale;
    value_scale = s == 0 ? value_scale : scale;
  }
  uint64_t saturated = 0;
  for (uint32_t i = threadIdx.x; i < items * Sides(h.to); i += blockDim.x) {
    const uint32_t s = i / items;
    saturated += MoveHead(h, static_cast<Side>(s), move, i % items / heads, i % heads,
                          s == 0 ? key_scale : value_scale);
  }
  if (h.counts != nullptr) AddCount(&h.counts->saturated, saturated);
  __threadfence();  // the stamp says that the content is there: after it
  __syncthreads();
  if (threadIdx.x == 0) MoveRecord(h, move);
}

// grid (pages), block (kPageThreads).
__global__ void __launch_bounds__(kPageThreads)
    ChecksumKernel(const KVF_GRID_CONSTANT KvChecksums c) {
  KVF_SHARED_ARRAY(unsigned long long, sum, 1);
  if (threadIdx.x == 0) sum[0] = 0;
  __syncthreads();
  const int64_t page = c.page_list.Get(blockIdx.x);
  if (!IsPage(c.pages, page)) {
    if (threadIdx.x == 0) c.sums[blockIdx.x] = 0;
    return;
  }
  const uint64_t at = static_cast<uint64_t>(page);
  const uint32_t heads = c.pages.num_kv_heads;
  const uint32_t items = TokensOf(c.tokens, blockIdx.x, c.pages.page_size) * heads;
  uint64_t own = threadIdx.x == 0 ? SumOfScales(c.pages, at) : 0;
  for (uint32_t i = threadIdx.x; i < items * Sides(c.pages); i += blockDim.x) {
    own += SumOfHead(c.pages, static_cast<Side>(i / items), at, i % items / heads, i % heads);
  }
  atomicAdd(&sum[0], static_cast<unsigned long long>(own));
  __syncthreads();
  if (threadIdx.x == 0) c.sums[blockIdx.x] = sum[0];
}

template <class Stream>
void LaunchAppend(const KvAppend& a, Stream stream) {
  const uint64_t items = a.tokens * a.pages.num_kv_heads * Sides(a.pages);
  if (items == 0) return;
  const auto blocks = static_cast<unsigned>((items + kPageThreads - 1) / kPageThreads);
  KVF_LAUNCH(AppendKernel, blocks, kPageThreads, 0, stream, a);
}
template <class Stream>
void LaunchHandOff(const KvHandOff& h, Stream stream) {
  if (h.count == 0) return;
  KVF_LAUNCH(HandOffKernel, static_cast<unsigned>(h.count), kPageThreads, 0, stream, h);
}
template <class Stream>
void LaunchChecksums(const KvChecksums& c, Stream stream) {
  if (c.count == 0) return;
  KVF_LAUNCH(ChecksumKernel, static_cast<unsigned>(c.count), kPageThreads, 0, stream, c);
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::pages
