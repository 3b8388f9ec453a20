// What the engine tells its tracker is what a rightful engine tells, and it obeys what it's told.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/engine_impl.h"
#include "tests/engine/naive_books.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

using NaiveEngine = Engine<NaiveTracker>;

std::unique_ptr<NaiveEngine> Make(const EngineConfig& config,
                                  const std::vector<TraceRequest>& trace, NaiveBooks* books,
                                  OutcomeSink* outcomes = nullptr) {
  auto engine = NaiveEngine::Create(config, &trace, NaiveTracker{books}, {}, nullptr, outcomes);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

// Bound rows are the plans' (I-43), tables hold all pages (I-44), each step retires (I-47).
TEST(EngineEvents, AreThoseOfARightfulEngine) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Rng rng(seed);
    const std::vector<TraceRequest> trace = SmallTrace(seed, 50);
    EngineConfig config = DrawConfig(rng);
    config.features = NaiveFeatures(config.features);
    NaiveBooks books(FenceConfigFor(config, trace));
    const EngineReport report = Make(config, trace, &books)->Run();
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_EQ(books.complaints.size(), 0u) << books.FirstComplaint();
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_EQ(report.audit, "");
    EXPECT_EQ(books.counts["audit"], 1u);
    EXPECT_EQ(books.counts["admit"], books.counts["release"]);
    EXPECT_EQ(books.counts["step"], report.steps);
  }
}

TEST(EngineEvents, TheNaiveBooksWouldComplain) {
  const std::vector<TraceRequest> trace = SmallTrace(1, 10);
  const EngineConfig config;
  NaiveBooks books(FenceConfigFor(config, trace));
  const PageId page(3);
  const RequestId id = books.Admit({.name = NameId(1)});
  books.Alloc({.req = id, .pages = {&page, 1}});
  EXPECT_EQ(books.FirstComplaint(), "");
  books.Free({.pages = {&page, 1}});
  EXPECT_EQ(books.FirstComplaint(), "step 0: free of a held page");
}

class Ends : public OutcomeSink {
 public:
  void OnStep(const StepOutcome& step) override {
    for (const RowOutcome& row : step.rows) {
      if (!row.reasons.empty()) failed.push_back(row);
    }
  }
  void OnEnd(RequestIndex request, RequestId, EndKind kind) override {
    if (kind != EndKind::kPreempted) ends[request].push_back(kind);
  }
  std::map<RequestIndex, std::vector<EndKind>> ends;
  std::vector<RowOutcome> failed;
};

TEST(EngineEvents, AFailedRowPublishesNothingAndEndsAlone) {
  const std::vector<TraceRequest> trace = SmallTrace(2, 60);
  EngineConfig config;
  config.pages = 300;
  NaiveBooks books(FenceConfigFor(config, trace));
  Rng rng(7);
  books.verdict = [&](StepId, Row, RequestId) {
    return rng.Chance(1, 50) ? CheckSet(Reason::kTagMismatch) : CheckSet();
  };
  Ends ends;
  const EngineReport report = Make(config, trace, &books, &ends)->Run();
  EXPECT_EQ(books.complaints.size(), 0u) << books.FirstComplaint();
  EXPECT_GT(report.fenced, 3u);
  EXPECT_EQ(report.fenced, ends.failed.size());
  EXPECT_EQ(report.fenced + report.finished, trace.size());
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
  for (const RowOutcome& row : ends.failed) {
    EXPECT_FALSE(row.published);
    EXPECT_EQ(row.reasons, CheckSet(Reason::kTagMismatch));
    EXPECT_EQ(ends.ends[row.request], std::vector<EndKind>{EndKind::kFenced});
  }
}

TEST(EngineEvents, PolicyRecomputeGoesBackToTheGoodPrefixAndPublishesTheRightTokens) {
  const std::vector<TraceRequest> trace = SmallTrace(2, 60);
  EngineConfig config;
  config.pages = 300;
  config.policy = Policy::kRecompute;
  NaiveBooks books(FenceConfigFor(config, trace));
  Rng rng(7);
  books.verdict = [&](StepId, Row, RequestId) {
    return rng.Chance(1, 120) ? CheckSet(Reason::kTagMismatch) : CheckSet();
  };
  const EngineReport report = Make(config, trace, &books)->Run();
  EXPECT_EQ(books.complaints.size(), 0u) << books.FirstComplaint();
  EXPECT_GT(report.recomputes, 3u);
  EXPECT_GT(report.tokens_kept, 0u);
  EXPECT_EQ(books.counts["drop"], report.recomputes);
  EXPECT_EQ(report.finished + report.fenced, trace.size());
  EXPECT_LE(report.fenced, 1u);
  EXPECT_EQ(report.wrong_tokens, 0u);
}

TEST(EngineEvents, TakesKeysOutAndSetsPagesApart) {
  const std::vector<TraceRequest> trace = SmallTrace(4, 60);
  EngineConfig config;
  config.pages = 400;
  config.quarantine_steps = 1000000;
  NaiveBooks books(FenceConfigFor(config, trace));
  std::vector<uint64_t> keys;
  books.verdict = [&](StepId step, Row row, RequestId req) {
    if (step.value() % 25 != 0 || row.value() != 0) return CheckSet();
    books.quarantine_next.push_back({PoolId(0), PageId(books.PagesOf(req).front())});
    if (!books.index().empty()) {
      keys.push_back(books.index().begin()->first);
      books.unpublish_next.push_back(KeyId(keys.back()));
    }
    return CheckSet(Reason::kStampMismatch);
  };
  const auto engine = Make(config, trace, &books);
  uint64_t checked = 0;
  while (engine->Step()) {
    if (engine->report().steps % 25 != 0 || keys.empty()) continue;
    EXPECT_FALSE(books.index().contains(keys.back()));
    ++checked;
  }
  const EngineReport& report = engine->report();
  // The naive idle audit expects free or cached pages; set-apart ones are free by its books.
  EXPECT_EQ(books.complaints.size(), 0u) << books.FirstComplaint();
  EXPECT_GT(checked, 3u);
  EXPECT_GT(report.pages_quarantined, 3u);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_EQ(report.audit, "");
}

// A missing result for a row is not a clean one.
TEST(EngineEvents, NoResultMeansNotPublished) {
  struct Silent : NaiveTracker {
    Result<Settlement> Retire(const RetireEvent& e) {
      (void)books->Retire(e).ok();
      return Settlement{.step = e.step};
    }
  };
  const std::vector<TraceRequest> trace = SmallTrace(4, 20);
  const EngineConfig config;
  NaiveBooks books(FenceConfigFor(config, trace));
  auto engine = Engine<Silent>::Create(config, &trace, Silent{{&books}});
  ASSERT_TRUE(engine.ok());
  const EngineReport& report = (*engine)->Run();
  EXPECT_EQ(report.tokens_published, 0u);
  EXPECT_EQ(report.fenced, trace.size());
}

}  // namespace
}  // namespace kvfence
