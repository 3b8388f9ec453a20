// The board: a row is clean only if each rank's finished line of this boot and step says so (I-93).
#include "kvfence/verdict_board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kvfence/rng.h"
#include "tests/tracker/shared_scene.h"

namespace kvfence::testing {
namespace {

constexpr uint32_t kUnverified = ReasonBit(Reason::kUnverified);
constexpr uint64_t kBoot = 77;

std::vector<VerdictWord> Words(uint64_t step, const std::vector<uint32_t>& masks) {
  std::vector<VerdictWord> words;
  for (const uint32_t mask : masks) words.push_back(MakeVerdict(step, mask));
  return words;
}

class BoardTest : public ::testing::Test {
 protected:
  BoardTest() { Make({.slots = 4, .probe = {}}); }

  void Make(VerdictBoardOptions options) {
    board_.reset();
    ASSERT_TRUE(VerdictBoard::Remove(names_.board).ok());
    auto made = VerdictBoard::Create(names_.board, config_, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().message();
    board_ = std::move(*made);
  }
  void Post(uint32_t rank, uint64_t step, const std::vector<uint32_t>& masks,
            uint64_t boot = kBoot) {
    ASSERT_TRUE(board_->Post(boot, RankId(rank), StepId(step), Words(step, masks)).ok());
  }
  BoardReading Read(uint64_t step, uint32_t rows) {
    return board_->Read(kBoot, StepId(step), rows);
  }
  void ExpectSilent(uint64_t step, uint32_t rank, const char* why) {
    const BoardReading reading = Read(step, 2);
    EXPECT_FALSE(reading.complete()) << why;
    ASSERT_EQ(reading.silent.size(), 1u) << why;
    EXPECT_EQ(reading.silent[0], RankId(rank)) << why;
    for (const uint32_t mask : reading.reasons) EXPECT_EQ(mask & kUnverified, kUnverified) << why;
  }

  const FenceConfig config_ = SceneConfig(2);
  SharedNames names_;
  std::unique_ptr<VerdictBoard> board_;
};

TEST_F(BoardTest, AStepIsWhatAllRanksSayTogether) {
  Post(0, 5, {0, ReasonBit(Reason::kTagMismatch), 0});
  Post(1, 5, {0, ReasonBit(Reason::kRowTail), ReasonBit(Reason::kPadRow)});
  const BoardReading reading = Read(5, 3);
  EXPECT_TRUE(reading.complete());
  EXPECT_EQ(reading.reasons,
            (std::vector<uint32_t>{0, ReasonBit(Reason::kTagMismatch) | ReasonBit(Reason::kRowTail),
                                   ReasonBit(Reason::kPadRow)}));
}

TEST_F(BoardTest, I93AMissingRankLeavesEveryRowUnverified) {
  Post(0, 5, {0, 0});
  ExpectSilent(5, 1, "never posted");
  Post(1, 5, {0, 0});
  EXPECT_TRUE(Read(5, 2).complete());
}

TEST_F(BoardTest, I93AnotherStepsLineCountsForNothing) {
  Post(0, 5, {0, 0});
  Post(1, 1, {0, 0});  // the same slot
  ExpectSilent(5, 1, "an older step");
  Post(1, 9, {0, 0});
  ExpectSilent(5, 1, "a newer step: that rank ran ahead");
  // Low halves of step numbers repeat; the line's step doesn't.
  Post(1, 5 + (uint64_t{1} << 32), {0, 0});
  ExpectSilent(5, 1, "4 billion steps later");
}

TEST_F(BoardTest, I93AnotherBootsLineCountsForNothing) {
  Post(0, 5, {0, 0});
  Post(1, 5, {0, 0}, kBoot + 1);
  ExpectSilent(5, 1, "another boot");
}

TEST_F(BoardTest, I93AnotherNumberOfRowsCountsForNothing) {
  Post(0, 5, {0, 0});
  Post(1, 5, {0, 0, 0});
  ExpectSilent(5, 1, "more rows");
  Post(1, 5, {0});
  ExpectSilent(5, 1, "fewer rows");
}

TEST_F(BoardTest, I93AWordOfAnotherStepIsUnverified) {
  Post(0, 5, {0, 0});
  std::vector<VerdictWord> words = Words(5, {0, 0});
  words[1] = MakeVerdict(4, 0);  // as a device leaves it that never ran
  ASSERT_TRUE(board_->Post(kBoot, RankId(1), StepId(5), words).ok());
  const BoardReading reading = Read(5, 2);
  EXPECT_EQ(reading.reasons, (std::vector<uint32_t>{0, kUnverified}));
}

TEST_F(BoardTest, I93AHalfWrittenLineCountsForNothing) {
  std::optional<BoardPoint> die;
  struct Died {};
  Make({.slots = 4, .probe = [&](BoardPoint point) {
          if (point == die) throw Died();
        }});
  for (const BoardPoint point :
       {BoardPoint::kOpened, BoardPoint::kHalfWritten, BoardPoint::kWritten}) {
    die.reset();
    Post(0, 5, {0, 0});
    Post(1, 5, {0, 0});
    EXPECT_TRUE(Read(5, 2).complete());
    die = point;
    EXPECT_THROW({ (void)board_->Post(kBoot, RankId(1), StepId(5), Words(5, {0, 0})); }, Died);
    die.reset();
    ExpectSilent(5, 1, "being written");
    Post(1, 9, {0, 0});  // its successor finds the line open
    ExpectSilent(5, 1, "written anew");
    Post(0, 9, {0, 0});
    EXPECT_TRUE(Read(9, 2).complete());
  }
}

TEST_F(BoardTest, I93ALineThatChangesWhileItIsReadCountsForNothing) {
  int reads = 0;  // of lines: rank 0's, then rank 1's
  Make({.slots = 4, .probe = [&](BoardPoint point) {
          if (point == BoardPoint::kReading && ++reads == 2) Post(1, 5, {0, 0});
        }});
  Post(0, 5, {0, 0});
  Post(1, 5, {0, 0});
  ExpectSilent(5, 1, "posted again under the reading");
  EXPECT_TRUE(Read(5, 2).complete());
}

TEST_F(BoardTest, TellsWhatIsWrong) {
  const auto open = [&](const FenceConfig& config, uint64_t slots = 4) {
    return VerdictBoard::Open(names_.board, config, {.slots = slots, .probe = {}}).status().code();
  };
  EXPECT_EQ(open(config_), StatusCode::kOk);
  EXPECT_EQ(open(config_, 8), StatusCode::kInvalidArgument);
  FenceConfig swapped = config_;  // of the same size in bytes
  swapped.ranks = 4;
  EXPECT_EQ(open(swapped, 2), StatusCode::kInvalidArgument);
  EXPECT_EQ(VerdictBoard::Create(names_.board, config_, {.slots = 4, .probe = {}}).status().code(),
            StatusCode::kFailedPrecondition)
      << "one decider at a time";
  EXPECT_EQ(board_->Post(kBoot, RankId(2), StepId(1), {}).code(), StatusCode::kInvalidArgument);
  const std::vector<VerdictWord> many(kSceneRows + 1);
  EXPECT_EQ(board_->Post(kBoot, RankId(0), StepId(1), many).code(), StatusCode::kInvalidArgument);
  board_.reset();
  EXPECT_EQ(open(config_), StatusCode::kOk) << "the memory outlives its decider";
  EXPECT_EQ(VerdictBoard::Create(names_.board, config_, {.slots = 8, .probe = {}}).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(VerdictBoard::Remove(names_.board).ok());
  EXPECT_EQ(open(config_), StatusCode::kUnavailable);
  EXPECT_EQ(VerdictBoard::Create(names_.board, config_, {.slots = 0, .probe = {}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(BoardTest, AwaitReadsAtLeastOnceAndNoLongerThanAsked) {
  Post(0, 5, {0, 0});
  const auto past = std::chrono::steady_clock::now();
  EXPECT_FALSE(board_->Await(kBoot, StepId(5), 2, past).complete());
  Post(1, 5, {0, 0});
  EXPECT_TRUE(board_->Await(kBoot, StepId(5), 2, past).complete());
}

// What rank r finds in row i of a step.
uint32_t MaskOf(uint32_t rank, uint64_t step, uint32_t row) {
  return static_cast<uint32_t>(Mix64(step * 64 + rank * 8 + row)) & ~kUnverified;
}

// Ranks post as fast as they can, the decider reads whatever is there: a complete reading is
// exactly what the ranks said of that step.
TEST_F(BoardTest, I93ReadingsAreOfOneStepWhileRanksPost) {
  constexpr uint64_t kSteps = 3000;
  constexpr uint32_t kRows = kSceneRows;
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      for (uint64_t step = 1; step <= kSteps; ++step) {
        std::vector<VerdictWord> words;
        for (uint32_t i = 0; i < kRows; ++i) {
          words.push_back(MakeVerdict(step, MaskOf(rank, step, i)));
        }
        ASSERT_TRUE(board_->Post(kBoot, RankId(rank), StepId(step), words).ok());
        if (step % 16 == 0) std::this_thread::yield();
      }
    });
  }
  uint64_t complete = 0;
  Rng rng(1);
  for (uint64_t step = 1;;) {
    const BoardReading reading = Read(step, kRows);
    for (uint32_t i = 0; i < kRows; ++i) {
      if (!reading.complete()) {
        ASSERT_NE(reading.reasons[i] & kUnverified, 0u);
      } else {
        ASSERT_EQ(reading.reasons[i], MaskOf(0, step, i) | MaskOf(1, step, i)) << "step " << step;
      }
    }
    complete += reading.complete();
    if (step == kSteps && reading.complete()) break;
    step = std::min(kSteps, step + rng.Below(3));
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_GE(complete, 1u);
}

}  // namespace
}  // namespace kvfence::testing
