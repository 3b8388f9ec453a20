// Validate beside the best that reading the same arrays can cost: a hand-tuned gather loop.
//
// Idea: 64 rows of 512 pages (32K entries), pools of 64K, 256K and 1M pages, several batches in
// rotation so that inputs don't all stay in the first cache. The loop compares page, tag and stamp
// of each entry, and counts; it knows nothing of lengths, writes, tails, verdicts. Both are timed
// in the same iterations, so that `ratio` (validate / loop) is of one machine in one state. One
// thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "kvfence/validate.h"
#include "validator_batch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvfence {
namespace {

constexpr uint32_t kRows = BatchShape().rows;
constexpr uint32_t kPagesPerRow = BatchShape().pages_per_row;
constexpr uint32_t kEntries = kRows * kPagesPerRow;
static_assert(kPagesPerRow % kChunkEntries == 0, "a row's expectations lie side by side");
constexpr uint32_t kBatches = 8;

// --- the gather loop ----------------------------------------------------------------------------

// How many of n entries differ from what is expected, in page, tag or stamp.
using Loop = uint64_t (*)(const int32_t*, const Expectation*, const PageRecord*, uint32_t pages,
                          uint64_t n);

uint64_t PlainLoop(const int32_t* entries, const Expectation* want, const PageRecord* records,
                   uint32_t pages, uint64_t n) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const auto page = static_cast<uint32_t>(entries[i]);
    const PageRecord& record = records[page < pages ? page : 0];
    wrong += static_cast<uint64_t>(page >= pages) | static_cast<uint64_t>(page != want[i].page) |
             static_cast<uint64_t>(record.tag != want[i].tag) |
             static_cast<uint64_t>(record.stamp != want[i].stamp);
  }
  return wrong;
}

#if defined(__x86_64__)
// Four entries at a time. Expected words are taken apart into (page, tag) and stamps.
__attribute__((target("avx2"))) uint64_t Avx2Loop(const int32_t* entries, const Expectation* want,
                                                  const PageRecord* records, uint32_t pages,
                                                  uint64_t n) {
  const auto* base = reinterpret_cast<const long long*>(records);
  const __m256i limit = _mm256_set1_epi64x(pages);
  const __m256i high = _mm256_set1_epi64x(static_cast<long long>(0xFFFFFFFF00000000ull));
  __m256i wrong = _mm256_setzero_si256();
  for (uint64_t i = 0; i < n; i += 4) {
    const __m256i page =
        _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(entries + i)));
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(want + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(want + i + 2));
    const __m256i named = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(a, b), 0xD8);
    const __m256i stamp = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(a, b), 0xD8);
    const __m256i inside = _mm256_cmpgt_epi64(limit, page);
    const __m256i index = _mm256_slli_epi64(_mm256_and_si256(page, inside), 1);
    const __m256i low = _mm256_i64gather_epi64(base, index, 8);
    const __m256i found = _mm256_i64gather_epi64(base + 1, index, 8);
    const __m256i both = _mm256_or_si256(page, _mm256_slli_epi64(low, 32));
    const __m256i same = _mm256_and_si256(_mm256_and_si256(inside, _mm256_cmpeq_epi64(both, named)),
                                          _mm256_cmpeq_epi64(found, stamp));
    wrong = _mm256_add_epi64(wrong, _mm256_andnot_si256(same, _mm256_srli_epi64(high, 32 + 31)));
  }
  alignas(32) uint64_t sums[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), wrong);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

__attribute__((target("avx512f"))) uint64_t Avx512Loop(const int32_t* entries,
                                                       const Expectation* want,
                                                       const PageRecord* records, uint32_t pages,
                                                       uint64_t n) {
  const auto* base = reinterpret_cast<const long long*>(records);
  constexpr __mmask8 kAll = 0xFF;  // the unmasked forms draw a false warning from GCC 12
  const __m512i zero = _mm512_setzero_si512();
  const __m512i limit = _mm512_set1_epi64(pages);
  const __m512i low_of = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i high_of = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < n; i += 8) {
    const __m512i page = _mm512_maskz_cvtepu32_epi64(
        kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries + i)));
    const __m512i a = _mm512_loadu_si512(want + i);
    const __m512i b = _mm512_loadu_si512(want + i + 4);
    const __m512i named = _mm512_permutex2var_epi64(a, low_of, b);
    const __m512i stamp = _mm512_permutex2var_epi64(a, high_of, b);
    const __mmask8 inside = _mm512_cmplt_epu64_mask(page, limit);
    const __m512i index = _mm512_maskz_slli_epi64(inside, page, 1);
    const __m512i low = _mm512_mask_i64gather_epi64(zero, kAll, index, base, 8);
    const __m512i found = _mm512_mask_i64gather_epi64(zero, kAll, index, base + 1, 8);
    const __m512i both = _mm512_or_si512(page, _mm512_maskz_slli_epi64(kAll, low, 32));
    const unsigned same =
        _mm512_cmpeq_epi64_mask(both, named) & _mm512_cmpeq_epi64_mask(found, stamp) & inside;
    wrong += static_cast<uint64_t>(8 - __builtin_popcount(same));
  }
  return wrong;
}
#endif

struct NamedLoop {
  const char* name;
  Loop loop;
};
std::vector<NamedLoop> Loops() {
  std::vector<NamedLoop> loops{{"plain", PlainLoop}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) loops.push_back({"avx2", Avx2Loop});
  if (__builtin_cpu_supports("avx512f")) loops.push_back({"avx512", Avx512Loop});
#endif
  return loops;
}

// --- batches ------------------------------------------------------------------------------------

// Decode steps of 64 rows of 511 full pages and a last one that gets one more token.
class Bench {
 public:
  explicit Bench(uint32_t pages) : pool_(pages, BatchShape()) {
    Rng rng(pages);
    std::vector<uint32_t> order = AllPages(pages);
    for (uint32_t b = 0; b < kBatches; ++b) {
      ShufflePages(kEntries, &rng, &order);
      batches_.push_back(std::make_unique<ValidatorBatch>(BatchShape(), order, &pool_));
    }
  }

  // Both return nanoseconds; both must find nothing.
  double Validate(uint32_t b) {
    const GateView gate = batches_[b]->Gate(&pool_);
    const StepView step = batches_[b]->Step();
    const StepScratch scratch = scratch_.View();
    const auto start = std::chrono::steady_clock::now();
    ValidateCpu(gate, step, scratch);
    const double ns = Since(start);
    KVF_CHECK(scratch_.Clean(*batches_[b]), "a clean batch");
    return ns;
  }
  double Gather(uint32_t b, Loop loop) {
    const ValidatorBatch& batch = *batches_[b];
    const auto start = std::chrono::steady_clock::now();
    uint64_t wrong = 0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t at = r * kPagesPerRow;
      wrong += loop(batch.table.data() + at, batch.arena.data() + at, pool_.records.data(),
                    pool_.state.pages, kPagesPerRow);
    }
    const double ns = Since(start);
    KVF_CHECK(wrong == 0, "the loop agrees");
    return ns;
  }

 private:
  static double Since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
        .count();
  }

  BatchPool pool_;
  std::vector<std::unique_ptr<ValidatorBatch>> batches_;
  BatchScratch scratch_{BatchShape()};
};

void BM_Validate(benchmark::State& state) {
  Bench bench(static_cast<uint32_t>(state.range(0)));
  const std::vector<NamedLoop> loops = Loops();
  std::vector<double> loop_ns(loops.size(), 0.0);
  double validate_ns = 0;
  uint32_t b = 0;
  uint64_t passes = 0;
  for (auto _ : state) {
    const double ns = bench.Validate(b);
    state.SetIterationTime(ns * 1e-9);
    validate_ns += ns;
    // Other batches in between, so that no one finds the other's lines warm.
    for (size_t l = 0; l < loops.size(); ++l) {
      loop_ns[l] += bench.Gather((b + 1 + static_cast<uint32_t>(l)) % kBatches, loops[l].loop);
    }
    b = (b + 1) % kBatches;
    ++passes;
  }
  const double entries = static_cast<double>(passes) * kEntries;
  const double best = *std::min_element(loop_ns.begin(), loop_ns.end());
  state.counters["ns_per_entry"] = validate_ns / entries;
  for (size_t l = 0; l < loops.size(); ++l) {
    state.counters[std::string(loops[l].name) + "_ns"] = loop_ns[l] / entries;
  }
  state.counters["ratio"] = validate_ns / best;
}
BENCHMARK(BM_Validate)
    ->Arg(64 << 10)
    ->Arg(256 << 10)
    ->Arg(1 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvfence

BENCHMARK_MAIN();
