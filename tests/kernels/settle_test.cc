// What the fence writes: failing rows made harmless, and journal deltas applied.
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/validate_run.h"

namespace kvfence {
namespace {

// As in validate_reasons_test.cc: 9 + 1 tokens in pages 1, 2, 3; 5 + 2 tokens in pages 4, 5.
Batch TwoRows(const PoolSpec& spec = {}) {
  BatchBuilder builder({spec}, 5);
  builder.AddRow(RowSpec{.row = 1, .before = 9, .new_tokens = 1, .pages = {{1, 2, 3}}});
  builder.AddRow(RowSpec{.row = 3, .before = 5, .new_tokens = 2, .pages = {{4, 5}}});
  return builder.Build();
}
// --- sanitise -----------------------------------------------------------------------------------

TEST(Sanitise, EntriesSlotsAndWrongLengths) {
  for (const int64_t length : {10, 500, 3}) {
    Batch batch = TwoRows();
    batch.row_requests[1] = 0;
    batch.arrays[0].lengths.Set(1, length);
    ValidateCpuOn(batch);
    for (uint64_t j = 0; j < 3; ++j) {
      EXPECT_EQ(batch.arrays[0].entries.Get(batch.EntryIndex(0, 1, j)), 0);
    }
    EXPECT_EQ(batch.arrays[0].slots.Get(batch.SlotIndex(0, 1, 0)), -1);
    EXPECT_EQ(batch.arrays[0].lengths.Get(1), 10) << "right ones stay, wrong ones are clamped";
  }
}

TEST(Sanitise, NotUnderPolicyLog) {
  Batch batch = TwoRows();
  batch.sanitise = false;
  batch.row_requests[1] = 0;
  const auto before = MemoryOf(batch);
  ValidateCpuOn(batch);
  EXPECT_NE(batch.ReasonsOf(0), 0u);
  EXPECT_TRUE(MemoryOf(batch) == before);
}

TEST(Sanitise, NullPageAndSkipSlotAsThePoolSays) {
  Batch batch = TwoRows(PoolSpec{.null_page = 6, .skip_slot = -5, .per_page = 2, .divisor = 2});
  batch.row_requests[1] = 0;
  ValidateCpuOn(batch);
  EXPECT_EQ(batch.arrays[0].entries.Get(batch.EntryIndex(0, 1, 2)), 6 * 2 * 2);
  EXPECT_EQ(batch.arrays[0].entries.Get(batch.EntryIndex(0, 1, 3)), (6 * 2 + 1) * 2);
  EXPECT_EQ(batch.arrays[0].slots.Get(batch.SlotIndex(0, 1, 0)), -5);
}

TEST(Sanitise, ABorrowedTableIsPutBack) {
  Batch batch = TwoRows(PoolSpec{.sanitise = SanitiseMode::kRestore});
  batch.row_requests[1] = 0;
  const IntBuffer before = batch.arrays[0].entries;
  ValidateCpuOn(batch);
  EXPECT_FALSE(batch.arrays[0].entries == before);
  Batch shim = batch;
  batch.arrays[0].entries.Set(batch.EntryIndex(0, 1, 1), 9);  // the engine's own news stay
  shim.arrays[0].entries.Set(shim.EntryIndex(0, 1, 1), 9);
  ConfirmCpuOn(batch);
  ConfirmShimOn(shim, ConfirmPart::kBoth, 2);
  EXPECT_TRUE(OutcomeOf(batch) == OutcomeOf(shim));
  IntBuffer expected = before;
  expected.Set(batch.EntryIndex(0, 1, 1), 9);
  EXPECT_TRUE(batch.arrays[0].entries == expected);
}

TEST(Sanitise, ALiveTableIsLeftAlone) {
  Batch batch = TwoRows(PoolSpec{.sanitise = SanitiseMode::kNever});
  batch.row_requests[1] = 0;
  const IntBuffer before = batch.arrays[0].entries;
  ValidateCpuOn(batch);
  EXPECT_TRUE(batch.arrays[0].entries == before);
  EXPECT_EQ(batch.arrays[0].slots.Get(batch.SlotIndex(0, 1, 0)), -1);
}

// I-10: row 3 was pointed at row 1's line of the table. It fails; row 1 must still find its pages.
TEST(Sanitise, I10ALineThatACleanRowReadsIsLeftAlone) {
  Batch batch = TwoRows(PoolSpec{.row_map = true});
  batch.arrays[0].row_map.Set(3, batch.arrays[0].row_map.Get(1));
  const IntBuffer before = batch.arrays[0].entries;
  ValidateCpuOn(batch);
  EXPECT_EQ(batch.ReasonsOf(0), 0u);
  EXPECT_NE(batch.ReasonsOf(1), 0u);
  EXPECT_TRUE(batch.arrays[0].entries == before);
}

// I-10: a broken index pointer makes row 3 claim entries of row 1.
TEST(Sanitise, I10OverlappingCsrRowsKeepTheirEntries) {
  Batch batch = TwoRows(PoolSpec{.layout = TableLayout::kCsr});
  batch.arrays[0].indptr.Set(3, 1);  // row 2 is broken, row 3 begins inside row 1
  const IntBuffer before = batch.arrays[0].entries;
  ValidateCpuOn(batch);
  EXPECT_EQ(batch.ReasonsOf(0), 0u);
  EXPECT_NE(batch.ReasonsOf(1), 0u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(batch.arrays[0].entries.Get(i), before.Get(i));
  for (uint64_t i = 3; i < 5; ++i) EXPECT_EQ(batch.arrays[0].entries.Get(i), 0);
}

TEST(Sanitise, OneMoreRowOnRequest) {
  Batch batch = TwoRows();
  ValidateCpuOn(batch);
  SanitiseRowCpu(batch.gate(), batch.step(), 1);
  EXPECT_EQ(batch.arrays[0].entries.Get(batch.EntryIndex(0, 3, 0)), 0);
  EXPECT_EQ(batch.arrays[0].entries.Get(batch.EntryIndex(0, 1, 0)), 1);
}

// --- apply --------------------------------------------------------------------------------------

ApplyItem PageItem(uint32_t page, uint32_t fields, PageRecord record) {
  ApplyItem item{};
  item.target = ApplyTarget::kPage;
  item.index = page;
  item.fields = fields;
  item.record = record;
  return item;
}

TEST(Apply, PageFields) {
  Batch batch = TwoRows();
  batch.records[0][1] = PageRecord{7, kPageShared | 3, 9, 99};
  const PageRecord news{8, kPageSealed | 2, 5, 55};
  const auto apply = [&](uint32_t fields) {
    Batch copy = batch;
    copy.BindViews();
    const ApplyItem item = PageItem(1, fields, news);
    ApplyCpu(copy.gate(), &item, 1);
    return copy.records[0][1];
  };
  const auto expect = [](PageRecord got, PageRecord want) {
    EXPECT_EQ(got.tag, want.tag);
    EXPECT_EQ(got.fill_flags, want.fill_flags);
    EXPECT_EQ(got.scale, want.scale);
    EXPECT_EQ(got.stamp, want.stamp);
  };
  expect(apply(kApplyTag), PageRecord{8, kPageShared, 0, kNoStamp});
  expect(apply(kApplyFlags), PageRecord{7, kPageSealed | 3, 9, 99});
  expect(apply(kApplyContent), PageRecord{7, kPageShared | 2, 5, 55});
  expect(apply(kApplyTag | kApplyFlags | kApplyContent), news);
}

TEST(Apply, ExpectationsRowsAndScaleEpochs) {
  Batch batch = TwoRows();
  std::vector<ApplyItem> items(3, ApplyItem{});
  items[0].target = ApplyTarget::kExpectation;
  items[0].index = 65;
  items[0].expectation = Expectation{11, 12, 13};
  items[1].target = ApplyTarget::kRow;
  items[1].index = 4;
  items[1].row = {0xABC, 0};
  items[2].target = ApplyTarget::kScaleEpoch;
  items[2].record = PageRecord{0, 0, 17, 0};
  batch.BindViews();
  ApplyCpu(batch.gate(), items.data(), items.size());
  EXPECT_EQ(batch.arena[65].stamp, 13u);
  EXPECT_EQ(batch.row_requests[4], 0xABCu);
  EXPECT_EQ(batch.pools[0].scale_epoch, 17u);
}

TEST(Apply, CudaSourceAppliesEachItemOnce) {
  Batch cpu = TwoRows();
  cpu.BindViews();
  std::vector<ApplyItem> items;
  for (uint32_t i = 0; i < 300; ++i) {
    ApplyItem item = PageItem(i % 32, kApplyTag | kApplyContent, PageRecord{i, 2, 3, 4 + i});
    if (i >= 32) {
      item.target = i < 96 ? ApplyTarget::kExpectation : ApplyTarget::kRow;
      item.index = i < 96 ? i - 32 : i - 96;  // most of these rows the gate hasn't got
      item.expectation = Expectation{i, i, i};
    }
    items.push_back(item);
  }
  Batch shim = cpu;
  shim.BindViews();
  const std::vector<ApplyItem> known(items.begin(), items.begin() + 96 + 5);
  ApplyCpu(cpu.gate(), known.data(), known.size());
  ApplyShimOn(shim, items, 9);
  EXPECT_TRUE(MemoryOf(cpu) == MemoryOf(shim));
}

TEST(ApplyDeathTest, I11ADeltaForWhatTheGateHasntGot) {
  Batch batch = TwoRows();
  batch.BindViews();
  const ApplyItem item = PageItem(32, kApplyTag, PageRecord{});
  EXPECT_DEATH(ApplyCpu(batch.gate(), &item, 1), "I-11");
}

}  // namespace
}  // namespace kvfence
