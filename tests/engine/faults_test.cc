// Each hook point corrupts what it says, and without a fence the wrong tokens that follow are seen
// by the ground truth: what fault campaigns are built on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "engine/engine_impl.h"
#include "tests/engine/naive_books.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

using Action = std::function<bool(FaultSurface&)>;  // true: done

// One fault, at one moment, as soon as it can be made after the warm-up.
struct OneFault : FaultHooks {
  Action after_plan, before_upload, before_validate, between, after_attention, after_retire;
  std::function<bool(FaultSurface&, RequestIndex, std::vector<PageId>&)> on_alloc;
  std::function<bool(FaultSurface&, RequestIndex, std::vector<SharedPage>&)> on_share;
  std::function<std::optional<ReturnAction>(FaultSurface&, RequestIndex, PageId)> on_return;
  uint64_t warm_up = 12;
  bool again = false;  // not only once
  uint64_t made = 0;

  void Try(FaultSurface& s, const Action& action) {
    if (action && Due(s) && action(s)) ++made;
  }
  bool Due(const FaultSurface& s) const {
    return s.step().value() > warm_up && (again || made == 0);
  }
  void AfterPlan(FaultSurface& s) override { Try(s, after_plan); }
  void BeforeUpload(FaultSurface& s) override { Try(s, before_upload); }
  void BeforeValidate(FaultSurface& s) override { Try(s, before_validate); }
  void BetweenValidateAndAttention(FaultSurface& s) override { Try(s, between); }
  void AfterAttention(FaultSurface& s) override { Try(s, after_attention); }
  void AfterRetire(FaultSurface& s) override { Try(s, after_retire); }
  void OnAlloc(FaultSurface& s, RequestIndex r, std::vector<PageId>& pages) override {
    if (on_alloc && Due(s) && on_alloc(s, r, pages)) ++made;
  }
  void OnShare(FaultSurface& s, RequestIndex r, std::vector<SharedPage>& hits) override {
    if (on_share && Due(s) && on_share(s, r, hits)) ++made;
  }
  ReturnAction OnReturn(FaultSurface& s, RequestIndex r, PageId page) override {
    if (!on_return || !Due(s)) return ReturnAction::kProceed;
    const std::optional<ReturnAction> action = on_return(s, r, page);
    if (action) ++made;
    return action.value_or(ReturnAction::kProceed);
  }
};

struct Watch : OutcomeSink {
  void OnStep(const StepOutcome& step) override {
    for (const RowOutcome& row : step.rows) {
      raw_wrong += row.raw_wrong;
      wrong_published += row.published && row.sampled && row.token_wrong;
    }
  }
  uint64_t raw_wrong = 0;
  uint64_t wrong_published = 0;
};

EngineConfig Pressed() {
  EngineConfig config;
  config.page_size = 16;
  config.pages = 200;
  config.rows = 12;
  config.token_budget = 300;
  config.judge_raw = true;
  return config;
}

struct Seen {
  uint64_t made;
  uint64_t raw_wrong;
  uint64_t wrong_published;
  EngineReport report;
};

Seen RunWith(OneFault* fault, const EngineConfig& config = Pressed()) {
  const std::vector<TraceRequest> trace = SmallTrace(11, 150);
  Watch watch;
  auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, fault, &watch);
  EXPECT_TRUE(engine.ok());
  const EngineReport& report = (*engine)->Run();
  EXPECT_EQ(report.wrong_tokens, watch.wrong_published);
  return {fault->made, watch.raw_wrong, watch.wrong_published, report};
}

void ExpectWrong(OneFault* fault) {
  const Seen seen = RunWith(fault);
  EXPECT_GT(seen.made, 0u);
  EXPECT_GT(seen.raw_wrong, 0u);
  EXPECT_GT(seen.wrong_published, 0u);
}

// Two decoding rows with at least two pages each.
std::optional<std::pair<StepRow, StepRow>> TwoRows(FaultSurface& s) {
  std::vector<StepRow> rows;
  for (const StepRow& row : s.rows()) {
    if (row.request != kNoRequest && row.publishes && row.covered >= 2) rows.push_back(row);
  }
  if (rows.size() < 2) return std::nullopt;
  return std::pair(rows[0], rows[1]);
}

TEST(EngineFaults, HooksThatDoNothingChangeNothing) {
  OneFault nothing;
  const Seen seen = RunWith(&nothing);
  EXPECT_EQ(seen.raw_wrong, 0u);
  EXPECT_EQ(seen.wrong_published, 0u);
  EXPECT_EQ(seen.report.audit, "");
  EXPECT_EQ(seen.report.odd_books, 0u);
  EXPECT_EQ(seen.report.finished, 150u);
}

TEST(EngineFaults, StaleMappingInTheHostTable) {
  OneFault fault;
  fault.before_upload = [](FaultSurface& s) {
    const auto two = TwoRows(s);
    if (!two) return false;
    const int64_t foreign = s.HostEntry(two->second.row, two->second.covered - 1);
    s.SetHostEntry(two->first.row, 0, foreign);
    return true;
  };
  ExpectWrong(&fault);
}

TEST(EngineFaults, TableFlipOnTheDevice) {
  for (const bool after_validate : {false, true}) {
    OneFault fault;
    const Action flip = [](FaultSurface& s) {
      const auto two = TwoRows(s);
      if (!two) return false;
      s.SetDeviceEntry(two->first.row, 1, s.DeviceEntry(two->second.row, two->second.covered - 1));
      return true;
    };
    (after_validate ? fault.between : fault.before_validate) = flip;
    ExpectWrong(&fault);
  }
}

TEST(EngineFaults, FlipAfterAttentionIsNotRead) {
  OneFault fault;
  fault.after_attention = [](FaultSurface& s) {
    const auto two = TwoRows(s);
    if (!two) return false;
    s.SetDeviceEntry(two->first.row, 1, s.DeviceEntry(two->second.row, two->second.covered - 1));
    s.SetDeviceEntry(two->first.row, s.width() - 1, 7);
    return true;
  };
  fault.again = true;
  const Seen seen = RunWith(&fault);
  EXPECT_GT(seen.made, 10u);
  EXPECT_EQ(seen.raw_wrong, 0u);
  EXPECT_EQ(seen.wrong_published, 0u);
}

TEST(EngineFaults, RowSwapAndTornTable) {
  OneFault swap;
  swap.before_validate = [](FaultSurface& s) {
    const auto two = TwoRows(s);
    if (!two) return false;
    s.SwapDeviceRows(two->first.row, two->second.row);
    return true;
  };
  ExpectWrong(&swap);
  OneFault torn;
  torn.again = true;
  torn.before_validate = [](FaultSurface& s) {
    for (const StepRow& row : s.rows()) {
      if (row.request == kNoRequest || row.covered < 2) continue;
      bool differs = false;
      for (uint64_t k = row.covered / 2; k < row.covered; ++k) {
        const int64_t old = s.PreviousDeviceEntry(row.row, k);
        differs |= old != 0 && old != s.DeviceEntry(row.row, k);
      }
      if (!differs) continue;
      for (uint64_t k = row.covered / 2; k < row.covered; ++k) {
        s.SetDeviceEntry(row.row, k, s.PreviousDeviceEntry(row.row, k));
      }
      return true;
    }
    return false;
  };
  ExpectWrong(&torn);
}

TEST(EngineFaults, LengthOffByOneAndByAPage) {
  for (const int64_t off : {int64_t{-1}, int64_t{1}, int64_t{16}, int64_t{-16}}) {
    OneFault fault;
    fault.before_validate = [off](FaultSurface& s) {
      const auto two = TwoRows(s);
      if (!two) return false;
      s.SetDeviceLength(two->first.row, s.DeviceLength(two->first.row) + off);
      return true;
    };
    SCOPED_TRACE(off);
    ExpectWrong(&fault);
  }
}

TEST(EngineFaults, RowTailIsReadByTheTile) {
  OneFault fault;
  fault.before_validate = [](FaultSurface& s) {
    const auto two = TwoRows(s);
    if (!two || two->first.covered >= two->first.reach) return false;
    s.SetDeviceEntry(two->first.row, two->first.covered, s.DeviceEntry(two->second.row, 0));
    return true;
  };
  ExpectWrong(&fault);
}

TEST(EngineFaults, WrongWriteSlotAndPaddedRow) {
  OneFault slot;
  slot.before_validate = [](FaultSurface& s) {
    const auto two = TwoRows(s);
    if (!two) return false;
    s.SetDeviceSlot(two->first.row, 0,
                    s.SlotOf(two->second.request, two->second.length_before - 1).value());
    return true;
  };
  ExpectWrong(&slot);
  OneFault pad;
  pad.before_validate = [](FaultSurface& s) {
    const StepRow& last = s.rows().back();
    const auto two = TwoRows(s);
    if (!two || last.request != kNoRequest) return false;
    s.SetDeviceSlot(last.row, 0,
                    s.SlotOf(two->first.request, two->first.length_before - 1).value());
    return true;
  };
  ExpectWrong(&pad);
}

TEST(EngineFaults, FreeWhileHeldAndDoubleFree) {
  OneFault early;
  early.after_retire = [](FaultSurface& s) {
    const std::vector<RequestIndex> running = s.Running();
    if (running.size() < 3 || s.PagesOf(running[1]).empty()) return false;
    s.FreePageNow(s.PagesOf(running[1]).back());
    return true;
  };
  early.again = true;
  ExpectWrong(&early);
  OneFault twice;
  twice.on_return = [](FaultSurface&, RequestIndex, PageId) { return ReturnAction::kTwice; };
  twice.again = true;
  ExpectWrong(&twice);
}

TEST(EngineFaults, IssuedWhileHeld) {
  OneFault fault;
  fault.again = true;
  fault.on_alloc = [](FaultSurface& s, RequestIndex r, std::vector<PageId>& pages) {
    for (const RequestIndex other : s.Running()) {
      if (other == r || s.PagesOf(other).empty()) continue;
      pages[0] = s.PagesOf(other).back();
      return true;
    }
    return false;
  };
  ExpectWrong(&fault);
}

TEST(EngineFaults, WrongHitAndStaleEntry) {
  OneFault wrong;
  wrong.on_share = [](FaultSurface& s, RequestIndex, std::vector<SharedPage>& hits) {
    const std::vector<RequestIndex> running = s.Running();
    if (hits.empty() || running.empty()) return false;
    hits.back().page = s.PagesOf(running[0]).front();
    return true;
  };
  wrong.again = true;
  ExpectWrong(&wrong);
  OneFault stale;
  stale.again = true;
  stale.after_retire = [](FaultSurface& s) {
    for (int64_t page = 1; page < static_cast<int64_t>(s.pages()); ++page) {
      if (s.StateOf(PageId(page)) == PageState::kCached) return s.EvictLeavingEntry(PageId(page));
    }
    return false;
  };
  ExpectWrong(&stale);
}

TEST(EngineFaults, LateWriteLandsAtAMomentOfTheSeed) {
  OneFault late;
  late.again = true;
  late.after_retire = [](FaultSurface& s) {
    const std::vector<RequestIndex> running = s.Running();
    if (running.empty() || s.PagesOf(running[0]).empty()) return false;
    s.EnqueueLateWrite({.page = s.PagesOf(running[0])[0], .first = 0, .n = 4, .content = 5},
                       StepId(s.step().value() + 2));
    return true;
  };
  ExpectWrong(&late);
  const std::vector<TraceRequest> trace = SmallTrace(11, 40);
  auto moments = [&](uint64_t seed) {
    std::vector<uint64_t> seen;
    OneFault async;
    uint64_t launched = 0, validated = 0, attended = 0;
    async.before_validate = [&](FaultSurface&) { return ++launched, false; };
    async.between = [&](FaultSurface&) { return ++validated, false; };
    async.after_attention = [&](FaultSurface&) { return ++attended, false; };
    async.again = true;
    async.after_retire = [&](FaultSurface& s) {
      s.EnqueueAsync(s.step(), [&](FaultSurface&) {
        seen.push_back(launched * 4 + validated * 2 + attended);
      });
      return true;
    };
    EngineConfig config = Pressed();
    config.seed = seed;
    auto engine = Engine<NoopTracker>::Create(config, &trace, NoopTracker{}, {}, &async);
    EXPECT_TRUE(engine.ok());
    (*engine)->Run();
    return seen;
  };
  EXPECT_EQ(moments(1), moments(1));
  EXPECT_NE(moments(1), moments(2));
}

TEST(EngineFaults, TheTrackerHearsWhatTheBooksDid) {
  const std::vector<TraceRequest> trace = SmallTrace(11, 150);
  OneFault early;
  early.after_retire = [](FaultSurface& s) {
    const std::vector<RequestIndex> running = s.Running();
    if (running.empty() || s.PagesOf(running[0]).empty()) return false;
    s.FreePageNow(s.PagesOf(running[0]).back());
    return true;
  };
  NaiveBooks books(FenceConfigFor(Pressed(), trace));
  auto engine = Engine<NaiveTracker>::Create(Pressed(), &trace, NaiveTracker{&books}, {}, &early);
  ASSERT_TRUE(engine.ok());
  (*engine)->Run();
  EXPECT_NE(books.FirstComplaint().find("free of a held page"), std::string::npos);
}

// The raw read is judged before sanitising: a row that the fence made harmless still read wrong.
TEST(EngineFaults, RawReadsAreJudgedAsIfNothingHadBeenSanitised) {
  struct Sanitiser : NaiveTracker {
    void Step(const StepEvent& e) {
      // Makes every live row harmless, as if each had failed.
      for (const RowPlan& plan : e.rows) {
        const PoolBuffers& pool = e.pools[0];
        for (uint64_t k = 0; k < *plan.reach; ++k) {
          pool.table.entries.Set(plan.row.value() * pool.table.stride + k, 0);
        }
      }
    }
    void Confirm(const ConfirmEvent&) {}
    Result<Settlement> Retire(const RetireEvent& e) { return Settlement{.step = e.step}; }
  };
  const std::vector<TraceRequest> trace = SmallTrace(11, 30);
  NaiveBooks books(FenceConfigFor(Pressed(), trace));
  Watch watch;
  auto engine =
      Engine<Sanitiser>::Create(Pressed(), &trace, Sanitiser{{&books}}, {}, nullptr, &watch);
  ASSERT_TRUE(engine.ok());
  (*engine)->Run();
  EXPECT_EQ(watch.raw_wrong, 0u) << "the arrays were right before they were sanitised";
  EXPECT_EQ(watch.wrong_published, 0u);
}

}  // namespace
}  // namespace kvfence
