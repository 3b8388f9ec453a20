// The ledger's cost on the host: ownership events, and a decode step of many long rows.
//
// The step must cost rows and written pages, not all pages that rows read: compare the two widths.
#include <benchmark/benchmark.h>

#include <vector>

#include "kvfence/ledger.h"

namespace kvfence {
namespace {

FenceConfig Config(uint64_t pages, uint64_t rows) {
  FenceConfig config;
  config.pools.push_back({.name = "full", .pages = pages, .page_size = 16, .space = ""});
  config.rows = rows;
  config.width = 1 << 16;
  return config;
}

// What a gate would hear, thrown away.
class Deaf : public DeltaSink {
 public:
  void Page(PoolId, uint32_t, uint32_t, const PageRecord&) override {}
  void Expect(RequestId, PoolId, uint32_t, const Expectation&) override {}
  void Resize(RequestId, PoolId, uint32_t) override {}
  void End(RequestId) override {}
  void Bind(Row, RequestId) override {}
  void ScaleEpoch(PoolId, uint16_t) override {}
};

// Requests of `pages` pages: admitted, one page an event, released. An item is a page issued or
// given back.
void BM_Ownership(benchmark::State& state) {
  const auto pages = static_cast<uint32_t>(state.range(0));
  Deaf deaf;
  Ledger ledger(Config(1 << 16, 8), RankId(0), &deaf, nullptr);
  uint32_t name = 0;
  uint32_t next = 0;
  for (auto _ : state) {
    const RequestId id = ledger.Admit({.name = NameId(++name)});
    for (uint32_t i = 0; i < pages; ++i) {
      const PageId page(1 + next++ % 65000);
      benchmark::DoNotOptimize(ledger.Alloc({.req = id, .pages = Pages(&page, 1)}));
    }
    benchmark::DoNotOptimize(ledger.Release({.req = id}));
  }
  state.SetItemsProcessed(state.iterations() * pages * 2);
}
BENCHMARK(BM_Ownership)->Arg(16)->Arg(256);

// One decode step: launch, judge, confirm, retire of 256 rows of so many pages each.
void BM_DecodeStep(benchmark::State& state) {
  const auto width = static_cast<uint32_t>(state.range(0));
  constexpr uint32_t kRows = 256;
  Deaf deaf;
  Ledger ledger(Config(kRows * (width + 64) + 1, kRows), RankId(0), &deaf, nullptr);
  std::vector<RowPlan> rows(kRows);
  int64_t next = 1;
  for (uint32_t r = 0; r < kRows; ++r) {
    rows[r].row = Row(r);
    rows[r].req = ledger.Admit({.name = NameId(r + 1)});
    rows[r].new_tokens = width * 16;
    std::vector<PageId> pages;
    for (uint32_t i = 0; i < width + 64; ++i) pages.emplace_back(next++);
    benchmark::DoNotOptimize(ledger.Alloc({.req = rows[r].req, .pages = pages}));
  }
  std::vector<PoolBuffers> pools(1);
  StepEvent event;
  event.rows = rows;
  event.pools = pools;
  std::vector<uint32_t> reasons(kRows, 0);
  std::vector<LaunchedRow> launched;
  uint64_t step = 0;
  const auto run = [&] {
    event.step = StepId(++step);
    const StepPlan* plan = nullptr;
    benchmark::DoNotOptimize(ledger.Launch(event, &plan));
    benchmark::DoNotOptimize(ledger.Judge(event.step, reasons));
    benchmark::DoNotOptimize(ledger.Confirm(event.step));
    benchmark::DoNotOptimize(ledger.Retire(event.step, &launched));
  };
  run();  // the prefill
  for (RowPlan& row : rows) row.new_tokens = 1;
  for (auto _ : state) {
    run();
    if (step % 1000 == 0) {  // back to the length after the prefill
      state.PauseTiming();
      for (const RowPlan& row : rows) {
        benchmark::DoNotOptimize(ledger.Trim({.req = row.req, .tokens = uint64_t{width} * 16}));
      }
      state.ResumeTiming();
    }
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK(BM_DecodeStep)->Arg(200)->Arg(2000);

}  // namespace
}  // namespace kvfence

BENCHMARK_MAIN();
