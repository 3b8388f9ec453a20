// Append, hand-off and checksums on a device, where there is one: the CPU backend's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/backend.h"
#include "kvfence/bf16.h"
#include "kvfence/kv_pages.h"
#include "kvfence/rng.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/managed.h"

namespace kvfence {
namespace {

constexpr uint32_t kPages = 12, kTokens = 16, kHeads = 4, kDim = 64;
constexpr size_t kNumbers = size_t{kPages} * kTokens * kHeads * kDim;

// A pool full of numbers, the same for the same seed.
struct Pool {
  Pool(KvType type, KvLayout layout, bool page_scales, uint64_t seed)
      : k(kNumbers * (type == KvType::kE4m3 ? 1 : 2)), v(k.size) {
    Rng rng(seed);
    for (Bytes* side : {&k, &v}) {
      for (size_t i = 0; i < side->size; ++i) side->data()[i] = Code(type, i, &rng);
    }
    for (uint32_t p = 0; page_scales && p < kPages; ++p) {
      k_scales.push_back(0.5f + static_cast<float>(p) / 8);
      v_scales.push_back(2.0f - static_cast<float>(p) / 16);
    }
    pages.k_cache = k.data();
    pages.v_cache = v.data();
    pages.type = type;
    pages.layout = layout;
    pages.num_kv_heads = kHeads;
    pages.head_dim = kDim;
    pages.page_size = kTokens;
    pages.num_pages = kPages;
    pages.k_scale = 0.75f;
    if (page_scales) {
      pages.k_page_scales = k_scales.data();
      pages.v_page_scales = v_scales.data();
    }
  }
  // Bytes of numbers without NaN; bf16's high bytes are of magnitudes up to 2^15.
  static uint8_t Code(KvType type, size_t at, Rng* rng) {
    const auto byte = static_cast<uint8_t>(rng->Below(256));
    if (type == KvType::kE4m3) return byte & 0xBF;
    return at % 2 == 0 ? byte : static_cast<uint8_t>((byte & 0x80) | (0x38 + byte % 16));
  }

  Bytes k, v;
  std::vector<float> k_scales, v_scales;
  KvPages pages;
};

// Tokens whose numbers range from subnormal to far beyond the format, NaN and infinity among them.
struct Tokens {
  explicit Tokens(FloatType type) {
    Rng rng(11);
    const auto count = slots.size() * kHeads * kDim;
    for (size_t i = 0; i < 2 * count; ++i) {
      const float unit = static_cast<float>(rng.Below(20001)) / 10000.0f - 1.0f;
      float number = std::ldexp(unit, static_cast<int>(rng.Below(24)) - 12);
      if (rng.Chance(1, 500)) number = std::numeric_limits<float>::quiet_NaN();
      if (rng.Chance(1, 500)) number = std::numeric_limits<float>::infinity();
      f32.push_back(number);
      bf16.push_back(FloatToBf16(number));
    }
    const bool wide = type == FloatType::kF32;
    args.tokens = slots.size();
    args.k = {wide ? static_cast<void*>(f32.data()) : bf16.data(), type};
    args.v = {wide ? static_cast<void*>(f32.data() + count) : bf16.data() + count, type};
    args.slots = {slots.data(), 64};
    args.counts = &counts;
  }
  // Pages 1, 3 and 11; a skip; the null page; beyond the pool.
  std::vector<int64_t> slots = {16, 17, 31, 3 * 16 + 5, 11 * 16 + 15, -1, 4, 12 * 16};
  std::vector<float> f32;
  std::vector<uint16_t> bf16;
  KvCounts counts;
  KvAppend args;
};

TEST(KvPagesNoGpu, WithoutADeviceTheRefusalSaysWhy) {
  std::string why;
  if (CudaAvailable(&why)) GTEST_SKIP() << "there is a device";
  Pool pool(KvType::kE4m3, KvLayout::kNhd, false, 1);
  Tokens tokens(FloatType::kF32);
  tokens.args.pages = pool.pages;
  int64_t page = 1;
  uint64_t sum = 0;
  KvHandOff hand_off;
  hand_off.from = hand_off.to = pool.pages;
  hand_off.count = 1;
  hand_off.from_pages = hand_off.to_pages = {&page, 64};
  KvChecksums checksums;
  checksums.pages = pool.pages;
  checksums.count = 1;
  checksums.page_list = {&page, 64};
  checksums.sums = &sum;
  for (const Status& status :
       {AppendPagedKvCacheCuda(tokens.args, nullptr), HandOffPagesCuda(hand_off, nullptr),
        PageChecksumsCuda(checksums, nullptr)}) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_FALSE(status.message().empty());
  }
}

#if defined(KVFENCE_HAVE_CUDA)
class KvPagesGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!CudaAvailable(&why)) GTEST_SKIP() << why;
  }
};

bool Same(Pool& a, Pool& b) {
  return std::memcmp(a.k.data(), b.k.data(), a.k.size) == 0 &&
         std::memcmp(a.v.data(), b.v.data(), a.v.size) == 0 && a.k_scales == b.k_scales &&
         a.v_scales == b.v_scales;
}

KvPages Lent(Pool* pool, Managed* managed) {
  KvPages pages = pool->pages;
  pages.k_cache = managed->Lend(pool->k.data(), pool->k.size);
  pages.v_cache = managed->Lend(pool->v.data(), pool->v.size);
  if (pages.k_page_scales != nullptr) {
    pages.k_page_scales = managed->Lend(pool->k_scales.data(), kPages);
    pages.v_page_scales = managed->Lend(pool->v_scales.data(), kPages);
  }
  return pages;
}

Status AppendOnDevice(const KvAppend& host, Pool* pool) {
  Managed managed;
  KvAppend a = host;
  const size_t numbers = host.tokens * kHeads * kDim;
  a.pages = Lent(pool, &managed);
  a.k = managed.Copy(a.k, numbers);
  a.v = managed.Copy(a.v, numbers);
  a.slots = managed.Copy(a.slots, a.tokens);
  a.counts = managed.Lend(a.counts, 1);
  Status status = AppendPagedKvCacheCuda(a, nullptr);
  return status.ok() ? managed.Back() : std::move(status);
}

TEST_F(KvPagesGpu, AppendGivesTheCpusBits) {  // I-131, I-132
  for (const KvType type : {KvType::kE4m3, KvType::kBf16}) {
    for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd}) {
      for (const FloatType numbers : {FloatType::kF32, FloatType::kBf16}) {
        const bool scales = layout == KvLayout::kHnd;
        Pool cpu(type, layout, scales, 1), gpu(type, layout, scales, 1);
        Tokens on_cpu(numbers), on_gpu(numbers);
        on_cpu.args.pages = cpu.pages;
        ASSERT_TRUE(AppendPagedKvCacheCpu(on_cpu.args).ok());
        const Status status = AppendOnDevice(on_gpu.args, &gpu);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(Same(cpu, gpu));
        EXPECT_EQ(on_gpu.counts.saturated, on_cpu.counts.saturated);
        EXPECT_EQ(on_gpu.counts.skipped, on_cpu.counts.skipped);
      }
    }
  }
}

// --- hand-off -----------------------------------------------------------------------------------

// A BF16 pool's pages to an FP8 pool with page scales, records along.
struct HandOff {
  HandOff() {
    for (uint32_t p = 0; p < kPages; ++p) {
      source.push_back({2 * p + 1, static_cast<uint16_t>(kTokens), 1, MakeStamp(p + 1, p)});
      target.push_back({2 * p + 100, kPageSealed, 5, kNoStamp});
    }
    args.from = from.pages;
    args.to = to.pages;
    args.count = from_pages.size();
    args.from_pages = {from_pages.data(), 64};
    args.to_pages = {to_pages.data(), 64};
    args.tokens = {tokens.data(), 64};
    args.from_records = source.data();
    args.to_records = target.data();
    args.counts = &counts;
  }
  Pool from{KvType::kBf16, KvLayout::kHnd, false, 3};
  Pool to{KvType::kE4m3, KvLayout::kNhd, true, 4};
  std::vector<PageRecord> source, target;
  // Whole, in part, nothing of it; from the null page and to beyond the pool.
  std::vector<int64_t> from_pages = {3, 1, 7, 0, 2}, to_pages = {4, 2, 11, 5, 12};
  std::vector<int64_t> tokens = {16, 5, 0, 16, 16};
  KvCounts counts;
  KvHandOff args;
};

TEST_F(KvPagesGpu, HandOffGivesTheCpusBits) {  // I-131, I-132
  HandOff cpu, gpu;
  ASSERT_TRUE(HandOffPagesCpu(cpu.args).ok());
  {
    Managed managed;
    KvHandOff a = gpu.args;
    a.from = Lent(&gpu.from, &managed);
    a.to = Lent(&gpu.to, &managed);
    a.from_pages = managed.Copy(a.from_pages, a.count);
    a.to_pages = managed.Copy(a.to_pages, a.count);
    a.tokens = managed.Copy(a.tokens, a.count);
    a.from_records = managed.Copy(a.from_records, kPages);
    a.to_records = managed.Lend(a.to_records, kPages);
    a.counts = managed.Lend(a.counts, 1);
    ASSERT_TRUE(HandOffPagesCuda(a, nullptr).ok());
    const Status status = managed.Back();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(Same(cpu.to, gpu.to));
  EXPECT_TRUE(Same(cpu.from, gpu.from));
  EXPECT_EQ(std::memcmp(cpu.target.data(), gpu.target.data(), kPages * sizeof(PageRecord)), 0);
  EXPECT_EQ(gpu.counts.saturated, cpu.counts.saturated);
  EXPECT_EQ(gpu.counts.skipped, cpu.counts.skipped);
}

// --- checksums ----------------------------------------------------------------------------------

TEST_F(KvPagesGpu, ChecksumsAreTheCpus) {  // I-133
  std::vector<int64_t> list = {1, 5, 11, 0, -1, 12, 5}, tokens = {16, 7, 0, 16, 16, 16, 16};
  for (const KvType type : {KvType::kE4m3, KvType::kBf16}) {
    for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd}) {
      Pool pool(type, layout, true, 5);
      std::vector<uint64_t> cpu(list.size(), 1), gpu(list.size(), 2);
      KvChecksums c;
      c.pages = pool.pages;
      c.count = list.size();
      c.page_list = {list.data(), 64};
      c.tokens = {tokens.data(), 64};
      c.sums = cpu.data();
      ASSERT_TRUE(PageChecksumsCpu(c).ok());
      Managed managed;
      c.pages = Lent(&pool, &managed);
      c.page_list = managed.Copy(c.page_list, c.count);
      c.tokens = managed.Copy(c.tokens, c.count);
      c.sums = managed.Lend(gpu.data(), gpu.size());
      ASSERT_TRUE(PageChecksumsCuda(c, nullptr).ok());
      const Status status = managed.Back();
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(gpu, cpu);
    }
  }
}
#endif

}  // namespace
}  // namespace kvfence
