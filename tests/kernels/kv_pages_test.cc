// Append, hand-off and checksums against naive loops over the format's definition, on the CPU and
// on the shim: codes, saturation, what must not be written, and what a checksum sees.
#include "kvfence/kv_pages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kv_pages_cuda.cuh"
#include "kvfence/rng.h"
#include "tests/model/attention_model.h"

namespace kvfence {
namespace {

struct Named {
  const char* name;
  Status (*append)(const KvAppend&);
  Status (*hand_off)(const KvHandOff&);
  Status (*checksums)(const KvChecksums&);
};

Status AppendShim(const KvAppend& a) {
  if (Status status = CheckKvAppend(a); !status.ok()) return status;
  pages::LaunchAppend(a, nullptr);
  return Status();
}
Status HandOffShim(const KvHandOff& h) {
  if (Status status = CheckKvHandOff(h); !status.ok()) return status;
  pages::LaunchHandOff(h, nullptr);
  return Status();
}
Status ChecksumsShim(const KvChecksums& c) {
  if (Status status = CheckKvChecksums(c); !status.ok()) return status;
  pages::LaunchChecksums(c, nullptr);
  return Status();
}

// A pool of 6 pages of 4 tokens, 2 heads of 16; filled with a byte that says "not written".
constexpr uint8_t kUntouched = 0x5A;
struct Pool {
  explicit Pool(KvType type, KvLayout layout = KvLayout::kNhd)
      : k(6 * 4 * 2 * 16 * (type == KvType::kE4m3 ? 1 : 2) / 8), v(k.size()) {
    std::memset(k.data(), kUntouched, k.size() * 8);
    std::memset(v.data(), kUntouched, v.size() * 8);
    pages.k_cache = k.data();
    pages.v_cache = v.data();
    pages.type = type;
    pages.layout = layout;
    pages.num_kv_heads = 2;
    pages.head_dim = 16;
    pages.page_size = 4;
    pages.num_pages = 6;
  }
  void WithPageScales() {
    k_scales.assign(6, 1.0f);
    v_scales.assign(6, 1.0f);
    pages.k_page_scales = k_scales.data();
    pages.v_page_scales = v_scales.data();
  }
  uint8_t* At(bool value, int page, int token, int head, int d) {
    const int line = pages.layout == KvLayout::kNhd ? token * 2 + head : head * 4 + token;
    const int number = pages.type == KvType::kE4m3 ? 1 : 2;
    auto* base = reinterpret_cast<uint8_t*>(value ? v.data() : k.data());
    return base + ((page * 8 + line) * 16 + d) * number;
  }
  double Value(bool value, int page, int token, int head, int d) {
    const uint8_t* at = At(value, page, token, head, d);
    if (pages.type == KvType::kE4m3) return model::E4m3Value(*at);
    return model::Bf16Value(static_cast<unsigned>(at[0] | at[1] << 8));
  }
  bool PageIsUntouched(int page) {
    const size_t bytes = k.size() * 8 / 6;
    for (std::vector<uint64_t>* side : {&k, &v}) {
      const auto* at = reinterpret_cast<uint8_t*>(side->data()) + page * bytes;
      for (size_t i = 0; i < bytes; ++i) {
        if (at[i] != kUntouched) return false;
      }
    }
    return true;
  }
  void FillBf16(Rng* rng) {
    for (std::vector<uint64_t>* side : {&k, &v}) {
      auto* codes = reinterpret_cast<uint16_t*>(side->data());
      for (size_t i = 0; i < side->size() * 4; ++i) {
        codes[i] = FloatToBf16(static_cast<float>(rng->Between(0, 4000)) / 10.0f - 200.0f);
      }
    }
  }
  std::vector<uint64_t> k, v;
  std::vector<float> k_scales, v_scales;
  KvPages pages;
};

class KvPagesTest : public testing::TestWithParam<Named> {};

struct Tokens {
  explicit Tokens(std::vector<int64_t> where) : slots(std::move(where)) {
    Rng rng(5);
    for (size_t i = 0; i < slots.size() * 32; ++i) {
      k.push_back(static_cast<float>(rng.Between(0, 2000)) - 1000.0f);
      v.push_back(static_cast<float>(rng.Between(0, 2000)) / 7.0f);
    }
  }
  KvAppend Into(const Pool& pool) {
    KvAppend append;
    append.pages = pool.pages;
    append.tokens = slots.size();
    append.k = {k.data(), FloatType::kF32};
    append.v = {v.data(), FloatType::kF32};
    append.slots = {slots.data(), 64};
    append.counts = &counts;
    return append;
  }
  std::vector<int64_t> slots;
  std::vector<float> k, v;
  KvCounts counts;
};

TEST_P(KvPagesTest, AppendStoresTheNearestCodeUnderThePagesScales) {  // I-132
  for (KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd}) {
    Pool pool(KvType::kE4m3, layout);
    pool.WithPageScales();
    pool.k_scales[2] = 0.5f;
    pool.pages.k_scale = 2.0f;
    const float heads[2] = {1.0f, 4.0f};
    pool.pages.v_head_scales = heads;
    Tokens tokens({2 * 4 + 1, 5 * 4 + 3});
    ASSERT_TRUE(GetParam().append(tokens.Into(pool)).ok());
    unsigned long long saturated = 0;
    for (int i = 0; i < 2; ++i) {
      const int page = i == 0 ? 2 : 5, token = i == 0 ? 1 : 3;
      for (int h = 0; h < 2; ++h) {
        for (int d = 0; d < 16; ++d) {
          const size_t from = static_cast<size_t>((i * 2 + h) * 16 + d);
          const double k = double{tokens.k[from]} / (2.0 * (page == 2 ? 0.5 : 1.0));
          const double v = double{tokens.v[from]} / double{heads[h]};
          ASSERT_EQ(*pool.At(false, page, token, h, d), model::E4m3Nearest(k)) << k;
          ASSERT_EQ(*pool.At(true, page, token, h, d), model::E4m3Nearest(v)) << v;
          saturated += (std::fabs(k) >= 464) + (std::fabs(v) >= 464);
        }
      }
    }
    EXPECT_GT(saturated, 0u);
    EXPECT_EQ(tokens.counts.saturated, saturated);
    EXPECT_EQ(tokens.counts.skipped, 0u);
    EXPECT_EQ(*pool.At(false, 2, 0, 0, 0), kUntouched);  // the slot before
  }
}

TEST_P(KvPagesTest, AppendWritesNothingToTheNullPageOrOutsideThePool) {  // I-131
  Pool pool(KvType::kE4m3);
  Tokens tokens({0, 3, -1, 6 * 4, std::numeric_limits<int64_t>::max()});
  ASSERT_TRUE(GetParam().append(tokens.Into(pool)).ok());
  for (int page = 0; page < 6; ++page) EXPECT_TRUE(pool.PageIsUntouched(page)) << page;
  EXPECT_EQ(tokens.counts.skipped, 4u);  // a negative slot asks for nothing
}

TEST_P(KvPagesTest, AppendKeepsNanAndSaturatesInfinity) {  // I-132
  Pool pool(KvType::kE4m3);
  Tokens tokens({4});
  tokens.k[0] = std::numeric_limits<float>::quiet_NaN();
  tokens.k[1] = -std::numeric_limits<float>::infinity();
  ASSERT_TRUE(GetParam().append(tokens.Into(pool)).ok());
  EXPECT_EQ(*pool.At(false, 1, 0, 0, 0), 0x7F);
  EXPECT_EQ(*pool.At(false, 1, 0, 0, 1), 0xFE);
}

struct HandOff {
  HandOff(Pool* from, Pool* to) {
    args.from = from->pages;
    args.to = to->pages;
    args.count = from_pages.size();
    args.from_pages = {from_pages.data(), 64};
    args.to_pages = {to_pages.data(), 64};
    args.tokens = {tokens.data(), 64};
    args.counts = &counts;
  }
  std::vector<int64_t> from_pages = {3, 1, 0, 2}, to_pages = {4, 2, 5, 6}, tokens = {4, 2, 4, 4};
  KvCounts counts;
  KvHandOff args;
};

TEST_P(KvPagesTest, HandOffScalesEachPageToTheWholeRange) {
  Rng rng(9);
  Pool from(KvType::kBf16, KvLayout::kHnd), to(KvType::kE4m3);
  from.FillBf16(&rng);
  to.WithPageScales();
  HandOff hand_off(&from, &to);
  ASSERT_TRUE(GetParam().hand_off(hand_off.args).ok());
  for (int i = 0; i < 2; ++i) {
    const int source = i == 0 ? 3 : 1, target = i == 0 ? 4 : 2, tokens = i == 0 ? 4 : 2;
    for (bool value : {false, true}) {
      double largest = 0;
      for (int n = 0; n < tokens * 32; ++n) {
        largest =
            std::fmax(largest, std::fabs(from.Value(value, source, n / 32, n / 16 % 2, n % 16)));
      }
      const double scale = double{(value ? to.v_scales : to.k_scales)[target]};
      EXPECT_NEAR(scale * 448, largest, 1e-4 * largest);
      for (int n = 0; n < 4 * 32; ++n) {
        const int token = n / 32, head = n / 16 % 2, d = n % 16;
        const double want = token < tokens ? from.Value(value, source, token, head, d) : 0.0;
        const double found = to.Value(value, target, token, head, d) * scale;
        // Half a step of three mantissa bits, or of the smallest numbers.
        ASSERT_NEAR(found, want, std::fmax(std::fabs(want) / 16, scale / 1024) * 1.0001) << n;
      }
    }
  }
  EXPECT_EQ(hand_off.counts.skipped, 2u);  // the null page, and one outside `to`
  EXPECT_EQ(hand_off.counts.saturated, 0u);
  for (int page : {0, 1, 3, 5}) EXPECT_TRUE(to.PageIsUntouched(page)) << page;  // I-131
}

TEST_P(KvPagesTest, HandOffTakesStampAndFillAlongAndLeavesTagAndFlags) {
  Rng rng(9);
  Pool from(KvType::kBf16), to(KvType::kE4m3);
  from.FillBf16(&rng);
  HandOff hand_off(&from, &to);
  std::vector<PageRecord> source(6), target(6);
  source[3] = {7, static_cast<uint16_t>(kPageShared | 4), 1, MakeStamp(12, 3)};
  source[1] = {9, 4, 1, MakeStamp(13, 1)};
  target[4] = {21, static_cast<uint16_t>(kPageSealed | 1), 5, kNoStamp};
  target[2] = {23, 0, 5, kNoStamp};
  hand_off.args.from_records = source.data();
  hand_off.args.to_records = target.data();
  ASSERT_TRUE(GetParam().hand_off(hand_off.args).ok());
  EXPECT_EQ(target[4].stamp, MakeStamp(12, 3));
  EXPECT_EQ(target[4].tag, 21u);
  EXPECT_EQ(target[4].fill_flags, kPageSealed | 4);
  EXPECT_EQ(target[4].scale, 5u);
  EXPECT_EQ(target[2].stamp, MakeStamp(13, 1));
  EXPECT_EQ(target[2].fill_flags, 2);  // only two tokens went along
  EXPECT_EQ(target[5].stamp, kNoStamp);
}

std::vector<uint64_t> Sums(const Named& backend, const KvPages& pages, std::vector<int64_t> list,
                           std::vector<int64_t> tokens = {}) {
  std::vector<uint64_t> sums(list.size(), 1);
  KvChecksums c;
  c.pages = pages;
  c.count = list.size();
  c.page_list = {list.data(), 64};
  if (!tokens.empty()) c.tokens = {tokens.data(), 64};
  c.sums = sums.data();
  EXPECT_TRUE(backend.checksums(c).ok());
  return sums;
}

TEST_P(KvPagesTest, AChecksumSeesEveryNumberItsPlaceAndTheScales) {  // I-133
  Rng rng(3);
  Pool pool(KvType::kBf16);
  pool.FillBf16(&rng);
  pool.WithPageScales();
  const uint64_t before = Sums(GetParam(), pool.pages, {2})[0];
  for (bool value : {false, true}) {
    for (int n = 0; n < 4 * 32; ++n) {
      uint8_t* at = pool.At(value, 2, n / 32, n / 16 % 2, n % 16);
      *at ^= 1;
      ASSERT_NE(Sums(GetParam(), pool.pages, {2})[0], before) << n;
      *at ^= 1;
    }
  }
  for (int token = 0; token < 3; ++token) {  // two tokens change places
    std::vector<uint8_t> saved(pool.At(false, 2, token, 0, 0), pool.At(false, 2, token + 2, 0, 0));
    std::swap_ranges(saved.begin(), saved.begin() + 64, saved.begin() + 64);
    std::swap_ranges(saved.begin(), saved.end(), pool.At(false, 2, token, 0, 0));
    EXPECT_NE(Sums(GetParam(), pool.pages, {2})[0], before) << token;
    std::copy(saved.begin(), saved.end(), pool.At(false, 2, token, 0, 0));
  }
  EXPECT_EQ(Sums(GetParam(), pool.pages, {2})[0], before);
  pool.v_scales[2] = 2.0f;
  EXPECT_NE(Sums(GetParam(), pool.pages, {2})[0], before);
}

TEST_P(KvPagesTest, AChecksumIsOfContentNotOfLayoutOrPage) {  // I-133
  Pool nhd(KvType::kE4m3, KvLayout::kNhd), hnd(KvType::kE4m3, KvLayout::kHnd);
  Rng rng(4);
  for (int n = 0; n < 4 * 32; ++n) {
    for (bool value : {false, true}) {
      const auto code = static_cast<uint8_t>(rng.Below(256));
      *nhd.At(value, 1, n / 32, n / 16 % 2, n % 16) = code;
      *hnd.At(value, 4, n / 32, n / 16 % 2, n % 16) = code;
    }
  }
  EXPECT_EQ(Sums(GetParam(), nhd.pages, {1})[0], Sums(GetParam(), hnd.pages, {4})[0]);
  EXPECT_EQ(Sums(GetParam(), nhd.pages, {1}, {3})[0], Sums(GetParam(), hnd.pages, {4}, {3})[0]);
  EXPECT_NE(Sums(GetParam(), nhd.pages, {1}, {3})[0], Sums(GetParam(), nhd.pages, {1})[0]);
  EXPECT_EQ(Sums(GetParam(), nhd.pages, {0, -1, 6}), std::vector<uint64_t>(3, 0));
}

TEST_P(KvPagesTest, RefusesInWords) {
  Pool pool(KvType::kE4m3), other(KvType::kE4m3);
  Tokens tokens({4});
  const auto refused = [&](auto change) {
    KvAppend append = tokens.Into(pool);
    change(&append);
    return GetParam().append(append).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](KvAppend* a) { a->pages.head_dim = 12; }));
  EXPECT_TRUE(refused([](KvAppend* a) { a->pages.page_size = 0; }));
  EXPECT_TRUE(refused([](KvAppend* a) { a->pages.page_stride = 16; }));
  EXPECT_TRUE(refused([](KvAppend* a) { a->pages.k_cache = nullptr; }));
  EXPECT_TRUE(refused([](KvAppend* a) { a->v.data = nullptr; }));
  EXPECT_TRUE(refused([](KvAppend* a) { a->slots.data = nullptr; }));
  EXPECT_FALSE(refused([](KvAppend*) {}));
  HandOff hand_off(&pool, &other);
  hand_off.args.to.page_size = 8;
  EXPECT_FALSE(GetParam().hand_off(hand_off.args).ok());
  EXPECT_FALSE(GetParam().checksums(KvChecksums{pool.pages, 1, {}, {}, nullptr}).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, KvPagesTest,
                         testing::Values(Named{"Cpu", AppendPagedKvCacheCpu, HandOffPagesCpu,
                                               PageChecksumsCpu},
                                         Named{"Shim", AppendShim, HandOffShim, ChecksumsShim}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvfence
