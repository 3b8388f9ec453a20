// The shared journal, scheduler and worker in one process: whatever is missing, damaged, late or of
// another life leaves every row unverified and harmless (I-11, I-90 to I-92), and is told apart.
#include "kvfence/shared_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/tracker/shared_scene.h"
#include "tracker/journal_wire.h"
#include "tracker/shared_region.h"

namespace kvfence::testing {
namespace {

constexpr uint32_t kUnverified = ReasonBit(Reason::kUnverified);
constexpr uint64_t kSmallRing = 4096;

// Clean, with its plan followed.
void ExpectClean(const Answer& answer, const StepMessage& message) {
  EXPECT_EQ(answer.state, JournalState::kFollowing);
  for (uint32_t i = 0; i < message.rows; ++i) {
    EXPECT_EQ(answer.reasons[i], 0u) << CheckSet(answer.reasons[i]).mask();
    EXPECT_EQ(answer.first_entry[i], message.row[i].table[0]);
  }
}

// Every row unverified for this cause, and made harmless.
void ExpectUnverified(const Answer& answer, const StepMessage& message, JournalState state) {
  EXPECT_EQ(answer.state, state);
  for (uint32_t i = 0; i < message.rows; ++i) {
    EXPECT_EQ(answer.reasons[i], kUnverified);
    EXPECT_EQ(answer.first_entry[i], 0);
    EXPECT_LT(answer.first_slot[i], 0);
  }
}

class SharedJournalTest : public ::testing::Test {
 protected:
  void Start(SharedJournalOptions options = {.ring_bytes = kSmallRing, .probe = {}}) {
    worker_.reset();
    scheduler_.reset();
    ASSERT_TRUE(SharedJournal::Remove(names_.journal).ok());
    scheduler_.emplace(names_, config_, std::move(options));
    worker_.emplace(names_, config_, 0);
  }
  // Requests 1 and 3 with 20 tokens each in pages 5, 6 and 9, 10, committed by step 1.
  void StartWithContent() {
    Start();
    scheduler_->Begin(1, 0, {5, 6});
    scheduler_->Begin(3, 2, {9, 10});
    const StepMessage message = scheduler_->Run(1, {{1, 20}, {3, 20}});
    ExpectClean(worker_->Step(message), message);
    ASSERT_TRUE(scheduler_->Published(1));
  }
  // Steps of a request 2 that the worker never sees, until the ring has gone round.
  uint64_t LapTheWorker(uint64_t step) {
    for (int i = 0; i < 40; ++i, ++step) {
      scheduler_->Begin(2, 1, {20, 21});
      scheduler_->Run(step, {{2, 4}});
      EXPECT_FALSE(scheduler_->Published(step));
      scheduler_->End(2);
    }
    return step;
  }

  const FenceConfig config_ = SceneConfig();
  SharedNames names_;
  std::optional<Scheduler> scheduler_;
  std::optional<Worker> worker_;
};

TEST_F(SharedJournalTest, RowsAreJudgedAgainstWhatTheLedgerSays) {
  StartWithContent();
  for (uint64_t step = 2; step < 13; ++step) {
    StepMessage message = scheduler_->Run(step, {{1, 1}, {3, 1}});
    if (step == 12) message.row[1].table[0] = 5;  // the engine's own mistake, on this rank
    const Answer answer = worker_->Step(message);
    if (step < 12) {
      ExpectClean(answer, message);
      EXPECT_TRUE(scheduler_->Published(step));
      continue;
    }
    EXPECT_EQ(answer.state, JournalState::kFollowing);
    EXPECT_EQ(answer.reasons[0], 0u);
    EXPECT_EQ(answer.reasons[1], ReasonBit(Reason::kPageMismatch));
    const std::vector<LaunchedRow> rows = scheduler_->Settle(step);
    EXPECT_TRUE(rows[0].reasons.empty());
    EXPECT_EQ(rows[1].reasons, CheckSet(Reason::kPageMismatch));
  }
}

TEST_F(SharedJournalTest, AGateThatLagsCatchesUpInsideTheRing) {
  StartWithContent();
  scheduler_->Run(2, {{1, 1}});
  EXPECT_FALSE(scheduler_->Published(2)) << "no verdict";
  const StepMessage message = scheduler_->Run(3, {{3, 1}});
  ExpectClean(worker_->Step(message), message);
  EXPECT_TRUE(scheduler_->Published(3));
}

TEST_F(SharedJournalTest, TheGateGoesNoFurtherThanTheStepNeeds) {
  StartWithContent();
  const StepMessage second = scheduler_->Run(2, {{1, 1}});
  const StepMessage third = scheduler_->Run(3, {{3, 1}});  // overlapped: launched before 2 settles
  ExpectClean(worker_->Step(second), second);
  ExpectClean(worker_->Step(third), third);
  EXPECT_TRUE(scheduler_->Published(2));
  EXPECT_TRUE(scheduler_->Published(3));
}

TEST_F(SharedJournalTest, ABatchThatIsNotThereYetFailsItsStepOnly) {
  StartWithContent();
  const StepMessage second = scheduler_->Launch(2, {{1, 1}});
  ExpectUnverified(worker_->Step(second), second, JournalState::kBehind);
  scheduler_->Append();
  EXPECT_FALSE(scheduler_->Published(2));
  const StepMessage third = scheduler_->Run(3, {{3, 1}});
  ExpectClean(worker_->Step(third), third);
}

TEST_F(SharedJournalTest, APlanIsForItsOwnStepOnly) {
  StartWithContent();
  StepMessage message = scheduler_->Run(2, {{1, 1}});
  message.step = 3;
  ExpectUnverified(worker_->Step(message), message, JournalState::kBehind);
  message = scheduler_->Run(4, {{3, 1}});
  message.at.sequence -= 1;  // the batch of step 2, which the gate has
  ExpectUnverified(worker_->Step(message), message, JournalState::kBehind);
}

TEST_F(SharedJournalTest, I11AGapLeavesEveryRowUnverifiedUntilASnapshot) {
  StartWithContent();
  scheduler_->Launch(2, {{1, 1}});  // never appended
  scheduler_->Published(2);
  StepMessage message = scheduler_->Run(3, {{3, 1}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kGap);
  EXPECT_FALSE(scheduler_->Snapshot(3)) << "I-91: not while a step is in flight";
  EXPECT_FALSE(scheduler_->Published(3));
  scheduler_->Begin(4, 3, {12});
  message = scheduler_->Run(4, {{4, 5}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kGap);
  EXPECT_FALSE(scheduler_->Published(4));

  ASSERT_TRUE(scheduler_->Snapshot(4));
  scheduler_->Begin(5, 1, {30});
  message = scheduler_->Run(5, {{5, 5}});
  ExpectClean(worker_->Step(message), message);
  EXPECT_TRUE(scheduler_->Published(5));
}

TEST_F(SharedJournalTest, I91AfterASnapshotContentOfCleanStepsIsStillKnown) {
  StartWithContent();
  const uint64_t step = LapTheWorker(2);
  StepMessage message = scheduler_->Run(step, {{1, 1}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kOverrun);
  EXPECT_FALSE(scheduler_->Published(step));
  message = scheduler_->Run(step + 1, {{1, 1}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kOverrun);
  EXPECT_FALSE(scheduler_->Published(step + 1));

  ASSERT_TRUE(scheduler_->Snapshot(step + 1));
  // Request 3 was in no step that failed: its 20 tokens stand as they were confirmed. Request 1
  // lost two, and what would read them is told so.
  message = scheduler_->Run(step + 2, {{3, 1}, {1, 1}});
  const Answer answer = worker_->Step(message);
  EXPECT_EQ(answer.state, JournalState::kFollowing);
  EXPECT_EQ(answer.reasons[0], 0u);
  EXPECT_NE(answer.reasons[1], 0u);
  const std::vector<LaunchedRow> rows = scheduler_->Settle(step + 2);
  EXPECT_TRUE(rows[0].reasons.empty());
  EXPECT_FALSE(rows[1].reasons.empty());
}

TEST_F(SharedJournalTest, ASnapshotThatTheStepDoesNotNeedYetWaits) {
  StartWithContent();
  const uint64_t step = LapTheWorker(2);
  const StepMessage lost = scheduler_->Run(step, {{1, 1}});
  EXPECT_FALSE(scheduler_->Published(step));
  ASSERT_TRUE(scheduler_->Snapshot(step));
  ExpectUnverified(worker_->Step(lost), lost, JournalState::kOverrun);
  ExpectUnverified(worker_->Step(lost), lost, JournalState::kOverrun);  // and sees it, but waits
  const StepMessage next = scheduler_->Run(step + 1, {{3, 1}});
  ExpectClean(worker_->Step(next), next);
}

TEST_F(SharedJournalTest, ABatchLargerThanTheRingIsRefusedAndAGap) {
  StartWithContent();
  JournalBatch large;
  large.sequence = 2;
  large.deltas.resize(kSmallRing / sizeof(JournalDelta) + 1);
  const Result<JournalPosition> refused = scheduler_->shared().Append(large, nullptr);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  scheduler_->Launch(2, {{1, 1}});  // its place in the sequence is gone with it
  scheduler_->Published(2);
  const StepMessage message = scheduler_->Run(3, {{3, 1}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kGap);
}

TEST_F(SharedJournalTest, I90OverrunWhileCopyingIsSeen) {
  StartWithContent();
  scheduler_.reset();
  worker_.reset();
  bool lap = false;
  uint64_t step = 2;
  scheduler_.emplace(names_, config_, SharedJournalOptions{.ring_bytes = kSmallRing, .probe = {}});
  worker_.emplace(names_, config_, 0, SharedJournalReaderOptions{.probe = [&] {
                    if (std::exchange(lap, false)) step = LapTheWorker(step);
                  }});
  scheduler_->Begin(1, 0, {5, 6});
  const StepMessage first = scheduler_->Run(1, {{1, 20}});
  ExpectClean(worker_->Step(first), first);
  EXPECT_TRUE(scheduler_->Published(1));
  const StepMessage second = scheduler_->Run(step++, {{1, 1}});
  scheduler_->Published(step - 1);
  lap = true;
  ExpectUnverified(worker_->Step(second), second, JournalState::kOverrun);
}

TEST_F(SharedJournalTest, I92ARestartedWriterIsANewBoot) {
  StartWithContent();
  const StepMessage old = scheduler_->Run(2, {{1, 1}});
  scheduler_.reset();
  scheduler_.emplace(names_, config_, SharedJournalOptions{.ring_bytes = kSmallRing, .probe = {}});
  ASSERT_NE(scheduler_->boot(), old.at.boot);
  ExpectUnverified(worker_->Step(old), old, JournalState::kNoBoot);

  // The new ledger issues the same pages, numbers the same steps, and knows of no content.
  scheduler_->Begin(1, 0, {5, 6});
  const StepMessage first = scheduler_->Run(1, {{1, 20}});
  ExpectUnverified(worker_->Step(old), old, JournalState::kNoBoot);
  ExpectClean(worker_->Step(first), first);
  EXPECT_TRUE(scheduler_->Published(1));
}

TEST_F(SharedJournalTest, AWriterThatRestartsUnderACopyTakesTheFrameWithIt) {
  StartWithContent();
  bool restart = false;
  worker_.reset();
  scheduler_.reset();
  scheduler_.emplace(names_, config_, SharedJournalOptions{.ring_bytes = kSmallRing, .probe = {}});
  worker_.emplace(names_, config_, 0, SharedJournalReaderOptions{.probe = [&] {
                    if (!std::exchange(restart, false)) return;
                    scheduler_.reset();
                    scheduler_.emplace(names_, config_,
                                       SharedJournalOptions{.ring_bytes = kSmallRing, .probe = {}});
                  }});
  scheduler_->Begin(1, 0, {5, 6});
  const StepMessage message = scheduler_->Run(1, {{1, 20}});
  restart = true;
  ExpectUnverified(worker_->Step(message), message, JournalState::kNoBoot);
}

TEST_F(SharedJournalTest, I92ASeatIsTakenOncePerBoot) {
  StartWithContent();
  worker_.reset();
  worker_.emplace(names_, config_, 0);  // its device memory is new: the ledger's books aren't of it
  StepMessage message = scheduler_->Run(2, {{1, 1}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kSeatTaken);
  EXPECT_FALSE(scheduler_->Published(2));
  ASSERT_TRUE(scheduler_->Snapshot(2)) << "and no snapshot helps";
  message = scheduler_->Run(3, {{3, 1}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kSeatTaken);
  EXPECT_FALSE(scheduler_->Published(3));

  scheduler_.reset();
  scheduler_.emplace(names_, config_, SharedJournalOptions{.ring_bytes = kSmallRing, .probe = {}});
  scheduler_->Begin(1, 0, {5, 6});
  message = scheduler_->Run(1, {{1, 20}});
  ExpectClean(worker_->Step(message), message);
  EXPECT_TRUE(scheduler_->Published(1));
}

TEST_F(SharedJournalTest, I92AMarkOfAnyoneInASeatKeepsOthersOut) {
  Start();
  Result<SharedRegion> region = SharedRegion::Map(names_.journal, true);
  ASSERT_TRUE(region.ok());
  // As a reader of an earlier boot leaves it that was slow to take its seat there.
  static_cast<uint64_t*>(region->data())[4096 / sizeof(uint64_t)] = 12345;
  scheduler_->Begin(1, 0, {5, 6});
  const StepMessage message = scheduler_->Run(1, {{1, 20}});
  ExpectUnverified(worker_->Step(message), message, JournalState::kSeatTaken);
}

TEST_F(SharedJournalTest, EachRankHasItsSeat) {
  FenceConfig config = SceneConfig(2);
  SharedNames names;
  Scheduler scheduler(names, config);
  Worker first(names, config, 0);
  Worker second(names, config, 1);
  scheduler.Begin(1, 0, {5, 6});
  const StepMessage message = scheduler.Run(1, {{1, 20}});
  ExpectClean(first.Step(message), message);
  ExpectClean(second.Step(message), message);
  EXPECT_TRUE(scheduler.Published(1));
}

// Each byte of a frame is under a checksum, or says how long it is.
TEST_F(SharedJournalTest, I90ADamagedByteAnywhereInAFrameIsSeen) {
  constexpr uint64_t kRingBegin = 8192;  // behind head and seats
  uint64_t begin = 0;
  uint64_t end = 1;
  for (uint64_t at = 0; begin + at < end; ++at) {
    StartWithContent();
    Result<SharedRegion> region = SharedRegion::Map(names_.journal, true);
    ASSERT_TRUE(region.ok());
    auto* bytes = static_cast<unsigned char*>(region->data());
    const std::vector<unsigned char> before(bytes, bytes + region->bytes());
    // Begun now, so that the frame has deltas.
    scheduler_->Begin(4, 3, {12});
    StepMessage message = scheduler_->Run(2, {{4, 5}, {1, 1}});
    begin = region->bytes();
    for (uint64_t i = kRingBegin; i < region->bytes(); ++i) {
      if (bytes[i] == before[i]) continue;
      begin = std::min(begin, i);
      end = i + 1;
    }
    ASSERT_LT(begin + at, end);
    bytes[begin + at] ^= 0x10;
    ExpectUnverified(worker_->Step(message), message, JournalState::kDamaged);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "byte " << at << " of " << end - begin;
    EXPECT_FALSE(scheduler_->Published(2));
    if (at % 64 != 0) continue;
    ASSERT_TRUE(scheduler_->Snapshot(2));
    message = scheduler_->Run(3, {{3, 1}});
    ExpectClean(worker_->Step(message), message);
  }
  EXPECT_GT(end - begin, 300u);
}

TEST(SharedJournalOpen, TellsWhatIsWrong) {
  const FenceConfig config = SceneConfig(2);
  SharedNames names;
  const auto open = [&](const FenceConfig& c, uint32_t seat) {
    return SharedJournalReader::Open(names.journal, c, RankId(seat)).status().code();
  };
  const auto create = [&](const FenceConfig& c, uint64_t bytes) {
    return SharedJournal::Create(names.journal, c, {.ring_bytes = bytes, .probe = {}});
  };
  EXPECT_EQ(open(config, 0), StatusCode::kUnavailable);
  EXPECT_EQ(create(config, 5000).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(config, 2048).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedJournal::Create("no_slash", config).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedJournal::Create("/a/b", config).status().code(), StatusCode::kInvalidArgument);
  {
    const auto writer = create(config, 8192);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    EXPECT_EQ(create(config, 8192).status().code(), StatusCode::kFailedPrecondition)
        << "one writer at a time";
  }
  EXPECT_EQ(open(config, 1), StatusCode::kOk) << "the memory outlives its writer";
  EXPECT_EQ(open(config, 2), StatusCode::kInvalidArgument) << "no such seat";
  FenceConfig other = config;
  other.pools[0].pages = 65;
  EXPECT_EQ(open(other, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(other, 8192).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(config, 4096).status().code(), StatusCode::kInvalidArgument) << "another size";
  Result<SharedRegion> region = SharedRegion::Map(names.journal, true);
  ASSERT_TRUE(region.ok());
  *static_cast<uint64_t*>(region->data()) ^= 1;  // the magic
  EXPECT_EQ(open(config, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(config, 8192).status().code(), StatusCode::kInvalidArgument);
  *static_cast<uint64_t*>(region->data()) = 0;  // its maker died before it was whole
  EXPECT_EQ(open(config, 0), StatusCode::kUnavailable);
  EXPECT_TRUE(create(config, 8192).ok());
  EXPECT_EQ(open(config, 0), StatusCode::kOk);
}

TEST(JournalWire, FingerprintsTellConfigurationsApart) {
  const FenceConfig config = SceneConfig();
  std::vector<FenceConfig> all(8, config);
  all[1].rows = 5;
  all[2].pools[0].page_size = 32;
  all[3].pools[0].name = "other";
  all[4].pools[0].skip_slot = -1;
  all[5].disabled = Reason::kRowTail;
  all[6].pools.push_back(config.pools[0]);
  all[7].policy = Policy::kLog;
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = 0; b < all.size(); ++b) {
      EXPECT_EQ(WireFingerprint(all[a]) == WireFingerprint(all[b]), a == b) << a << ' ' << b;
    }
  }
}

TEST(JournalWire, APlanArrivesAsItWasSent) {
  StepPlan plan;
  for (uint32_t i = 0; i < 3; ++i) {
    RowTask row{};
    row.request = 7 + i;
    row.row = i;
    plan.rows.push_back(row);
    PoolTask task{};
    task.row_task = i;
    task.late_end = i;
    plan.pool_tasks.push_back(task);
    plan.write_stamps.push_back(MakeStamp(i + 1, i));
    plan.late_pages.push_back(kLateAtConfirm | i);
  }
  plan.group_count = 2;
  plan.work = 9;
  JournalBatch batch;
  batch.sequence = 4;
  batch.step = 5;
  batch.snapshot = true;
  batch.deltas.resize(2);
  batch.checksum = batch.ComputeChecksum();
  std::vector<uint64_t> words;
  EncodeFrame(11, batch, &plan, &words);
  JournalFrame frame;
  ASSERT_TRUE(DecodeFrame(words, &frame));
  EXPECT_EQ(frame.boot, 11u);
  EXPECT_TRUE(frame.has_plan);
  EXPECT_TRUE(frame.batch.Intact());
  EXPECT_TRUE(frame.batch.snapshot);
  EXPECT_EQ(frame.batch.sequence, 4u);
  EXPECT_EQ(frame.batch.step, 5u);
  EXPECT_EQ(frame.plan.group_count, 2u);
  EXPECT_EQ(frame.plan.work, 9u);
  ASSERT_EQ(frame.plan.rows.size(), 3u);
  ASSERT_EQ(frame.plan.pool_tasks.size(), 3u);
  EXPECT_EQ(frame.plan.rows[2].request, 9u);
  EXPECT_EQ(frame.plan.pool_tasks[2].late_end, 2u);
  EXPECT_EQ(frame.plan.write_stamps, plan.write_stamps);
  EXPECT_EQ(frame.plan.late_pages, plan.late_pages);

  EncodeFrame(11, batch, nullptr, &words);
  ASSERT_TRUE(DecodeFrame(words, &frame));
  EXPECT_FALSE(frame.has_plan);
  EXPECT_TRUE(frame.plan.rows.empty());
  for (size_t n = 0; n < words.size(); ++n) {
    EXPECT_FALSE(DecodeFrame(std::span(words).first(n), &frame)) << n << " words of it";
  }
}

}  // namespace
}  // namespace kvfence::testing
