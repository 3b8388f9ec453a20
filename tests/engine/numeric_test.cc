// The engine serving the small transformer: without faults its tokens are those of the unpaged
// model, with faults they aren't, and with the fence nothing wrong leaves.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvfence/engine.h"
#include "tests/engine/fenced.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

// A pool for two requests, so that they are preempted and found again in the cache.
EngineConfig Pressed(const TransformerShape& shape) {
  EngineConfig config;
  config.numeric = shape;
  config.page_size = 4;
  config.pages = 60;
  config.rows = 6;
  config.token_budget = 48;
  config.max_chunk = 20;
  config.judge_raw = true;
  return config;
}

EngineReport RunNoop(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return (*engine)->Run();
}

std::string NameOf(const TransformerShape& s) {
  return std::string(AttentionFormName(s.attention)) + " " + std::string(KvTypeName(s.kv)) + " " +
         std::string(WeightTypeName(s.weights));
}

// With prefix reuse, chunks, and preemption both by recompute and by swap (I-151).
TEST(NumericEngine, PublishesWhatTheUnpagedModelPublishes) {
  const std::vector<TraceRequest> trace = ShortTrace(1, 14, 2);
  for (const TransformerShape& shape : Shapes()) {
    for (const bool swap : {false, true}) {
      SCOPED_TRACE(NameOf(shape) + (swap ? " swap" : ""));
      EngineConfig config = Pressed(shape);
      config.features.swap = swap;
      config.judge_raw = swap;
      const EngineReport report = RunNoop(config, trace);
      EXPECT_EQ(report.wrong_tokens, 0u);
      EXPECT_EQ(report.tokens_published, WantedTokens(trace));
      EXPECT_EQ(report.audit, "");
      EXPECT_GT(report.tokens_cached, 50u);
      EXPECT_GT(report.preemptions, 2u);
      EXPECT_EQ(report.swaps_in > 0, swap);
      EXPECT_EQ(report.wild_accesses, 0u);
    }
  }
}

// Many requests go out to the host and come back, into pages that others have used meanwhile.
TEST(NumericEngine, SwappedNumbersComeBackWhole) {
  const std::vector<TraceRequest> trace = ShortTrace(4, 60, 2);
  for (const AttentionForm form : {AttentionForm::kGqa, AttentionForm::kMla}) {
    EngineConfig config = Pressed(SmallTransformer(form, KvType::kE4m3, WeightType::kBf16));
    config.features = {};
    config.features.prefix_cache = false;
    config.features.swap = true;
    config.judge_raw = false;
    const EngineReport report = RunNoop(config, trace);
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_EQ(report.tokens_published, WantedTokens(trace));
    EXPECT_GT(report.swaps_in, 10u);
  }
}

// Any set of features, with the fence and the trial runs of campaigns.
TEST(NumericEngine, WithoutFaultsAnySetOfFeaturesIsRightAndTheFenceIsSilent) {
  const std::vector<TransformerShape> shapes = Shapes();
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const std::vector<TraceRequest> trace = ShortTrace(seed, 12, 2);
    EngineConfig config = Pressed(shapes[seed % shapes.size()]);
    config.seed = rng.Next();
    config.page_size = uint64_t{1} << rng.Below(5);
    config.pages = 4 + 260 / config.page_size + rng.Below(1 + 400 / config.page_size);
    config.reach_tile = 1 + rng.Below(4);
    config.features = DrawFeatures(rng, 2, 3);
    DrawSizes(rng, 150, &config);
    config.judge_raw = rng.Chance(1, 2);
    SCOPED_TRACE(NameOf(*config.numeric) + " " + FeatureNames(config.features));
    Fenced run(config, trace, Level::kFull);
    const EngineReport& report = run.engine->Run();
    EXPECT_EQ(run.findings.all.size(), 0u) << run.findings.first;
    EXPECT_EQ(report.wrong_tokens, 0u);
    EXPECT_EQ(report.audit, "");
    EXPECT_EQ(report.rejected, 0u);
    EXPECT_GE(report.tokens_published, WantedTokens(trace));
  }
}

TEST(NumericEngine, I20_TheSameSeedGivesTheSameReport) {
  const std::vector<TraceRequest> trace = ShortTrace(2, 8, 2);
  EngineConfig config = Pressed({});
  const EngineReport a = RunNoop(config, trace);
  const EngineReport b = RunNoop(config, trace);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.tokens_published, b.tokens_published);
  EXPECT_EQ(a.entries_read, b.entries_read);
}

// One row's last whole page is another row's, in each fourth step.
struct WrongPages : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    if (s.step().value() % 4 != 0 || s.rows().size() < 2) return;
    const StepRow& victim = s.rows()[0];
    const StepRow& other = s.rows()[1];
    if (other.request == kNoRequest || victim.covered < 2 || other.covered < 2) return;
    s.SetDeviceEntry(victim.row, victim.covered - 2, s.DeviceEntry(other.row, other.covered - 2));
    ++made;
  }
  uint64_t made = 0;
};
// Junk from outside lands in a page that is read next.
struct StrayWrites : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    if (s.step().value() % 4 != 0 || s.rows().empty()) return;
    const StepRow& victim = s.rows()[0];
    if (victim.covered < 2) return;
    s.Write({.page = PageId(s.DeviceEntry(victim.row, 0)), .n = 2, .content = s.step().value()});
    ++made;
  }
  uint64_t made = 0;
};

// A row's new token is written into another row's first page. The trial without the fence writes it
// there too, and is taken back.
struct WrongSlots : FaultHooks {
  void BeforeValidate(FaultSurface& s) override {
    if (s.step().value() % 4 != 0 || s.rows().size() < 2) return;
    const StepRow& other = s.rows()[1];
    if (other.request == kNoRequest || other.length_before < 2) return;
    const auto size = static_cast<int64_t>(s.page_size());
    s.SetDeviceSlot(s.rows()[0].row, 0, s.DeviceEntry(other.row, 0) * size + 1);
    ++made;
  }
  uint64_t made = 0;
};

// I-153: the kernels run with all of it.
template <class Hooks>
void FaultsShow(const TransformerShape& shape) {
  SCOPED_TRACE(NameOf(shape));
  const std::vector<TraceRequest> trace = ShortTrace(3, 16, 2);
  EngineConfig config = Pressed(shape);
  config.pages = 150;
  {
    Hooks hooks;
    auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, &hooks);
    ASSERT_TRUE(engine.ok());
    const EngineReport& report = (*engine)->Run();
    EXPECT_GT(hooks.made, 3u);
    EXPECT_GT(report.wrong_tokens, 3u) << "numbers that aren't the request's own show";
    EXPECT_GT(report.other_tokens, 0u) << "and now and then in the tokens themselves";
  }
  Hooks hooks;
  Fenced run(config, trace, Level::kFull, &hooks);
  const EngineReport& report = run.engine->Run();
  EXPECT_GT(hooks.made, 3u);
  EXPECT_GT(run.findings.all.size(), 3u);
  EXPECT_EQ(report.wrong_tokens, 0u);
  EXPECT_GT(report.fenced, 0u);
}

TEST(NumericEngine, AWrongPageChangesTokensAndTheFenceLetsNoneOfThemOut) {
  for (const TransformerShape& shape : Shapes()) FaultsShow<WrongPages>(shape);
}
TEST(NumericEngine, AStrayWriteChangesTokensAndTheFenceLetsNoneOfThemOut) {
  FaultsShow<StrayWrites>(Shapes().front());
  FaultsShow<StrayWrites>(Shapes().back());
}

TEST(NumericEngine, AWriteIntoAnothersPageChangesTokensAndTheFenceLetsNoneOfThemOut) {
  FaultsShow<WrongSlots>(Shapes().front());
  FaultsShow<WrongSlots>(Shapes().back());
}

TEST(NumericEngine, RefusesShapesThatCannotBe) {
  const std::vector<TraceRequest> trace = ShortTrace(1, 1, 2);
  const auto refused = [&](auto change) {
    EngineConfig config = Pressed({});
    change(&config);
    const auto made = Engine<NoopTracker>::Create(config, &trace, NoopTracker{});
    return made.ok() ? std::string() : std::string(made.status().message());
  };
  EXPECT_EQ(refused([](EngineConfig*) {}), "");
  EXPECT_NE(refused([](EngineConfig* c) { c->numeric->head_dim = 48; }), "");
  EXPECT_NE(refused([](EngineConfig* c) { c->numeric->kv_heads = 3; }), "");
  EXPECT_NE(refused([](EngineConfig* c) { c->numeric->vocab = 65538; }), "");
  EXPECT_NE(refused([](EngineConfig* c) { c->numeric->layers = 0; }), "");
  EXPECT_NE(refused([](EngineConfig* c) { c->token_budget = 1 << 20; }), "");
  EXPECT_NE(refused([](EngineConfig* c) { c->pages = 1 << 28; }), "");
  const auto int4 = [](EngineConfig* c) {
    c->numeric->weights = WeightType::kInt4;
    c->numeric->group_size = 48;
  };
  EXPECT_NE(refused(int4), "");
}

}  // namespace
}  // namespace kvfence
