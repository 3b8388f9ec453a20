// Every interleaving of the small world: no wrong token, no false alarm, and the faults bite.
#include "kvfence/explore.h"

#include <gtest/gtest.h>

#include "faultinject/small_world.h"

namespace kvfence {
namespace {

// `kvfence explore` goes deeper; this is enough for a wrong token (a page goes, comes to the other,
// is written, is read, is published), and for sanitizers to have an end.
constexpr uint64_t kDepth = 12;
uint64_t DepthToBite(SmallFault fault) { return fault == SmallFault::kLateWrite ? 16 : kDepth; }

std::string NameOf(const ::testing::TestParamInfo<int>& info) {
  return std::string(SmallFaultName(static_cast<SmallFault>(info.param)));
}

TEST(Explore, WithoutAFaultNothingIsReportedInAnyInterleaving) {  // I-123
  const Exploration all = Explore(SmallFault::kNone, {.depth = 13});
  EXPECT_EQ(all.reported, 0u) << all.first_report;
  EXPECT_EQ(all.wrong_published, 0u) << all.first_wrong;
  EXPECT_EQ(all.refusals, 0u);
  EXPECT_EQ(all.ended_by_fence, 0u);
  EXPECT_GE(all.finished, 1u);
  EXPECT_GT(all.states, 1000u);
}

class EachSmallFault : public ::testing::TestWithParam<int> {};

// Without the fence some interleaving publishes a wrong token; with it none does.
TEST_P(EachSmallFault, IsCaughtInEveryInterleaving) {  // I-123
  const auto fault = static_cast<SmallFault>(GetParam());
  const Exploration on = Explore(fault, {.depth = kDepth});
  EXPECT_EQ(on.wrong_published, 0u) << on.first_wrong;
  EXPECT_GT(on.faulted, 10u);
  EXPECT_GT(on.reported, 0u);
  EXPECT_GT(on.ended_by_fence, 0u);
  EXPECT_EQ(on.refusals, 0u);
  const Exploration off = Explore(fault, {.depth = DepthToBite(fault), .fence = false});
  EXPECT_GT(off.wrong_published, 0u);
  EXPECT_FALSE(off.first_wrong.empty());
}
INSTANTIATE_TEST_SUITE_P(Explore, EachSmallFault, ::testing::Range(1, kSmallFaultCount), NameOf);

// What it found first: B gets A's page while A's step runs, a transfer brings B's content there,
// and the step's write comes last.
TEST(Explore, APageThatARunningStepStillWritesIsntReadByItsNextHolder) {  // I-80
  for (const bool fence : {false, true}) {
    SmallWorld world(SmallFault::kIssueHeld, fence);
    for (const Move move :
         {Move::kStartA, Move::kFaultB, Move::kLaunch, Move::kStartB, Move::kTransferWrites,
          Move::kAttend, Move::kConfirm, Move::kRetire, Move::kTransferEnds, Move::kGrowB,
          Move::kLaunch, Move::kAttend, Move::kConfirm, Move::kRetire}) {
      world.Make(move);
    }
    EXPECT_EQ(world.wrong_published() == 0, fence);
  }
}

// Following equal worlds once loses none.
TEST(Explore, MergingEqualWorldsLosesNone) {
  for (const SmallFault fault : {SmallFault::kNone, SmallFault::kFreeHeld}) {
    const Exploration merged = Explore(fault, {.depth = 8});
    const Exploration all = Explore(fault, {.depth = 8, .merge = false});
    EXPECT_EQ(merged.states, all.states);
    EXPECT_GT(all.sequences, merged.sequences);
    EXPECT_EQ(merged.reported, all.reported);
    EXPECT_EQ(merged.reasons.mask(), all.reasons.mask());
  }
}

}  // namespace
}  // namespace kvfence
