// Ground truth and simulated device, piece by piece.
#include <gtest/gtest.h>

#include <vector>

#include "engine/attention.h"
#include "kvfence/ground_truth.h"
#include "kvfence/sim_device.h"

namespace kvfence {
namespace {

constexpr uint64_t kPageSize = 4;
constexpr uint64_t kWidth = 8;

// I-40: the golden chain written out plainly: S, content, result by their definition.
std::vector<uint64_t> PlainResults(const PositionWeights& w, const std::vector<uint32_t>& tokens,
                                   uint64_t salt) {
  std::vector<uint64_t> contents, results;
  for (uint64_t p = 0; p < tokens.size(); ++p) {
    uint64_t sum = 0;
    for (uint64_t j = 0; j < p; ++j) {
      sum += w.PageWeight(j / kPageSize) * w.SlotWeight(j % kPageSize) * contents[j];
    }
    contents.push_back(ContentOfToken(sum, p, tokens[p], salt));
    sum += w.PageWeight(p / kPageSize) * w.SlotWeight(p % kPageSize) * contents[p];
    results.push_back(ResultOf(sum, p + 1, salt));
  }
  return results;
}

TEST(GoldenRun, IsTheChainByItsDefinition) {
  const PositionWeights weights(kPageSize, kWidth);
  const std::vector<uint32_t> prompt = {5, 6, 7, 8, 9, 10, 11};
  const Model model = {{&weights, 0}};
  GoldenRun golden(&model, 99, true);
  golden.Prefill(prompt);
  const std::vector<uint64_t> plain = PlainResults(weights, prompt, 99);
  for (uint64_t p = 1; p <= prompt.size(); ++p) EXPECT_EQ(golden.ResultAt(p), plain[p - 1]);
  EXPECT_EQ(golden.Result(), plain.back());
  std::vector<uint32_t> all = prompt;
  for (int i = 0; i < 6; ++i) {
    all.push_back(TokenOf(golden.Result()));
    golden.Advance();
    EXPECT_EQ(golden.Result(), PlainResults(weights, all, 99).back());
  }
  EXPECT_NE(golden.Result(), PlainResults(weights, all, 98).back()) << "the salt matters";
}

// The same for several parts, some with windows, each with its page size.
struct PlainPart {
  uint64_t page_size, window;
};
std::vector<uint64_t> PlainResults(const std::vector<PlainPart>& parts, const Model& model,
                                   const std::vector<uint32_t>& tokens, uint64_t salt) {
  std::vector<std::vector<uint64_t>> contents(parts.size());
  const auto read = [&](uint64_t query, uint64_t end) {
    uint64_t sum = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      for (uint64_t j = 0; j < end; ++j) {
        if (parts[i].window > 0 && query - j >= parts[i].window) continue;
        sum += model[i].weights->PageWeight(j / parts[i].page_size) *
               model[i].weights->SlotWeight(j % parts[i].page_size) * contents[i][j];
      }
    }
    return sum;
  };
  std::vector<uint64_t> results;
  for (uint64_t p = 0; p < tokens.size(); ++p) {
    const uint64_t sum = read(p, p);
    for (size_t i = 0; i < parts.size(); ++i) {
      contents[i].push_back(ContentOfToken(sum, p, tokens[p], PartSalt(salt, i)));
    }
    results.push_back(ResultOf(read(p, p + 1), p + 1, salt));
  }
  return results;
}

TEST(GoldenRun, ReadsWhatEachPartsWindowReaches) {
  const std::vector<uint32_t> prompt = {5, 6, 7, 8, 9, 10, 11, 12, 13};
  for (const uint64_t window : {1, 2, 3, 4, 5, 8, 9, 20}) {
    const std::vector<PlainPart> parts = {{4, 0}, {4, window}, {2, 0}};
    const std::vector<PositionWeights> weights = {{4, 8}, {4, 8}, {2, 16}};
    const Model model = {{&weights[0], 0}, {&weights[1], window}, {&weights[2], 0}};
    GoldenRun golden(&model, 99, true);
    golden.Prefill(prompt);
    const std::vector<uint64_t> plain = PlainResults(parts, model, prompt, 99);
    for (uint64_t p = 1; p <= prompt.size(); ++p) EXPECT_EQ(golden.ResultAt(p), plain[p - 1]);
    EXPECT_EQ(golden.Result(), plain.back()) << "window " << window;
  }
}

// Over windows that are still filling, full, and passed in one look; the run goes on as if nobody
// had looked.
TEST(GoldenRun, LooksAheadAndStandsWhereItStood) {
  const PositionWeights weights(kPageSize, kWidth), draft(2, 2 * kWidth);
  const Model model = {{&weights, 0}, {&weights, 6}, {&draft, 3}};
  for (const bool keep : {false, true}) {
    GoldenRun golden(&model, 7, keep), other(&model, 7, keep);
    const std::vector<uint32_t> prompt = {3, 1};
    golden.Prefill(prompt);
    other.Prefill(prompt);
    for (size_t n = 1; n <= 12; ++n) {
      std::vector<uint64_t> ahead, wanted;
      golden.Ahead(n, 1, &ahead);
      GoldenRun copy = other;
      for (size_t i = 0; i < n; ++i, copy.Advance(1)) wanted.push_back(copy.Result());
      EXPECT_EQ(ahead, wanted) << n;
      EXPECT_EQ(golden.length(), other.length());
      golden.Advance(1);
      other.Advance(1);
      EXPECT_EQ(golden.Result(), other.Result());
      if (keep) {
        EXPECT_EQ(golden.ResultAt(n + 2), other.ResultAt(n + 2));
      }
    }
  }
}

// The simulated kernels over two parts, in chunks, with guesses, against the golden run.
TEST(AttentionPass, SeveralPartsAndGuessesAgreeWithTheGoldenRun) {
  for (const uint64_t window : {1, 3, 6, 40}) {
    const std::vector<PositionWeights> weights = {{4, 8}, {4, 8}};
    const Model model = {{&weights[0], 0}, {&weights[1], window}};
    std::vector<KvMemory> kv = {KvMemory(20, &weights[0]), KvMemory(20, &weights[1])};
    AttentionPass pass(&kv, {0, window}, 0);
    std::vector<StepBuffers> parts(2, StepBuffers(1, 8));
    PassResult out;
    GoldenRun golden(&model, 42, false);
    std::vector<uint32_t> tokens = {1, 2, 3, 4, 5, 6, 7};
    const auto run = [&](uint64_t before, uint64_t n, uint32_t guesses) {
      for (size_t i = 0; i < 2; ++i) {
        StepBuffers& b = parts[i];
        for (uint64_t k = 0; k < 8; ++k) b.table[k] = static_cast<int32_t>(1 + k + 8 * i);
        b.rows = b.live = 1;
        b.lengths[0] = static_cast<int32_t>(before + n);
        b.slots.clear();
        for (uint64_t p = before; p < before + n; ++p) {
          b.slots.push_back(b.table[p / 4] * int64_t{4} + static_cast<int64_t>(p % 4));
        }
        b.starts[1] = static_cast<int32_t>(n);
        b.inputs[0] = {.tokens = tokens.data() + before, .salt = 42, .guesses = guesses};
        b.inputs[0].guess_seed = 7;
        b.inputs[0].guess_per_cent = 60;
      }
      pass.Run(parts, &out);
    };
    run(0, 4, 0);
    run(4, 3, 0);
    golden.Prefill(tokens);
    EXPECT_EQ(out.results[0], golden.Result());
    uint64_t right = 0, wrong = 0;
    while (tokens.size() < 26) {
      const uint64_t before = tokens.size();
      tokens.push_back(TokenOf(out.Of(0).back()));
      golden.Advance();
      run(before, 4, 3);
      const std::vector<uint64_t> results(out.Of(0).begin(), out.Of(0).end());
      right += results.size() - 1;
      wrong += results.size() < 4 ? 1 : 0;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i], golden.Result()) << "window " << window << " token " << i;
        if (i + 1 == results.size()) break;
        tokens.push_back(TokenOf(results[i]));
        golden.Advance();
      }
    }
    EXPECT_GT(right, 2u);
    EXPECT_GT(wrong, 2u);
  }
}

// I-41
TEST(KvMemory, DigestIsTheWeightedSumOfItsSlots) {
  const PositionWeights weights(kPageSize, kWidth);
  KvMemory kv(6, &weights);
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t page = rng.Below(6);
    const uint64_t offset = rng.Below(kPageSize);
    kv.WriteAt(page, offset, rng.Next());
    EXPECT_EQ(kv.Digest(page), kv.PartDigest(page, 0, kPageSize));
  }
}

// A request with its pages in the table, prefilled by one pass; decode passes read it.
class OnePass : public testing::Test {
 protected:
  OnePass()
      : weights_(kPageSize, kWidth),
        kv_(1, KvMemory(20, &weights_)),
        pass_(&kv_, {0}, 0),
        buffers_(2, kWidth) {}

  uint64_t Run(const std::vector<uint32_t>& tokens, uint64_t before, UndoLog* undo = nullptr) {
    buffers_.rows = buffers_.live = 1;
    buffers_.reach[0] = reach_;
    buffers_.lengths[0] = static_cast<int32_t>(tokens.size()) + length_off_;
    buffers_.slots.clear();
    for (uint64_t p = before; p < tokens.size(); ++p) {
      buffers_.slots.push_back(buffers_.table[p / kPageSize] * int64_t{kPageSize} +
                               static_cast<int64_t>(p % kPageSize));
    }
    buffers_.starts[1] = static_cast<int32_t>(tokens.size() - before);
    buffers_.starts[2] = 0;
    buffers_.inputs[0] = {tokens.data() + before, 42};
    pass_.Run({&buffers_, 1}, &out_, undo);
    return out_.results[0];
  }

  PositionWeights weights_;
  std::vector<KvMemory> kv_;
  AttentionPass pass_;
  StepBuffers buffers_;
  PassResult out_;
  int32_t length_off_ = 0;
  uint64_t reach_ = kWidth;
  const std::vector<uint32_t> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
};

TEST_F(OnePass, ChunksDecodesAndTrialsAgreeWithTheGoldenRun) {
  const std::vector<uint64_t> plain = PlainResults(weights_, tokens_, 42);
  std::copy_n(std::vector<int32_t>{7, 3, 12}.begin(), 3, buffers_.table.begin());
  reach_ = 0;  // pages for later tokens stand in the table already
  const std::vector<uint32_t> chunk(tokens_.begin(), tokens_.begin() + 6);
  UndoLog undo;
  EXPECT_EQ(Run(chunk, 0, &undo), plain[5]);
  EXPECT_EQ(undo.size(), 6u);
  pass_.Undo(undo);
  EXPECT_EQ(kv_[0].Digest(7), 0u) << "a trial leaves nothing behind";
  EXPECT_EQ(Run(chunk, 0), plain[5]);
  for (size_t n = 7; n <= tokens_.size(); ++n) {
    EXPECT_EQ(Run({tokens_.begin(), tokens_.begin() + static_cast<long>(n)}, n - 1), plain[n - 1]);
  }
}

TEST_F(OnePass, AnySingleWrongWordChangesTheResult) {
  std::copy_n(std::vector<int32_t>{7, 3, 12}.begin(), 3, buffers_.table.begin());
  const uint64_t right = Run(tokens_, 0);
  EXPECT_EQ(Run(tokens_, 9), right);
  for (uint64_t k = 0; k < 3; ++k) {  // any other page at any place
    const int32_t page = buffers_.table[k];
    for (int32_t other = -2; other < 25; ++other) {
      if (other == page) continue;
      buffers_.table[k] = other;
      EXPECT_NE(Run(tokens_, 10), right) << "entry " << k << " page " << other;
    }
    buffers_.table[k] = page;
  }
  for (const int32_t off : {-10, -4, -1, 1, 2, 4, 22, 23, 1000, -1000}) {
    length_off_ = off;
    EXPECT_NE(Run(tokens_, 10), right) << "length off by " << off;
  }
  length_off_ = 0;
  for (uint64_t p = 0; p < 10; ++p) {  // any slot with other content
    const auto page = static_cast<uint64_t>(buffers_.table[p / kPageSize]);
    const uint64_t old = kv_[0].At(page, p % kPageSize);
    kv_[0].WriteAt(page, p % kPageSize, old + 1);
    EXPECT_NE(Run(tokens_, 10), right) << "slot of position " << p;
    kv_[0].WriteAt(page, p % kPageSize, old);
  }
  buffers_.table[5] = 9;  // beyond the covered entries, within reach
  EXPECT_NE(Run(tokens_, 10), right);
  buffers_.table[5] = 0;
  EXPECT_EQ(Run(tokens_, 10), right);
  EXPECT_EQ(out_.wild_accesses, 0u);
}

TEST_F(OnePass, WildSlotsAndEntriesAreCountedAndTouchNothing) {
  buffers_.table[0] = 1000;
  Run({1, 2, 3}, 0);
  EXPECT_EQ(out_.wild_accesses, 3u + 1u) << "three writes, one page read at the end";
  for (uint64_t page = 0; page < 20; ++page) EXPECT_EQ(kv_[0].Digest(page), 0u);
}

TEST(SimDevice, StreamsKeepTheirOrderAndTheSeedPicksBetweenThem) {
  auto order = [](uint64_t seed) {
    SimDevice device(seed);
    std::vector<int> seen;
    for (int i = 0; i < 8; ++i) {
      device.Enqueue(1, [&seen, i] { seen.push_back(100 + i); });
      device.Enqueue(2, [&seen, i] { seen.push_back(200 + i); });
    }
    SimDevice::Ticket last = 0;
    for (int i = 0; i < 8; ++i) last = device.Enqueue(0, [&seen, i] { seen.push_back(i); });
    device.Wait(0, last);
    return seen;
  };
  const std::vector<int> seen = order(1);
  EXPECT_EQ(seen, order(1));
  EXPECT_NE(seen, order(2));
  std::vector<int> last = {-1, 99, 199};
  for (const int op : seen) {
    EXPECT_EQ(op, last[static_cast<size_t>(op / 100)] + 1);
    last[static_cast<size_t>(op / 100)] = op;
  }
}

TEST(SimDevice, AStreamWaitsForWhatTheComputeStreamHasToDo) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimDevice device(seed);
    int computed = 0, seen = -1;
    for (int i = 0; i < 5; ++i) device.Enqueue(kComputeStream, [&] { ++computed; });
    const SimDevice::Ticket copy = device.Enqueue(
        2, [&] { seen = computed; }, 0, device.LastCompute());
    device.Enqueue(kComputeStream, [&] { ++computed; });
    device.Wait(2, copy);
    EXPECT_GE(seen, 5) << "seed " << seed;
  }
}

// I-42: what the host waits for comes in turn; what isn't due stays.
TEST(SimDevice, WorkWaitsForItsTime) {
  SimDevice device(1);
  int late = 0, compute = 0;
  device.Enqueue(
      1, [&late] { ++late; }, 3);
  for (uint64_t clock = 1; clock <= 2; ++clock) {
    device.SetClock(clock);
    device.Wait(0, device.Enqueue(0, [&compute] { ++compute; }));
  }
  EXPECT_EQ(late, 0);
  device.SetClock(3);
  device.Wait(1, 1);
  EXPECT_EQ(late, 1);
  device.Enqueue(
      2, [&late] { ++late; }, 9);
  EXPECT_EQ(device.Discard(), 1u);
  EXPECT_EQ(late, 1);
  EXPECT_EQ(compute, 2);
}

}  // namespace
}  // namespace kvfence
