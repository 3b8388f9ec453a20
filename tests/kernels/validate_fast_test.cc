// The tight loop of the CPU backend: every variant that this processor can run says the same, and
// none calls equal what isn't.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/validate_plain.h"
#include "kernels/validate_simd.h"
#include "kvfence/rng.h"
#include "tests/kernels/validate_random.h"

namespace kvfence {
namespace {

using fence::FastMasks;

constexpr uint32_t kPages = 50;
constexpr uint32_t kNull = 3;
constexpr uint16_t kFull = 16;

FastMasks Masks(bool page_scales, bool content) {
  FastMasks m{};
  m.low = content ? 0xFFFF3FFFFFFFFFFFull : 0xFFFFFFFFull;
  m.stamp = content ? ~uint64_t{0} : 0;
  m.fill = uint64_t{kFull} << 32;
  m.scale = page_scales ? 0 : uint64_t{9} << 48;
  m.by_tag = page_scales ? ~uint64_t{0} : 0;
  m.pages = kPages;
  m.null_page = kNull;
  return m;
}

struct Arrays {
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide;
  std::vector<Expectation> want;
  std::vector<PageRecord> records;
};

Arrays Equal(Rng& rng, uint64_t n, bool page_scales) {
  Arrays a;
  for (uint32_t p = 0; p < kPages; ++p) {
    const Tag tag = static_cast<Tag>(rng.Next());
    const uint16_t flags = rng.Chance(1, 3) ? kPageShared | kPageSealed : 0;
    a.records.push_back(PageRecord{tag, static_cast<uint16_t>(kFull | flags),
                                   page_scales ? static_cast<uint16_t>(tag) : uint16_t{9},
                                   rng.Next() | 1});
  }
  for (uint64_t i = 0; i < n; ++i) {
    auto page = static_cast<uint32_t>(rng.Below(kPages));
    if (page == kNull) page = 0;
    a.narrow.push_back(static_cast<int32_t>(page));
    a.wide.push_back(page);
    a.want.push_back(Expectation{page, a.records[page].tag, a.records[page].stamp});
  }
  return a;
}

void ExpectAll(const Arrays& a, const FastMasks& masks, bool equal) {
  const fence::FastLoops& loops = fence::AvailableFastLoops();
  ASSERT_GE(loops.count, 1);
  for (int l = 0; l < loops.count; ++l) {
    EXPECT_EQ(loops.loops[l].all_equal_32(a.narrow.data(), a.want.data(), a.records.data(),
                                          a.want.size(), masks),
              equal)
        << loops.loops[l].name;
    EXPECT_EQ(loops.loops[l].all_equal_64(a.wide.data(), a.want.data(), a.records.data(),
                                          a.want.size(), masks),
              equal)
        << loops.loops[l].name;
  }
}

void SetEntry(Arrays& a, uint64_t i, int64_t entry) {
  a.narrow[i] = static_cast<int32_t>(entry);
  a.wide[i] = entry;
}

TEST(ValidateFast, EqualIsEqualAtAnyLength) {
  Rng rng(1);
  for (uint64_t n = 0; n < 40; ++n) {
    for (bool page_scales : {false, true}) {
      const Arrays a = Equal(rng, n, page_scales);
      ExpectAll(a, Masks(page_scales, true), true);
      ExpectAll(a, Masks(page_scales, false), true);
    }
  }
}

// One difference at a time, at every position of every length.
TEST(ValidateFast, AnyDifferenceIsSeen) {
  Rng rng(2);
  for (uint64_t n = 1; n < 20; ++n) {
    for (uint64_t i = 0; i < n; ++i) {
      const bool page_scales = rng.Chance(1, 2);
      const FastMasks masks = Masks(page_scales, true);
      const Arrays a = Equal(rng, n, page_scales);
      const auto damaged = [&](auto&& change) {
        Arrays b = a;
        change(b);
        ExpectAll(b, masks, false);
      };
      for (int64_t entry : {int64_t{-1}, int64_t{kPages}, int64_t{1} << 30}) {
        damaged([&](Arrays& b) { SetEntry(b, i, entry); });
      }
      damaged([&](Arrays& b) { SetEntry(b, i, (b.wide[i] + 1) % kPages); });
      damaged([&](Arrays& b) {
        SetEntry(b, i, kNull);
        b.want[i] = Expectation{kNull, b.records[kNull].tag, b.records[kNull].stamp};
      });
      damaged([&](Arrays& b) {
        SetEntry(b, i, -1);
        b.want[i].page = kNoPage;
      });
      damaged([&](Arrays& b) { b.want[i].tag ^= 1u << rng.Below(32); });
      damaged([&](Arrays& b) { b.want[i].stamp ^= uint64_t{1} << rng.Below(64); });
      damaged([&](Arrays& b) { b.records[b.want[i].page].scale ^= 1u; });
      damaged([&](Arrays& b) { b.records[b.want[i].page].fill_flags -= 1; });
      damaged([&](Arrays& b) { b.want[i].stamp = b.records[b.want[i].page].stamp = kNoStamp; });
    }
  }
}

TEST(ValidateFast, ContentIsAskedOnlyIfTheLevelSays) {
  Rng rng(3);
  Arrays a = Equal(rng, 9, false);
  a.records[a.want[4].page].fill_flags = 0;
  a.records[a.want[4].page].scale = 0;
  a.want[4].stamp ^= 1;
  ExpectAll(a, Masks(false, true), false);
  ExpectAll(a, Masks(false, false), true);
  a.want[4].tag ^= 1;
  ExpectAll(a, Masks(false, false), false);
}

// A 64-bit entry that equals the page in its low half only.
TEST(ValidateFast, WideEntriesAreComparedInFull) {
  Rng rng(4);
  Arrays a = Equal(rng, 8, false);
  const fence::FastLoops& loops = fence::AvailableFastLoops();
  a.wide[5] |= int64_t{1} << 32;
  for (int l = 0; l < loops.count; ++l) {
    EXPECT_FALSE(loops.loops[l].all_equal_64(a.wide.data(), a.want.data(), a.records.data(), 8,
                                             Masks(false, true)))
        << loops.loops[l].name;
  }
}

// I-64: what is plainly equal has no finding, whatever else is wrong; and the case does occur.
TEST(ValidateFast, I64PlainlyEqualPagesAreClean) {
  uint64_t equal = 0;
  uint64_t doubtful = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    Batch batch = RandomBatch(rng, 2, 4);
    Vary(batch, rng);
    for (uint64_t i = rng.Below(6); i > 0; --i) Damage(batch, rng);
    batch.checks = ~0u;
    batch.Bind();
    const GateView gate = batch.gate();
    const StepView step = batch.step();
    for (uint32_t t = 0; t < batch.tasks.size(); ++t) {
      const fence::RowPool rp = fence::OpenRowPool(gate, step, t);
      if (rp.row->kind == RowKind::kPad) continue;
      const fence::FastSpan span = fence::FastSpanOf(rp);
      for (uint64_t k = span.first; k < span.end; ++k) {
        if (!fence::PlainlyEqual(gate, step, rp, k)) {
          ++doubtful;
          continue;
        }
        ++equal;
        EXPECT_TRUE(fence::JudgePage(gate, step, batch.scratch(), rp, k).clean())
            << "seed " << seed << " task " << t << " page " << k;
      }
    }
  }
  EXPECT_GT(equal, 1000u);
  EXPECT_GT(doubtful, 10u);
}

}  // namespace
}  // namespace kvfence
