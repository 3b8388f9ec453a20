// What the fence costs a whole serving loop: the same trace with the fence off, at map and at full.
//
// One iteration serves a generated trace of chat traffic to its end. `noop` is the engine compiled
// without hooks, `off` the run-time switch. The simulated attention costs nothing near what a real
// one does, so these ratios are upper bounds: the share of a real step is far smaller.
// Run: replay_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kvfence/check.h"
#include "kvfence/engine.h"
#include "kvfence/fence.h"
#include "kvfence/switched_tracker.h"
#include "kvfence/trace.h"

namespace kvfence {
namespace {

const std::vector<TraceRequest>& Traffic() {
  static const std::vector<TraceRequest> kTrace = [] {
    TraceShape shape;
    shape.requests = 200;
    shape.median_message = 600;
    shape.largest_input = 16000;
    shape.median_output = 60;
    return GenerateTrace(shape);
  }();
  return kTrace;
}

EngineConfig Sizes(int64_t page_size) {
  EngineConfig config;
  config.page_size = static_cast<uint64_t>(page_size);
  config.pages = 400'000 / config.page_size;
  config.rows = 64;
  config.token_budget = 4096;
  config.ground_truth = false;
  return config;
}

void Count(benchmark::State& state, const EngineReport& report) {
  state.counters["tokens_per_s"] = benchmark::Counter(
      static_cast<double>(report.tokens_published), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["steps"] = static_cast<double>(report.steps);
}

void Noop(benchmark::State& state) {
  const EngineConfig config = Sizes(state.range(0));
  EngineReport report;
  for (auto _ : state) {
    auto engine = Engine<NoopTracker>::Create(config, &Traffic(), NoopTracker()).value();
    report = engine->Run();
  }
  Count(state, report);
}

void Serve(benchmark::State& state, Level level) {
  const EngineConfig config = Sizes(state.range(0));
  EngineReport report;
  for (auto _ : state) {
    std::unique_ptr<Fence> fence;
    if (level != Level::kOff) {
      FenceConfig fence_config = FenceConfigFor(config, Traffic());
      fence_config.level = level;
      fence = Fence::Create(fence_config).value();
    }
    auto engine =
        Engine<SwitchedTracker>::Create(config, &Traffic(), SwitchedTracker(fence.get())).value();
    report = engine->Run();
    if (fence) KVF_CHECK(fence->stats().violations == 0, "an honest engine is never reported");
  }
  Count(state, report);
}

BENCHMARK(Noop)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Serve, off, Level::kOff)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Serve, map, Level::kMap)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Serve, full, Level::kFull)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvfence

BENCHMARK_MAIN();
