// Decode attention: both backends' code against the oracle, on every layout; the kernel body runs
// through the CPU shim. I-21: masked tokens are not read. I-22: bits don't depend on where pages
// lie.
#include "kvfence/attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/attention_cpu.h"
#include "kernels/attention_cuda.cuh"
#include "tests/kernels/attention_case.h"

namespace kvfence {
namespace {

Status RunShim(const DecodeAttention& a) {
  if (Status status = CheckDecodeAttention(a); !status.ok()) return status;
  attention::LaunchDecodeAttention(a, nullptr);
  return Status();
}

using BackendFunction = Status (*)(const DecodeAttention&);
struct Named {
  const char* name;
  BackendFunction run;
};

class Attention : public testing::TestWithParam<Named> {
 protected:
  std::vector<float> Run(AttentionCase* c) { return c->Run(GetParam().run); }

  // Every output agrees with the oracle; `tolerance` is relative to 1 + |value|.
  void ExpectRight(AttentionCase* c, double tolerance = 2e-5) {
    const std::vector<float> found = Run(c);
    const std::vector<double> expected = c->Expected();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isinf(expected[i])) {
        ASSERT_EQ(double{found[i]}, expected[i]) << i;
      } else {
        ASSERT_LE(std::fabs(found[i] - expected[i]), tolerance * (1 + std::fabs(expected[i])))
            << i << ": " << found[i] << " for " << expected[i];
      }
    }
  }
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(Attention, AgreesWithTheOracleForEveryHeadDimAndGroup) {
  struct Heads {
    uint32_t dim, qo, kv;
  };
  for (Heads heads : {Heads{32, 1, 1},
                      {32, 4, 4},
                      {32, 36, 1},
                      {32, 40, 20},
                      {64, 8, 1},
                      {64, 6, 2},
                      {128, 6, 2},
                      {128, 10, 1},
                      {256, 1, 1},
                      {256, 6, 2}}) {
    Shape shape;
    shape.head_dim = heads.dim;
    shape.qo_heads = heads.qo;
    shape.kv_heads = heads.kv;
    shape.lengths = {33, 1};
    AttentionCase c(shape, heads.dim + heads.qo);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << heads.dim << " " << heads.qo << "/" << heads.kv;
  }
}

TEST_P(Attention, AgreesWithTheOracleOnEveryLayout) {
  for (uint32_t bits = 0; bits < 32; ++bits) {
    Shape shape;
    shape.csr = (bits & 1) != 0;
    shape.slot_table = (bits & 2) != 0;
    shape.wide_integers = (bits & 4) != 0;
    shape.interleaved_kv = (bits & 8) != 0;
    shape.page_scales = (bits & 16) != 0;
    shape.page_size = bits % 3 == 0 ? 16 : bits % 3 == 1 ? 5 : 1;
    shape.head_dim = 32;
    shape.qo_heads = 3;
    shape.kv_heads = 1;
    shape.lengths = {1, 37, 16};
    AttentionCase c(shape, bits);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << bits;
  }
}

TEST_P(Attention, Bf16QueriesAndOutputsRoundOnce) {
  Shape shape;
  shape.bf16 = true;
  AttentionCase c(shape);
  ExpectRight(&c, 1.0 / 256);
}

TEST_P(Attention, AWindowReadsItsPositionsAndLooksAtNoEntryBefore) {
  for (int64_t window_left : {0, 5, 31, 63, 1000}) {
    Shape shape;
    shape.window_left = window_left;
    shape.lengths = {100, 3, 64};
    AttentionCase c(shape);
    if (window_left < 68) c.args.table.entries.Set(0, 1 << 30);  // row 0's first page slid out
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << window_left;
  }
}

TEST_P(Attention, RowsWithoutAReadableTokenAreNeutral) {  // I-21
  Shape shape;
  shape.lengths = {0, 40, 20, 1};
  AttentionCase c(shape);
  for (uint64_t at = 0; at < 3; ++at) c.SetEntry(1, at, 0);  // sanitised: all null, length stays
  ASSERT_NO_FATAL_FAILURE(ExpectRight(&c));
  const std::vector<float> found = Run(&c);
  const size_t per_row = size_t{shape.qo_heads} * shape.head_dim;
  for (size_t i = 0; i < 2 * per_row; ++i) ASSERT_EQ(found[i], 0.0f);
  for (size_t h = 0; h < 2 * shape.qo_heads; ++h) {
    ASSERT_EQ(found[c.o_size() + h], -std::numeric_limits<float>::infinity());
  }
}

TEST_P(Attention, EntriesThatNameNoPageOfThePoolAreNotRead) {  // I-21
  Shape shape;
  shape.lengths = {100, 100};
  AttentionCase c(shape);
  c.SetEntry(0, 1, 0);
  c.SetEntry(0, 2, -1);
  c.SetEntry(0, 3, static_cast<int64_t>(c.args.num_pages));
  c.SetEntry(0, 6, 0x7FFFFFFF);
  ExpectRight(&c);
}

TEST_P(Attention, ALengthBeyondTheTableStaysInsideIt) {
  Shape shape;
  shape.lengths = {32, 32};
  AttentionCase c(shape);
  c.SetLength(0, 1 << 30);
  c.SetLength(1, -5);
  const std::vector<float> found = Run(&c);
  const std::vector<double> expected = c.Expected();
  const size_t per_row = size_t{shape.qo_heads} * shape.head_dim;
  for (size_t i = 0; i < per_row; ++i) ASSERT_NEAR(found[i], expected[i], 1e-4);
  for (size_t i = per_row; i < 2 * per_row; ++i) ASSERT_EQ(found[i], 0.0f);
}

TEST_P(Attention, ARowMapAndPackedEntriesAreDecoded) {
  Shape shape;
  shape.lengths = {20, 50, 33};
  AttentionCase straight(shape), mapped(shape);
  std::vector<int64_t> map = {0, 1, 2};
  TableView& table = mapped.args.table;
  for (uint64_t i = 0; i < table.entries_size; ++i) {
    table.entries.Set(i, table.entries.Get(i) * 4 | 1 << 30);
  }
  table.mask = (1 << 30) - 1;
  table.divisor = 4;
  table.row_map = {map.data(), 64};
  EXPECT_TRUE(SameBits(Run(&straight), Run(&mapped)));
  map[1] = 7;  // no such table row
  const std::vector<float> found = Run(&mapped);
  EXPECT_EQ(found[size_t{shape.qo_heads} * shape.head_dim], 0.0f);
}

TEST_P(Attention, ANegativeEntryIsNoPageEvenIfItsMaskedBitsNameOne) {  // I-21
  Shape shape;
  shape.lengths = {50};
  AttentionCase c(shape);
  c.args.table.mask = (1 << 30) - 1;
  c.SetEntry(0, 1, -(int64_t{1} << 30) | c.Entry(0, 0));
  ExpectRight(&c);
}

TEST_P(Attention, BitsDoNotDependOnWherePagesLie) {  // I-22
  Shape shape;
  shape.lengths = {200, 1, 77};
  shape.page_scales = true;
  AttentionCase first(shape);
  const std::vector<float> expected = Run(&first);
  for (uint64_t layout = 2; layout < 5; ++layout) {
    shape.layout_seed = layout;
    AttentionCase c(shape);
    ASSERT_NE(c.Entry(0, 0) * 1000 + c.Entry(0, 1), first.Entry(0, 0) * 1000 + first.Entry(0, 1));
    EXPECT_TRUE(SameBits(Run(&c), expected)) << layout;
  }
}

TEST_P(Attention, BitsDoNotDependOnPageSizeOrTableLayout) {  // I-22
  Shape shape;
  shape.lengths = {200, 1, 77};
  AttentionCase first(shape);
  const std::vector<float> expected = Run(&first);
  for (uint32_t page_size : {1u, 3u, 64u}) {
    shape.page_size = page_size;
    shape.csr = page_size == 3;
    AttentionCase c(shape);
    EXPECT_TRUE(SameBits(Run(&c), expected)) << page_size;
  }
}

TEST_P(Attention, ANanStaysInTheRowThatHoldsIt) {
  Shape shape;
  shape.lengths = {40, 40, 40};
  AttentionCase c(shape);
  std::memset(c.Codes(false, c.SlotAt(1, 17)), 0x7F, size_t{shape.kv_heads} * shape.head_dim);
  const std::vector<float> found = Run(&c);
  const size_t per_row = size_t{shape.qo_heads} * shape.head_dim;
  for (size_t i = 0; i < 3 * per_row; ++i) {
    ASSERT_EQ(std::isnan(found[i]), i / per_row == 1) << i;
  }
}

TEST_P(Attention, ExtremeScoresNeitherOverflowNorVanish) {
  Shape shape;
  shape.lengths = {90};
  AttentionCase c(shape);
  c.args.sm_scale = 30.0f;  // weights from 1 down to exp(-thousands)
  ExpectRight(&c, 2e-3);
}

TEST_P(Attention, RefusesGeometryInWords) {
  AttentionCase c(Shape{});
  const auto refused = [&](auto change) {
    DecodeAttention a = c.args;
    change(&a);
    return !GetParam().run(a).ok();
  };
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->head_dim = 48; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->num_qo_heads = 9; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->num_kv_heads = 0; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->page_size = 0; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->page_stride = 16; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->k_cache += 1; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.entries.data = nullptr; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.divisor = 0; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.entries_per_page = 3; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->lengths.values.data = nullptr; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.layout = TableLayout::kCsr; }));
  EXPECT_FALSE(refused([](DecodeAttention*) {}));
}

INSTANTIATE_TEST_SUITE_P(Backends, Attention,
                         testing::Values(Named{"Cpu", DecodeAttentionCpu}, Named{"Shim", RunShim}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AttentionCpu, EveryBuildOfTheLoopsGivesTheSameBits) {  // I-22
  for (uint32_t dim : {32u, 64u, 128u, 256u}) {
    for (auto [qo, kv] : {std::pair{6u, 2u}, {40u, 1u}, {40u, 20u}}) {
      Shape shape;
      shape.head_dim = dim;
      shape.qo_heads = qo;
      shape.kv_heads = kv;
      shape.lengths = {0, 5, 90};
      shape.page_scales = true;
      AttentionCase c(shape, dim);
      std::vector<float> expected;
      for (const attention::CpuBuild& build : attention::CpuBuilds()) {
        const std::vector<float> found = c.Run([&](const DecodeAttention& a) {
          build.run(a);
          return Status();
        });
        if (expected.empty()) expected = found;
        EXPECT_TRUE(SameBits(found, expected)) << build.name << " " << dim << " " << qo;
      }
    }
  }
}

TEST(AttentionShim, NoBlockOrThreadOrderChangesABit) {
  Shape shape;
  shape.qo_heads = 6;
  AttentionCase c(shape);
  const std::vector<float> expected = c.Run(RunShim);
  for (uint64_t seed = 1; seed < 5; ++seed) {
    cuda_on_cpu::ScopedSchedule schedule(seed);
    EXPECT_TRUE(SameBits(c.Run(RunShim), expected)) << seed;
  }
}

}  // namespace
}  // namespace kvfence
