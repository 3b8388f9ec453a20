// The small transformer prefilled by one engine and decoded by another, and replayed from graphs:
// tokens are those of the unpaged model, wherever a request was computed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvfence/engine.h"
#include "tests/engine/fenced.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

EngineConfig Pair(AttentionForm form, KvType kv) {
  EngineConfig config;
  config.numeric = SmallTransformer(form, kv, WeightType::kBf16);
  config.page_size = 4;
  config.pages = 90;
  config.prefill_pages = 80;
  config.rows = 6;
  config.token_budget = 48;
  config.max_chunk = 20;
  config.features.disaggregated = config.features.replayed_graphs = true;
  return config;
}

// I-154. Pages travel from a pool of BF16 into one of either type; some are lost on their way, and
// computed again where the request is then.
TEST(NumericPair, PublishesWhatTheUnpagedModelPublishesAndTheFenceIsSilent) {
  const std::vector<TraceRequest> trace = ShortTrace(1, 12, 1);
  for (const AttentionForm form : {AttentionForm::kGqa, AttentionForm::kMla}) {
    for (const KvType kv : {KvType::kE4m3, KvType::kBf16}) {
      SCOPED_TRACE(std::string(AttentionFormName(form)) + " " + std::string(KvTypeName(kv)));
      EngineConfig config = Pair(form, kv);
      config.copy_fail_per_mille = 100;
      config.handoff_late_per_mille = 100;
      Fenced run(config, trace, Level::kFull);
      const EngineReport& report = run.engine->Run();
      EXPECT_EQ(run.findings.all.size(), 0u) << run.findings.first;
      EXPECT_EQ(report.wrong_tokens, 0u);
      EXPECT_EQ(report.tokens_published, WantedTokens(trace));
      EXPECT_EQ(report.audit, "");
      EXPECT_EQ(report.wild_accesses, 0u);
      EXPECT_GT(report.handoffs_whole, 6u);
      EXPECT_GT(report.copies_failed, 0u);
      EXPECT_GT(report.pages_handed_over, 40u);
      EXPECT_GT(report.graphs_replayed, 10u);
    }
  }
}

// Junk lands in a page that has been handed over.
struct SpoilArrivals : FaultHooks {
  void OnMove(FaultSurface& s, const ContentMove& move) override {
    if (!move.to || move.group != 0 || ++seen % 12 != 0) return;
    s.Write({.page = *move.to, .first = 0, .n = 1, .content = 0xBAD});
    ++made;
  }
  uint64_t seen = 0, made = 0;
};
// In each fifth replay the plan stays that of the replay before, which may be too short.
struct KeepPlans : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    if (s.Replayed() == 0 || ++seen % 5 != 0) return;
    for (const StepRow& row : s.rows()) {
      made += row.request != kNoRequest && s.LastPlannedPages(row.row) < row.covered ? 1 : 0;
    }
    s.KeepLastPlan();
  }
  uint64_t seen = 0, made = 0;
};

template <class Hooks>
void FaultsShow(bool disaggregated) {
  const std::vector<TraceRequest> trace = ShortTrace(3, 14, 1);
  EngineConfig config = Pair(AttentionForm::kGqa, KvType::kE4m3);
  config.features.disaggregated = disaggregated;
  {
    Hooks hooks;
    auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, &hooks);
    ASSERT_TRUE(engine.ok());
    EXPECT_GT((*engine)->Run().wrong_tokens, 0u);
    EXPECT_GT(hooks.made, 0u);
  }
  Hooks hooks;
  Fenced run(config, trace, Level::kFull, &hooks);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(hooks.made, 0u);
  EXPECT_GT(report.fenced, 0u);
  EXPECT_EQ(report.wrong_tokens, 0u);
}

TEST(NumericPair, ASpoiltHandOffShowsInTokensAndIsCaught) { FaultsShow<SpoilArrivals>(true); }
TEST(NumericPair, AStalePlanShowsInTokensAndIsCaught) {
  FaultsShow<KeepPlans>(false);
  FaultsShow<KeepPlans>(true);
}

TEST(NumericPair, RefusesAPrefillPoolThatIsTooLarge) {
  EngineConfig config = Pair(AttentionForm::kGqa, KvType::kE4m3);
  config.prefill_pages = uint64_t{1} << 28;
  EXPECT_FALSE(CheckEngineConfig(config).ok());
  config.features.disaggregated = false;
  EXPECT_TRUE(CheckEngineConfig(config).ok());
}

}  // namespace
}  // namespace kvfence
