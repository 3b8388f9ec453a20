// Decode attention: both backends' code against the oracle, on every layout; the kernel body runs
// through the CPU shim. I-61: masked tokens are not read. I-62: bits don't depend on where pages
// lie.
#include "kvfence/attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kvfence/bf16.h"
#include "kvfence/cuda_on_cpu.h"
#include "kvfence/fp8.h"
#include "tests/kernels/attention_backends.h"
#include "tests/kernels/attention_case.h"

namespace kvfence {
namespace {

struct Named {
  const char* name;
  Status (*run)(const AttentionCall&);
  bool device = false;
};

class Attention : public testing::TestWithParam<Named> {
 protected:
  std::vector<float> Run(AttentionCase* c) { return c->Run(GetParam().run); }
  void ExpectRight(AttentionCase* c) {
    ASSERT_EQ(Wrong(Run(c), *c, GetParam().device ? DeviceRounding(*c) : 0), "");
  }
};

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
  ExpectRight(&c);
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

TEST_P(Attention, RowsWithoutAReadableTokenAreNeutral) {  // I-61
  Shape shape;
  shape.lengths = {0, 40, 20, 1};
  AttentionCase c(shape);
  for (uint64_t at = 0; at < 3; ++at) c.SetEntry(1, at, 0);  // sanitised: all null, length stays
  ASSERT_NO_FATAL_FAILURE(ExpectRight(&c));
  const std::vector<float> found = Run(&c);
  const size_t per_row = size_t{shape.qo_heads} * shape.head_dim;
  for (size_t i = 0; i < 2 * per_row; ++i) ASSERT_EQ(found[i], 0.0f);
  for (size_t h = 0; h < size_t{2} * shape.qo_heads; ++h) {
    ASSERT_EQ(found[c.o_size() + h], -std::numeric_limits<float>::infinity());
  }
}

TEST_P(Attention, EntriesThatNameNoPageOfThePoolAreNotRead) {  // I-61
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
  c.args.table.entries.Set(2, c.Entry(1, 0));  // behind row 0's two entries: not its own
  c.SetLength(0, 1 << 30);
  c.SetLength(1, -5);
  const std::vector<float> found = Run(&c);
  const std::vector<AttentionCase::Answer> expected = c.Expected(0x1p-15);
  const size_t per_row = size_t{shape.qo_heads} * shape.head_dim;
  for (size_t i = 0; i < per_row; ++i) {
    ASSERT_NEAR(found[i], expected[i].value, expected[i].bound);
  }
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

TEST_P(Attention, ANegativeEntryIsNoPageEvenIfItsMaskedBitsNameOne) {  // I-61
  Shape shape;
  shape.lengths = {50};
  AttentionCase c(shape);
  c.args.table.mask = (1 << 30) - 1;
  c.SetEntry(0, 1, -(int64_t{1} << 30) | c.Entry(0, 0));
  ExpectRight(&c);
}

TEST_P(Attention, BitsDoNotDependOnWherePagesLie) {  // I-62
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

TEST_P(Attention, BitsDoNotDependOnPageSizeOrTableLayout) {  // I-62
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
  c.SetNan(1, 17, false);
  const std::vector<float> found = Run(&c);
  const size_t per_row = size_t{shape.qo_heads} * shape.head_dim;
  for (size_t i = 0; i < 3 * per_row; ++i) {
    ASSERT_EQ(std::isnan(found[i]), i / per_row == 1) << i;
  }
}

TEST_P(Attention, ANanIsSeenOnlyByTheQueryTokensThatReadIt) {  // I-61
  for (uint32_t bits = 0; bits < 8; ++bits) {
    Shape shape;
    shape.seq_len_q = 3;
    shape.bf16_kv = (bits & 1) != 0;
    shape.mla = (bits & 2) != 0;
    const bool last = (bits & 4) != 0;
    if (!last) shape.window_left = 20;
    shape.lengths = {70, 70};
    AttentionCase c(shape);
    c.SetNan(0, last ? 69 : 67 - 20, true);  // read by the last, or by the first of the three
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << bits;
    const std::vector<float> found = Run(&c);
    const size_t per_query = (c.o_begin(1) - c.o_begin(0)) / 3;
    for (size_t q = 0; q < 6; ++q) {
      ASSERT_EQ(std::isnan(found[q * per_query]), q == (last ? 2 : 0)) << bits << " " << q;
    }
  }
}

TEST_P(Attention, ExtremeScoresNeitherOverflowNorVanish) {
  Shape shape;
  shape.lengths = {90};
  AttentionCase c(shape);
  c.args.sm_scale = 30.0f;  // weights from 1 down to exp(-thousands)
  ExpectRight(&c);
}

TEST_P(Attention, RefusesGeometryInWords) {
  AttentionCase c(Shape{});
  const auto refused = [&](auto change) {
    DecodeAttention a = c.args;
    change(&a);
    return !GetParam().run({&a, nullptr}).ok();
  };
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->head_dim = 48; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->num_qo_heads = 9; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->num_kv_heads = 0; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->page_size = 0; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->page_stride = 16; }));
  EXPECT_TRUE(
      refused([](DecodeAttention* a) { a->k_cache = static_cast<const char*>(a->k_cache) + 1; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.entries.data = nullptr; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.divisor = 0; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->num_pages = uint64_t{1} << 32; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->kv_chunk_size = ~31u; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.entries_per_page = 3; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->lengths.values.data = nullptr; }));
  EXPECT_TRUE(refused([](DecodeAttention* a) { a->table.layout = TableLayout::kCsr; }));
  EXPECT_FALSE(refused([](DecodeAttention*) {}));
}

TEST_P(Attention, SeveralQueryTokensSeeWhatStandsBeforeThem) {
  for (bool causal : {true, false}) {
    for (int64_t window_left : {-1, 3}) {
      Shape shape;
      shape.seq_len_q = 4;
      shape.causal = causal;
      shape.window_left = window_left;
      shape.lengths = {4, 2, 0, 40, 33};  // a row shorter than its query tokens: some have none
      AttentionCase c(shape);
      ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << causal << " " << window_left;
    }
  }
}

TEST_P(Attention, RowsMayHaveDifferentNumbersOfQueryTokens) {
  Shape shape;
  shape.seq_len_q = 5;
  shape.query_tokens = {1, 0, 5, 3};
  shape.lengths = {20, 9, 70, 33};
  AttentionCase c(shape);
  ExpectRight(&c);
}

TEST_P(Attention, QueryTokensBeyondTheArrayAreNotTouched) {
  Shape shape;
  shape.seq_len_q = 4;
  shape.query_tokens = {2, 3};
  shape.lengths = {20, 20};
  AttentionCase c(shape);
  c.args.qo_indptr.Set(2, 1000);  // runs past the array: cut there
  const std::vector<float> found = Run(&c);
  EXPECT_EQ(found.size(), c.o_size() + 5 * shape.qo_heads);
  EXPECT_FALSE(std::isnan(found[0]));
  c.args.qo_indptr.Set(1, -1);  // a row without query tokens, and nothing to write for
  Run(&c);
}

TEST_P(Attention, Bf16CachesHeadScalesAndHeadMajorPages) {
  for (uint32_t bits = 0; bits < 8; ++bits) {
    Shape shape;
    shape.bf16_kv = (bits & 1) != 0;
    shape.head_scales = (bits & 2) != 0;
    shape.hnd = (bits & 4) != 0;
    shape.page_scales = bits == 7;
    shape.lengths = {33, 1, 100};
    AttentionCase c(shape, bits);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << bits;
  }
}

TEST_P(Attention, MlaReadsOneLatentForAllHeads) {
  for (uint32_t bits = 0; bits < 16; ++bits) {
    Shape shape;
    shape.mla = true;
    shape.qo_heads = bits % 3 == 0 ? 1 : 5;
    shape.bf16_kv = (bits & 1) != 0;
    shape.packed_mla = (bits & 2) != 0;
    shape.page_scales = (bits & 4) != 0;
    shape.bf16 = (bits & 8) != 0;
    shape.seq_len_q = bits == 6 ? 3 : 1;
    shape.slot_table = bits == 9;
    shape.csr = bits == 10;
    shape.lengths = {40, 0, 7};
    AttentionCase c(shape, bits);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << bits;
  }
}

TEST_P(Attention, LongContextsAreJoinedPartByPart) {
  for (uint32_t chunk : {32u, 64u, 96u}) {
    Shape shape;
    shape.kv_chunk_size = chunk;
    shape.lengths = {300, 32, 33, 0, 64};
    shape.window_left = chunk == 96 ? 40 : -1;
    shape.seq_len_q = chunk == 64 ? 2 : 1;
    AttentionCase c(shape, chunk);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << chunk;
    Shape same = shape;
    same.mla = true;
    same.qo_heads = 3;
    AttentionCase mla(same, chunk);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&mla)) << chunk;
  }
}

TEST_P(Attention, SubnormalNumbersKeepTheirValue) {
  for (bool bf16_kv : {false, true}) {
    Shape shape;
    shape.tiny_numbers = true;
    shape.bf16_kv = bf16_kv;
    AttentionCase c(shape);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << bf16_kv;
  }
}

TEST_P(Attention, AnInfiniteQueryGivesNanInItsRowOnly) {
  Shape shape;
  shape.lengths = {40, 40};
  AttentionCase c(shape);
  static_cast<float*>(c.args.q.data)[c.o_begin(1) + 3] = std::numeric_limits<float>::infinity();
  const std::vector<float> found = Run(&c);
  for (size_t i = 0; i < c.o_size(); ++i) {
    const bool hit = i >= c.o_begin(1) && i < c.o_begin(1) + shape.head_dim;
    ASSERT_EQ(std::isnan(found[i]), hit) << i;
  }
}

TEST_P(Attention, MlaRefusesGeometryInWords) {
  Shape shape;
  shape.mla = true;
  AttentionCase c(shape);
  const auto refused = [&](auto change) {
    MlaDecodeAttention a = c.mla;
    change(&a);
    const Status status = GetParam().run({&c.args, &a});
    return status.code() == StatusCode::kInvalidArgument && !status.message().empty();
  };
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->num_heads = 0; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->sm_scale = 0; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->ckv_token_stride = 496; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->kpe_token_stride = 65; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->kpe_page_stride = 64; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->q_pe_stride = 32; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->kpe_cache = nullptr; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->kv_chunk_size = 40; }));
  EXPECT_TRUE(refused([](MlaDecodeAttention* a) { a->seq_len_q = 0; }));
  EXPECT_FALSE(refused([](MlaDecodeAttention*) {}));
}

INSTANTIATE_TEST_SUITE_P(Backends, Attention,
                         testing::Values(Named{"Cpu", RunCpu}, Named{"CpuThreads", RunCpuThreads},
                                         Named{"Shim", RunShim, true},
                                         Named{"ShimSpread", RunShimSpread, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AttentionCpu, EveryBuildOfTheLoopsGivesTheSameBits) {  // I-62, I-130
  for (uint32_t dim : {32u, 64u, 128u, 256u, 576u}) {
    for (auto [qo, kv] : {std::pair{6u, 2u}, {40u, 1u}, {40u, 20u}}) {
      for (bool bf16_kv : {false, true}) {
        Shape shape;
        shape.mla = dim == 576;
        shape.head_dim = dim;
        shape.qo_heads = qo;
        shape.kv_heads = kv;
        shape.bf16_kv = bf16_kv;
        shape.lengths = {0, 5, 90};
        shape.page_scales = true;
        AttentionCase c(shape, dim);
        std::vector<float> expected;
        for (const attention::CpuBuild& build : attention::CpuBuilds()) {
          const std::vector<float> found = c.Run(RunBuild(build));
          if (expected.empty()) expected = found;
          EXPECT_TRUE(SameBits(found, expected)) << build.name << " " << dim << " " << qo;
        }
      }
    }
  }
}

// The numbers of an e4m3 cache, moved to BF16: the same bits, if it's said that they are e4m3's.
TEST(AttentionCpu, ABf16CacheOfE4m3NumbersGivesTheBitsOfE4m3) {
  Shape shape;
  shape.lengths = {3, 50, 200};
  AttentionCase c(shape);
  const uint64_t numbers =
      c.args.num_pages * shape.page_size * shape.kv_heads * uint64_t{shape.head_dim};
  const std::vector<attention::CpuBuild> builds = attention::CpuBuilds();
  const std::vector<float> expected = c.Run(RunBuild(builds.front()));
  Bytes wide[2] = {Bytes(2 * numbers), Bytes(2 * numbers)};
  const void** caches[2] = {&c.args.k_cache, &c.args.v_cache};
  for (int side = 0; side < 2; ++side) {
    auto* to = reinterpret_cast<uint16_t*>(wide[side].data());
    const auto* codes = static_cast<const uint8_t*>(*caches[side]);
    for (uint64_t i = 0; i < numbers; ++i) to[i] = FloatToBf16(DecodeE4m3(codes[i]));
    *caches[side] = to;
  }
  c.args.kv_type = KvType::kBf16;
  for (const attention::CpuBuild& build : builds) {
    c.args.e4m3_numbers = true;
    EXPECT_TRUE(SameBits(c.Run(RunBuild(build)), expected)) << build.name;
    c.args.e4m3_numbers = false;
    EXPECT_FALSE(SameBits(c.Run(RunBuild(build)), expected)) << build.name;
  }
}

TEST(AttentionCpu, EveryBuildReadsEveryCodeAlike) {  // I-62
  for (bool nan : {false, true}) {
    Shape shape;
    shape.head_dim = 256;
    shape.qo_heads = shape.kv_heads = 1;
    shape.lengths = {64};
    AttentionCase c(shape);
    for (const void* cache : {c.args.k_cache, c.args.v_cache}) {
      auto* codes = static_cast<uint8_t*>(const_cast<void*>(cache));
      for (uint64_t i = 0; i < c.args.num_pages * shape.page_size * shape.head_dim; ++i) {
        codes[i] = static_cast<uint8_t>(i + i / 256 * 7);
        const bool may_stay = nan && cache == c.args.v_cache && i % 3 == 0;
        if ((codes[i] & 0x7F) == 0x7F && !may_stay) codes[i] = 0x7E;
      }
    }
    const std::vector<float> expected = c.Run(RunBuild(attention::CpuBuilds().front()));
    size_t nans = 0;
    for (float value : expected) nans += std::isnan(value) ? 1 : 0;
    EXPECT_EQ(nans != 0, nan);
    for (const attention::CpuBuild& build : attention::CpuBuilds()) {
      EXPECT_TRUE(SameBits(c.Run(RunBuild(build)), expected)) << build.name << " " << nan;
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

TEST(AttentionShim, SpreadingContextsOverBlocksChangesNoBit) {  // I-62
  Shape shape;
  shape.kv_chunk_size = 32;
  shape.lengths = {128, 5, 0, 65};
  AttentionCase c(shape);
  EXPECT_TRUE(SameBits(c.Run(RunShimSpread), c.Run(RunShim)));
}

TEST(AttentionCpu, ThreadsChangeNoBit) {  // I-62
  for (bool mla : {false, true}) {
    for (size_t rows : {1, 9}) {
      Shape shape;
      shape.mla = mla;
      shape.kv_chunk_size = 32;
      shape.lengths.assign(rows, 200);
      AttentionCase c(shape);
      EXPECT_TRUE(SameBits(c.Run(RunCpuThreads), c.Run(RunCpu))) << mla << rows;
    }
  }
}

}  // namespace
}  // namespace kvfence
