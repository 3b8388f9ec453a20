// Confirm: what changed under a running step, what comes late, and what clean rows store.
#include <gtest/gtest.h>

#include "tests/kernels/validate_run.h"

namespace kvfence {
namespace {

using Findings = std::set<ModelFinding>;
constexpr uint32_t kWhole = ~0u;

// As in validate_reasons_test.cc: 9 + 1 tokens in pages 1, 2, 3; 5 + 2 tokens in pages 4, 5.
Batch TwoRows(const PoolSpec& spec = {}) {
  BatchBuilder builder({spec}, 5);
  builder.AddRow(RowSpec{.row = 1, .before = 9, .new_tokens = 1, .pages = {{1, 2, 3}}});
  builder.AddRow(RowSpec{.row = 3, .before = 5, .new_tokens = 2, .pages = {{4, 5}}});
  return builder.Build();
}
// Row 0 fills page 3 from its start: tokens 8 and 9.
Batch FreshPage() {
  BatchBuilder builder({PoolSpec{}}, 2);
  builder.AddRow(RowSpec{.row = 0, .before = 8, .new_tokens = 2, .pages = {{1, 2, 3}}});
  return builder.Build();
}

// Validates, applies `change`, confirms: on the CPU, through the shim, and by the oracle.
template <class F>
void ExpectAtConfirm(const Batch& batch, F&& change, const Findings& expected) {
  Batch cpu = batch;
  Batch shim = batch;
  ValidateCpuOn(cpu);
  ValidateShimOn(shim, 5);
  ASSERT_EQ(Show(FindingsOf(cpu)), "");
  change(cpu);
  change(shim);
  cpu.BindViews();
  const ModelVerdict model =
      ModelConfirm(cpu.gate(), cpu.step(), ReasonsOf(cpu), cpu.seen_stamps, false);
  EXPECT_EQ(Show(model.findings), Show(expected)) << "oracle";
  ConfirmCpuOn(cpu);
  ConfirmShimOn(shim, ConfirmPart::kBoth, 6);
  EXPECT_EQ(Show(FindingsOf(cpu)), Show(expected)) << "cpu";
  EXPECT_EQ(ReasonsOf(cpu), model.reasons);
  EXPECT_TRUE(OutcomeOf(cpu) == OutcomeOf(shim)) << "cuda source differs";
}

Findings Changed(uint32_t row_task, uint32_t at) {
  return {{row_task, at == kWhole ? kWhole : 0, at, Reason::kChangedDuringStep}};
}

TEST(ConfirmReason, ChangedDuringStepEntryTagStamp) {
  ExpectAtConfirm(TwoRows(), [](Batch&) {}, {});
  ExpectAtConfirm(
      TwoRows(), [](Batch& b) { b.SetPage(0, 1, 0, 9); }, Changed(0, 0));
  ExpectAtConfirm(
      TwoRows(), [](Batch& b) { b.SetPage(0, 1, 2, 0); }, Changed(0, 2));
  ExpectAtConfirm(
      TwoRows(), [](Batch& b) { b.RecordOf(0, 1).tag += 2; }, Changed(0, 1));
  ExpectAtConfirm(
      TwoRows(), [](Batch& b) { b.RecordOf(0, 1).stamp = MakeStamp(7, 7); }, Changed(0, 1));
}

TEST(ConfirmReason, ChangedDuringStepSlot) {
  const auto slot = [](int64_t value) {
    return [value](Batch& b) { b.arrays[0].slots.Set(b.SlotIndex(0, 1, 0), value); };
  };
  ExpectAtConfirm(TwoRows(), slot(3 * 4 + 2), Changed(0, 2));
  ExpectAtConfirm(TwoRows(), slot(-1), Changed(0, 2));
  ExpectAtConfirm(TwoRows(), slot(999), Changed(0, 2));
}

TEST(ConfirmReason, ChangedDuringStepLengthAndBinding) {
  ExpectAtConfirm(
      TwoRows(), [](Batch& b) { b.arrays[0].lengths.Set(3, 8); }, Changed(1, kWhole));
  ExpectAtConfirm(
      TwoRows(), [](Batch& b) { b.row_requests[3] = 1; }, Changed(1, kWhole));
}

TEST(ConfirmReason, ChangedDuringStepTail) {
  BatchBuilder builder({PoolSpec{}}, 2);
  builder.AddRow(RowSpec{.row = 0, .before = 3, .reach = 4, .pages = {{1}}});
  ExpectAtConfirm(
      builder.Build(), [](Batch& b) { b.SetPage(0, 0, 3, 5); }, Changed(0, 3));
}

TEST(ConfirmReason, ChangedDuringStepPad) {
  BatchBuilder builder({PoolSpec{}}, 3);
  builder.AddRow(RowSpec{.row = 0, .before = 3, .pages = {{1}}});
  builder.AddPad(2, 1);
  const Batch batch = builder.Build();
  ExpectAtConfirm(
      batch, [](Batch& b) { b.SetPage(0, 2, 6, 5); }, Changed(1, kWhole));
  ExpectAtConfirm(
      batch, [](Batch& b) { b.arrays[0].slots.Set(1, 5); }, Changed(1, kWhole));
}

TEST(ConfirmReason, ChangedDuringStepFirstFilledPage) {
  ExpectAtConfirm(FreshPage(), [](Batch&) {}, {});
  ExpectAtConfirm(
      FreshPage(), [](Batch& b) { b.RecordOf(0, 2).stamp = MakeStamp(7, 7); }, Changed(0, 2));
  // A stamp that stood there before the step, whatever it is, is no change.
  Batch foreign = FreshPage();
  foreign.RecordOf(0, 2).stamp = MakeStamp(7, 7);
  ExpectAtConfirm(foreign, [](Batch&) {}, {});
  Batch unasked = FreshPage();
  unasked.checks &= ~ReasonBit(Reason::kStampMismatch);
  ExpectAtConfirm(unasked, [](Batch& b) { b.RecordOf(0, 2).stamp = MakeStamp(7, 7); }, {});
}

TEST(ConfirmReason, FlagsAndScalesOfOthersDontCount) {
  ExpectAtConfirm(TwoRows(),
                  [](Batch& b) {
                    b.RecordOf(0, 2).fill_flags |= kPageShared | kPageSealed;
                    b.RecordOf(0, 0).scale += 1;
                  },
                  {});
}

TEST(ConfirmReason, RowsThatFailedAreNotAskedAgain) {
  Batch batch = TwoRows();
  batch.row_requests[1] = 0;
  ValidateCpuOn(batch);
  ASSERT_EQ(batch.finding_count, 1u);
  batch.SetPage(0, 1, 0, 9);
  ConfirmCpuOn(batch);
  EXPECT_EQ(batch.finding_count, 1u);
  EXPECT_EQ(batch.ReasonsOf(0), ReasonBit(Reason::kRowEpoch));
}

TEST(ConfirmReason, WithoutAVerdictOfThisStepNothingIsStored) {
  Batch batch = TwoRows();
  ValidateCpuOn(batch);
  batch.verdicts[0] = MakeVerdict(batch.step_number - 1, 0);
  const auto records = batch.records;
  ConfirmCpuOn(batch);
  EXPECT_EQ(BytesOf(batch.records[0]).substr(0, 16 * 4), BytesOf(records[0]).substr(0, 16 * 4));
  EXPECT_FALSE(VerdictIsOf(batch.verdicts[0], batch.step_number));
}

// Pages that arrive during the step are asked under their own reasons.
TEST(ConfirmReason, LatePagesAreAskedAtConfirm) {
  Batch batch = TwoRows();
  batch.late = {0 | kLateAtConfirm, 1};
  batch.tasks[0].late_end = 2;
  const PageRecord right = batch.RecordOf(0, 0);
  batch.RecordOf(0, 0) = PageRecord{right.tag, 0, 0, kNoStamp};
  const auto arrives = [](PageRecord record) {
    return [record](Batch& b) {
      b.RecordOf(0, 0) = record;
      b.RecordOf(0, 1).stamp = MakeStamp(9, 9);  // the host's to judge
    };
  };
  PageRecord foreign = right, part = right, scale = right;
  foreign.stamp = MakeStamp(7, 7);
  part.fill_flags = 3;
  scale.scale += 1;
  ExpectAtConfirm(batch, arrives(right), {});
  ExpectAtConfirm(batch, [](Batch&) {}, {{0, 0, 0, Reason::kNotCommitted}});
  ExpectAtConfirm(batch, arrives(foreign), {{0, 0, 0, Reason::kStampMismatch}});
  ExpectAtConfirm(batch, arrives(part), {{0, 0, 0, Reason::kNotCommitted}});
  ExpectAtConfirm(batch, arrives(scale), {{0, 0, 0, Reason::kScaleMismatch}});
}

// --- stores -------------------------------------------------------------------------------------

Batch Confirmed(Batch batch, ConfirmPart part = ConfirmPart::kBoth) {
  ValidateCpuOn(batch);
  ConfirmCpuOn(batch, part);
  return batch;
}

TEST(ConfirmStores, StampFillScaleAndExpectation) {
  Batch batch = Confirmed(TwoRows());
  for (uint32_t task : {0u, 1u}) {
    const PoolTask& t = batch.tasks[task];
    const PageRecord record = batch.RecordOf(task, t.write_first);
    EXPECT_EQ(record.stamp, batch.write_stamps[t.write_begin]);
    EXPECT_EQ(batch.ExpectationOf(task, t.write_first).stamp, record.stamp);
    EXPECT_EQ(record.scale, batch.pools[0].scale_epoch);
  }
  EXPECT_EQ(batch.RecordOf(0, 2).fill_flags, 2u);
  EXPECT_EQ(batch.RecordOf(1, 1).fill_flags, 3u);
  EXPECT_EQ(batch.RecordOf(0, 1).stamp, MakeStamp(BatchBuilder::Serial(1), 1)) << "only read";
}

TEST(ConfirmStores, FailedRowsStoreNothing) {
  Batch batch = TwoRows();
  batch.row_requests[1] = 0;
  const PageRecord before = batch.RecordOf(0, 2);
  batch = Confirmed(batch);
  EXPECT_EQ(batch.RecordOf(0, 2).stamp, before.stamp);
  EXPECT_EQ(batch.RecordOf(0, 2).fill_flags, before.fill_flags);
  EXPECT_NE(batch.RecordOf(1, 1).fill_flags, 1u) << "the other row does";
}

// The same where sanitising left its slots alone: under policy `log`, and if it fails at confirm.
TEST(ConfirmStores, FailedRowsStoreNothingThoughTheyWrote) {
  Batch log = TwoRows();
  log.sanitise = false;
  log.row_requests[1] = 0;
  const PageRecord before = log.RecordOf(0, 2);
  log = Confirmed(log);
  EXPECT_EQ(log.RecordOf(0, 2).stamp, before.stamp);
  EXPECT_EQ(log.RecordOf(0, 2).fill_flags, before.fill_flags);
  Batch late = TwoRows();
  ValidateCpuOn(late);
  late.row_requests[1] = 0;
  ConfirmCpuOn(late);
  ASSERT_EQ(late.ReasonsOf(0), ReasonBit(Reason::kChangedDuringStep));
  EXPECT_EQ(late.RecordOf(0, 2).stamp, before.stamp);
  EXPECT_EQ(late.RecordOf(0, 2).fill_flags, before.fill_flags);
}

TEST(ConfirmStores, DraftSlotsDontCount) {
  BatchBuilder builder({PoolSpec{}}, 1);
  builder.AddRow(RowSpec{.row = 0, .before = 6, .new_tokens = 1, .draft = 3, .pages = {{1, 2, 3}}});
  const Batch batch = Confirmed(builder.Build());
  EXPECT_EQ(batch.records[0][2].fill_flags, 3u);
  EXPECT_EQ(batch.records[0][3].fill_flags, 0u);
  EXPECT_EQ(batch.records[0][3].stamp, kNoStamp);
}

TEST(ConfirmStores, FlagsStay) {
  Batch batch = TwoRows();
  batch.RecordOf(0, 2).fill_flags |= kPageSealed;
  batch = Confirmed(batch);
  EXPECT_EQ(batch.RecordOf(0, 2).fill_flags, kPageSealed | 2);
}

TEST(ConfirmStores, SkippedTokensLeaveTheirPageAlone) {
  Batch batch = TwoRows();
  batch.arrays[0].slots.Set(batch.SlotIndex(0, 1, 0), -1);
  batch.RecordOf(0, 2).fill_flags = 3 | kPageSealed;
  const PageRecord before = batch.RecordOf(0, 2);
  batch = Confirmed(batch);
  ASSERT_EQ(batch.ReasonsOf(0), 0u);
  EXPECT_EQ(batch.RecordOf(0, 2).stamp, before.stamp);
  EXPECT_EQ(batch.RecordOf(0, 2).fill_flags, before.fill_flags);
}

TEST(ConfirmStores, AHoleEndsTheFill) {
  Batch batch = TwoRows();  // at a level that doesn't ask what is committed
  batch.checks &= ~ReasonBit(Reason::kNotCommitted);
  batch.arrays[0].slots.Set(batch.SlotIndex(0, 3, 0), -1);
  batch = Confirmed(batch);
  ASSERT_EQ(batch.ReasonsOf(1), 0u);
  EXPECT_EQ(batch.RecordOf(1, 1).fill_flags & kFillMask, 1u);
}

TEST(ConfirmStores, AForeignFillDoesntCount) {
  Batch batch = FreshPage();
  batch.RecordOf(0, 2).stamp = MakeStamp(7, 7);
  batch.RecordOf(0, 2).fill_flags = 4;
  batch = Confirmed(batch);
  EXPECT_EQ(batch.RecordOf(0, 2).fill_flags, 2u);
}

TEST(ConfirmStores, OtherRanksTokensCount) {
  Batch batch = Confirmed(TwoRows(PoolSpec{.interleave_ranks = 2}));
  ASSERT_EQ(batch.ReasonsOf(0), 0u);
  EXPECT_EQ(batch.RecordOf(0, 2).fill_flags, 2u);
  EXPECT_EQ(batch.RecordOf(0, 2).stamp, batch.write_stamps[0]);
}

TEST(ConfirmStores, ScaleMarks) {
  BatchBuilder builder({PoolSpec{.page_scales = true}}, 3);
  builder.AddRow(RowSpec{.row = 0, .before = 4, .pages = {{1, 2}}});
  builder.AddRow(RowSpec{.row = 1, .before = 4, .pages = {{3, 4}}, .keep_scales = true});
  const Batch batch = Confirmed(builder.Build());
  EXPECT_EQ(batch.records[0][2].scale, static_cast<uint16_t>(batch.records[0][2].tag));
  EXPECT_EQ(batch.records[0][4].scale, 0u);
}

TEST(ConfirmStores, StateIsStampedWhereItWasWritten) {
  BatchBuilder builder({PoolSpec{}, PoolSpec{.free_form = true}}, 2);
  builder.AddRow(RowSpec{.row = 0, .before = 3, .new_tokens = 2, .pages = {{1, 2}, {7, 9}}});
  Batch batch = builder.Build();
  const Stamp old = batch.records[1][9].stamp;
  batch = Confirmed(batch);
  ASSERT_EQ(batch.ReasonsOf(0), 0u);
  EXPECT_EQ(batch.records[1][7].stamp, batch.write_stamps[batch.tasks[1].write_begin]);
  EXPECT_EQ(batch.records[1][7].fill_flags, 2u);
  EXPECT_EQ(batch.records[1][9].stamp, old);
}

TEST(ConfirmStores, StoreFirstRecheckLater) {
  Batch batch = Confirmed(FreshPage(), ConfirmPart::kStoreOnly);
  EXPECT_EQ(batch.RecordOf(0, 2).stamp, batch.write_stamps[0]);
  ConfirmCpuOn(batch, ConfirmPart::kRecheckOnly);
  EXPECT_EQ(batch.finding_count, 0u);
  EXPECT_EQ(batch.ReasonsOf(0), 0u);
  batch.RecordOf(0, 2).tag += 2;
  ConfirmCpuOn(batch, ConfirmPart::kRecheckOnly);
  EXPECT_EQ(batch.ReasonsOf(0), ReasonBit(Reason::kChangedDuringStep));
}

}  // namespace
}  // namespace kvfence
