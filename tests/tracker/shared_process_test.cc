// Scheduler and workers in processes of their own, killed at named points: what can't be vouched
// for is unverified on every side, and nothing of another life is taken for this one's (I-90 to
// I-93).
#include <gtest/gtest.h>

#include <csignal>
#include <optional>

#include "tests/tracker/child_process.h"
#include "tests/tracker/shared_scene.h"

namespace kvfence::testing {
namespace {

constexpr uint32_t kUnverified = ReasonBit(Reason::kUnverified);
constexpr uint64_t kSmallRing = 4096;
SharedJournalOptions SmallRing() { return {.ring_bytes = kSmallRing, .probe = {}}; }

// A worker's life: opens the memory when the first message says that it's there, answers each.
int WorkerLife(Line& line, const SharedNames& names, const FenceConfig& config, uint32_t rank,
               SharedJournalReaderOptions reader = {}, VerdictBoardOptions board = {}) {
  std::optional<Worker> worker;
  StepMessage message;
  while (line.Receive(&message)) {
    if (!worker) worker.emplace(names, config, rank, reader, board);
    if (!line.Send(worker->Step(message))) return 1;
  }
  return 0;
}

std::optional<Answer> Ask(Child& worker, const StepMessage& message) {
  Answer answer;
  if (!worker.line().Send(message) || !worker.line().Receive(&answer)) return {};
  return answer;
}

void ExpectClean(const std::optional<Answer>& answer, const StepMessage& message) {
  ASSERT_TRUE(answer) << "the worker is gone";
  EXPECT_EQ(answer->state, JournalState::kFollowing);
  for (uint32_t i = 0; i < message.rows; ++i) EXPECT_EQ(answer->reasons[i], 0u);
}

void ExpectUnverified(const std::optional<Answer>& answer, const StepMessage& message,
                      JournalState state) {
  ASSERT_TRUE(answer) << "the worker is gone";
  EXPECT_EQ(answer->state, state);
  for (uint32_t i = 0; i < message.rows; ++i) {
    EXPECT_EQ(answer->reasons[i], kUnverified);
    EXPECT_EQ(answer->first_entry[i], 0) << "harmless";
    EXPECT_LT(answer->first_slot[i], 0);
  }
}

TEST(SharedProcess, TwoRanksJudgeAndTheSchedulerDecides) {
  const FenceConfig config = SceneConfig(2);
  const SharedNames names;
  Child first([&](Line& line) { return WorkerLife(line, names, config, 0); });
  Child second([&](Line& line) { return WorkerLife(line, names, config, 1); });
  Scheduler scheduler(names, config);
  scheduler.Begin(1, 0, {5, 6});
  scheduler.Begin(2, 3, {7, 8});
  for (uint64_t step = 1; step < 8; ++step) {
    const uint32_t tokens = step == 1 ? 20 : 1;
    const StepMessage message = scheduler.Run(step, {{1, tokens}, {2, tokens}});
    ExpectClean(Ask(first, message), message);
    ExpectClean(Ask(second, message), message);
    EXPECT_TRUE(scheduler.Published(step));
  }
  // One rank's table is wrong: that row ends everywhere, the other goes on.
  StepMessage message = scheduler.Run(8, {{1, 1}, {2, 1}});
  ExpectClean(Ask(first, message), message);
  message.row[0].table[0] = 7;
  const std::optional<Answer> answer = Ask(second, message);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reasons[0], ReasonBit(Reason::kPageMismatch));
  EXPECT_EQ(answer->reasons[1], 0u);
  const std::vector<LaunchedRow> rows = scheduler.Settle(8);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].reasons, CheckSet(Reason::kPageMismatch));
  EXPECT_TRUE(rows[1].reasons.empty());
}

// --- the writer is killed ------------------------------------------------------------------------

// A scheduler's life: steps of request 1, each message sent, each verdict settled; in step 3 it
// dies inside the append, at `point`, after the step message has overtaken the batch.
int SchedulerLife(Line& line, const SharedNames& names, const FenceConfig& config,
                  std::optional<WritePoint> point) {
  bool armed = false;
  Scheduler scheduler(names, config, {.ring_bytes = kSmallRing, .probe = [&](WritePoint reached) {
                                        if (armed && reached == *point) KillSelf();
                                      }});
  scheduler.Begin(1, 0, {5, 6});
  for (uint64_t step = 1; step <= 3; ++step) {
    const StepMessage message = scheduler.Launch(step, {{1, step == 1 ? 20u : 1u}});
    armed = point.has_value() && step == 3;
    if (armed && !line.Send(message)) return 1;
    scheduler.Append();
    if (!line.Send(message)) return 1;
    char judged;
    if (!line.Receive(&judged) || !line.Send(scheduler.Published(step))) return 1;
  }
  return 0;
}

// Plays a scheduler's life to its end; whether all of it was published.
bool PlayToEnd(Child& scheduler, std::optional<Worker>& worker, const SharedNames& names,
               const FenceConfig& config, uint64_t steps, StepMessage* last) {
  for (uint64_t step = 1; step <= steps; ++step) {
    if (!scheduler.line().Receive(last)) return false;
    if (!worker) worker.emplace(names, config, 0);
    ExpectClean(worker->Step(*last), *last);
    bool published = false;
    if (!scheduler.line().Send('j') || !scheduler.line().Receive(&published)) return false;
    if (!published) return false;
  }
  return true;
}

class KilledWriter : public ::testing::TestWithParam<WritePoint> {};

TEST_P(KilledWriter, I90LeavesNoHalfBatchAndItsSuccessorIsANewBoot) {
  const FenceConfig config = SceneConfig();
  const SharedNames names;
  std::optional<Worker> worker;
  StepMessage message{};
  Child scheduler([&](Line& line) { return SchedulerLife(line, names, config, GetParam()); });
  ASSERT_TRUE(PlayToEnd(scheduler, worker, names, config, 2, &message));
  ASSERT_TRUE(scheduler.line().Receive(&message));
  ASSERT_EQ(message.step, 3u);
  ASSERT_EQ(scheduler.Wait(), -SIGKILL);
  if (GetParam() == WritePoint::kCommitted) {
    ExpectClean(worker->Step(message), message);  // the batch is whole; nobody settles the step
  } else {
    ExpectUnverified(worker->Step(message), message, JournalState::kBehind);
    ExpectUnverified(worker->Step(message), message, JournalState::kBehind);
  }

  const StepMessage dead = message;
  Child successor([&](Line& line) { return SchedulerLife(line, names, config, std::nullopt); });
  ASSERT_TRUE(PlayToEnd(successor, worker, names, config, 3, &message));
  EXPECT_NE(message.at.boot, dead.at.boot);
  ExpectUnverified(worker->Step(dead), dead, JournalState::kNoBoot);
  EXPECT_EQ(successor.Wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Points, KilledWriter,
                         ::testing::Values(WritePoint::kReserved, WritePoint::kHalfWritten,
                                           WritePoint::kWritten, WritePoint::kCommitted));

// --- a worker is killed --------------------------------------------------------------------------

// Where it dies: copying step 3's batch, or posting step 3's verdicts.
enum class Death { kCopying, kPosting };

class KilledWorker : public ::testing::TestWithParam<Death> {};

TEST_P(KilledWorker, I92ItsSuccessorIsUnverifiedUntilTheNextBoot) {
  const FenceConfig config = SceneConfig(2);
  const SharedNames names;
  Child mate([&](Line& line) { return WorkerLife(line, names, config, 0); });
  Child worker([&](Line& line) {
    int copies = 0;
    int posts = 0;
    SharedJournalReaderOptions reader;
    VerdictBoardOptions board;
    if (GetParam() == Death::kCopying) {
      reader.probe = [&] {
        if (++copies == 3) KillSelf();
      };
    } else {
      board.probe = [&](BoardPoint point) {
        if (point == BoardPoint::kHalfWritten && ++posts == 3) KillSelf();
      };
    }
    return WorkerLife(line, names, config, 1, reader, board);
  });
  Child successor([&](Line& line) { return WorkerLife(line, names, config, 1); });
  std::optional<Scheduler> scheduler(std::in_place, names, config, SmallRing());
  scheduler->Begin(1, 0, {5, 6});
  scheduler->Begin(3, 2, {9, 10});
  for (uint64_t step = 1; step <= 2; ++step) {
    const StepMessage message = scheduler->Run(step, {{1, step == 1 ? 20u : 1u}});
    ExpectClean(Ask(mate, message), message);
    ExpectClean(Ask(worker, message), message);
    ASSERT_TRUE(scheduler->Published(step));
  }
  StepMessage message = scheduler->Run(3, {{1, 1}, {3, 4}});
  ExpectClean(Ask(mate, message), message);
  EXPECT_FALSE(Ask(worker, message)) << "dead";
  EXPECT_EQ(worker.Wait(), -SIGKILL);
  for (const LaunchedRow& row : scheduler->Settle(3)) {
    EXPECT_EQ(row.reasons, CheckSet(Reason::kUnverified)) << "one rank's word is missing";
  }

  scheduler->Begin(4, 3, {12});  // nothing of it was there before
  message = scheduler->Run(4, {{4, 4}});
  ExpectClean(Ask(mate, message), message);
  ExpectUnverified(Ask(successor, message), message, JournalState::kSeatTaken);
  EXPECT_FALSE(scheduler->Published(4));
  ASSERT_TRUE(scheduler->Snapshot(4));
  scheduler->Begin(5, 1, {13});
  message = scheduler->Run(5, {{5, 4}});
  ExpectClean(Ask(mate, message), message);
  ExpectUnverified(Ask(successor, message), message, JournalState::kSeatTaken);
  EXPECT_FALSE(scheduler->Published(5));

  // The engine starts anew: a new ledger, all ranks, the old numbers.
  scheduler.reset();
  scheduler.emplace(names, config, SmallRing());
  scheduler->Begin(1, 0, {5, 6});
  message = scheduler->Run(1, {{1, 20}});
  EXPECT_FALSE(scheduler->board().Read(scheduler->boot(), StepId(1), 1).complete())
      << "the words of the old step 1 are still there, and count for nothing";
  ExpectClean(Ask(mate, message), message);
  ExpectClean(Ask(successor, message), message);
  EXPECT_TRUE(scheduler->Published(1));
}

INSTANTIATE_TEST_SUITE_P(Deaths, KilledWorker, ::testing::Values(Death::kCopying, Death::kPosting));

// --- a worker sleeps -----------------------------------------------------------------------------

TEST(SharedProcess, AWorkerThatLagsBeyondTheRingIsUnverifiedUntilASnapshot) {
  const FenceConfig config = SceneConfig();
  const SharedNames names;
  Child worker([&](Line& line) { return WorkerLife(line, names, config, 0); });
  Scheduler scheduler(names, config, SmallRing());
  scheduler.Begin(1, 0, {5, 6});
  scheduler.Begin(3, 2, {9, 10});
  StepMessage message = scheduler.Run(1, {{1, 20}, {3, 20}});
  ExpectClean(Ask(worker, message), message);
  ASSERT_TRUE(scheduler.Published(1));
  uint64_t step = 2;
  for (; step < 50; ++step) {  // the writer doesn't wait, and nothing of it is published
    scheduler.Begin(2, 1, {20});
    scheduler.Run(step, {{2, 4}});
    EXPECT_FALSE(scheduler.Published(step));
    scheduler.End(2);
  }
  message = scheduler.Run(step, {{1, 1}});
  ExpectUnverified(Ask(worker, message), message, JournalState::kOverrun);
  EXPECT_FALSE(scheduler.Published(step++));
  ASSERT_TRUE(scheduler.Snapshot(step - 1));
  message = scheduler.Run(step, {{3, 1}});
  ExpectClean(Ask(worker, message), message);
  EXPECT_TRUE(scheduler.Published(step));
}

// The decider waits for a rank no longer than it wants to, and finds what was posted meanwhile.
TEST(SharedProcess, AwaitFindsAVerdictThatComesLate) {
  const FenceConfig config = SceneConfig();
  const SharedNames names;
  Child worker([&](Line& line) { return WorkerLife(line, names, config, 0); });
  Scheduler scheduler(names, config);
  scheduler.Begin(1, 0, {5, 6});
  const StepMessage message = scheduler.Run(1, {{1, 20}});
  ASSERT_TRUE(worker.line().Send(message));
  const BoardReading reading = scheduler.board().Await(
      scheduler.boot(), StepId(1), 1, std::chrono::steady_clock::now() + std::chrono::minutes(1));
  EXPECT_TRUE(reading.complete());
  EXPECT_EQ(reading.reasons[0], 0u);
  EXPECT_TRUE(scheduler.Published(1));
}

}  // namespace
}  // namespace kvfence::testing
