// The journal: sequence and checksum (I-11), staging reuse (I-14), movers that stamp at once.
#include "kvfence/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kvfence/validate.h"

namespace kvfence {
namespace {

constexpr uint64_t kPages[] = {16};
const PoolId kPool{0};

PageRecord Record(Tag tag) { return {tag, 0, 0, kNoStamp}; }

TEST(Journal, I11SequencesHaveNoGapAndChecksumsCoverEveryByte) {
  Journal journal(kPages);
  journal.Page(kPool, 3, kApplyTag, Record(1));
  JournalBatch first = journal.Seal(StepId(1));
  EXPECT_EQ(first.sequence, 1u);
  EXPECT_EQ(first.checksum, first.ComputeChecksum());
  EXPECT_EQ(journal.Seal(StepId(2)).sequence, 2u);

  ASSERT_EQ(first.deltas.size(), 1u);
  auto* bytes = reinterpret_cast<unsigned char*>(first.deltas.data());
  for (size_t i = 0; i < sizeof(JournalDelta); ++i) {
    bytes[i] ^= 1;
    EXPECT_NE(first.checksum, first.ComputeChecksum()) << "byte " << i;
    bytes[i] ^= 1;
  }
  EXPECT_TRUE(first.Intact());
  first.snapshot = true;
  EXPECT_FALSE(first.Intact());
  first.snapshot = false;
  first.step = 7;
  EXPECT_NE(first.checksum, first.ComputeChecksum());
}

TEST(Journal, I14StagingIsNotReusedBeforeItsStepHasSettled) {
  Journal journal(kPages);
  const JournalBatch* one = &journal.Seal(StepId(1));
  const JournalDelta* data = nullptr;
  journal.Bind(Row(0), RequestId(5));
  const JournalBatch* two = &journal.Seal(StepId(2));
  data = two->deltas.data();
  journal.Bind(Row(1), RequestId(6));
  const JournalBatch* three = &journal.Seal(StepId(3));
  EXPECT_NE(one, two);
  EXPECT_NE(two, three);
  EXPECT_EQ(two->deltas.data(), data);
  EXPECT_EQ(two->deltas[0].request, 5u);
  EXPECT_EQ(two->checksum, two->ComputeChecksum());
  const size_t buffers = journal.staging_buffers();
  journal.Settled(StepId(2));
  journal.Seal(StepId(4));
  journal.Seal(StepId(5));
  EXPECT_EQ(journal.staging_buffers(), buffers) << "settled buffers are used again";
}

TEST(Journal, ASnapshotTakesTheOpenBatchsPlace) {
  FenceConfig config;
  config.pools.push_back({.name = "full", .pages = 16, .page_size = 16, .space = ""});
  config.rows = 2;
  config.width = 2;
  Journal journal(kPages);
  Ledger ledger(config, RankId(0), &journal, nullptr);
  const std::vector<PageId> pages = {PageId(3)};
  const RequestId req = ledger.Admit({.name = NameId(1)});
  ASSERT_TRUE(ledger.Alloc({.req = req, .pages = pages}).ok());
  journal.Seal(StepId(1));
  ASSERT_TRUE(ledger.BindRow({.row = Row(1), .req = req}).ok());  // in the open batch

  RowPlan row;
  row.row = Row(1);
  row.req = req;
  PoolBuffers buffers;
  buffers.pool = kPool;
  buffers.table.width = 2;
  StepEvent step;
  step.step = StepId(2);
  step.rows = {&row, 1};
  step.pools = {&buffers, 1};
  const StepPlan* plan = nullptr;
  ASSERT_TRUE(ledger.Launch(step, &plan).ok());
  const auto refused = journal.SealSnapshot(ledger, StepId(1));
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(ledger.Retire(StepId(2), nullptr).ok());

  Result<const JournalBatch*> batch = journal.SealSnapshot(ledger, StepId(2));
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE((*batch)->snapshot);
  EXPECT_TRUE((*batch)->Intact());
  EXPECT_EQ((*batch)->sequence, 2u);
  const auto count = [&](DeltaKind kind) {
    return std::count_if((*batch)->deltas.begin(), (*batch)->deltas.end(),
                         [&](const JournalDelta& delta) { return delta.kind == kind; });
  };
  EXPECT_EQ(count(DeltaKind::kPage), 1);
  EXPECT_EQ(count(DeltaKind::kResize), 1);
  EXPECT_EQ(count(DeltaKind::kExpect), 1);
  EXPECT_EQ(count(DeltaKind::kBind), 1) << "once, not again from the open batch";
  journal.Settled(StepId(2));
  journal.Seal(StepId(3));
  const JournalBatch& reused = journal.Seal(StepId(4));
  EXPECT_FALSE(reused.snapshot);
  EXPECT_EQ(reused.sequence, 4u);
}

TEST(Journal, ARefusedSnapshotLeavesTheOpenBatchAsItWas) {
  FenceConfig config;
  config.pools.push_back({.name = "full", .pages = 16, .page_size = 16, .space = ""});
  config.rows = 2;
  config.width = 2;
  Journal journal(kPages);
  Ledger ledger(config, RankId(0), &journal, nullptr);
  const StepPlan* plan = nullptr;
  StepEvent step;
  step.step = StepId(1);
  ASSERT_TRUE(ledger.Launch(step, &plan).ok());
  journal.Bind(Row(1), RequestId(9));
  EXPECT_FALSE(journal.SealSnapshot(ledger, StepId(0)).ok());
  const JournalBatch& batch = journal.Seal(StepId(1));
  ASSERT_EQ(batch.deltas.size(), 1u);
  EXPECT_FALSE(batch.snapshot);
  EXPECT_EQ(batch.sequence, 1u);
}

class Stamps : public Journal::Immediate {
 public:
  void Stamp(PoolId, uint32_t page, const PageRecord&) override { pages.push_back(page); }
  std::vector<uint32_t> pages;
};

TEST(Journal, AMoverStampsAtOnceUnlessThePageIsIssuedInTheOpenBatch) {
  Journal journal(kPages);
  Stamps device;
  journal.Page(kPool, 3, kApplyTag, Record(1));
  journal.SetImmediate(&device);
  journal.Page(kPool, 3, kApplyContent, Record(1));  // must come after the new tag
  journal.Page(kPool, 4, kApplyContent, Record(1));
  journal.SetImmediate(nullptr);
  EXPECT_EQ(device.pages, (std::vector<uint32_t>{4}));
  EXPECT_EQ(journal.Seal(StepId(1)).deltas.size(), 2u);
  journal.SetImmediate(&device);
  journal.Page(kPool, 3, kApplyContent, Record(1));
  EXPECT_EQ(device.pages, (std::vector<uint32_t>{4, 3})) << "the tag is on the device by now";
}

}  // namespace
}  // namespace kvfence
