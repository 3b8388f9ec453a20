// Prefill on one engine and decode on another: what is published is what each request alone would
// publish, whatever becomes of its pages on their way.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kvfence/check_log.h"
#include "kvfence/engine.h"
#include "kvfence/event_log_writer.h"
#include "kvfence/ground_truth.h"
#include "tests/engine/fenced.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

EngineConfig Disaggregated() {
  EngineConfig config;
  config.pages = 200;
  config.prefill_pages = 240;
  config.rows = 12;
  config.features.disaggregated = true;
  return config;
}

EngineReport WithoutFence(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return (*engine)->Run();
}

// Each other feature on alone, and off alone in the company of all.
TEST(Disaggregated, PublishesWhatEachRequestAlonePublishesWithEachFeatureOnAndOff) {
  for (size_t i = 0; i < kEngineFeatures.size(); ++i) {
    for (const bool alone : {true, false}) {
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        Rng rng(100 * seed + i);
        const std::vector<TraceRequest> trace = SmallTrace(seed * 40 + i, 12);
        EngineConfig config = DrawConfig(rng);
        for (const EngineFeature& f : kEngineFeatures) config.features.*f.on = !alone;
        config.features.*kEngineFeatures[i].on = alone;
        config.features.disaggregated = true;
        config.features.parallel_sampling = false;  // whose siblings publish too
        config.abort_per_mille = 0;
        DrawSizes(rng, kLongestSmall, &config);
        const EngineReport report = WithoutFence(config, trace);
        SCOPED_TRACE(FeatureNames(config.features) + " seed " + std::to_string(seed));
        EXPECT_EQ(report.tokens_published, WantedTokens(trace));
        EXPECT_EQ(report.wrong_tokens, 0u);
        EXPECT_EQ(report.finished, trace.size());
        EXPECT_EQ(report.audit, "");
        EXPECT_GT(report.handoffs, 0u);
      }
    }
  }
}

// I-119. All that a hand-off can come to is reached, is silent, and leaves a log that agrees.
TEST(Disaggregated, LateFailedAndAbortedHandOffsAreSilentAndTheLogIsClean) {
  const std::vector<TraceRequest> trace = SmallTrace(4, 400);
  EngineConfig config = Disaggregated();
  config.copy_fail_per_mille = 60;
  config.handoff_late_per_mille = 200;
  config.handoff_lease = 14;
  config.abort_per_mille = 600;
  for (const bool overlapped : {false, true}) {
    config.features.overlapped = overlapped;
    std::ostringstream log;
    Fenced run(config, trace, Level::kAudit);
    auto writer = EventLogWriter::ToStream(&log, run.fence->config(), &run.fence->names());
    ASSERT_TRUE(writer.ok());
    run.fence->Record(writer->get());
    const EngineReport& report = run.engine->Run();
    EXPECT_EQ(run.findings.all.size(), 0u) << run.findings.first;
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_EQ(report.audit, "");
    EXPECT_EQ(report.finished + report.aborted, trace.size());
    EXPECT_GT(report.handoffs_whole, 30u);
    EXPECT_GT(report.handoffs_partly, 5u);
    EXPECT_GT(report.handoffs_again, 2u);
    EXPECT_GT(report.handoffs_aborted, 2u);
    EXPECT_GT(report.handoffs_expired, 2u);
    EXPECT_GT(report.offers_expired, 2u);
    EXPECT_GT(report.pages_handed_late, 20u);
    EXPECT_GT(report.copies_failed, 5u);
    EXPECT_GT(report.failed_over, 0u);
    EXPECT_EQ(report.handoffs, report.handoffs_whole + report.handoffs_partly +
                                   report.handoffs_again + report.handoffs_aborted);

    run.fence->Record(nullptr);
    ASSERT_TRUE((*writer)->Close().ok());
    std::istringstream in(log.str());
    auto check = CheckLog(&in, "log");
    ASSERT_TRUE(check.ok()) << check.status().message();
    EXPECT_TRUE(check->ok()) << check->ToJson().substr(0, 600);
    EXPECT_EQ(check->wrong_reads_published, 0u);
  }
}

// What the decoding engine has of a prompt already isn't handed over again.
TEST(Disaggregated, OnlyWhatTheOtherIndexLacksIsHandedOver) {
  const std::vector<TraceRequest> trace = SmallTrace(5, 100);
  EngineConfig config = Disaggregated();
  config.pages = config.prefill_pages = 2000;
  const EngineReport reused = WithoutFence(config, trace);
  config.features.prefix_cache = false;
  const EngineReport all = WithoutFence(config, trace);
  EXPECT_LT(reused.pages_handed_over, all.pages_handed_over * 3 / 4);
  EXPECT_EQ(reused.wrong_tokens + all.wrong_tokens, 0u);
  EXPECT_EQ(all.pages_shared, 0u);
}

// A copy of nobody's bytes lands in a page that has been handed over.
struct SpoilArrivals : FaultHooks {
  void OnMove(FaultSurface& s, const ContentMove& move) override {
    if (!move.to || move.group != 0 || ++seen % 40 != 0) return;
    s.Write({.page = *move.to, .first = 0, .n = 1, .content = 0xBAD});
    ++made;
  }
  uint64_t seen = 0, made = 0;
};

TEST(Disaggregated, WhatSpoilsAHandOffIsSeenByTheTruthAndCaughtByTheFence) {
  const std::vector<TraceRequest> trace = SmallTrace(6, 100);
  const EngineConfig config = Disaggregated();
  SpoilArrivals faults;
  auto off = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, &faults);
  ASSERT_TRUE(off.ok());
  EXPECT_GT((*off)->Run().wrong_tokens, faults.made);
  EXPECT_GT(faults.made, 4u);

  SpoilArrivals again;
  Fenced run(config, trace, Level::kFull, &again);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(again.made, 4u);
  EXPECT_GT(report.fenced, 0u);
  EXPECT_GE(run.findings.all.size(), again.made);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
}

// Rows, step by step: no row of more tokens than were left over by a hand-off that failed is
// computed by the engine that decodes.
struct Rows : OutcomeSink {
  void OnStep(const StepOutcome& step) override {
    for (const RowOutcome& row : step.rows) ++(row.row.value() < rows ? decoded : prefilled);
    if (step.rows.empty()) return;
    const bool decodes = step.rows.front().row.value() < rows;
    for (const RowOutcome& row : step.rows) EXPECT_EQ(row.row.value() < rows, decodes);
  }
  uint64_t rows = 12, decoded = 0, prefilled = 0;
};

TEST(Disaggregated, EachStepIsOfOneEngine) {
  const std::vector<TraceRequest> trace = SmallTrace(7, 60);
  EngineConfig config = Disaggregated();
  config.pages = config.prefill_pages = 2000;  // nobody is preempted, or waits for long
  config.handoff_lease = 1000;
  Rows rows;
  auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, nullptr, &rows);
  ASSERT_TRUE(engine.ok());
  const EngineReport& report = (*engine)->Run();
  EXPECT_EQ(report.rows, rows.decoded + rows.prefilled);
  // Without failures each request decodes all but its first token on the other side.
  EXPECT_EQ(rows.decoded + report.finished, report.tokens_published);
  EXPECT_GT(rows.prefilled, trace.size());
}

TEST(Disaggregated, RequestsThatFitNeitherEngineAreRejected) {
  std::vector<TraceRequest> trace = SmallTrace(7, 3);
  trace[1].input_length = 1400;
  EngineConfig config = Disaggregated();
  config.prefill_pages = 60;
  EXPECT_GE(WithoutFence(config, trace).rejected, 1u);
  config = Disaggregated();
  config.pages = 60;
  EXPECT_GE(WithoutFence(config, trace).rejected, 1u);
  EXPECT_FALSE(CheckEngineConfig([] {
                 EngineConfig c;
                 c.handoff_lease = 2;
                 return c;
               }())
                   .ok());
}

// Guesses go beyond a request's end, and so does the truth about them: further than what the engine
// that prefills has tables for.
TEST(Disaggregated, TheTruthReachesAsFarAsTheEngineThatDecodes) {
  const std::vector<TraceRequest> trace = SmallTrace(7, 1);
  EngineConfig config = Disaggregated();
  config.page_size = config.reach_tile = 1;
  config.pages = config.prefill_pages = 4000;
  config.features.speculative = config.features.overlapped = true;
  config.accept_per_cent = 100;
  for (config.draft_tokens = 1; config.draft_tokens <= 9; ++config.draft_tokens) {
    const EngineReport report = WithoutFence(config, trace);
    EXPECT_EQ(report.finished, 1u);
    EXPECT_EQ(report.wrong_tokens, 0u) << config.draft_tokens;
  }
}

TEST(Quantiser, IsUndone) {
  for (const uint64_t factor : {1ull, 3ull, 0xE4A3E4A3E4A3E4A3ull, ~0ull}) {
    EXPECT_EQ(factor * InverseOf(factor), 1u);
  }
}

}  // namespace
}  // namespace kvfence
