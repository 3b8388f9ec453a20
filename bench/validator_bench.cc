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
#include <numeric>
#include <vector>

#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "kvfence/validate.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvfence {
namespace {

constexpr uint32_t kRows = 64;
constexpr uint32_t kPagesPerRow = 512;
constexpr uint32_t kPageSize = 64;
constexpr uint32_t kEntries = kRows * kPagesPerRow;
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

// One decode step: 64 rows of 511 full pages and a last one that gets one more token.
struct Batch {
  std::vector<int32_t> table;
  std::vector<int64_t> slots;
  std::vector<int32_t> slot_indptr, lengths;
  std::vector<Expectation> arena;
  std::vector<uint32_t> chunks;
  std::vector<RowTask> rows;
  std::vector<PoolTask> tasks;
  std::vector<Stamp> write_stamps;
  TableView table_view;
  SlotView slot_view;
  LengthView length_view;
};

class Bench {
 public:
  explicit Bench(uint32_t pages) : records_(pages), row_requests_(kRows) {
    Rng rng(pages);
    state_.records = records_.data();
    state_.pages = pages;
    state_.page_size = kPageSize;
    for (uint32_t p = 0; p < pages; ++p) {
      records_[p] = PageRecord{2 * p + 1, kPageSize, 0, MakeStamp(1 + p, p % 1000)};
    }
    std::iota(row_requests_.begin(), row_requests_.end(), uint64_t{77});
    std::vector<uint32_t> order(pages - 1);
    std::iota(order.begin(), order.end(), 1u);
    for (uint32_t b = 0; b < kBatches; ++b) {
      for (uint32_t i = 0; i < kEntries; ++i) {
        std::swap(order[i], order[i + rng.Below(order.size() - i)]);
      }
      batches_.push_back(MakeBatch(order));
    }
    verdicts_.resize(kRows);
    row_reasons_.resize(kRows);
    group_done_.resize(kRows);
    group_failed_.resize(kRows);
    seen_.resize(kRows);
    findings_.resize(16);
    counters_.resize(kCounters);
  }

  // Both return nanoseconds; both must find nothing.
  double Validate(uint32_t b) {
    const GateView gate{&state_,
                        1,
                        batches_[b]->arena.data(),
                        static_cast<uint32_t>(batches_[b]->arena.size() / kChunkEntries),
                        row_requests_.data(),
                        kRows};
    const StepView step = StepOf(*batches_[b]);
    const StepScratch scratch{
        verdicts_.data(), row_reasons_.data(), group_done_.data(), group_failed_.data(),
        seen_.data(),     findings_.data(),    &finding_count_,    16,
        counters_.data()};
    const auto start = std::chrono::steady_clock::now();
    ValidateCpu(gate, step, scratch);
    const double ns = Since(start);
    KVF_CHECK(finding_count_ == 0 && counters_[kCounterEntries] == kEntries, "a clean batch");
    return ns;
  }
  double Gather(uint32_t b, Loop loop) {
    const Batch& batch = *batches_[b];
    const auto start = std::chrono::steady_clock::now();
    uint64_t wrong = 0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t at = r * kPagesPerRow;
      wrong += loop(batch.table.data() + at, batch.arena.data() + at, records_.data(), state_.pages,
                    kPagesPerRow);
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

  std::unique_ptr<Batch> MakeBatch(const std::vector<uint32_t>& order) {
    auto batch = std::make_unique<Batch>();
    const uint64_t before = (kPagesPerRow - 1) * kPageSize + 10;
    batch->slot_indptr.push_back(0);
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t k = 0; k < kPagesPerRow; ++k) {
        const uint32_t page = order[r * kPagesPerRow + k];
        batch->table.push_back(static_cast<int32_t>(page));
        batch->arena.push_back(Expectation{page, records_[page].tag, records_[page].stamp});
      }
      batch->slots.push_back(int64_t{batch->table.back()} * kPageSize + 10);
      batch->slot_indptr.push_back(static_cast<int32_t>(r + 1));
      batch->lengths.push_back(static_cast<int32_t>(before + 1));
      RowTask row{};
      row.request = 77 + r;
      row.length_before = before;
      row.new_tokens = 1;
      row.reach = kPagesPerRow;
      row.row = r;
      row.group = r;
      batch->rows.push_back(row);
      PoolTask task{};
      task.row_task = r;
      task.covered = task.end_page = task.expected = kPagesPerRow;
      task.chunk_begin = static_cast<uint32_t>(batch->chunks.size());
      task.write_begin = r;
      task.write_first = kPagesPerRow - 1;
      task.write_pages = 1;
      task.prefix = ~0u;
      task.work_begin = uint64_t{r} * kPagesPerRow;
      for (uint32_t c = 0; c < kPagesPerRow / kChunkEntries; ++c) {
        batch->chunks.push_back(r * (kPagesPerRow / kChunkEntries) + c);
      }
      batch->tasks.push_back(task);
      batch->write_stamps.push_back(MakeStamp(5, r));
    }
    batch->table_view.entries = IntArray{batch->table.data(), 32};
    batch->table_view.entries_size = kEntries;
    batch->table_view.stride = batch->table_view.width = kPagesPerRow;
    batch->table_view.rows = kRows;
    batch->slot_view =
        SlotView{{batch->slots.data(), 64}, kRows, {batch->slot_indptr.data(), 32}, kRows};
    batch->length_view = LengthView{{batch->lengths.data(), 32}, kRows};
    return batch;
  }

  static StepView StepOf(const Batch& batch) {
    StepView step{};
    step.step = 1;
    step.checks = ~0u;
    step.sanitise = 1;
    step.rows = batch.rows.data();
    step.row_count = kRows;
    step.pool_tasks = batch.tasks.data();
    step.pool_task_count = kRows;
    step.work = kEntries;
    step.chunks = batch.chunks.data();
    step.write_stamps = batch.write_stamps.data();
    step.group_count = kRows;
    step.tables = &batch.table_view;
    step.slots = &batch.slot_view;
    step.lengths = &batch.length_view;
    return step;
  }

  std::vector<PageRecord> records_;
  std::vector<uint64_t> row_requests_;
  PoolState state_{};
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<VerdictWord> verdicts_;
  std::vector<uint32_t> row_reasons_, group_failed_;
  std::vector<uint64_t> group_done_, counters_;
  std::vector<Stamp> seen_;
  std::vector<DeviceFinding> findings_;
  uint32_t finding_count_ = 0;
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
