// Which fault an observation belongs to, and the outcome that follows, by feeds made by hand.
#include "faultinject/fault_watch.h"

#include <gtest/gtest.h>

#include "faultinject/campaign_verdict.h"
#include "stage.h"

namespace kvfence::testing {
namespace {

constexpr CheckSet kExpected = CheckSet(Reason::kTagMismatch) + Reason::kFreedWhileHeld;

RowOutcome Published(RequestIndex request, bool wrong) {
  return {.row = Row(0),
          .request = request,
          .raw_wrong = wrong,
          .sampled = true,
          .published = true,
          .token_wrong = wrong};
}
RowOutcome Ended(RequestIndex request, Reason reason, bool raw_wrong) {
  return {.row = Row(0),
          .request = request,
          .raw_wrong = raw_wrong,
          .sampled = true,
          .reasons = CheckSet(reason)};
}

class FaultWatchTest : public ::testing::Test {
 protected:
  FaultWatchTest() {
    stage.held[1] = {PageId(3)};
    stage.held[2] = {PageId(4)};
    watch.SetStep(10);
  }
  void Feed(const RowOutcome& row) { watch.OnStep({.step = StepId(10), .rows = {&row, 1}}); }
  Outcome OutcomeOf(size_t fault) const { return JudgeOutcome(watch.EvidenceOf(fault)); }

  Stage stage;
  FaultWatch watch{{{kExpected}}, 5};
};

TEST_F(FaultWatchTest, NothingSeenIsBenign) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  EXPECT_EQ(OutcomeOf(0), Outcome::kBenign);
  Feed(Published(1, false));
  EXPECT_EQ(OutcomeOf(0), Outcome::kBenign);
}

TEST_F(FaultWatchTest, EndedBeforeAWrongReadIsEarlyAfterOneIsPrevented) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  Feed(Ended(1, Reason::kTagMismatch, false));
  EXPECT_EQ(OutcomeOf(0), Outcome::kEarly);
  Feed(Ended(1, Reason::kTagMismatch, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
}

TEST_F(FaultWatchTest, WrongTokenIsMissedAndLateOnceReported) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  Feed(Published(1, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kMissed);
  Feed(Ended(1, Reason::kTagMismatch, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kLate);
}

TEST_F(FaultWatchTest, AnUnreportedWrongReadIsMissedThoughItsTokenNeverLeft) {
  watch.Begin(stage, {.text = "", .requests = {1}});
  RowOutcome row = Published(1, true);
  row.published = false;
  row.withdrawn = true;
  Feed(row);
  EXPECT_EQ(OutcomeOf(0), Outcome::kMissed);
}

TEST_F(FaultWatchTest, AReportBelongsToWhomTheRequestIsAffectedByNotToAPageThatWasFreeSince) {
  stage.held[3] = {PageId(5)};
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});  // request 1's
  watch.Begin(stage, {.text = "", .pages = {PageId(5)}});  // request 3's, which ends
  stage.held.erase(3);
  stage.free = {PageId(5)};
  watch.SetStep(11);
  watch.StepDone(stage);
  stage.free.clear();
  stage.held[1].push_back(PageId(5));
  Violation v;
  v.reason = Reason::kNotCommitted;  // follows from the first fault
  v.pool = 0;
  v.page = 5;
  v.req = RequestId(NameId(2), 1);
  watch.Name(NameId(2), 1);
  watch.OnViolation(v);
  EXPECT_FALSE(watch.faults()[1].evidence.reported);
  EXPECT_TRUE(watch.faults()[0].evidence.reported);
}

TEST_F(FaultWatchTest, ConsequencesBelongToTheFaultThatWasAnswered) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  Feed(Ended(2, Reason::kTagMismatch, false));  // answers the first fault, by whatever row
  stage.held[1].push_back(PageId(4));
  watch.Begin(stage, {.text = "", .requests = {1}});
  Feed(Ended(1, Reason::kNotCommitted, true));
  EXPECT_TRUE(watch.faults()[0].evidence.wrong_read);
  EXPECT_EQ(OutcomeOf(1), Outcome::kBenign);
  Feed(Ended(1, Reason::kTagMismatch, true));
  EXPECT_EQ(OutcomeOf(1), Outcome::kPrevented) << "a declared reason is the latest fault's";
}

TEST_F(FaultWatchTest, WhoHoldsAPageThatAnEndedRowWasToWriteIsAffectedBeforeItEnds) {
  stage.held[2] = {PageId(4), PageId(3)};
  StepRow writer{.row = Row(0), .request = 1, .new_tokens = 4, .covered = 1};
  stage.step_rows = {writer};
  watch.StepBegins(stage);
  watch.Begin(stage, {.text = "", .requests = {1}});
  const RowOutcome ended = Ended(1, Reason::kTagMismatch, true);
  watch.OnStep({.step = StepId(0), .rows = {&ended, 1}});
  EXPECT_FALSE(watch.faults()[0].Affects(2));
  watch.StepDone(stage);
  EXPECT_TRUE(watch.faults()[0].Affects(2));
}

TEST_F(FaultWatchTest, ABystandersEndIsCollateral) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  Feed(Ended(2, Reason::kTagMismatch, false));
  EXPECT_EQ(OutcomeOf(0), Outcome::kCollateral);
}

TEST_F(FaultWatchTest, OnlyUndeclaredReasonsAreCollateral) {
  watch.Begin(stage, {.text = "", .requests = {1}});
  Feed(Ended(1, Reason::kRowTail, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kCollateral);
}

TEST_F(FaultWatchTest, WhoeverGetsAFaultedPageIsAffectedUntilItHealed) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  watch.PageGoesTo(7, PageId(3));
  EXPECT_TRUE(watch.faults()[0].Affects(7));
  watch.SetStep(11);
  stage.free = {PageId(3)};
  watch.StepDone(stage);
  watch.PageGoesTo(8, PageId(3));
  EXPECT_FALSE(watch.faults()[0].Affects(8));
}

TEST_F(FaultWatchTest, AHostFindingIsAnAnswerAndNamesItsStep) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  watch.SetStep(13);
  Violation violation;
  violation.reason = Reason::kFreedWhileHeld;
  violation.page = 3;
  watch.OnViolation(violation);
  EXPECT_EQ(OutcomeOf(0), Outcome::kEarly);
  EXPECT_EQ(watch.faults()[0].first_report, 13);
  EXPECT_EQ(watch.false_alarms(), 0u);
}

TEST_F(FaultWatchTest, WithoutAFaultAReportIsAFalseAlarm) {
  Violation violation;
  violation.reason = Reason::kTagMismatch;
  watch.OnViolation(violation);
  EXPECT_EQ(watch.false_alarms(), 1u);
  Feed(Published(1, true));
  EXPECT_EQ(watch.wrong_without_fault(), 1u);
}

TEST_F(FaultWatchTest, AnUnreportedEndWithoutAFaultIsAFalseAlarmToo) {
  Feed(Ended(1, Reason::kUnverified, false));
  EXPECT_EQ(watch.false_alarms(), 1u);
}

TEST_F(FaultWatchTest, LateEffectsGoToTheFaultThatAffectsTheRequest) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  watch.SetStep(20);
  watch.Begin(stage, {.text = "", .pages = {PageId(4)}});
  Feed(Ended(1, Reason::kTagMismatch, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  EXPECT_EQ(OutcomeOf(1), Outcome::kBenign);
}

TEST_F(FaultWatchTest, ClosesWhenTheAffectedAreGoneOrNothingHappens) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  watch.StepDone(stage);
  EXPECT_TRUE(watch.open(0)) << "not in its own step";
  watch.SetStep(11);
  watch.StepDone(stage);
  EXPECT_TRUE(watch.open(0));
  watch.SetStep(15);
  watch.StepDone(stage);
  EXPECT_FALSE(watch.open(0)) << "five steps without effect";
  watch.Begin(stage, {.text = "", .pages = {PageId(4)}});
  stage.held.erase(2);
  watch.SetStep(16);
  watch.StepDone(stage);
  EXPECT_FALSE(watch.open(1)) << "its holder is gone";
}

StepRow RowOf(uint32_t row, RequestIndex request, uint64_t before, uint64_t tokens) {
  return {.row = Row(row), .request = request, .length_before = before, .new_tokens = tokens};
}

TEST_F(FaultWatchTest, WhoReliesOnWhatAnEndedRowWasToWriteIsAffected) {
  stage.held[1] = {PageId(5), PageId(6)};  // 6 is to be written, and 2 reads it in the same step
  stage.held[2] = {PageId(5), PageId(6), PageId(7)};
  stage.held[3] = {PageId(5), PageId(9)};  // shares only what was there before
  watch.Begin(stage, {.text = "", .requests = {1}});
  stage.step_rows = {RowOf(0, 2, 8, 2), RowOf(1, 1, 4, 4), RowOf(2, 3, 4, 1)};
  watch.StepBegins(stage);
  const std::vector<RowOutcome> rows = {Ended(2, Reason::kNotCommitted, false),
                                        Ended(1, Reason::kTagMismatch, true)};
  watch.OnStep({.step = StepId(0), .rows = rows});
  EXPECT_TRUE(watch.faults()[0].Affects(2));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  watch.StepBegins(stage);
  const RowOutcome bystander = Ended(3, Reason::kNotCommitted, false);
  watch.OnStep({.step = StepId(0), .rows = {&bystander, 1}});
  EXPECT_FALSE(watch.faults()[0].Affects(3));
  EXPECT_EQ(OutcomeOf(0), Outcome::kCollateral);
}

TEST_F(FaultWatchTest, FaultedContentIsFaultedWhereItGoes) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  watch.Moved(stage, {.from = PageId(4), .key = KeyId(8), .number = 0});
  watch.Moved(stage, {.to = PageId(4), .key = KeyId(8), .number = 0});
  EXPECT_FALSE(watch.faults()[0].Affects(2)) << "what came back was sound";
  watch.Moved(stage, {.from = PageId(3), .key = KeyId(8), .number = 1});
  watch.Moved(stage, {.to = PageId(4), .key = KeyId(8), .number = 1});
  EXPECT_TRUE(watch.faults()[0].Affects(2));
  stage.held[5] = {PageId(11)};
  watch.Moved(stage, {.from = PageId(4), .to = PageId(11)});
  EXPECT_TRUE(watch.faults()[0].Affects(5)) << "on from there";
}

TEST_F(FaultWatchTest, ASharedTableOfAWrongRowIsFaultedForAllItsReaders) {
  stage.held[1] = {PageId(5), PageId(6)};
  stage.held[2] = {PageId(5), PageId(7)};
  stage.step_rows = {RowOf(0, 1, 5, 1), RowOf(1, 2, 5, 1)};
  stage.step_rows[0].shared = stage.step_rows[1].shared = 1;
  stage.tables[0] = {5, 9};
  watch.Begin(stage, {.text = "", .requests = {1}});
  watch.StepBegins(stage);
  EXPECT_FALSE(watch.faults()[0].Affects(2)) << "the wrong entry isn't in the shared table";
  stage.tables[0] = {9, 6};
  watch.StepBegins(stage);
  EXPECT_TRUE(watch.faults()[0].Affects(2));
}

TEST_F(FaultWatchTest, AReportIsTheLatestFaultsThatItNames) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}});
  watch.Begin(stage, {.text = "", .pages = {PageId(4)}});
  Violation violation;
  violation.reason = Reason::kFreedWhileHeld;
  violation.page = 4;
  watch.Name(NameId(7), 1);
  violation.req = RequestId(NameId(7), 1);
  watch.OnViolation(violation);
  EXPECT_EQ(OutcomeOf(0), Outcome::kBenign);
  EXPECT_EQ(OutcomeOf(1), Outcome::kEarly);
}

// Several kinds at once.
class TwoKinds : public FaultWatchTest {
 protected:
  FaultWatch watch{{{CheckSet(Reason::kTagMismatch)}, {CheckSet(Reason::kRowTail)}}, 5};
  void Feed(const RowOutcome& row) { watch.OnStep({.step = StepId(10), .rows = {&row, 1}}); }
  Outcome OutcomeOf(size_t fault) const { return JudgeOutcome(watch.EvidenceOf(fault)); }
};

TEST_F(TwoKinds, WhatTwoFaultsMayHaveDoneCountsForBoth) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}}, 0);
  watch.Begin(stage, {.text = "", .requests = {1}}, 1);
  Feed(Ended(1, Reason::kTagMismatch, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  EXPECT_EQ(OutcomeOf(1), Outcome::kPrevented);
  Feed(Published(1, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kLate);
  EXPECT_EQ(OutcomeOf(1), Outcome::kLate);
}

TEST_F(TwoKinds, WhatOnlyOneAffectsIsThatOnes) {
  watch.Begin(stage, {.text = "", .requests = {1}}, 1);
  watch.Begin(stage, {.text = "", .pages = {PageId(4)}}, 0);
  Feed(Ended(1, Reason::kRowTail, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  EXPECT_EQ(OutcomeOf(1), Outcome::kBenign);
  Feed(Ended(2, Reason::kRowTail, true));
  EXPECT_EQ(OutcomeOf(1), Outcome::kCollateral) << "another kind's reason doesn't answer";
}

TEST_F(TwoKinds, ABystanderIsCollateralOfOneThatMayHaveDoneIt) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}}, 0);
  watch.Begin(stage, {.text = "", .requests = {1}}, 1);
  Feed(Ended(2, Reason::kTagMismatch, false));
  EXPECT_EQ(OutcomeOf(0), Outcome::kCollateral) << "its kind declares the reason";
  EXPECT_EQ(OutcomeOf(1), Outcome::kBenign);
  Feed(Ended(2, Reason::kPadRow, false));
  EXPECT_EQ(OutcomeOf(1), Outcome::kCollateral) << "nobody's reason: the latest";
}

TEST_F(TwoKinds, AReadThatBothMayHaveMadeWrongIsAnsweredByEither) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}}, 0);
  watch.Begin(stage, {.text = "", .requests = {1}}, 1);
  RowOutcome row = Published(1, false);
  row.raw_wrong = true;  // what was wrong was put right: a padded row's write, say
  Feed(row);
  EXPECT_EQ(OutcomeOf(0), Outcome::kMissed);
  Violation violation;
  violation.reason = Reason::kTagMismatch;
  violation.page = 3;
  watch.OnViolation(violation);
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  EXPECT_EQ(OutcomeOf(1), Outcome::kPrevented);
}

TEST_F(TwoKinds, WhatFollowsFromAnAnsweredFaultIsntLaidToTheOther) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}}, 0);
  Feed(Ended(1, Reason::kTagMismatch, false));
  watch.Begin(stage, {.text = "", .requests = {1}}, 1);
  Feed(Ended(1, Reason::kNotCommitted, false));
  EXPECT_EQ(OutcomeOf(0), Outcome::kEarly);
  EXPECT_EQ(OutcomeOf(1), Outcome::kBenign);
}

TEST_F(TwoKinds, OneThatIsOverStillAnswersForWhatOnlyItDeclares) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}}, 0);
  watch.SetStep(30);
  watch.StepDone(stage);
  ASSERT_FALSE(watch.open(0));
  watch.Begin(stage, {.text = "", .requests = {1}}, 1);
  Feed(Ended(1, Reason::kRowTail, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kBenign);
  Feed(Ended(1, Reason::kTagMismatch, true));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  EXPECT_EQ(OutcomeOf(1), Outcome::kPrevented);
}

TEST_F(FaultWatchTest, WhoWentBackIsItsOwnAgainUnlessItHoldsAFaultedPage) {
  watch.Begin(stage, {.text = "", .pages = {PageId(3)}, .requests = {2}});
  stage.at_step = StepId(10);
  stage.step_rows = {RowOf(0, 1, 4, 1), RowOf(1, 2, 4, 1)};
  const std::vector<RowOutcome> rows = {Ended(1, Reason::kTagMismatch, true),
                                        Ended(2, Reason::kTagMismatch, true)};
  // A step behind it is launched, which may know them as they were.
  stage.at_step = StepId(11);
  watch.StepBegins(stage);
  watch.OnStep({.step = StepId(10), .rows = rows});
  stage.at_step = StepId(10);
  watch.StepDone(stage);
  EXPECT_TRUE(watch.faults()[0].Affects(2));
  watch.OnStep(StepOutcome{.step = StepId(11)});
  stage.at_step = StepId(11);
  watch.StepDone(stage);
  EXPECT_TRUE(watch.faults()[0].Affects(1)) << "it still holds page 3";
  EXPECT_FALSE(watch.faults()[0].Affects(2));
  EXPECT_EQ(OutcomeOf(0), Outcome::kPrevented);
  Feed(Ended(2, Reason::kTagMismatch, false));
  EXPECT_EQ(OutcomeOf(0), Outcome::kCollateral);
}

TEST(Comebacks, OnlyACompleteAndRightEndCounts) {
  Comebacks comebacks;
  for (RequestIndex r = 1; r <= 6; ++r) comebacks.Failed(r, 7);
  comebacks.Ended(6, EndKind::kFenced);
  EXPECT_TRUE(comebacks.BackBy(6).empty());
  using Back = Comebacks::Back;
  EXPECT_EQ(comebacks.BackBy(7),
            (std::vector<Back>{Back{1, 7}, Back{2, 7}, Back{3, 7}, Back{4, 7}, Back{5, 7}}));
  EXPECT_TRUE(comebacks.BackBy(7).empty());
  comebacks.Ended(1, EndKind::kPreempted);
  comebacks.Ended(1, EndKind::kFinished);
  comebacks.PublishedWrong(2);
  comebacks.Ended(2, EndKind::kFinished);
  comebacks.Ended(3, EndKind::kAborted);
  comebacks.Ended(4, EndKind::kRejected);
  comebacks.Ended(9, EndKind::kFinished);  // never failed
  const Comebacks::Counts counts = comebacks.counts();
  EXPECT_EQ(counts.failed, 6u);
  EXPECT_EQ(counts.right, 1u);
  EXPECT_EQ(counts.withdrawn, 1u);
  EXPECT_EQ(counts.lost(), 4u);
}

TEST(JudgeOutcome, ACrashOutweighsAll) {
  EXPECT_EQ(JudgeOutcome({.crashed = true, .wrong_published = true}), Outcome::kCrashed);
}

// --- the verdict on a campaign ------------------------------------------------------------------

CampaignReport GoodReport(const FaultKind& kind) {
  CampaignReport report;
  FaultTally& tally = report.faults.emplace_back();
  tally.kind = std::string(kind.name);
  tally.activated = 300;
  tally.outcomes[static_cast<size_t>(Outcome::kPrevented)] = 300;
  for (int r = 0; r < kReasonCount; ++r) {
    const auto reason = static_cast<Reason>(r);
    if (kind.reasons.Has(reason)) tally.reasons[std::string(ReasonName(reason))] = 10;
  }
  tally.off_arm_wrong_tokens = report.off_arm.wrong_tokens_published = 5;
  report.clean_arm.steps = 100;
  return report;
}

bool IsGreen(CampaignReport report, const FaultKind& kind) {
  const FaultKind* kinds[] = {&kind};
  JudgeCampaign(kinds, &report);
  EXPECT_EQ(report.green, report.red.empty());
  return report.green;
}

TEST(JudgeCampaign, EachThingThatMakesItRed) {
  const FaultKind& kind = *FindFaultKind("free_while_held");
  EXPECT_TRUE(IsGreen(GoodReport(kind), kind));
  for (const Outcome bad :
       {Outcome::kLate, Outcome::kMissed, Outcome::kCollateral, Outcome::kCrashed}) {
    CampaignReport report = GoodReport(kind);
    report.faults[0].outcomes[static_cast<size_t>(bad)] = 1;
    EXPECT_FALSE(IsGreen(report, kind)) << kOutcomeNames[static_cast<size_t>(bad)];
  }
  const auto red = [&](auto change) {
    CampaignReport report = GoodReport(kind);
    change(report);
    return !IsGreen(std::move(report), kind);
  };
  EXPECT_TRUE(red([](CampaignReport& r) { r.false_alarms = 1; }));
  EXPECT_TRUE(red([](CampaignReport& r) { r.clean_arm.violations = 1; }));
  EXPECT_TRUE(red([](CampaignReport& r) { r.clean_arm.wrong_tokens_published = 1; }));
  EXPECT_TRUE(red([](CampaignReport& r) { r.clean_arm.steps = 0; }));
  EXPECT_TRUE(red([](CampaignReport& r) {
    r.several.tally.outcomes[static_cast<size_t>(Outcome::kMissed)] = 1;
  }));
  EXPECT_TRUE(red([](CampaignReport& r) { r.recompute = {.requests = 3, .right = 2}; }));
  EXPECT_TRUE(red([](CampaignReport& r) { r.off_arm.wrong_tokens_published = 0; }));
  const auto silent_in = [&](uint64_t activations) {
    return red([&](CampaignReport& r) {
      r.faults[0].activated = activations;
      r.faults[0].reasons.erase("tag_mismatch");
    });
  };
  EXPECT_TRUE(silent_in(3000));
  EXPECT_FALSE(silent_in(2999)) << "a campaign's draw may make an answer rare";
}

// A campaign that goes on until it's complete has come to its end without an answer.
TEST(JudgeCampaign, OneThatWasToBeCompleteIsRedForAnAnswerThatNeverCame) {
  const FaultKind& kind = *FindFaultKind("free_while_held");
  CampaignReport report = GoodReport(kind);
  report.faults[0].activated = 299;
  report.faults[0].reasons.erase("tag_mismatch");
  EXPECT_TRUE(IsGreen(report, kind)) << "too few to say";
  report.config.until_complete = true;
  EXPECT_FALSE(IsGreen(report, kind));
  report.partial = true;
  EXPECT_TRUE(IsGreen(report, kind)) << "it was interrupted";
}

TEST(JudgeCampaign, SaysWhatIsMissing) {
  const FaultKind& kind = *FindFaultKind("free_while_held");
  CampaignReport report = GoodReport(kind);
  EXPECT_TRUE(MissingOf(kind, report.faults[0]).empty());
  report.faults[0].activated = 299;
  report.faults[0].outcomes[static_cast<size_t>(Outcome::kBenign)] = 150;
  report.faults[0].reasons.erase("tag_mismatch");
  report.faults[0].off_arm_wrong_tokens = 0;
  const std::vector<std::string> missing = MissingOf(kind, report.faults[0]);
  ASSERT_EQ(missing.size(), 4u);
  EXPECT_EQ(missing[0], "free_while_held: activated 299 times of 300");
  EXPECT_EQ(missing[1], "free_while_held: 150 of 299 were benign, more than half");
  EXPECT_EQ(missing[2], "free_while_held: never answered by tag_mismatch");
  EXPECT_EQ(missing[3], "free_while_held: no wrong token without the fence");
}

}  // namespace
}  // namespace kvfence::testing
