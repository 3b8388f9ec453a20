// The arithmetic of `kvfence plan`: published checkpoints, hand-counted caches, and what must hold
// for any model and machine.
#include "plan_capacity.h"

#include <gtest/gtest.h>

#include "kvfence/device_types.h"
#include "kvfence/rng.h"
#include "model_config.h"

namespace kvfence::tools {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

ModelGeometry Known(const char* name) { return KnownModel(name)->geometry; }

uint64_t Weights(const ModelGeometry& model, WeightFormat format) {
  return WeightBytes(CountParameters(model).value(), format);
}

Capacity Plan(const ModelGeometry& model, WeightFormat weights, KvFormat kv,
              const PlanMachine& machine = {}) {
  return PlanCapacity(model, weights, kv, machine).value();
}

TEST(PlanCapacity, CountsTheParametersThatModelCardsState) {
  EXPECT_NEAR(static_cast<double>(CountParameters(Known("kimi-k2.6")).value().total()), 1.027e12,
              1e9);
  ModelGeometry glm = Known("glm-5.2");
  EXPECT_NEAR(static_cast<double>(CountParameters(glm).value().total()), 753e9, 1e9);
  glm.draft_layers = 0;
  EXPECT_NEAR(static_cast<double>(CountParameters(glm).value().total()), 744e9, 1e9);
}

TEST(PlanCapacity, CountsTheCheckpointsThatArePublished) {
  EXPECT_NEAR(static_cast<double>(Weights(Known("kimi-k2.6"), WeightFormat::kInt4)), 595e9, 1e9);
  EXPECT_NEAR(static_cast<double>(Weights(Known("glm-5.2"), WeightFormat::kFp8)), 755e9, 1e9);
  EXPECT_NEAR(static_cast<double>(Weights(Known("glm-5.2"), WeightFormat::kBf16)), 1507e9, 1e9);
  EXPECT_NEAR(static_cast<double>(Weights(Known("glm-5.2"), WeightFormat::kInt4)) / kGiB, 421, 1.5);
  EXPECT_NEAR(static_cast<double>(Weights(Known("glm-5.2"), WeightFormat::kFp8)) / kGiB, 705, 1.5);
}

TEST(PlanCapacity, ReproducesThePublishedTokens) {
  const auto near = [](uint64_t tokens, double published) {
    EXPECT_NEAR(static_cast<double>(tokens), published, published * 0.005);
  };
  near(Plan(Known("kimi-k2.6"), WeightFormat::kInt4, KvFormat::kBf16).tokens, 686e3);
  near(Plan(Known("kimi-k2.6"), WeightFormat::kInt4, KvFormat::kFp8).tokens, 1.37e6);
  near(Plan(Known("glm-5.2"), WeightFormat::kInt4, KvFormat::kFp8).tokens, 1.18e6);
}

TEST(PlanCapacity, CachesByHand) {
  const PlanMachine machine{.gpus = 8};
  // 61 layers of one 512 + 64 latent, whole on each GPU.
  EXPECT_EQ(KvBytesPerToken(Known("kimi-k2.6"), KvFormat::kBf16, machine), 61u * 576 * 2);
  EXPECT_EQ(KvBytesPerToken(Known("kimi-k2.6"), KvFormat::kFp8, machine), 61u * 576);
  // 78 + 1 layers, each with an indexer's key of 128 bytes and one scale, whatever the KV format.
  EXPECT_EQ(KvBytesPerToken(Known("glm-5.2"), KvFormat::kFp8, machine), 79u * (576 + 132));
  EXPECT_EQ(KvBytesPerToken(Known("glm-5.2"), KvFormat::kBf16, machine), 79u * (576 * 2 + 132));
  // Grouped-query heads are divided, and a head is never halved.
  ModelGeometry grouped;
  grouped.layers = 80;
  grouped.kv_heads = 8;
  grouped.head_dim = 128;
  EXPECT_EQ(KvBytesPerToken(grouped, KvFormat::kBf16, {.gpus = 1}), 80u * 2 * 8 * 128 * 2);
  EXPECT_EQ(KvBytesPerToken(grouped, KvFormat::kBf16, {.gpus = 4}), 80u * 2 * 2 * 128 * 2);
  EXPECT_EQ(KvBytesPerToken(grouped, KvFormat::kFp8, {.gpus = 16}), 80u * 2 * 1 * 128);
  EXPECT_EQ(KvBytesPerToken(grouped, KvFormat::kFp8, {.gpus = 16, .kv_overhead = 8}),
            80u * (2 * 1 * 128 + 8));
  grouped.kv_layers = 20;  // the others keep a state, not a cache
  EXPECT_EQ(KvBytesPerToken(grouped, KvFormat::kFp8, {.gpus = 1}), 20u * 2 * 8 * 128);
}

TEST(PlanCapacity, WeightFormatsByHand) {
  const ParameterCount moe{.experts = 1 << 20, .matrices = 1 << 16, .kept = 1 << 10};
  EXPECT_EQ(WeightBytes(moe, WeightFormat::kBf16), 2u * ((1 << 20) + (1 << 16) + (1 << 10)));
  EXPECT_EQ(WeightBytes(moe, WeightFormat::kFp8),
            (1u << 20) + (1 << 16) + 4 * ((1 << 20) + (1 << 16)) / 16384 + 2 * (1 << 10));
  EXPECT_EQ(WeightBytes(moe, WeightFormat::kInt4),
            (1u << 19) + 2 * ((1 << 20) / 32) + 2 * ((1 << 16) + (1 << 10)));
  EXPECT_EQ(WeightBytes(moe, WeightFormat::kNvfp4),
            (1u << 19) + (1 << 20) / 16 + 2 * ((1 << 16) + (1 << 10)));
  const ParameterCount dense{.experts = 0, .matrices = 1 << 20, .kept = 1 << 10};
  EXPECT_EQ(WeightBytes(dense, WeightFormat::kInt4),
            (1u << 19) + 2 * ((1 << 20) / 32) + 2 * (1 << 10));
}

TEST(PlanCapacity, TheFenceIsWhatTheGateKeeps) {
  const PlanMachine machine{.rows = 3, .sharing = 2.5};
  EXPECT_EQ(FenceBytes(0, machine), 3u * 64 * 16);
  EXPECT_EQ(FenceBytes(1000, machine),
            1000 * sizeof(PageRecord) + 2500 * sizeof(Expectation) + 3 * 64 * 16);
  EXPECT_EQ(FenceBytes(1, machine), 16u + 3 * 16 + 3 * 64 * 16) << "a part of an entry is one";
}

TEST(PlanCapacity, RefusesWhatCannotBe) {
  ModelGeometry model = Known("glm-5.2");
  model.dense_layers = 79;
  EXPECT_FALSE(CountParameters(model).ok());
  model = Known("glm-5.2");
  model.params = 1'000'000'000;
  EXPECT_FALSE(CountParameters(model).ok()) << "fewer than its experts";
  model = Known("glm-5.2");
  model.hidden = model.expert_width = uint64_t{1} << 24;
  model.experts = uint64_t{1} << 14;  // their product is a multiple of 2^64
  EXPECT_FALSE(CountParameters(model).ok()) << "a product doesn't wrap";
}

TEST(PlanCapacity, NothingFitsBesideTooLargeWeights) {
  const Capacity plan = Plan(Known("glm-5.2"), WeightFormat::kBf16, KvFormat::kFp8);
  EXPECT_EQ(plan.tokens, 0u);
  EXPECT_EQ(plan.kv_pool_bytes, 0u);
  EXPECT_EQ(plan.fence_bytes, 0u);
  EXPECT_GT(plan.weight_bytes_per_gpu, 141'000'000'000u);
}

// Any model and machine, grown in one direction at a time.
class RandomPlan {
 public:
  explicit RandomPlan(uint64_t seed) : rng_(seed) {
    model.layers = 1 + rng_.Below(128);
    model.draft_layers = rng_.Below(3);
    if (rng_.Below(2) == 0) {
      model.latent = 1 + rng_.Below(1024);
      model.rope = rng_.Below(128);
      if (rng_.Below(2) == 1) model.index_dim = 1 + rng_.Below(256);
    } else {
      model.kv_heads = 1 + rng_.Below(64);
      model.head_dim = 1 + rng_.Below(256);
    }
    model.params = uint64_t{1'000'000} * (1 + rng_.Below(200'000));
    model.expert_params = rng_.Below(2) * (*model.params / 2);
    machine.gpus = 1 + rng_.Below(16);
    machine.memory = uint64_t{1'000'000'000} * (1 + rng_.Below(300));
    machine.utilisation = static_cast<double>(1 + rng_.Below(100)) / 100;
    machine.reserve = rng_.Below(4'000'000'000);
    machine.page_size = 1 + rng_.Below(256);
    machine.rows = 1 + rng_.Below(1024);
    machine.sharing = 1 + static_cast<double>(rng_.Below(100)) / 10;
    weights = static_cast<WeightFormat>(rng_.Below(4));
    kv = static_cast<KvFormat>(rng_.Below(2));
  }
  Capacity Now() const { return Plan(model, weights, kv, machine); }

  ModelGeometry model;
  PlanMachine machine;
  WeightFormat weights = WeightFormat::kBf16;
  KvFormat kv = KvFormat::kBf16;

 private:
  Rng rng_;
};

// I-140
TEST(PlanCapacity, I140CacheAndFenceFillThePoolAndDontLeaveIt) {
  int fitting = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    const RandomPlan plan(seed);
    const Capacity now = plan.Now();
    const PlanMachine& machine = plan.machine;
    EXPECT_LE(static_cast<double>(now.weight_bytes_per_gpu + now.kv_pool_bytes + machine.reserve) *
                  (now.kv_pool_bytes > 0 ? 1 : 0),
              static_cast<double>(machine.memory) * machine.utilisation);
    if (now.tokens == 0) continue;
    ++fitting;
    EXPECT_EQ(now.tokens, (now.pages - 1) * machine.page_size) << "all but the null page";
    EXPECT_EQ(now.fence_bytes, FenceBytes(now.pages, machine));
    const uint64_t page = machine.page_size * now.kv_bytes_per_token;
    EXPECT_LE(now.pages * page + now.fence_bytes, now.kv_pool_bytes);
    EXPECT_GT((now.pages + 1) * page + FenceBytes(now.pages + 1, machine), now.kv_pool_bytes);
  }
  EXPECT_GT(fitting, 500);
}

TEST(PlanCapacity, MoreRoomNeverHoldsFewerTokens) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    const RandomPlan plan(seed);
    const uint64_t tokens = plan.Now().tokens;
    const auto grown = [&](auto change) {
      RandomPlan other = plan;
      change(other);
      return other.Now().tokens;
    };
    EXPECT_GE(grown([](RandomPlan& p) { p.machine.memory += 1'000'000'000; }), tokens);
    EXPECT_GE(grown([](RandomPlan& p) { ++p.machine.gpus; }), tokens);
    EXPECT_GE(grown([](RandomPlan& p) { p.kv = KvFormat::kFp8; }), tokens);
    EXPECT_LE(grown([](RandomPlan& p) { ++p.model.layers; }), tokens);
    EXPECT_LE(grown([](RandomPlan& p) { p.weights = WeightFormat::kBf16; }), tokens);
    EXPECT_LE(grown([](RandomPlan& p) { p.machine.rows += 64; }), tokens);
    EXPECT_LE(grown([](RandomPlan& p) { p.machine.sharing += 1; }), tokens);
    EXPECT_LE(grown([](RandomPlan& p) { p.machine.reserve += 1'000'000'000; }), tokens);
    EXPECT_LE(grown([](RandomPlan& p) { p.machine.kv_overhead += 1; }), tokens);
  }
}

}  // namespace
}  // namespace kvfence::tools
