// Each check is needed: taken out, some kind that it answers gets through, or is ended for another
// reason than it should; and the report says which answer never came.
//
// A campaign's run is played alone: each kind has one in each round. One is looked for in which the
// reason answers, and played again without that check.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "faultinject/campaign_plan.h"
#include "kvfence/fault_kind.h"
#include "tests/faultinject/campaign_kit.h"
#include "tests/model/cases.h"

namespace kvfence::testing {
namespace {

constexpr uint64_t kRounds = 60;

CampaignConfig OfKind(const FaultKind& kind) {
  return Small(2, 24 * (kRounds + 1), {std::string(kind.name)});
}
std::string NeverAnswered(const FaultKind& kind, Reason reason) {
  return std::string(kind.name) + ": never answered by " + std::string(ReasonName(reason));
}
bool Says(const CampaignReport& report, const std::string& what) {
  return std::ranges::find(report.missing, what) != report.missing.end();
}

// The first run of the kind in which the reason answers, and all is green.
std::optional<uint64_t> AnsweredIn(const FaultKind& kind, Reason reason) {
  CampaignConfig config = OfKind(kind);
  const CampaignPlan plan = CampaignPlan::Make(config).value();
  uint64_t rounds = 0;
  for (uint64_t number = 1; rounds < kRounds; ++number) {
    const std::optional<PlannedRun> run = plan.At(number);
    if (!run) break;
    if (!run->faulty()) continue;
    ++rounds;
    config.only = number;
    const CampaignReport report = MustRun(config);
    EXPECT_TRUE(report.green) << kind.name << ", run " << number << "\n" << Why(report);
    if (!Says(report, NeverAnswered(kind, reason))) return number;
  }
  return std::nullopt;
}

// Without these another check answers each of their kinds in time (what the books say at once, the
// tag or the stamp says in the next step), or there is nothing to be read that is wrong (records of
// the fence's own, and pages that nobody holds): the answer that never comes is what is left.
constexpr CheckSet kOthersStandIn = CheckSet(Reason::kScaleMismatch) + Reason::kRowEpoch +
                                    Reason::kStaleIndexEntry + Reason::kDoubleFree +
                                    Reason::kIssuedWhileHeld + Reason::kInFlight +
                                    Reason::kCopyRaced + Reason::kConservation;

class EachCheck : public ::testing::TestWithParam<Reason> {};

TEST_P(EachCheck, IsMissedWhereItIsTakenOut) {
  if (kThreadSanitizer) GTEST_SKIP() << "one thread, and a hundred times as long";
  const Reason reason = GetParam();
  uint64_t red = 0;
  for (const FaultKind& kind : FaultKinds()) {
    if (!kind.reasons.Has(reason)) continue;
    const std::optional<uint64_t> number = AnsweredIn(kind, reason);
    ASSERT_TRUE(number.has_value()) << NeverAnswered(kind, reason);
    CampaignConfig config = OfKind(kind);
    config.only = number;
    config.disabled = CheckSet(reason);
    const CampaignReport report = MustRun(config);
    EXPECT_TRUE(Says(report, NeverAnswered(kind, reason)));
    EXPECT_FALSE(report.complete);
    red += report.green ? 0 : 1;
  }
  if (!kOthersStandIn.Has(reason)) {
    EXPECT_GT(red, 0u);
  }
}

std::vector<Reason> Declared() {
  std::vector<Reason> reasons;
  for (int r = 0; r < kReasonCount; ++r) {
    const auto reason = static_cast<Reason>(r);
    if (std::ranges::any_of(FaultKinds(),
                            [&](const FaultKind& k) { return k.reasons.Has(reason); }))
      reasons.push_back(reason);
  }
  return reasons;
}
TEST(EachCheckTest, EveryReasonIsDeclaredBySomeKind) {
  EXPECT_EQ(Declared().size(), static_cast<size_t>(kReasonCount));
}

// A campaign that is to be complete goes on for an answer that never comes, gives up, and is red.
TEST(EachCheckTest, ACompleteCampaignWithoutACheckIsRedAndSaysWhatNeverCame) {
  for (const bool disabled : {false, true}) {
    CampaignConfig config = Small(1, 24, {"page_lost"});
    config.until_complete = true;
    if (disabled) config.disabled = CheckSet(Reason::kConservation);
    const CampaignReport report = MustRun(config);
    EXPECT_EQ(report.green, !disabled) << Why(report);
    const std::string why = "page_lost: conservation never answered in ";
    EXPECT_EQ(Why(report).starts_with(why), disabled) << Why(report);
    EXPECT_EQ(Says(report, NeverAnswered(*FindFaultKind("page_lost"), Reason::kConservation)),
              disabled);
    EXPECT_GE(report.faults[0].activated, 300u);
  }
}

INSTANTIATE_TEST_SUITE_P(Campaign, EachCheck, ::testing::ValuesIn(Declared()),
                         [](const auto& info) { return std::string(ReasonName(info.param)); });

}  // namespace
}  // namespace kvfence::testing
