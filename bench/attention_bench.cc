// Decode attention on the CPU beside what the machine can read: a straight read of the same cache.
//
// Idea: 32 rows of 8,192 tokens, pages of 16 in random order, a cache that no processor's own cache
// holds (0.5 GiB of FP8, 1 GiB of BF16). Each iteration reads all of it in order, as fast as vector
// loads go and on as many threads, and then runs attention over it; `of_read` is the median of the
// ratios, so both are of one machine in one state. GQA groups of 4 and 8, MHA, MLA with 16 heads a
// rank; `GB/s` is cache bytes per second of attention.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/bf16.h"
#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "resampling.h"
#include "straight_read.h"

namespace kvfence {
namespace {

constexpr uint32_t kTokens = 8192;
constexpr uint32_t kPageSize = 16;

struct Form {
  const char* name;
  uint32_t rows, qo_heads, kv_heads, head_dim;  // kv_heads 0: MLA
  KvType type;
  uint32_t seq_len_q;
};

// --- the cache ----------------------------------------------------------------------------------

struct Cache {
  std::vector<uint8_t> k, v;  // of MLA only k: latent and rotated numbers in one piece
  std::vector<int32_t> table, lengths;
  std::vector<uint16_t> q, o;
  DecodeAttention gqa;
  MlaDecodeAttention mla;
};

uint32_t NumberBytes(const Form& form) { return form.type == KvType::kE4m3 ? 1 : 2; }

void FillCodes(const Form& form, uint64_t seed, std::vector<uint8_t>* codes) {
  uint64_t word = seed;
  if (form.type == KvType::kE4m3) {
    for (uint64_t i = 0; i + 8 <= codes->size(); i += 8) {
      word = Mix64(word);
      const uint64_t no_nan = word & 0xBFBFBFBFBFBFBFBFu;  // magnitudes below 2
      std::memcpy(codes->data() + i, &no_nan, 8);
    }
    return;
  }
  for (uint64_t i = 0; i + 2 <= codes->size(); i += 2) {
    if (i % 8 == 0) word = Mix64(word);
    const auto part = static_cast<uint16_t>(word >> (8 * (i % 8)));
    const auto number = static_cast<uint16_t>((part & 0x81FF) | 0x3E00);  // 1/8 to 1/2
    std::memcpy(codes->data() + i, &number, 2);
  }
}

void FillRows(const Form& form, Cache* cache, PagedRows* a) {
  const uint32_t pages_per_row = kTokens / kPageSize;
  const uint32_t pages = form.rows * pages_per_row + 1;
  std::vector<int32_t> order(pages - 1);
  std::iota(order.begin(), order.end(), 1);
  Rng rng(3);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  cache->table = order;
  cache->lengths.assign(form.rows, static_cast<int32_t>(kTokens));
  a->rows = form.rows;
  a->seq_len_q = form.seq_len_q;
  a->page_size = kPageSize;
  a->num_pages = pages;
  a->kv_type = form.type;
  a->table.entries = {cache->table.data(), 32};
  a->table.entries_size = cache->table.size();
  a->table.stride = a->table.width = pages_per_row;
  a->table.rows = form.rows;
  a->lengths = {{cache->lengths.data(), 32}, form.rows};
}

std::unique_ptr<Cache> MakeCache(const Form& form) {
  auto cache = std::make_unique<Cache>();
  const uint64_t slots = (uint64_t{form.rows} * (kTokens / kPageSize) + 1) * kPageSize;
  const bool mla = form.kv_heads == 0;
  const uint32_t token = mla ? kMlaCkvDim + kMlaKpeDim : form.kv_heads * form.head_dim;
  cache->k.resize(slots * token * NumberBytes(form) + 64);
  FillCodes(form, 1, &cache->k);
  const uint64_t queries = uint64_t{form.rows} * form.seq_len_q * form.qo_heads;
  cache->q.assign(queries * (mla ? token : form.head_dim), 0);
  for (size_t i = 0; i < cache->q.size(); ++i) {
    cache->q[i] = FloatToBf16(static_cast<float>(Mix64(i) % 2001) / 1000.0f - 1.0f);
  }
  cache->o.resize(queries * (mla ? kMlaCkvDim : form.head_dim));
  const auto aligned = [](std::vector<uint8_t>& bytes) {
    return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
  };
  if (mla) {
    MlaDecodeAttention& a = cache->mla;
    FillRows(form, cache.get(), &a);
    a.num_heads = form.qo_heads;
    a.q_nope = {cache->q.data(), FloatType::kBf16};
    a.q_pe = {cache->q.data() + kMlaCkvDim, FloatType::kBf16};
    a.q_nope_stride = a.q_pe_stride = token;
    a.o = {cache->o.data(), FloatType::kBf16};
    a.ckv_cache = aligned(cache->k);
    a.kpe_cache = aligned(cache->k) + kMlaCkvDim * NumberBytes(form);
    a.ckv_token_stride = a.kpe_token_stride = uint64_t{token} * NumberBytes(form);
    a.sm_scale = 0.072f;
    return cache;
  }
  cache->v.resize(cache->k.size());
  FillCodes(form, 2, &cache->v);
  DecodeAttention& a = cache->gqa;
  FillRows(form, cache.get(), &a);
  a.num_qo_heads = form.qo_heads;
  a.num_kv_heads = form.kv_heads;
  a.head_dim = form.head_dim;
  a.q = {cache->q.data(), FloatType::kBf16};
  a.o = {cache->o.data(), FloatType::kBf16};
  a.k_cache = aligned(cache->k);
  a.v_cache = aligned(cache->v);
  return cache;
}

// --- both, in turn ------------------------------------------------------------------------------

double Seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void ReadAll(const Cache& cache, CpuThreads* threads) {
  const uint64_t pieces = 64;
  threads->ForEach(pieces * 2, [&](uint64_t i, unsigned) {
    const std::vector<uint8_t>& bytes = i < pieces ? cache.k : cache.v;
    const uint64_t size = bytes.size() / pieces;
    benchmark::DoNotOptimize(StraightRead(bytes.data() + i % pieces * size, size));
  });
}

void Attention(benchmark::State& state, const Form& form, unsigned thread_count) {
  const std::unique_ptr<Cache> cache = MakeCache(form);
  CpuThreads threads(thread_count);
  std::vector<double> read, attend, ratio;
  for (auto _ : state) {
    read.push_back(Seconds([&] { ReadAll(*cache, &threads); }));
    attend.push_back(Seconds([&] {
      const Status status = form.kv_heads == 0 ? DecodeAttentionCpu(cache->mla, &threads)
                                               : DecodeAttentionCpu(cache->gqa, &threads);
      KVF_CHECK(status.ok(), status.message().c_str());
    }));
    ratio.push_back(read.back() / attend.back());
    state.SetIterationTime(attend.back());
  }
  const double bytes = static_cast<double>(cache->k.size() + cache->v.size());
  state.counters["read_GB/s"] = bytes / Median(read) / 1e9;
  state.counters["GB/s"] = bytes / Median(attend) / 1e9;
  state.counters["of_read"] = Median(ratio);
}

void Register() {
  const Form forms[] = {
      {"gqa_group4_fp8", 32, 32, 8, 128, KvType::kE4m3, 1},
      {"gqa_group8_fp8", 32, 64, 8, 128, KvType::kE4m3, 1},
      {"gqa_group4_dim64_fp8", 64, 32, 8, 64, KvType::kE4m3, 1},
      {"gqa_group4_verify4_fp8", 32, 32, 8, 128, KvType::kE4m3, 4},
      {"mha_fp8", 32, 8, 8, 128, KvType::kE4m3, 1},
      {"gqa_group4_bf16", 32, 32, 8, 128, KvType::kBf16, 1},
      {"gqa_group8_bf16", 32, 64, 8, 128, KvType::kBf16, 1},
      {"mla_16_heads_fp8", 64, 16, 0, 0, KvType::kE4m3, 1},
      {"mla_16_heads_bf16", 64, 16, 0, 0, KvType::kBf16, 1},
  };
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  for (const Form& form : forms) {
    for (unsigned threads = 1; threads <= cores; threads *= 2) {
      const std::string name =
          std::string("Attention/") + form.name + "/threads:" + std::to_string(threads);
      benchmark::RegisterBenchmark(
          name.c_str(),
          [form, threads](benchmark::State& state) { Attention(state, form, threads); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond)
          ->Iterations(7);
    }
  }
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  kvfence::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
