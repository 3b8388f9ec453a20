// The gate: a damaged or missing batch makes every row unverified (I-11), memory follows live pages
// (I-15), a row is clean only by a verdict of this very step (I-9), confirm stores for clean rows.
#include "kvfence/gate.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvfence {
namespace {

constexpr uint64_t kPages[] = {64};
const PoolId kPool{0};
const RequestId kReq{NameId(1), 1};

FenceConfig Config() {
  FenceConfig config;
  PoolConfig pool;
  pool.name = "full";
  pool.pages = 64;
  pool.page_size = 16;
  config.pools = {pool};
  config.rows = 4;
  config.width = 8;
  return config;
}

// One row of one request that holds pages 5 and 6, reads 20 tokens and writes the 21st.
class GateTest : public ::testing::Test {
 protected:
  GateTest() : gate_(Config(), RankId(0)), journal_(kPages) {
    for (uint32_t at = 0; at < 2; ++at) {
      journal_.Page(kPool, 5 + at, kApplyTag | kApplyFlags, {1, 0, 0, kNoStamp});
    }
    journal_.Resize(kReq, kPool, 2);
    for (uint32_t at = 0; at < 2; ++at) {
      journal_.Expect(kReq, kPool, at, {5 + at, 1, MakeStamp(1, at)});
    }
    journal_.Bind(Row(1), kReq);
    const uint16_t fills[] = {16, 4};
    for (uint32_t at = 0; at < 2; ++at) {
      journal_.Page(kPool, 5 + at, kApplyContent, {0, fills[at], 0, MakeStamp(1, at)});
    }
    table_.assign(4 * 8, 0);
    table_[8] = 5;
    table_[9] = 6;
  }

  StepPlan Plan() const {
    StepPlan plan;
    RowTask row{};
    row.request = kReq.word();
    row.length_before = 20;
    row.new_tokens = 1;
    row.reach = 2;
    row.row = 1;
    plan.rows = {row};
    PoolTask task{};
    task.covered = 2;
    task.end_page = 2;
    task.expected = 2;
    task.write_first = 1;
    task.write_pages = 1;
    task.prefix = ~0u;
    plan.pool_tasks = {task};
    plan.write_stamps = {MakeStamp(1, 1)};
    plan.group_count = 1;
    plan.work = 2;
    return plan;
  }

  StepEvent Event(uint64_t step) {
    buffers_.pool = kPool;
    buffers_.table.entries = {table_.data(), 32};
    buffers_.table.entries_size = table_.size();
    buffers_.table.stride = 8;
    buffers_.table.width = 8;
    buffers_.table.rows = 4;
    buffers_.slots = {{slots_, 64}, 1, {slot_indptr_, 32}, 4};
    buffers_.lengths = {{lengths_, 64}, 4};
    StepEvent event;
    event.step = StepId(step);
    event.pools = {&buffers_, 1};
    return event;
  }

  uint32_t Run(uint64_t step) {
    gate_.Apply(journal_.Seal(StepId(step)));
    return gate_.Validate(Event(step), Plan()).reasons[0];
  }

  Gate gate_;
  Journal journal_;
  std::vector<int32_t> table_;
  int64_t slots_[1] = {6 * 16 + 4};
  int32_t slot_indptr_[5] = {0, 0, 1, 1, 1};
  int64_t lengths_[4] = {0, 21, 0, 0};
  PoolBuffers buffers_;
};

TEST_F(GateTest, AnHonestRowIsCleanAndItsWriteIsStoredAtConfirm) {
  EXPECT_EQ(Run(1), 0u);
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).fill_flags & kFillMask, 4);
  EXPECT_FALSE(gate_.Confirmed(StepId(1)));
  EXPECT_EQ(gate_.Confirm(StepId(1)).reasons[0], 0u);
  EXPECT_TRUE(gate_.Confirmed(StepId(1)));
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).fill_flags & kFillMask, 5);
}

TEST_F(GateTest, AForeignPageFailsTheRowAndIsSanitised) {
  table_[8] = 7;
  EXPECT_EQ(Run(1), ReasonBit(Reason::kPageMismatch));
  EXPECT_EQ(table_[8], 0);
  EXPECT_EQ(table_[9], 0);
  EXPECT_LT(slots_[0], 0);
  EXPECT_EQ(lengths_[1], 21) << "lengths stay";
  gate_.Confirm(StepId(1));
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).fill_flags & kFillMask, 4) << "failed: stores nothing";
}

TEST_F(GateTest, ATableChangedWhileAttentionRanIsSeenAtConfirm) {
  EXPECT_EQ(Run(1), 0u);
  table_[8] = 7;
  const Gate::Pass& pass = gate_.Confirm(StepId(1));
  EXPECT_EQ(pass.reasons[0], ReasonBit(Reason::kChangedDuringStep));
  ASSERT_EQ(pass.findings.size(), 1u);
  EXPECT_EQ(pass.findings[0].at, 0u);
}

TEST_F(GateTest, AFailureOnTheHostSinceValidateStoresNothing) {
  EXPECT_EQ(Run(1), 0u);
  gate_.FailRow(StepId(1), 0, ReasonBit(Reason::kInFlight));
  gate_.Confirm(StepId(1));
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).fill_flags & kFillMask, 4);
}

TEST_F(GateTest, I11AGapInTheJournalMakesEveryRowUnverified) {
  journal_.Seal(StepId(1));  // never arrives
  EXPECT_EQ(Run(2), ReasonBit(Reason::kUnverified));
  EXPECT_TRUE(gate_.lost());
  EXPECT_EQ(table_[8], 0) << "and harmless";
  gate_.Confirm(StepId(2));
  gate_.Forget(StepId(2));
  EXPECT_EQ(Run(3), ReasonBit(Reason::kUnverified)) << "for good";
}

TEST_F(GateTest, I11ADamagedBatchMakesEveryRowUnverified) {
  JournalBatch batch = journal_.Seal(StepId(1));
  batch.deltas[0].index ^= 1;
  gate_.Apply(batch);
  EXPECT_EQ(gate_.Validate(Event(1), Plan()).reasons[0], ReasonBit(Reason::kUnverified));
}

// The whole state once more, as batch `sequence`.
JournalBatch SnapshotOf(JournalBatch batch, uint64_t sequence) {
  batch.snapshot = true;
  batch.sequence = sequence;
  batch.checksum = batch.ComputeChecksum();
  return batch;
}

TEST_F(GateTest, I11ASnapshotMakesALostGateWholeUnlessItIsOlder) {
  const JournalBatch state = journal_.Seal(StepId(1));
  gate_.Apply(state);
  JournalBatch later = SnapshotOf(state, 5);
  later.snapshot = false;
  later.checksum = later.ComputeChecksum();
  gate_.Apply(later);
  ASSERT_TRUE(gate_.lost());
  JournalBatch broken = SnapshotOf(state, 1000);
  broken.deltas[0].index ^= 1;
  gate_.Apply(broken);
  EXPECT_TRUE(gate_.lost()) << "and its sequence isn't believed";

  gate_.Apply(SnapshotOf(state, 6));
  EXPECT_FALSE(gate_.lost());
  EXPECT_EQ(gate_.live_entries(), 2u);
  EXPECT_EQ(gate_.expectation_bytes(), kChunkEntries * 16u);
  EXPECT_EQ(gate_.Validate(Event(6), Plan()).reasons[0], 0u);
  gate_.Confirm(StepId(6));
  gate_.Forget(StepId(6));
  gate_.Apply(SnapshotOf(state, 6));
  EXPECT_TRUE(gate_.lost()) << "a snapshot that came twice is older than the gate";
  EXPECT_EQ(gate_.Validate(Event(7), Plan()).reasons[0], ReasonBit(Reason::kUnverified));
}

TEST_F(GateTest, I91ASnapshotLeavesNothingOfBefore) {
  const JournalBatch state = journal_.Seal(StepId(1));
  gate_.Apply(state);
  journal_.Page(kPool, 9, kApplyTag | kApplyContent, {3, 7, 0, MakeStamp(2, 0)});
  journal_.Resize(RequestId(NameId(3), 1), kPool, 70);
  journal_.Bind(Row(2), RequestId(NameId(3), 1));
  journal_.ScaleEpoch(kPool, 4);
  gate_.Apply(journal_.Seal(StepId(2)));
  EXPECT_EQ(gate_.live_entries(), 72u);
  gate_.Apply(SnapshotOf(state, 3));
  EXPECT_FALSE(gate_.lost());
  EXPECT_EQ(gate_.RecordForTest(kPool, 9).tag, 0u);
  EXPECT_EQ(gate_.RecordForTest(kPool, 9).stamp, kNoStamp);
  EXPECT_EQ(gate_.live_entries(), 2u);
  EXPECT_EQ(gate_.expectation_bytes(), kChunkEntries * 16u);
  gate_.Apply(journal_.Seal(StepId(3)));
  EXPECT_TRUE(gate_.lost()) << "batch 3 is what the snapshot was";
}

TEST_F(GateTest, APassInFlightAtARestartIsUnverifiedAndStoresNothing) {
  EXPECT_EQ(Run(1), 0u);
  gate_.Restart();
  EXPECT_EQ(gate_.Confirm(StepId(1)).reasons[0], ReasonBit(Reason::kUnverified));
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).fill_flags & kFillMask, 0);
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).stamp, kNoStamp);
  EXPECT_EQ(gate_.live_entries(), 0u);
}

TEST_F(GateTest, WithoutAPlanEachRowAndPadIsUnverifiedAndHarmless) {
  gate_.Apply(journal_.Seal(StepId(1)));
  StepEvent event = Event(1);
  RowPlan row;
  row.row = Row(1);
  const Row pad(3);
  event.rows = {&row, 1};
  event.pads = {&pad, 1};
  table_[3 * 8 + 7] = 9;
  const Gate::Pass& pass = gate_.Condemn(event);
  const uint32_t unverified = ReasonBit(Reason::kUnverified);
  EXPECT_EQ(pass.reasons, (std::vector<uint32_t>{unverified, unverified}));
  for (const size_t i : {8u, 9u, 31u}) EXPECT_EQ(table_[i], 0) << i;
  EXPECT_LT(slots_[0], 0);
  EXPECT_EQ(lengths_[1], 21) << "lengths stay";
  gate_.Confirm(StepId(1));
  EXPECT_EQ(gate_.RecordForTest(kPool, 6).fill_flags & kFillMask, 4);
  const std::span<const VerdictWord> words = gate_.Verdicts(StepId(1));
  ASSERT_EQ(words.size(), 2u);
  for (const VerdictWord word : words) EXPECT_EQ(word, MakeVerdict(1, unverified));
  EXPECT_TRUE(gate_.Verdicts(StepId(2)).empty());
}

TEST_F(GateTest, I15MemoryFollowsLivePagesAndComesBack) {
  EXPECT_EQ(gate_.page_bytes(), 64u * 16);
  EXPECT_EQ(gate_.expectation_bytes(), 0u);
  gate_.Apply(journal_.Seal(StepId(1)));
  EXPECT_EQ(gate_.live_entries(), 2u);
  EXPECT_EQ(gate_.expectation_bytes(), kChunkEntries * 16u);
  const RequestId big(NameId(2), 1);
  journal_.Resize(big, kPool, 1000);
  gate_.Apply(journal_.Seal(StepId(2)));
  EXPECT_EQ(gate_.live_entries(), 1002u);
  EXPECT_LE(gate_.expectation_bytes(), (1002 + 2 * (kChunkEntries - 1)) * 16u);
  journal_.End(big);
  journal_.End(kReq);
  gate_.Apply(journal_.Seal(StepId(3)));
  EXPECT_EQ(gate_.live_entries(), 0u);
  EXPECT_EQ(gate_.expectation_bytes(), 0u);
}

}  // namespace
}  // namespace kvfence
