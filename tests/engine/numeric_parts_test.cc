// The small transformer, piece by piece: its arithmetic, its cache without pages beside the paged
// kernels, its pages.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/numeric_memory.h"
#include "engine/plain_cache.h"
#include "engine/solo_transformer.h"
#include "engine/transformer.h"
#include "kvfence/attention.h"
#include "kvfence/bf16.h"
#include "kvfence/rng.h"
#include "tests/engine/traffic.h"

namespace kvfence {
namespace {

float Drawn(Rng& rng, float size) {
  const auto unit = static_cast<float>(rng.Below(20001)) / 10000.0f - 1.0f;
  return Bf16ToFloat(FloatToBf16(unit * size));
}

// The same tokens in a pool, at pages in any order, and in a cache of positions.
struct BothCaches {
  BothCaches(const PlainCache::Shape& shape, uint64_t tokens, uint64_t page_size, uint64_t seed)
      : shape(shape), page_size(page_size), plain(shape) {
    Rng rng(seed);
    const uint64_t pages = tokens / page_size + 4;
    memory.emplace_back(NumericMemory::Shape{.layers = 2,
                                             .pages = pages,
                                             .page_size = page_size,
                                             .kv_heads = shape.kv_heads,
                                             .key_dim = shape.key_dim,
                                             .value_dim = shape.value_is_key ? 0 : shape.value_dim,
                                             .type = shape.type,
                                             .scale = shape.scale});
    for (uint64_t k = 0; k <= tokens / page_size; ++k) {
      table.push_back(static_cast<int32_t>(pages - 1 - k));
    }
    for (size_t k = table.size(); k-- > 1;) std::swap(table[k], table[rng.Below(k + 1)]);
    std::vector<float> k(tokens * shape.kv_heads * shape.key_dim);
    std::vector<float> v(tokens * shape.kv_heads * shape.value_dim);
    for (float& value : k) value = Drawn(rng, 2.0f);
    for (float& value : v) value = Drawn(rng, 30.0f);
    std::vector<int64_t> slots;
    for (uint64_t p = 0; p < tokens; ++p) {
      plain.Append(k.data() + p * shape.kv_heads * shape.key_dim,
                   v.data() + p * shape.kv_heads * shape.value_dim);
      slots.push_back(table[p / page_size] * static_cast<int64_t>(page_size) +
                      static_cast<int64_t>(p % page_size));
    }
    KvAppend append;
    append.pages = memory[0].PagesOf(1);
    append.tokens = tokens;
    append.k = {k.data(), FloatType::kF32};
    append.v = {v.data(), FloatType::kF32};
    append.slots = {slots.data(), 64};
    EXPECT_TRUE(AppendPagedKvCacheCpu(append).ok());
  }

  // The last `n` of `length` tokens as queries.
  std::vector<float> Paged(std::vector<float>* q, uint32_t n, int32_t length, int64_t window) {
    std::vector<float> o(uint64_t{n} * shape.heads * shape.value_dim);
    DecodeAttention gqa;
    MlaDecodeAttention mla;
    const KvPages pages = memory[0].PagesOf(1);
    for (PagedRows* rows : {static_cast<PagedRows*>(&gqa), static_cast<PagedRows*>(&mla)}) {
      rows->rows = 1;
      rows->seq_len_q = n;
      rows->window_left = window - 1;
      rows->page_size = static_cast<uint32_t>(page_size);
      rows->num_pages = pages.num_pages;
      rows->kv_type = shape.type;
      rows->table.entries = {table.data(), 32};
      rows->table.entries_size = rows->table.stride = rows->table.width = table.size();
      rows->table.rows = 1;
      rows->lengths = {.values = {&length, 32}, .rows = 1};
    }
    if (shape.value_is_key) {
      mla.num_heads = shape.heads;
      mla.q_nope = {q->data(), FloatType::kF32};
      mla.q_pe = {q->data() + kMlaCkvDim, FloatType::kF32};
      mla.q_nope_stride = mla.q_pe_stride = shape.key_dim;
      mla.o = {o.data(), FloatType::kF32};
      const uint32_t number = shape.type == KvType::kE4m3 ? 1 : 2;
      mla.ckv_cache = pages.k_cache;
      mla.kpe_cache = static_cast<uint8_t*>(pages.k_cache) + kMlaCkvDim * number;
      mla.ckv_token_stride = mla.kpe_token_stride = shape.key_dim * number;
      mla.kv_scale = shape.scale;
      mla.sm_scale = shape.sm_scale;
      EXPECT_TRUE(DecodeAttentionCpu(mla).ok());
    } else {
      gqa.num_qo_heads = shape.heads;
      gqa.num_kv_heads = shape.kv_heads;
      gqa.head_dim = shape.key_dim;
      gqa.q = {q->data(), FloatType::kF32};
      gqa.o = {o.data(), FloatType::kF32};
      gqa.k_cache = pages.k_cache;
      gqa.v_cache = pages.v_cache;
      gqa.k_scale = gqa.v_scale = shape.scale;
      gqa.sm_scale = shape.sm_scale;
      EXPECT_TRUE(DecodeAttentionCpu(gqa).ok());
    }
    for (float& value : o) value = Bf16ToFloat(FloatToBf16(value));
    return o;
  }

  PlainCache::Shape shape;
  uint64_t page_size;
  PlainCache plain;
  std::vector<NumericMemory> memory;
  std::vector<int32_t> table;
};

PlainCache::Shape ShapeOf(bool mla, KvType type) {
  PlainCache::Shape shape{.heads = 4, .kv_heads = 2, .key_dim = 64, .value_dim = 64};
  if (mla) {
    shape = {.heads = 2, .kv_heads = 1, .key_dim = 576, .value_dim = 512, .value_is_key = true};
  }
  shape.type = type;
  shape.scale = type == KvType::kE4m3 ? 0.05f : 1.0f;
  shape.sm_scale = 0.125f;
  return shape;
}

// I-152: lengths around tiles of 32 and parts of 1024, one query and chunks of them, windows.
TEST(PlainCache, I152_GivesTheBitsOfPagedAttention) {
  struct Case {
    uint32_t queries;
    int32_t length;
    int64_t window;
  };
  const std::vector<Case> cases = {{1, 1, 0},    {1, 31, 0},    {7, 40, 0},  {3, 64, 20},
                                   {5, 1026, 0}, {1, 1100, 90}, {40, 45, 8}, {1, 1090, 1}};
  for (const bool mla : {false, true}) {
    for (const KvType type : {KvType::kE4m3, KvType::kBf16}) {
      const PlainCache::Shape shape = ShapeOf(mla, type);
      BothCaches both(shape, 1100, 16, mla ? 5 : 6);
      Rng rng(9);
      for (const Case& c : cases) {
        SCOPED_TRACE(std::to_string(mla) + " " + std::string(KvTypeName(type)) + " length " +
                     std::to_string(c.length) + " window " + std::to_string(c.window));
        const uint64_t queries = uint64_t{shape.heads} * shape.key_dim;
        const uint64_t out = uint64_t{shape.heads} * shape.value_dim;
        std::vector<float> q(c.queries * queries);
        for (float& value : q) value = Drawn(rng, 3.0f);
        const std::vector<float> paged =
            both.Paged(&q, c.queries, c.length, c.window > 0 ? c.window : 0);
        std::vector<float> plain(out);
        for (uint32_t i = 0; i < c.queries; ++i) {
          both.plain.Attend(q.data() + i * queries, static_cast<uint64_t>(c.length) - c.queries + i,
                            static_cast<uint64_t>(c.window), plain.data());
          for (uint64_t d = 0; d < out; ++d)
            ASSERT_EQ(plain[d], paged[i * out + d]) << i << " " << d;
        }
      }
    }
  }
}

TEST(Transformer, MultiplyIsTheSumInOrder) {
  Rng rng(4);
  constexpr uint32_t kIn = 24, kOut = 21;
  Matrix w{.inputs = kIn, .outputs = kOut, .panels = std::vector<float>(24 * kIn)};
  std::vector<std::vector<float>> plain(kOut, std::vector<float>(kIn));
  for (uint32_t o = 0; o < kOut; ++o) {
    for (uint32_t i = 0; i < kIn; ++i) {
      plain[o][i] = Drawn(rng, 1.0f);
      w.panels[(o / 8 * kIn + i) * 8 + o % 8] = plain[o][i];
    }
  }
  std::vector<float> x(11 * kIn), y(11 * kOut);
  for (float& value : x) value = Drawn(rng, 4.0f);
  Multiply(w, x.data(), 11, y.data());
  for (uint32_t t = 0; t < 11; ++t) {
    for (uint32_t o = 0; o < kOut; ++o) {
      float sum = 0;
      for (uint32_t i = 0; i < kIn; ++i) sum += x[t * kIn + i] * plain[o][i];
      ASSERT_EQ(y[t * kOut + o], sum) << t << " " << o;
    }
  }
}

std::vector<uint64_t> ResultsOf(const Transformer& model, uint64_t salt,
                                const std::vector<uint32_t>& prompt, uint64_t first) {
  SoloTransformer run(&model, salt, true);
  run.Prefill(prompt);
  std::vector<uint64_t> results;
  if (first > 0) run.ResultAt(first);  // computed in another block than the rest
  for (uint64_t n = 1; n <= prompt.size(); ++n) results.push_back(run.ResultAt(n));
  return results;
}

// Each result depends on all that stands before it, on its place and on the salt; and on nothing of
// how tokens were batched.
TEST(Transformer, I151_AResultDependsOnItsPrefixAlone) {
  std::vector<std::vector<uint64_t>> seen;
  for (const TransformerShape& shape : Shapes()) {
    const std::vector<uint64_t> windows = {0, 24};
    const Transformer model(shape, windows, 2, 7);
    std::vector<uint32_t> prompt;
    for (uint32_t i = 0; i < 70; ++i) prompt.push_back(i * 37 % 500);
    const std::vector<uint64_t> results = ResultsOf(model, 1, prompt, 0);
    EXPECT_EQ(results, ResultsOf(model, 1, prompt, 3));
    std::vector<uint32_t> other = prompt;
    other[5] ^= 1;
    const std::vector<uint64_t> changed = ResultsOf(model, 1, other, 0);
    for (size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_EQ(results[i] == changed[i], i < 5) << i;
      const uint32_t token = model.TokenOf(results[i], 0);
      EXPECT_LT(token, shape.vocab);
      EXPECT_LT(model.TokenOf(results[i], 3), shape.vocab);
    }
    EXPECT_NE(results, ResultsOf(model, 2, prompt, 0)) << "the salt matters";
    seen.push_back(results);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]) << "formats matter";
  }
}

TEST(Transformer, ATokenIsTheLargestLogitAndOfEqualsTheLowest) {
  const Transformer model({}, std::vector<uint64_t>{0}, 1, 3);
  Rng rng(8);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> h(model.hidden());
    for (float& value : h) value = i == 0 ? 0.0f : Drawn(rng, 1.0f);
    const std::vector<float> logits = model.Logits(h.data());
    size_t best = 0;
    for (size_t t = 1; t < logits.size(); ++t) {
      if (logits[t] > logits[best]) best = t;
    }
    EXPECT_EQ(model.TokenOf(model.Result(h.data()), 0), best);
  }
}

// A run that went ahead by guesses goes on as if it hadn't.
TEST(SoloTransformer, GoesAheadAndComesBack) {
  const Transformer model({}, std::vector<uint64_t>{0}, 1, 3);
  const std::vector<uint32_t> prompt = {4, 8, 15, 16, 23, 42};
  SoloTransformer straight(&model, 0, false);
  straight.Prefill(prompt);
  std::vector<uint64_t> results;
  for (int i = 0; i < 12; ++i) {
    results.push_back(straight.Result());
    straight.Advance(0);
  }
  SoloTransformer run(&model, 0, false);
  run.Prefill(prompt);
  for (size_t i = 0; i < 12; ++i) {
    std::vector<uint64_t> ahead;
    run.Ahead(std::min<size_t>(1 + i % 4, 12 - i), i % 3 == 0 ? 1 : 0, &ahead);
    EXPECT_EQ(ahead[0], results[i]);
    const std::unique_ptr<SoloRun> copy = run.Copy();
    EXPECT_EQ(copy->Result(), results[i]);
    copy->Advance(2);
    EXPECT_EQ(run.Result(), results[i]) << "a copy is another run";
    run.Advance(0);
  }
}

TEST(NumericMemory, APageIsReadWrittenAndCopiedWhole) {
  NumericMemory memory(
      {.layers = 2, .pages = 4, .page_size = 5, .kv_heads = 2, .key_dim = 32, .value_dim = 32});
  const auto page = [&](uint64_t p) {
    std::vector<uint8_t> bytes;
    memory.ReadPage(p, &bytes);
    return bytes;
  };
  for (int64_t slot = 5; slot < 10; ++slot) memory.Scribble(slot, static_cast<uint64_t>(slot));
  const std::vector<uint8_t> first = page(1);
  EXPECT_EQ(first.size(), 2u * 5 * 2 * 64);
  memory.CopyPage(1, 2);
  EXPECT_EQ(page(2), first);
  memory.WritePage(3, 3, first.data());
  std::vector<uint8_t> saved;
  memory.SaveSlot(1, 17, &saved);
  EXPECT_EQ(page(3) == first, false) << "two slots of it weren't written";
  memory.Scribble(17, 3);
  memory.RestoreSlot(1, 17, saved.data());
  memory.WritePage(3, 5, first.data());
  EXPECT_EQ(page(3), first);
  EXPECT_EQ(page(0), std::vector<uint8_t>(first.size()));
}

}  // namespace
}  // namespace kvfence
