// Each reason that validate can give, and its edges: one damage, the exact findings.
//
// Every case is judged by the CPU backend, by the CUDA source through the shim and by the naive
// oracle; all three must say what the test says. Tests are named by the reason they need.
#include <gtest/gtest.h>

#include "tests/kernels/validate_run.h"

namespace kvfence {
namespace {

using Findings = std::set<ModelFinding>;
constexpr uint32_t kWhole = ~0u;

// Two rows over 4-token pages. Row task 0 (batch row 1): 9 tokens and 1 new one in pages 1, 2, 3.
// Row task 1 (batch row 3): 5 tokens and 2 new ones in pages 4, 5.
RowSpec FirstRow() { return RowSpec{.row = 1, .before = 9, .new_tokens = 1, .pages = {{1, 2, 3}}}; }
RowSpec SecondRow() { return RowSpec{.row = 3, .before = 5, .new_tokens = 2, .pages = {{4, 5}}}; }
Batch TwoRows(const PoolSpec& spec = {}) {
  BatchBuilder builder({spec}, 5);
  builder.AddRow(FirstRow());
  builder.AddRow(SecondRow());
  return builder.Build();
}

void ExpectFindings(const Batch& damaged, const Findings& expected) {
  Batch cpu = damaged;
  cpu.Bind();
  const ModelVerdict model = ModelValidate(cpu.gate(), cpu.step());
  EXPECT_EQ(Show(model.findings), Show(expected)) << "oracle";
  Batch shim = damaged;
  shim.Bind();
  ValidateCpuOn(cpu);
  ValidateShimOn(shim, 3);
  EXPECT_EQ(Show(FindingsOf(cpu)), Show(expected)) << "cpu";
  EXPECT_EQ(ReasonsOf(cpu), model.reasons);
  EXPECT_TRUE(OutcomeOf(cpu) == OutcomeOf(shim)) << "cuda source differs";
}
void ExpectOne(const Batch& damaged, uint32_t row_task, uint32_t at, Reason reason) {
  ExpectFindings(damaged, {{row_task, at == kWhole ? kWhole : 0, at, reason}});
}
void ExpectClean(const Batch& batch) { ExpectFindings(batch, {}); }

TEST(ValidateReason, CleanBatchHasNoFinding) {
  ExpectClean(TwoRows());
  Batch batch = TwoRows();
  ValidateCpuOn(batch);
  EXPECT_EQ(batch.counters[kCounterRuns], 1u);
  EXPECT_EQ(batch.counters[kCounterRows], 2u);
  EXPECT_EQ(batch.counters[kCounterEntries], 5u);
  EXPECT_EQ(batch.counters[kCounterRowsFailed], 0u);
}

TEST(ValidateReason, PageOutOfRange) {
  // Null, negative, one beyond the pool: as an earlier page and as the page being written.
  for (uint32_t at : {0u, 2u}) {
    for (int64_t page : {0, -1, 32}) {
      Batch batch = TwoRows();
      batch.SetPage(0, 1, at, page);
      ExpectOne(batch, 0, at, Reason::kPageOutOfRange);
    }
  }
}

TEST(ValidateReason, PageOutOfRangeNullPage) {
  Batch batch = TwoRows(PoolSpec{.null_page = 31});
  batch.SetPage(0, 1, 1, 31);
  ExpectOne(batch, 0, 1, Reason::kPageOutOfRange);
}

TEST(ValidateReason, PageOutOfRangeBeyondWidthAndSize) {
  Batch narrow = TwoRows();
  narrow.arrays[0].shape.width = 2;
  ExpectOne(narrow, 0, 2, Reason::kPageOutOfRange);
  Batch cut = TwoRows();  // the array ends inside row 3's line
  IntBuffer entries(32);
  for (uint64_t i = 0; i < cut.EntryIndex(0, 3, 1); ++i) entries.Push(cut.arrays[0].entries.Get(i));
  cut.arrays[0].entries = entries;
  ExpectOne(cut, 1, 1, Reason::kPageOutOfRange);
  Batch unmapped = TwoRows(PoolSpec{.row_map = true});
  unmapped.arrays[0].row_map.Set(3, 99);
  ExpectFindings(unmapped,
                 {{1, 0, 0, Reason::kPageOutOfRange}, {1, 0, 1, Reason::kPageOutOfRange}});
}

TEST(ValidateReason, PageOutOfRangeWriteSlot) {
  Batch batch = TwoRows();
  batch.arrays[0].slots.Set(batch.SlotIndex(0, 1, 0), 32 * 4);
  ExpectOne(batch, 0, 2, Reason::kPageOutOfRange);
  // Where the pool names its skip slot, another negative one is outside the pool.
  Batch skip = TwoRows(PoolSpec{.skip_slot = -1});
  skip.arrays[0].slots.Set(skip.SlotIndex(0, 1, 0), -2);
  ExpectOne(skip, 0, 2, Reason::kPageOutOfRange);
}

TEST(ValidateReason, PageMismatch) {
  Batch batch = TwoRows();
  batch.SetPage(0, 1, 1, 4);
  ExpectOne(batch, 0, 1, Reason::kPageMismatch);
  Batch nothing = TwoRows();  // the request holds nothing there
  nothing.ExpectationOf(0, 1).page = kNoPage;
  ExpectOne(nothing, 0, 1, Reason::kPageMismatch);
  Batch shorter = TwoRows();
  shorter.tasks[0].expected = 2;
  ExpectOne(shorter, 0, 2, Reason::kPageMismatch);
}

TEST(ValidateReason, PageMismatchSubEntries) {
  const PoolSpec slots{.per_page = 4};
  ExpectClean(TwoRows(slots));
  Batch part = TwoRows(slots);  // the right page, the wrong slot of it
  part.arrays[0].entries.Set(part.EntryIndex(0, 1, 5), 2 * 4 + 2);
  ExpectOne(part, 0, 1, Reason::kPageMismatch);
  Batch page = TwoRows(slots);  // one token of a page names another page
  page.arrays[0].entries.Set(page.EntryIndex(0, 1, 6), 5 * 4 + 2);
  ExpectOne(page, 0, 1, Reason::kPageMismatch);
  Batch beyond = TwoRows(slots);  // tokens beyond the length aren't read
  beyond.arrays[0].entries.Set(beyond.EntryIndex(0, 1, 10), 5 * 4 + 2);
  ExpectClean(beyond);
}

TEST(ValidateReason, TagMismatch) {
  for (uint32_t at : {0u, 2u}) {
    Batch batch = TwoRows();
    batch.RecordOf(0, at).tag += 2;
    ExpectOne(batch, 0, at, Reason::kTagMismatch);
  }
}

TEST(ValidateReason, StampMismatch) {
  for (uint32_t at : {0u, 2u}) {
    Batch batch = TwoRows();
    batch.RecordOf(0, at).stamp = MakeStamp(77, at);
    ExpectOne(batch, 0, at, Reason::kStampMismatch);
  }
  // A page that is first filled in this step isn't asked.
  Batch fresh = TwoRows();
  fresh.rows[1].length_before = 4;
  fresh.rows[1].new_tokens = 3;
  fresh.RecordOf(1, 1).stamp = MakeStamp(77, 0);
  fresh.arrays[0].slots = IntBuffer(32);
  for (int64_t slot : {13, 20, 21, 22}) fresh.arrays[0].slots.Push(slot);
  fresh.arrays[0].slot_indptr.Set(4, 4);
  fresh.arrays[0].slot_indptr.Set(5, 4);
  ExpectClean(fresh);
}

TEST(ValidateReason, StampMismatchOfState) {
  PoolSpec state{.free_form = true};
  BatchBuilder builder({PoolSpec{}, state}, 5);
  RowSpec row = FirstRow();
  row.pages.push_back({7});
  builder.AddRow(row);
  Batch batch = builder.Build();
  ExpectClean(batch);
  batch.RecordOf(1, 0).stamp = MakeStamp(77, 0);
  ExpectFindings(batch, {{0, 1, 0, Reason::kStampMismatch}});
  batch.RecordOf(1, 0).stamp = kNoStamp;  // state that was never written may be read: it's zeros
  ExpectClean(batch);
}

TEST(ValidateReason, ScaleMismatch) {
  Batch epoch = TwoRows();
  epoch.pools[0].scale_epoch += 1;
  ExpectFindings(epoch, {{0, 0, 0, Reason::kScaleMismatch},
                         {0, 0, 1, Reason::kScaleMismatch},
                         {0, 0, 2, Reason::kScaleMismatch},
                         {1, 0, 0, Reason::kScaleMismatch},
                         {1, 0, 1, Reason::kScaleMismatch}});
  Batch mark = TwoRows(PoolSpec{.page_scales = true});
  ExpectClean(mark);
  mark.RecordOf(0, 1).scale += 1;
  ExpectOne(mark, 0, 1, Reason::kScaleMismatch);
}

TEST(ValidateReason, NotCommitted) {
  Batch empty = TwoRows();  // no content since the page was issued: nothing else is asked of it
  empty.RecordOf(0, 0).stamp = kNoStamp;
  empty.RecordOf(0, 0).scale = 0;
  ExpectOne(empty, 0, 0, Reason::kNotCommitted);
  Batch part = TwoRows();
  part.RecordOf(0, 1).fill_flags = 3;
  ExpectOne(part, 0, 1, Reason::kNotCommitted);
  Batch last = TwoRows();
  last.RecordOf(0, 2).fill_flags = 0;
  ExpectOne(last, 0, 2, Reason::kNotCommitted);
}

TEST(ValidateReason, NotCommittedSkippedWrite) {
  Batch batch = TwoRows();
  batch.arrays[0].slots.Set(batch.SlotIndex(0, 1, 0), -1);
  ExpectOne(batch, 0, 2, Reason::kNotCommitted);
  batch.RecordOf(0, 2).fill_flags = 2;  // it's there already, as after a full prefix hit
  ExpectClean(batch);
  Batch none = TwoRows();  // no slots at all
  none.arrays[0].slots = IntBuffer(32);
  none.arrays[0].slot_indptr = IntBuffer(32);
  ExpectFindings(none, {{0, 0, 2, Reason::kNotCommitted}, {1, 0, 1, Reason::kNotCommitted}});
  Batch few = TwoRows();
  few.arrays[0].slot_rows = 2;  // row 3 has none
  ExpectOne(few, 1, 1, Reason::kNotCommitted);
}

TEST(ValidateReason, NotCommittedInFreshPage) {
  // New tokens 8 and 9 in a page without earlier tokens; both skipped, and there by another's hand.
  BatchBuilder builder({PoolSpec{}}, 3);
  builder.AddRow(RowSpec{.row = 0, .before = 8, .new_tokens = 2, .pages = {{1, 2, 3}}});
  Batch batch = builder.Build();
  batch.arrays[0].slots.Set(0, -1);
  batch.arrays[0].slots.Set(1, -1);
  batch.RecordOf(0, 2) = PageRecord{BatchBuilder::kTag(3), 4, 3, batch.ExpectationOf(0, 2).stamp};
  ExpectClean(batch);
  batch.RecordOf(0, 2).stamp = MakeStamp(77, 2);
  ExpectOne(batch, 0, 2, Reason::kNotCommitted);
}

TEST(ValidateReason, NotCommittedButHeldByAnotherRank) {
  PoolSpec spec{.interleave_ranks = 2, .interleave_stride = 1};
  Batch batch = TwoRows(spec);  // odd positions are the other rank's
  ExpectClean(batch);
  EXPECT_EQ(batch.arrays[0].slots.Get(batch.SlotIndex(0, 1, 0)), -1);
  batch.rank = 1;
  ExpectFindings(batch, {{0, 0, 2, Reason::kNotCommitted}, {1, 0, 1, Reason::kNotCommitted}});
}

TEST(ValidateReason, LatePagesAreNotAskedForContent) {
  for (uint32_t bit : {0u, kLateAtConfirm}) {
    Batch batch = TwoRows();
    batch.late = {0 | bit, 1 | bit};
    batch.tasks[0].late_end = 2;
    batch.RecordOf(0, 0).stamp = kNoStamp;
    batch.RecordOf(0, 1).fill_flags = 0;
    ExpectClean(batch);
    batch.RecordOf(0, 0).tag += 2;
    ExpectOne(batch, 0, 0, Reason::kTagMismatch);
  }
}

TEST(ValidateReason, WriteTarget) {
  Batch batch = TwoRows();
  batch.arrays[0].slots.Set(batch.SlotIndex(0, 1, 0), 3 * 4 + 2);
  ExpectOne(batch, 0, 2, Reason::kWriteTarget);
  Batch other = TwoRows();
  other.arrays[0].slots.Set(other.SlotIndex(0, 1, 0), 7 * 4 + 1);
  ExpectOne(other, 0, 2, Reason::kWriteTarget);
}

TEST(ValidateReason, WriteTargetSurplus) {
  Batch batch = TwoRows();  // row 3 gets a third slot: position 7, its own page, not its to write
  batch.arrays[0].slots.Push(5 * 4 + 3);
  batch.arrays[0].slot_indptr.Set(4, 4);
  batch.arrays[0].slot_indptr.Set(5, 4);
  ExpectOne(batch, 1, 1, Reason::kWriteTarget);
  batch.arrays[0].slots.Push(5 * 4);  // and two more beyond the last page: one finding
  batch.arrays[0].slots.Push(5 * 4 + 1);
  batch.arrays[0].slot_indptr.Set(4, 6);
  batch.arrays[0].slot_indptr.Set(5, 6);
  ExpectFindings(batch, {{1, 0, 1, Reason::kWriteTarget}, {1, 0, 2, Reason::kWriteTarget}});
}

TEST(ValidateReason, WriteTargetOfState) {
  BatchBuilder builder({PoolSpec{}, PoolSpec{.free_form = true}}, 5);
  RowSpec row = FirstRow();
  row.pages.push_back({7, 9});
  builder.AddRow(row);
  Batch batch = builder.Build();
  batch.arrays[1].slots.Set(0, 9 * 4 + 3);  // any slot of its own pages
  ExpectClean(batch);
  batch.arrays[1].slots.Set(0, 8 * 4);
  ExpectFindings(batch, {{0, 1, kWhole, Reason::kWriteTarget}});
  batch.arrays[1].slots.Set(0, 32 * 4);
  ExpectFindings(batch, {{0, 1, kWhole, Reason::kPageOutOfRange}});
}

TEST(ValidateReason, WriteTargetOfDraft) {
  BatchBuilder builder({PoolSpec{}}, 3);
  builder.AddRow(RowSpec{.row = 0, .before = 6, .new_tokens = 1, .draft = 3, .pages = {{1, 2, 3}}});
  Batch batch = builder.Build();  // positions 6 | 7 8 9
  ExpectClean(batch);
  Batch slot = batch;
  slot.arrays[0].slots.Set(3, 3 * 4 + 2);
  ExpectOne(slot, 0, 2, Reason::kWriteTarget);
  Batch page = batch;  // a draft page is judged like one that is read, but for its content
  page.SetPage(0, 0, 2, 8);
  ExpectOne(page, 0, 2, Reason::kPageMismatch);
  Batch tag = batch;
  tag.RecordOf(0, 2).tag += 1;
  ExpectOne(tag, 0, 2, Reason::kTagMismatch);
  Batch skipped = batch;  // a draft pass that writes nothing there leaves the page alone
  skipped.SetPage(0, 0, 2, 8);
  skipped.arrays[0].slots.Set(2, -1);
  skipped.arrays[0].slots.Set(3, -1);
  ExpectClean(skipped);
}

TEST(ValidateReason, WriteShared) {
  Batch batch = TwoRows();
  batch.RecordOf(0, 2).fill_flags |= kPageShared;
  ExpectOne(batch, 0, 2, Reason::kWriteShared);
  batch.RecordOf(0, 2).fill_flags &= static_cast<uint16_t>(~kPageShared);
  batch.RecordOf(0, 1).fill_flags |= kPageShared;  // only read: prefix pages are shared
  ExpectClean(batch);
}

TEST(ValidateReason, WriteSharedSealed) {
  Batch batch = TwoRows();
  batch.RecordOf(0, 2).fill_flags |= kPageSealed;  // one slot is committed, the write is behind it
  ExpectClean(batch);
  batch.RecordOf(0, 2).fill_flags = kPageSealed | 2;
  ExpectOne(batch, 0, 2, Reason::kWriteShared);
}

TEST(ValidateReason, LengthMismatch) {
  for (int64_t length : {9, 11, -1}) {
    Batch batch = TwoRows();
    batch.arrays[0].lengths.Set(1, length);
    ExpectOne(batch, 0, kWhole, Reason::kLengthMismatch);
  }
  Batch absent = TwoRows();
  absent.arrays[0].length_rows = 3;
  ExpectOne(absent, 1, kWhole, Reason::kLengthMismatch);
  Batch without = TwoRows();  // nothing to judge is no pass
  without.arrays[0].lengths = IntBuffer(32);
  ExpectFindings(without, {{0, kWhole, kWhole, Reason::kLengthMismatch},
                           {1, kWhole, kWhole, Reason::kLengthMismatch}});
}

TEST(ValidateReason, LengthMismatchCsr) {
  const PoolSpec csr{.layout = TableLayout::kCsr, .lengths = false};
  ExpectClean(TwoRows(csr));
  Batch last = TwoRows(csr);
  last.arrays[0].last_page_len.Set(1, 3);
  ExpectOne(last, 0, kWhole, Reason::kLengthMismatch);
  Batch longer = TwoRows(csr);  // row 3 gets one more entry
  longer.arrays[0].entries.Push(0);
  longer.arrays[0].indptr.Set(4, 6);
  longer.arrays[0].indptr.Set(5, 6);
  ExpectOne(longer, 1, kWhole, Reason::kLengthMismatch);
  Batch pages = TwoRows(PoolSpec{.layout = TableLayout::kCsr});  // lengths right, entries too many
  pages.arrays[0].last_page_len = IntBuffer(32);
  pages.arrays[0].entries.Push(0);
  pages.arrays[0].indptr.Set(4, 6);
  pages.arrays[0].indptr.Set(5, 6);
  ExpectOne(pages, 1, kWhole, Reason::kLengthMismatch);
}

TEST(ValidateReason, LengthMismatchBrokenIndptr) {
  const PoolSpec csr{.layout = TableLayout::kCsr};
  Batch decreasing = TwoRows(csr);  // bounds rows 1 and 2, where row 2 isn't launched
  decreasing.arrays[0].indptr.Set(2, -1);
  ExpectOne(decreasing, 0, kWhole, Reason::kLengthMismatch);
  Batch beyond = TwoRows(csr);
  beyond.arrays[0].indptr.Set(4, 6);
  ExpectOne(beyond, 1, kWhole, Reason::kLengthMismatch);
  Batch slots = TwoRows();
  slots.arrays[0].slot_indptr.Set(4, 9);
  ExpectFindings(slots,
                 {{1, kWhole, kWhole, Reason::kLengthMismatch}, {1, 0, 1, Reason::kNotCommitted}});
}

TEST(ValidateReason, RowTail) {
  BatchBuilder builder({PoolSpec{}}, 5);
  RowSpec spec = FirstRow();
  spec.reach = 6;
  spec.pages = {{1, 2, 3, 6}};  // page 6 is allocated ahead
  builder.AddRow(spec);
  Batch batch = builder.Build();
  ExpectClean(batch);
  batch.SetPage(0, 1, 4, 6);  // its own page, but not there
  ExpectOne(batch, 0, 4, Reason::kRowTail);
  batch.SetPage(0, 1, 4, 0);
  batch.SetPage(0, 1, 3, -1);
  ExpectOne(batch, 0, 3, Reason::kRowTail);
  batch.SetPage(0, 1, 3, 6);
  batch.SetPage(0, 1, 6, 9);  // beyond the reach nobody looks
  ExpectClean(batch);
}

TEST(ValidateReason, RowEpoch) {
  Batch batch = TwoRows();
  batch.row_requests[3] = 0x9999;
  ExpectOne(batch, 1, kWhole, Reason::kRowEpoch);
  Batch unknown = TwoRows();
  unknown.row_requests.resize(3);
  ExpectOne(unknown, 1, kWhole, Reason::kRowEpoch);
}

TEST(ValidateReason, TableEpoch) {
  Batch batch = TwoRows();
  batch.rows[0].has_table_epoch = 1;
  batch.rows[0].table_epoch = batch.rows[0].table_changed;
  ExpectClean(batch);
  batch.rows[0].table_epoch -= 1;
  ExpectOne(batch, 0, kWhole, Reason::kTableEpoch);
}

TEST(ValidateReason, ARowReportsTheFirstReasonOnce) {
  Batch batch = TwoRows();
  batch.arrays[0].lengths.Set(1, 3);
  batch.row_requests[1] = 0;
  batch.rows[0].has_table_epoch = 1;
  ExpectOne(batch, 0, kWhole, Reason::kLengthMismatch);
  batch.checks &= ~ReasonBit(Reason::kLengthMismatch);
  ExpectOne(batch, 0, kWhole, Reason::kRowEpoch);
}

TEST(ValidateReason, PadRow) {
  BatchBuilder builder({PoolSpec{}, PoolSpec{.null_page = 5, .per_page = 2}}, 5);
  RowSpec row = FirstRow();
  row.pages.push_back({1, 2, 3});
  builder.AddRow(row);
  builder.AddPad(2, 2);
  Batch batch = builder.Build();
  batch.arrays[0].lengths.Set(2, 7);  // a length over null entries is fine
  ExpectClean(batch);
  for (uint32_t pool : {0u, 1u}) {
    Batch entry = batch;
    entry.SetPage(pool, 2, 7, 1);
    ExpectFindings(entry, {{1, pool, kWhole, Reason::kPadRow}});
    Batch slot = batch;
    slot.arrays[pool].slots.Set(slot.SlotIndex(pool, 2, 1), 9);
    ExpectFindings(slot, {{1, pool, kWhole, Reason::kPadRow}});
  }
}

TEST(ValidateReason, LengthMismatchOfAPad) {
  BatchBuilder builder({PoolSpec{.layout = TableLayout::kCsr}}, 5);
  RowSpec row = FirstRow();
  builder.AddRow(row);
  builder.AddPad(3);
  const Batch batch = builder.Build();
  ExpectClean(batch);
  Batch entries = batch;
  entries.arrays[0].indptr.Set(4, -1);
  ExpectOne(entries, 1, kWhole, Reason::kLengthMismatch);
  Batch slots = batch;
  slots.arrays[0].slot_indptr.Set(4, 99);
  ExpectOne(slots, 1, kWhole, Reason::kLengthMismatch);
}

TEST(ValidateReason, PrefixFailsItsGroup) {
  BatchBuilder builder({PoolSpec{}}, 4);
  const uint32_t prefix = builder.AddPrefix({10, 11});
  for (uint32_t r = 0; r < 3; ++r) {
    builder.AddRow(RowSpec{.row = r,
                           .before = 9,
                           .pages = {{10, 11, 1 + r}},
                           .group = 7,
                           .prefix_of_pool = 0,
                           .prefix = prefix});
  }
  builder.AddRow(RowSpec{.row = 3, .before = 4, .pages = {{4, 5}}});
  Batch batch = builder.Build();
  ExpectClean(batch);
  Batch own = batch;  // a row's own entries under the prefix are read by nobody
  own.SetPage(0, 1, 0, 0);
  ExpectClean(own);
  own.SetPage(0, 1, 0, 12);
  ExpectClean(own);
  Batch table = batch;
  table.prefixes[0][1] = 12;
  ExpectFindings(table, {{0, 0, 1, Reason::kPageMismatch},
                         {1, 0, 1, Reason::kPageMismatch},
                         {2, 0, 1, Reason::kPageMismatch}});
  // Wrong for one row only, the rows that share it fail all the same.
  Batch one = batch;
  one.ExpectationOf(1, 1).page = 13;
  ExpectFindings(one, {{0, 0, 1, Reason::kPageMismatch},
                       {1, 0, 1, Reason::kPageMismatch},
                       {2, 0, 1, Reason::kPageMismatch}});
  Batch longer = batch;
  longer.prefixes[0] = {10, 11, 1, 1};
  ExpectFindings(longer, {{0, kWhole, kWhole, Reason::kLengthMismatch},
                          {1, kWhole, kWhole, Reason::kLengthMismatch},
                          {2, kWhole, kWhole, Reason::kLengthMismatch},
                          {1, 0, 2, Reason::kPageMismatch},
                          {2, 0, 2, Reason::kPageMismatch},
                          {0, 0, 2, Reason::kPageMismatch}});
}

TEST(ValidateReason, WindowLooksNoFurtherBack) {
  PoolSpec window{.window = 4};
  BatchBuilder builder({window}, 2);
  builder.AddRow(RowSpec{.row = 0, .before = 15, .pages = {{1, 2, 3, 4}}});
  Batch batch = builder.Build();  // reads tokens 12 .. 15
  batch.SetPage(0, 0, 2, 9);
  ExpectClean(batch);
  batch.SetPage(0, 0, 3, 9);
  ExpectOne(batch, 0, 3, Reason::kPageMismatch);
}

TEST(ValidateReason, DoomedRowsAreMadeHarmlessAndNotJudged) {
  Batch batch = TwoRows();
  batch.rows[0].doomed = 1 + static_cast<uint8_t>(Reason::kInFlight);
  batch.SetPage(0, 1, 0, 9);
  ExpectClean(batch);  // no finding: the host has reported it
  batch.Bind();
  ValidateCpuOn(batch);
  EXPECT_EQ(batch.ReasonsOf(0), ReasonBit(Reason::kInFlight));
  EXPECT_EQ(batch.ReasonsOf(1), 0u);
  EXPECT_EQ(batch.arrays[0].entries.Get(batch.EntryIndex(0, 1, 0)), 0);
  EXPECT_EQ(batch.arrays[0].slots.Get(0), -1);
  EXPECT_EQ(batch.counters[kCounterRows], 1u);
  EXPECT_EQ(batch.counters[kCounterRowsFailed], 1u);
}

TEST(ValidateReason, AFullListCutsFindingsNotVerdicts) {
  Batch batch = TwoRows();
  batch.SetPage(0, 1, 0, 9);
  batch.SetPage(0, 3, 0, 9);
  batch.finding_capacity = 1;
  batch.Bind();
  ValidateCpuOn(batch);
  EXPECT_EQ(batch.finding_count, 2u);
  EXPECT_NE(batch.ReasonsOf(0), 0u);
  EXPECT_NE(batch.ReasonsOf(1), 0u);
}

}  // namespace
}  // namespace kvfence
