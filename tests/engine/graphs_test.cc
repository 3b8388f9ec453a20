// Replayed graphs: what is replayed is right, and what a stale replay reads is caught.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvfence/engine.h"
#include "kvfence/fence.h"
#include "tests/engine/fenced.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

EngineConfig WithGraphs() {
  EngineConfig config;
  config.pages = 300;
  config.features.replayed_graphs = true;
  return config;
}

EngineReport WithoutFence(const EngineConfig& config, const std::vector<TraceRequest>& trace,
                          FaultHooks* hooks) {
  auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, hooks);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return (*engine)->Run();
}

// Decode batches are replayed, mixed ones run eagerly; each bucket is captured once, or again and
// again where captures have a life.
TEST(ReplayedGraphs, EachBucketIsCapturedOnceAndReplayed) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 100);
  EngineConfig config = WithGraphs();
  Fenced once(config, trace, Level::kFull);
  const EngineReport& report = once.engine->Run();
  EXPECT_EQ(report.graphs_captured, 5u) << "buckets 1, 2, 4, 8, 16";
  EXPECT_GT(report.graphs_replayed, report.steps / 2);
  EXPECT_LT(report.graphs_replayed, report.steps);
  EXPECT_EQ(once.findings.all.size(), 0u) << once.findings.first;
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.finished, trace.size());

  config.graph_rows = 4;
  EXPECT_EQ(WithoutFence(config, trace, nullptr).graphs_captured, 3u);
  config.graph_rows = 0;
  config.graph_steps = 50;
  const EngineReport again = WithoutFence(config, trace, nullptr);
  EXPECT_GT(again.graphs_captured, 8u);
  EXPECT_EQ(again.wrong_tokens, 0u);
  config.features.replayed_graphs = false;
  EXPECT_EQ(WithoutFence(config, trace, nullptr).graphs_captured, 0u) << "I-110";
}

// In each fifth replay in which it matters, the plan stays that of the replay before.
struct KeepPlans : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    if (s.Replayed() == 0 || ++seen % 5 != 0) return;
    uint64_t short_rows = 0;
    for (const StepRow& row : s.rows()) {
      short_rows += row.request != kNoRequest && s.LastPlannedPages(row.row) < row.covered;
    }
    if (short_rows == 0) return;
    short_plans += short_rows;
    ++made;
    s.KeepLastPlan();
    for (const StepRow& row : s.rows()) {
      EXPECT_EQ(s.PlannedPages(row.row), s.LastPlannedPages(row.row));
    }
  }
  uint64_t seen = 0, made = 0, short_plans = 0;
};

TEST(ReplayedGraphs, AStalePlanPublishesWrongTokensWithoutAFence) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 100);
  KeepPlans faults;
  const EngineReport report = WithoutFence(WithGraphs(), trace, &faults);
  EXPECT_GT(faults.made, 10u);
  EXPECT_GT(report.wrong_tokens, 10u);
}

// I-118: the tables that the fence sees are right; only the plan's step tells.
TEST(ReplayedGraphs, AStalePlanIsATableEpochAndNothingElseShowsIt) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 100);
  KeepPlans faults;
  Fenced run(WithGraphs(), trace, Level::kFull, &faults);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(faults.made, 4u);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_GE(report.fenced, faults.short_plans);
  EXPECT_EQ(report.audit, "");
  for (const Violation& v : run.findings.all) EXPECT_EQ(v.reason, Reason::kTableEpoch);

  KeepPlans unseen;
  FenceConfig blind = FenceConfigFor(WithGraphs(), trace);
  blind.disabled = CheckSet() + Reason::kTableEpoch;
  Fenced without(WithGraphs(), trace, blind, &unseen);
  EXPECT_GT(without.engine->Run().wrong_tokens, 0u) << "the check that it takes";
}

// In each fifth replay, another graph's arrays are read.
struct ReadOthers : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    const std::vector<uint64_t> graphs = s.Graphs();
    if (s.Replayed() == 0 || graphs.size() < 2 || ++seen % 5 != 0) return;
    const uint64_t other = graphs[seen / 5 % graphs.size()];
    if (other == s.Replayed() || s.rows()[0].request == kNoRequest) return;
    s.ReadGraph(other);
    ++made;
  }
  uint64_t seen = 0, made = 0;
};

TEST(ReplayedGraphs, AReplayOfAnotherGraphsArraysIsCaught) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 150);
  ReadOthers faults;
  EXPECT_GT(WithoutFence(WithGraphs(), trace, &faults).wrong_tokens, faults.made);
  EXPECT_GT(faults.made, 5u);
  ReadOthers again;
  Fenced run(WithGraphs(), trace, Level::kFull, &again);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(again.made, 5u);
  EXPECT_GE(report.fenced, again.made);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
}

}  // namespace
}  // namespace kvfence
