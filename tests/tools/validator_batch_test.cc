// Tests of the batches that the benchmarks measure (bench/validator_batch.h): they are clean, on
// every shape, each time again; and a batch that isn't is noticed.
#include "bench/validator_batch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <tuple>
#include <vector>

namespace kvfence {
namespace {

BatchShape Shape(uint32_t page_size, uint32_t tail, uint32_t sharing) {
  BatchShape shape;
  shape.rows = 7;
  shape.pages_per_row = 70;  // more than a chunk
  shape.page_size = page_size;
  shape.tail = tail;
  shape.sharing = sharing;
  return shape;
}

struct Built {
  explicit Built(const BatchShape& shape)
      : pool(shape.Pages() + 1, shape),
        batch(shape, AllPages(shape.Pages() + 1), &pool),
        scratch(shape) {}
  BatchPool pool;
  ValidatorBatch batch;
  BatchScratch scratch;
};

template <class T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(ValidatorBatch, IsCleanAndCanBeRepeated) {
  for (const uint32_t page_size : {1u, 16u, 64u}) {
    for (const uint32_t tail : {0u, page_size / 2, page_size - 1}) {
      for (const uint32_t sharing : {1u, 3u}) {
        Built built(Shape(page_size, tail, sharing));
        const std::vector<PageRecord> records = built.pool.records;
        const std::vector<Expectation> arena = built.batch.arena;
        EXPECT_TRUE(CleanOnCpu(&built.batch, &built.pool, &built.scratch)) << page_size << tail;
        EXPECT_TRUE(SameBytes(built.pool.records, records)) << page_size << tail;
        EXPECT_TRUE(SameBytes(built.batch.arena, arena)) << page_size << tail;
      }
    }
  }
}

TEST(ValidatorBatch, RowsOfAGroupHoldTheSamePagesButForTheLast) {
  Built built(Shape(16, 3, 3));
  const auto row = [&](int r) { return built.batch.table.data() + r * 70; };
  for (const auto& [a, b, same] :
       {std::tuple{0, 1, true}, {0, 2, true}, {2, 3, false}, {3, 5, true}, {5, 6, false}}) {
    EXPECT_EQ(std::memcmp(row(a), row(b), 69 * sizeof(int32_t)) == 0, same) << a << b;
    EXPECT_NE(row(a)[69], row(b)[69]);
  }
  const std::set<int32_t> pages(built.batch.table.begin(), built.batch.table.end());
  EXPECT_EQ(pages.size(), 3u * 69 + 7);
  EXPECT_EQ(pages.size(), built.batch.shape.Pages());
  EXPECT_FALSE(pages.contains(0));
}

TEST(ValidatorBatch, WhatIsntCleanIsNoticed) {
  Built wrong(Shape(16, 3, 1));
  wrong.batch.table[5] = wrong.batch.table[6];
  EXPECT_FALSE(CleanOnCpu(&wrong.batch, &wrong.pool, &wrong.scratch));
  Built unread(Shape(16, 3, 1));
  ASSERT_TRUE(CleanOnCpu(&unread.batch, &unread.pool, &unread.scratch));
  --unread.scratch.counters[kCounterEntries];
  EXPECT_FALSE(unread.scratch.Clean(unread.batch));
  Built unwritten(Shape(16, 3, 1));  // nothing ran
  EXPECT_FALSE(unwritten.scratch.Clean(unwritten.batch));
}

}  // namespace
}  // namespace kvfence
