// Decode attention over random shapes: within the stated bound of the oracle, and the same to the
// bit wherever pages lie, on any build of the loops, on any number of threads (I-62, I-130).
//
// KVFENCE_CASES=10000 in the environment makes the long run (tests/model/cases.h).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/attention_backends.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/attention_draw.h"
#include "tests/model/cases.h"

namespace kvfence {
namespace {

// Lengths like to lie at the ends of pages, tiles and parts.
uint32_t RandomLength(Rng* rng, uint32_t page_size, uint32_t most) {
  const uint32_t unit = OneOf(rng, {1u, page_size, 16u, 32u, 64u});
  const auto near = static_cast<uint32_t>(rng->Between(0, most / unit) * unit);
  const auto step = static_cast<uint32_t>(rng->Below(3));
  return std::min(most, near + step > 0 ? near + step - 1 : 0);
}

void DrawQueries(Rng* rng, Shape* shape) {
  shape->causal = rng->Chance(3, 4);
  if (!rng->Chance(1, 3)) return;
  shape->seq_len_q = static_cast<uint32_t>(rng->Between(1, 5));
  if (!rng->Chance(1, 3)) return;
  for (size_t r = 0; r < shape->lengths.size(); ++r) {
    shape->query_tokens.push_back(static_cast<uint32_t>(rng->Between(0, shape->seq_len_q)));
  }
}

Shape RandomShape(Rng* rng) {
  Shape shape;
  shape.mla = rng->Chance(1, 5);
  shape.head_dim = OneOf(rng, {32u, 64u, 64u, 128u, 128u, 256u});
  shape.kv_heads = static_cast<uint32_t>(rng->Between(1, 3));
  shape.qo_heads = shape.kv_heads * static_cast<uint32_t>(rng->Between(1, 9));
  if (shape.mla) shape.qo_heads = static_cast<uint32_t>(rng->Between(1, 6));
  shape.page_size = OneOf(rng, {1u, 2u, 5u, 16u, 32u, 64u, 128u});
  shape.lengths.resize(rng->Between(1, 4));
  const uint32_t most = shape.mla ? 80 : 260;
  for (uint32_t& length : shape.lengths) length = RandomLength(rng, shape.page_size, most);
  DrawFormats(rng, &shape);
  shape.csr = rng->Chance(1, 3);
  shape.slot_table = rng->Chance(1, 4);
  shape.wide_integers = rng->Chance(1, 2);
  shape.tiny_numbers = rng->Chance(1, 10);
  if (rng->Chance(1, 3)) shape.window_left = static_cast<int64_t>(rng->Below(100));
  DrawQueries(rng, &shape);
  return shape;
}

// What a fence's sanitising, or a broken table, leaves: null pages, pages beyond the pool.
void Damage(Rng* rng, AttentionCase* c) {
  for (uint32_t r = 0; r < c->rows(); ++r) {
    const uint32_t per_entry = c->shape().slot_table ? 1 : c->shape().page_size;
    const uint64_t entries = (c->shape().lengths[r] + per_entry - 1) / per_entry;
    const bool all = rng->Chance(1, 8);
    for (uint64_t at = 0; at < entries; ++at) {
      if (all) {
        c->SetEntry(r, at, 0);
      } else if (rng->Chance(1, 8)) {
        const auto beyond = static_cast<int64_t>(c->paged().num_pages) * c->shape().page_size;
        c->SetEntry(r, at, OneOf(rng, {int64_t{0}, int64_t{-1}, beyond, int64_t{0x7FFFFFFF}}));
      }
    }
  }
}

void PutNans(Rng* rng, AttentionCase* c) {
  const auto r = static_cast<uint32_t>(rng->Below(c->rows()));
  const uint32_t length = c->shape().lengths[r];
  if (length == 0) return;
  // Half of them near the end, where some query tokens read and others don't.
  const uint64_t back = rng->Below(rng->Chance(1, 2) ? length : std::min(length, 5u));
  const bool value = rng->Chance(1, 2);
  c->SetNan(r, length - 1 - back, value);
}

// Bits are promised for contexts up to max_kv_len.
bool FitsSpreadParts(const Shape& shape) {
  const uint32_t part = shape.kv_chunk_size != 0 ? shape.kv_chunk_size : kDefaultKvChunkSize;
  return *std::max_element(shape.lengths.begin(), shape.lengths.end()) <= kSpreadParts * part;
}

// The same batch, with the same damage, its pages elsewhere.
std::vector<float> Elsewhere(Shape shape, uint64_t seed, bool damaged) {
  shape.layout_seed = seed + 1000;
  AttentionCase c(shape, seed);
  Rng rng(seed);
  if (damaged) Damage(&rng, &c);
  return c.Run(RunCpu);
}

TEST(AttentionRandom, EveryBackendIsWithinTheBoundAndLayoutChangesNoBit) {
  const std::vector<attention::CpuBuild> builds = attention::CpuBuilds();
  const auto cases = static_cast<uint64_t>(testing::Cases(testing::kThreadSanitizer ? 25 : 250));
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    Rng rng(seed * 77);
    const Shape shape = RandomShape(&rng);
    AttentionCase c(shape, seed);
    Rng damage(seed);
    const bool damaged = rng.Chance(1, 4);
    if (damaged) Damage(&damage, &c);
    const bool nan = !damaged && rng.Chance(1, 6);
    if (nan) PutNans(&rng, &c);
    const std::vector<float> found = c.Run(RunCpu);
    ASSERT_EQ(Wrong(found, c), "") << "case " << seed;
    ASSERT_TRUE(SameBits(c.Run(RunCpuThreads), found)) << "case " << seed;
    ASSERT_TRUE(SameBits(c.Run(RunBuild(builds[seed % builds.size()])), found)) << "case " << seed;
    if (!nan) {
      ASSERT_TRUE(SameBits(Elsewhere(shape, seed, damaged), found)) << "case " << seed;
    }
    if (seed % 8 != 0) continue;
    const std::vector<float> walked = c.Run(RunShim);
    ASSERT_EQ(Wrong(walked, c, DeviceRounding(c)), "") << "case " << seed;
    const std::vector<float> spread = c.Run(RunShimSpread);
    ASSERT_EQ(Wrong(spread, c, DeviceRounding(c)), "") << "case " << seed;
    if (FitsSpreadParts(shape)) {
      ASSERT_TRUE(SameBits(spread, walked)) << "case " << seed;
    }
  }
}

}  // namespace
}  // namespace kvfence
