// The tensor-core kernel on the shim, over random batches drawn for its corners: blocks of lines
// that aren't full, lines that read different tokens, windows that begin inside sixteen, holes,
// NaNs.
//
// KVFENCE_CASES=10000 in the environment makes the long run (tests/model/cases.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kvfence/cuda_on_cpu.h"
#include "tests/kernels/attention_backends.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/attention_draw.h"
#include "tests/model/cases.h"

namespace kvfence {
namespace {

// Query heads to a KV head; with 16 lines to a block, one block, or several and a rest.
uint32_t DrawGroup(Rng* rng) { return OneOf(rng, {4u, 5u, 8u, 9u, 15u, 16u, 17u, 33u, 128u}); }

void DrawQueries(Rng* rng, uint32_t group, Shape* shape) {
  shape->causal = rng->Chance(3, 4);
  if (rng->Chance(1, 2)) shape->window_left = static_cast<int64_t>(rng->Below(60));
  if (group > 15 || rng->Chance(1, 2)) return;
  shape->seq_len_q = static_cast<uint32_t>(rng->Between(1, 9));
  for (size_t r = 0; rng->Chance(1, 2) && r < shape->lengths.size(); ++r) {
    shape->query_tokens.resize(shape->lengths.size(), 1);
    shape->query_tokens[r] = static_cast<uint32_t>(rng->Between(0, shape->seq_len_q));
  }
}

Shape DrawShape(Rng* rng) {
  Shape shape;
  const uint32_t group = DrawGroup(rng);
  shape.mla = rng->Chance(1, 4);
  shape.head_dim = OneOf(rng, {64u, 128u, 256u});
  shape.kv_heads = shape.mla ? 1 : static_cast<uint32_t>(rng->Between(1, 2));
  shape.qo_heads = shape.kv_heads * group;
  shape.page_size = OneOf(rng, {1u, 5u, 16u, 64u});
  shape.lengths.resize(rng->Between(1, 3));
  const uint32_t most = group > 16 ? 70 : shape.mla ? 100 : 260;
  for (uint32_t& length : shape.lengths) length = static_cast<uint32_t>(rng->Between(0, most));
  DrawFormats(rng, &shape);
  DrawQueries(rng, group, &shape);
  return shape;
}

void PutHoles(Rng* rng, AttentionCase* c) {
  for (uint32_t r = 0; r < c->rows(); ++r) {
    for (uint64_t at = 0; at * c->shape().page_size < c->shape().lengths[r]; ++at) {
      if (rng->Chance(1, 3)) c->SetEntry(r, at, OneOf(rng, {int64_t{0}, int64_t{-1}}));
    }
  }
}

// Most of them near the end, where some query tokens read and others don't.
void PutNans(Rng* rng, AttentionCase* c) {
  for (int i = 0; i < 3; ++i) {
    const auto r = static_cast<uint32_t>(rng->Below(c->rows()));
    const uint32_t length = c->shape().lengths[r];
    if (length == 0) continue;
    const uint64_t back = rng->Below(rng->Chance(1, 2) ? length : std::min(length, 9u));
    c->SetNan(r, length - 1 - back, rng->Chance(1, 2));
  }
}

TEST(AttentionMma, IsWithinTheBoundWalkedAndSpread) {  // I-61, I-62
  const auto cases = static_cast<uint64_t>(testing::Cases(testing::kThreadSanitizer ? 3 : 10));
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    Rng rng(seed * 7919);
    const Shape shape = DrawShape(&rng);
    AttentionCase c(shape, seed);
    const uint64_t damage = rng.Below(3);
    if (damage == 0) PutHoles(&rng, &c);
    if (damage == 1) PutNans(&rng, &c);
    const std::vector<float> walked = c.Run(RunShim);
    ASSERT_EQ(Wrong(walked, c, DeviceRounding(c)), "") << "case " << seed;
    const cuda_on_cpu::ScopedSchedule schedule(seed);
    const std::vector<float> spread = c.Run(RunShimSpread);
    ASSERT_EQ(Wrong(spread, c, DeviceRounding(c)), "") << "case " << seed;
    const uint32_t part = shape.kv_chunk_size != 0 ? shape.kv_chunk_size : kDefaultKvChunkSize;
    const uint32_t longest = *std::max_element(shape.lengths.begin(), shape.lengths.end());
    if (longest > kSpreadParts * part) continue;
    ASSERT_TRUE(SameBits(spread, walked)) << "case " << seed;
  }
}

}  // namespace
}  // namespace kvfence
