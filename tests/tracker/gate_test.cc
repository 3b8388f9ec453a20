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
