// The engine with the real fence: silent without faults, nothing wrong published with them.
#include "tests/engine/fenced.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kvfence/engine.h"
#include "kvfence/fence.h"
#include "kvfence/switched_tracker.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

TEST(FencedEngine, WithoutFaultsTheFenceIsSilent) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Rng rng(seed);
    const std::vector<TraceRequest> trace = SmallTrace(seed, 40);
    const EngineConfig config = DrawConfig(rng);
    Fenced run(config, trace, rng.Chance(1, 3) ? Level::kAudit : Level::kFull);
    const EngineReport& report = run.engine->Run();
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_EQ(run.findings.all.size(), 0u) << run.findings.first;
    EXPECT_EQ(report.fenced, 0u);
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_EQ(report.audit, "");
    EXPECT_GE(run.fence->stats().entries_checked, report.entries_read);
  }
}

// The same engine with the switch off.
TEST(FencedEngine, ANullFenceIsNoFence) {
  const std::vector<TraceRequest> trace = SmallTrace(1, 30);
  auto engine = Engine<SwitchedTracker>::Create({}, &trace, SwitchedTracker(nullptr));
  ASSERT_TRUE(engine.ok());
  const EngineReport& report = (*engine)->Run();
  EXPECT_EQ(report.finished, trace.size());
  EXPECT_EQ(report.wrong_tokens, 0u);
}

// A wrong entry in one row of each tenth step: that request ends, alone, and nothing wrong leaves.
struct FlipEntries : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    if (s.step().value() % 10 != 0 || s.rows().size() < 2) return;
    const StepRow& victim = s.rows()[0];
    const StepRow& other = s.rows()[1];
    if (other.request == kNoRequest) return;
    s.SetDeviceEntry(victim.row, victim.covered - 1, s.DeviceEntry(other.row, other.covered - 1));
    ++made;
  }
  uint64_t made = 0;
};

TEST(FencedEngine, AWrongEntryEndsThatRequestAlone) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 150);
  EngineConfig config;
  config.pages = 300;
  FlipEntries faults;
  Fenced run(config, trace, Level::kFull, &faults);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(faults.made, 5u);
  EXPECT_EQ(report.fenced, faults.made);
  EXPECT_EQ(report.fenced + report.finished, trace.size());
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
}

// The same faults under `recompute`: the request keeps what was good, and ends right.
TEST(FencedEngine, AfterAWrongEntryItGoesOnFromTheGoodPrefix) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 150);
  EngineConfig config;
  config.pages = 300;
  config.policy = Policy::kRecompute;
  FlipEntries faults;
  Fenced run(config, trace, Level::kAudit, &faults);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(faults.made, 5u);
  // One of them is struck once too often.
  EXPECT_EQ(report.recomputes + report.fenced, faults.made);
  EXPECT_LE(report.fenced, 1u);
  EXPECT_EQ(report.finished + report.fenced, trace.size());
  EXPECT_EQ(run.findings.all.size(), faults.made) << run.findings.first;
  EXPECT_GT(report.tokens_kept, report.recomputes * config.page_size);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
}

TEST(FencedEngine, PolicyStopServesNoMoreAfterTheFirstFinding) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 150);
  EngineConfig config;
  config.pages = 300;
  config.policy = Policy::kStop;
  FlipEntries faults;
  Fenced run(config, trace, Level::kFull, &faults);
  const EngineReport& report = run.engine->Run();
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(faults.made, 1u);
  EXPECT_EQ(run.findings.all.size(), 1u);
  EXPECT_EQ(report.steps % 10, 0u) << "the step of the fault is the last";
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_LT(run.engine->ended(), trace.size());
}

// Wrong content is not kept: the page it stands in is computed again, with all that follows.
struct SpoilPages : FaultHooks {
  void AfterRetire(FaultSurface& s) override {
    if (s.step().value() % 16 != 0 || s.rows().empty()) return;
    const StepRow& victim = s.rows()[0];
    if (victim.request == kNoRequest || victim.covered < 3) return;
    const PageId page(s.DeviceEntry(victim.row, victim.covered - 2));
    s.Write({.page = page, .first = 0, .n = 4, .content = 0xBAD});
    ++made;
  }
  uint64_t made = 0;
};

TEST(FencedEngine, WrongContentIsNotPartOfTheGoodPrefix) {
  const std::vector<TraceRequest> trace = SmallTrace(5, 150);
  EngineConfig config;
  config.pages = 400;
  config.policy = Policy::kRecompute;
  SpoilPages faults;
  Fenced run(config, trace, Level::kFull, &faults);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(faults.made, 3u);
  EXPECT_GE(report.recomputes, faults.made / 2);
  EXPECT_GT(report.tokens_kept, 0u);
  EXPECT_EQ(report.finished + report.fenced, trace.size());
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
}

}  // namespace
}  // namespace kvfence
