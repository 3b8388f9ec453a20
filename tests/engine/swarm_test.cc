// Swarm: features drawn together, each run fenced at full, recorded and played again. Without
// faults nothing may be reported, no token may be wrong, and no page may be lost.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kvfence/check_log.h"
#include "kvfence/engine.h"
#include "kvfence/event_log_writer.h"
#include "kvfence/fence.h"
#include "kvfence/switched_tracker.h"
#include "tests/engine/fenced.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

// Null: as it should be.
std::string RunOne(const EngineConfig& config, const std::vector<TraceRequest>& trace, Level level,
                   bool replay, EngineReport* report) {
  std::ostringstream log;
  Fenced run(config, trace, level);
  std::unique_ptr<EventLogWriter> writer;
  if (replay) {
    auto opened = EventLogWriter::ToStream(&log, run.fence->config(), &run.fence->names());
    if (!opened.ok()) return opened.status().message();
    writer = std::move(*opened);
    run.fence->Record(writer.get());
  }
  *report = run.engine->Run();
  if (!run.findings.all.empty()) return run.findings.first;
  if (report->wrong_tokens > 0) return std::to_string(report->wrong_tokens) + " wrong tokens";
  if (!report->audit.empty()) return report->audit;
  if (report->fenced + report->odd_books + report->wild_accesses > 0) return "odd";
  if (report->rejected + report->unfinished > 0) return "requests that weren't served";
  if (!replay) return "";
  run.fence->Record(nullptr);
  if (Status status = writer->Close(); !status.ok()) return status.message();
  std::istringstream in(log.str());
  auto check = CheckLog(&in, "log");
  if (!check.ok()) return check.status().message();
  if (check->ok() && check->wrong_reads_published == 0) return "";
  return "replay: " + check->error + " " + check->ToJson().substr(0, 600);
}

// How far one feature was put to use, over all runs.
struct Reached {
  uint64_t slid = 0, copied = 0, beams = 0, right = 0, wrong = 0, exchanged = 0, swapped = 0,
           loaded = 0, failed = 0, preempted = 0, aborted = 0, prefix = 0, captured = 0,
           replayed = 0, whole = 0, partly = 0, again = 0, cut = 0, expired = 0, unfetched = 0,
           late = 0;
  void Add(const EngineReport& r) {
    slid += r.pages_slid;
    copied += r.pages_copied;
    beams += r.beams_replaced;
    right += r.guesses_right;
    wrong += r.guesses - r.guesses_right;
    exchanged += r.pages_exchanged;
    swapped += r.swaps_in;
    loaded += r.pages_loaded;
    failed += r.copies_failed;
    preempted += r.preemptions;
    aborted += r.aborted;
    prefix += r.prefix_entries;
    captured += r.graphs_captured;
    replayed += r.graphs_replayed;
    whole += r.handoffs_whole;
    partly += r.handoffs_partly;
    again += r.handoffs_again;
    cut += r.handoffs_aborted;
    expired += r.handoffs_expired;
    unfetched += r.offers_expired;
    late += r.pages_handed_late;
  }
};

// I-110, I-111, I-112, I-113, I-114, I-115, I-116 and I-117 at once: whoever breaks one is seen by
// the fence, the golden run or the audit.
TEST(Swarm, FeaturesTogetherAreSilentAndRight) {
  Reached reached;
  // More of them when asked for: a number in KVFENCE_SWARM_RUNS.
  const char* asked = std::getenv("KVFENCE_SWARM_RUNS");
  const uint64_t runs = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 30;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    Rng rng(seed * 7919);
    const std::vector<TraceRequest> trace = SmallTrace(seed, 10);
    const EngineConfig config = DrawConfig(rng);
    EngineReport report;
    const Level level = rng.Chance(1, 3) ? Level::kAudit : Level::kFull;
    const std::string wrong = RunOne(config, trace, level, rng.Chance(1, 3), &report);
    EXPECT_EQ(wrong, "") << "seed " << seed << " " << FeatureNames(config.features);
    reached.Add(report);
  }
  EXPECT_GT(reached.slid, 1000u);
  EXPECT_GT(reached.copied, 50u);
  EXPECT_GT(reached.beams, 20u);
  EXPECT_GT(reached.right, 200u);
  EXPECT_GT(reached.wrong, 200u);
  EXPECT_GT(reached.exchanged, 20u);
  EXPECT_GT(reached.swapped, 10u);
  EXPECT_GT(reached.loaded, 20u);
  EXPECT_GT(reached.failed, 10u);
  EXPECT_GT(reached.preempted, 50u);
  EXPECT_GT(reached.aborted, 10u);
  EXPECT_GT(reached.prefix, 100u);
  EXPECT_GT(reached.captured, 30u);
  EXPECT_GT(reached.replayed, 500u);
  EXPECT_GT(reached.whole, 100u);
  EXPECT_GT(reached.partly, 5u);
  EXPECT_GT(reached.again, 5u);
  EXPECT_GT(reached.cut, 0u);
  EXPECT_GT(reached.expired, 5u);
  EXPECT_GT(reached.unfetched, 5u);
  EXPECT_GT(reached.late, 20u);
}

// Each feature alone, and each switched off in the company of all others.
TEST(Swarm, EachFeatureAloneAndAllButEach) {
  for (size_t i = 0; i < kEngineFeatures.size(); ++i) {
    for (const bool alone : {true, false}) {
      Rng rng(100 + i);
      const std::vector<TraceRequest> trace = SmallTrace(50 + i, 6);
      EngineConfig config = DrawConfig(rng);
      for (const EngineFeature& f : kEngineFeatures) config.features.*f.on = !alone;
      config.features.*kEngineFeatures[i].on = alone;
      DrawSizes(rng, kLongestSmall, &config);
      EngineReport report;
      EXPECT_EQ(RunOne(config, trace, Level::kFull, true, &report), "")
          << FeatureNames(config.features);
    }
  }
}

TEST(EngineFeatures, TheTableNamesEachOnce) {
  EngineFeatures none;
  for (const EngineFeature& f : kEngineFeatures) none.*f.on = false;
  EXPECT_EQ(FeatureNames(none), "none");
  EXPECT_EQ(sizeof(EngineFeatures), kEngineFeatures.size()) << "one flag for each line";
  for (const EngineFeature& f : kEngineFeatures) {
    EngineFeatures one = none;
    one.*f.on = true;
    EXPECT_EQ(FeatureNames(one), f.name);
    EXPECT_EQ(FindFeature(f.name), &f) << "no two of one name";
    EXPECT_EQ(CountFeatures(one), 1u);
  }
  EXPECT_EQ(FindFeature("none"), nullptr);
}

// A prefix that the host has and can't bring is computed: asked for again and again, it was never.
TEST(Swarm, WhatNeverLoadsIsComputed) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const std::vector<TraceRequest> trace = SmallTrace(seed, 80);
    EngineConfig config;
    config.seed = seed;
    config.pages = kLongestSmall + 50;
    config.page_size = 1;
    config.rows = 4;
    config.features.host_offload = true;
    config.features.speculative = true;
    config.draft_page_size = 64;  // of a load that fails before that nothing can be used
    config.copy_fail_per_mille = 100;
    Fenced run(config, trace, Level::kFull);
    for (int passes = 0; passes < 20000 && run.engine->Step(); ++passes) {
    }
    const EngineReport& report = run.engine->report();
    EXPECT_EQ(run.engine->ended(), trace.size()) << seed;
    EXPECT_GT(report.pages_loaded, 0u);
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_TRUE(run.findings.all.empty()) << run.findings.first;
  }
}

}  // namespace
}  // namespace kvfence
