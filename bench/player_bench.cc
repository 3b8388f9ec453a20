// The player's speed: events of a log per second, and checked table entries per second.
//
// Ownership: requests that are admitted, get pages, give them back and end. Entries: decode steps
// of 64 rows over long tables, whose lines name only what changed (`patch`). Both logs lie in
// memory; reading, ledger and gate are all in the figure, the ground truth too where `truth` is 1.
#include <benchmark/benchmark.h>

#include <sstream>
#include <string>

#include "kvfence/check.h"
#include "kvfence/check_log.h"

namespace kvfence {
namespace {

std::string OwnershipLog(int rounds) {
  std::string log = R"({"kvfence_log":1,"pools":[{"name":"full","pages":65536,"page_size":16}],)"
                    R"("rows":8,"width":64,"frees":"explicit"})"
                    "\n";
  for (int i = 0; i < rounds; ++i) {
    const std::string req = "\"r" + std::to_string(i % 512) + "\"";
    std::string pages;
    for (int k = 0; k < 8; ++k) {
      pages += (k == 0 ? "" : ",") + std::to_string(1 + (i % 512) * 8 + k);
    }
    log += R"({"ev":"admit","req":)" + req + "}\n";
    log += R"({"ev":"alloc","req":)" + req + R"(,"pages":[)" + pages + "]}\n";
    log += R"({"ev":"release","req":)" + req + "}\n";
    log += R"({"ev":"free","pages":[)" + pages + "]}\n";
  }
  return log;
}

constexpr int kRows = 64;
constexpr int kPagesPerRow = 128;

std::string DecodeLog(int steps) {
  const std::string width = std::to_string(kPagesPerRow);
  std::string log = R"({"kvfence_log":1,"pools":[{"name":"full","pages":16384,"page_size":16}],)"
                    R"("rows":64,"width":)" +
                    width + "}\n";
  std::string first;
  for (int r = 0; r < kRows; ++r) {
    const std::string req = "\"r" + std::to_string(r) + "\"";
    std::string pages;
    for (int k = 0; k < kPagesPerRow; ++k) {
      pages += (k == 0 ? "" : ",") + std::to_string(1 + r * kPagesPerRow + k);
    }
    const std::string row = std::to_string(r);
    log += R"({"ev":"admit","req":)" + req + "}\n";
    log += R"({"ev":"alloc","req":)" + req + R"(,"pages":[)" + pages + "]}\n";
    log += R"({"ev":"row","row":)" + row + R"(,"req":)" + req + "}\n";
    first += (r == 0 ? "" : ",") + (R"({"row":)" + row) + R"(,"req":)" + req +
             R"(,"new":1024,"table":[)" + pages + R"(],"len":1024,"write":[[)" +
             std::to_string((1 + r * kPagesPerRow) * 16) + ",1024]]}";
  }
  log += R"({"ev":"step","step":1,"rows":[)" + first + "]}\n" + R"({"ev":"confirm","step":1})" +
         "\n" + R"({"ev":"retire","step":1})" + "\n";
  for (int s = 0; s < steps; ++s) {
    const std::string step = std::to_string(s + 2);
    log += R"({"ev":"step","step":)" + step + R"(,"rows":[)";
    for (int r = 0; r < kRows; ++r) {
      const std::string row = std::to_string(r);
      log += (r == 0 ? "" : ",") + (R"({"row":)" + row) + R"(,"req":"r)" + row +
             R"(","new":1,"patch":[],"len":)" + std::to_string(1025 + s) + R"(,"write":[)" +
             std::to_string((1 + r * kPagesPerRow) * 16 + 1024 + s) + "]}";
    }
    log += "]}\n" + (R"({"ev":"confirm","step":)" + step) + "}\n" + R"({"ev":"retire","step":)" +
           step + "}\n";
  }
  return log;
}

void Play(benchmark::State& state, const std::string& log, bool truth) {
  CheckReport report;
  CheckOptions options;
  options.truth = truth;
  for (auto _ : state) {
    std::istringstream in(log);
    report = CheckLog(&in, "bench", options).value();
    KVF_CHECK(report.ok(), "the benchmark's log is clean");
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["events"] = benchmark::Counter(static_cast<double>(report.events), rate);
  state.counters["ownership"] =
      benchmark::Counter(static_cast<double>(report.stats.ownership_changes), rate);
  state.counters["entries"] =
      benchmark::Counter(static_cast<double>(report.stats.entries_checked), rate);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * log.size()));
}

void Ownership(benchmark::State& state) { Play(state, OwnershipLog(20000), state.range(0) != 0); }
void Decode(benchmark::State& state) { Play(state, DecodeLog(900), state.range(0) != 0); }

BENCHMARK(Ownership)->ArgName("truth")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(Decode)->ArgName("truth")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvfence

BENCHMARK_MAIN();
