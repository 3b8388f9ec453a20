// The engine without faults: what it publishes is what each request alone would publish, whatever
// the pool's size, the batch, the chunks, the cache, preemption and aborts.
#include "kvfence/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

EngineReport RunNoop(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return (*engine)->Run();
}

// In pools from barely enough to ample, the allocator refuses nothing (I-45, I-46).
TEST(Engine, PublishesWhatEachRequestAlonePublishes) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Rng rng(seed);
    const std::vector<TraceRequest> trace = SmallTrace(seed, 40);
    EngineConfig config = DrawConfig(rng);
    config.abort_per_mille = 0;
    config.features.parallel_sampling = false;  // whose siblings publish too
    config.judge_raw = rng.Chance(1, 3);
    const EngineReport report = RunNoop(config, trace);
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_EQ(report.tokens_published, WantedTokens(trace));
    EXPECT_EQ(report.finished, trace.size());
    EXPECT_EQ(report.audit, "");
    EXPECT_EQ(report.wild_accesses, 0u);
    EXPECT_EQ(report.odd_books, 0u);
    EXPECT_EQ(report.rejected, 0u);
    EXPECT_TRUE(config.features.speculative || report.guesses == 0) << "I-110";
    EXPECT_TRUE(config.features.sliding_window || report.pages_slid == 0) << "I-110";
  }
}

TEST(Engine, ReachesEveryFeature) {
  const std::vector<TraceRequest> trace = SmallTrace(3, 200);
  EngineConfig config;
  config.page_size = 8;
  config.pages = 320;
  config.rows = 8;
  config.token_budget = 256;
  config.max_chunk = 100;
  config.abort_per_mille = 200;
  const EngineReport report = RunNoop(config, trace);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
  EXPECT_EQ(report.finished + report.aborted, trace.size());
  EXPECT_GT(report.aborted, 10u);
  EXPECT_GT(report.preemptions, 5u);
  EXPECT_GT(report.pages_evicted, 50u);
  EXPECT_GT(report.pages_shared, 50u);
  EXPECT_GT(report.prefill_rows, trace.size());
  EXPECT_GT(report.pad_rows, 50u);
  EXPECT_GT(report.row_moves, 5u);
}

TEST(Engine, SameSeedSameReport) {
  const std::vector<TraceRequest> trace = SmallTrace(5, 80);
  EngineConfig config;
  config.pages = 200;
  config.rows = 6;
  config.abort_per_mille = 100;
  const EngineReport a = RunNoop(config, trace);
  const EngineReport b = RunNoop(config, trace);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.tokens_published, b.tokens_published);
  EXPECT_EQ(a.entries_read, b.entries_read);
  EXPECT_EQ(a.pages_issued, b.pages_issued);
  EXPECT_EQ(a.preemptions, b.preemptions);
  EXPECT_EQ(a.aborted, b.aborted);
  EXPECT_EQ(a.whole.p95, b.whole.p95);
  config.seed = 2;
  const EngineReport c = RunNoop(config, trace);
  EXPECT_NE(a.steps, c.steps) << "another seed aborts at other moments";
}

TEST(Engine, RequestThatCannotFitIsRejected) {
  std::vector<TraceRequest> trace = SmallTrace(7, 10);
  trace[4] = {.input_length = 5000, .output_length = 1, .hash_ids = std::vector<uint64_t>(10, 77)};
  EngineConfig config;
  config.page_size = 16;
  config.pages = 120;
  const EngineReport report = RunNoop(config, trace);
  EXPECT_EQ(report.rejected, 1u);
  EXPECT_EQ(report.finished, 9u);
  EXPECT_EQ(report.audit, "");
}

TEST(Engine, StopsAfterMaxStepsWithCleanBooks) {
  const std::vector<TraceRequest> trace = SmallTrace(9, 50);
  EngineConfig config;
  config.max_steps = 20;
  const EngineReport report = RunNoop(config, trace);
  EXPECT_EQ(report.steps, 20u);
  EXPECT_GT(report.unfinished, 0u);
  EXPECT_EQ(report.audit, "");
}

TEST(EngineConfig, RefusesNonsense) {
  const std::vector<TraceRequest> trace = SmallTrace(1, 1);
  auto message = [&](auto change) {
    EngineConfig config;
    change(config);
    auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{});
    return engine.ok() ? std::string("accepted") : engine.status().message();
  };
  EXPECT_THAT(message([](EngineConfig& c) { c.pages = 1; }),
              testing::HasSubstr("pages must be at least 2"));
  EXPECT_THAT(message([](EngineConfig& c) { c.page_size = 0; }),
              testing::HasSubstr("page_size must be 1"));
  EXPECT_THAT(message([](EngineConfig& c) { c.rows = 0; }), testing::HasSubstr("rows must be 1"));
  EXPECT_THAT(message([](EngineConfig& c) { c.token_budget = 0; }),
              testing::HasSubstr("token_budget"));
  EXPECT_THAT(message([](EngineConfig& c) { c.buckets = {4, 2}; }), testing::HasSubstr("buckets"));
  EXPECT_THAT(message([](EngineConfig& c) { c.pages = uint64_t{1} << 31; }),
              testing::HasSubstr("2^31"));
}

}  // namespace
}  // namespace kvfence
