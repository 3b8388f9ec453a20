// What one issue and one return cost, beside a plain std::vector stack that does the same work.
//
// Churn: half of the pages are live; each iteration gives back a random live page and takes one.
// The order is drawn before the clock starts and is the same for pool and stack, so the difference
// is what tags, references, states and checks cost. Figures are time per call (two an iteration).
// At 1M pages the records are larger than a core's own caches: every call pays for a far access,
// drain for one that waits for the one before it. DependentTouch shows what such an access costs on
// this machine at this moment; shared memory and other programs move it by a factor of three.
// Run: allocator_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kvfence/page_pool.h"
#include "kvfence/prefix_index.h"
#include "kvfence/rng.h"

namespace kvfence {
namespace {

constexpr size_t kDraws = size_t{1} << 20;

std::unique_ptr<PagePool> MakePool(int64_t pages, ReuseOrder order) {
  PoolOptions options;
  options.pages = pages + 1;  // and the null page
  options.order = order;
  return PagePool::Create(options).value();
}

// Positions in the array of live pages, to be given back one after the other.
std::vector<uint32_t> Draws(size_t live) {
  Rng rng(1);
  std::vector<uint32_t> draws(kDraws);
  for (uint32_t& draw : draws) draw = static_cast<uint32_t>(rng.Below(live));
  return draws;
}

template <class T>
void Shuffle(std::vector<T>& items) {
  Rng rng(2);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.Below(i)]);
}

void PerCall(benchmark::State& state, double calls_per_iteration) {
  state.counters["per_call"] =
      benchmark::Counter(calls_per_iteration, benchmark::Counter::kIsIterationInvariantRate |
                                                  benchmark::Counter::kInvert);
}

void ChurnPool(benchmark::State& state, ReuseOrder order) {
  auto pool = MakePool(state.range(0), order);
  std::vector<PageId> live(static_cast<size_t>(state.range(0)) / 2);
  if (!pool->IssueAll(live)) state.SkipWithError("too few pages");
  Shuffle(live);
  const std::vector<uint32_t> draws = Draws(live.size());
  size_t next = 0;
  for (auto _ : state) {
    PageId& slot = live[draws[next++ % kDraws]];
    const bool returned = pool->Return(slot).ok();
    benchmark::DoNotOptimize(returned);
    slot = *pool->Issue();
  }
  if (pool->Audit()) state.SkipWithError("the pool's books are wrong");
  PerCall(state, 2);
}

void ChurnStack(benchmark::State& state) {
  std::vector<int64_t> stack(static_cast<size_t>(state.range(0)));
  std::iota(stack.rbegin(), stack.rend(), int64_t{1});
  std::vector<int64_t> live(stack.size() / 2);
  for (int64_t& page : live) {
    page = stack.back();
    stack.pop_back();
  }
  Shuffle(live);
  const std::vector<uint32_t> draws = Draws(live.size());
  size_t next = 0;
  for (auto _ : state) {
    int64_t& slot = live[draws[next++ % kDraws]];
    stack.push_back(slot);
    benchmark::DoNotOptimize(stack.data());
    slot = stack.back();
    stack.pop_back();
  }
  PerCall(state, 2);
}

// Takes every page, gives all back in random order: nothing is near in memory.
void DrainPool(benchmark::State& state) {
  auto pool = MakePool(state.range(0), ReuseOrder::kLifo);
  std::vector<PageId> pages(static_cast<size_t>(state.range(0)));
  std::vector<uint32_t> order(pages.size());
  std::iota(order.begin(), order.end(), 0u);
  Shuffle(order);
  for (auto _ : state) {
    for (PageId& page : pages) page = *pool->Issue();
    for (const uint32_t i : order) benchmark::DoNotOptimize(pool->Return(pages[i]).ok());
  }
  PerCall(state, 2.0 * static_cast<double>(pages.size()));
}

void DrainStack(benchmark::State& state) {
  std::vector<int64_t> stack(static_cast<size_t>(state.range(0)));
  std::iota(stack.rbegin(), stack.rend(), int64_t{1});
  std::vector<int64_t> pages(stack.size());
  std::vector<uint32_t> order(pages.size());
  std::iota(order.begin(), order.end(), 0u);
  Shuffle(order);
  for (auto _ : state) {
    for (int64_t& page : pages) {
      page = stack.back();
      stack.pop_back();
    }
    for (const uint32_t i : order) stack.push_back(pages[i]);
    benchmark::DoNotOptimize(stack.data());
  }
  PerCall(state, 2.0 * static_cast<double>(pages.size()));
}

// Walks 16-byte records in an order that only the records know, as a list in random order does.
void DependentTouch(benchmark::State& state) {
  struct Record {
    uint32_t next;
    uint32_t rest[3];
  };
  std::vector<uint32_t> order(static_cast<size_t>(state.range(0)));
  std::iota(order.begin(), order.end(), 0u);
  Shuffle(order);
  std::vector<Record> records(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    records[order[i]].next = order[(i + 1) % order.size()];
  }
  uint32_t at = 0;
  for (auto _ : state) benchmark::DoNotOptimize(at = records[at].next);
  PerCall(state, 1);
}

// A full pool of cached pages: look up, evict, issue, publish, return. Per call of those five.
void CacheTurnover(benchmark::State& state) {
  auto pool = MakePool(state.range(0), ReuseOrder::kLifo);
  PrefixIndex index(pool.get());
  uint64_t key = 0;
  auto cache_one = [&] {
    const PageId page = *IssueEvicting(*pool, index);
    ++key;
    benchmark::DoNotOptimize(index.Publish(KeyId(Mix64(key)), page, kNoStamp, IdentityId()).ok());
    benchmark::DoNotOptimize(pool->Return(page).ok());
  };
  for (int64_t i = 0; i < state.range(0); ++i) cache_one();
  for (auto _ : state) {
    benchmark::DoNotOptimize(index.Lookup(KeyId(Mix64(key / 2))));
    cache_one();
  }
  PerCall(state, 5);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("pages")->Arg(1 << 16)->Arg(1 << 20);
}

BENCHMARK_CAPTURE(ChurnPool, lifo, ReuseOrder::kLifo)->Apply(Sizes);
BENCHMARK_CAPTURE(ChurnPool, fifo, ReuseOrder::kFifo)->Apply(Sizes);
BENCHMARK(ChurnStack)->Apply(Sizes);
BENCHMARK(DrainPool)->Apply(Sizes)->Unit(benchmark::kMillisecond);
BENCHMARK(DrainStack)->Apply(Sizes)->Unit(benchmark::kMillisecond);
BENCHMARK(DependentTouch)->Apply(Sizes);
BENCHMARK(CacheTurnover)->Apply(Sizes);

}  // namespace
}  // namespace kvfence

BENCHMARK_MAIN();
