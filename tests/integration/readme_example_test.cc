// The README's embedding example, compiled and run: an engine of one request and one page.
#include <gtest/gtest.h>

#include <array>

#include "kvfence/fence.h"

namespace kvfence {
namespace {

TEST(ReadmeExample, ARowIsPublishedOnlyWithACleanVerdict) {
  int published = 0;
  const auto run_attention = [] {};
  const auto publish = [&](RequestId) { ++published; };
  const auto abort_request = [](RequestId) {};
  std::array<int32_t, 4> table = {7, 0, 0, 0};
  std::array<int64_t, 3> slots = {7 * 16, 7 * 16 + 1, 7 * 16 + 2};
  std::array<int32_t, 2> query_start = {0, 3};
  std::array<int32_t, 1> lengths = {3};

  FenceConfig config;
  config.pools = {PoolConfig{.name = "full", .pages = 64, .page_size = 16}};
  config.rows = 1;
  config.width = 4;
  auto fence = Fence::Create(config).value();

  // The bookkeeping says what it does, as it does it.
  const RequestId chat = fence->Admit({.name = fence->Intern("chat-17")});
  const PageId page(7);
  ASSERT_TRUE(fence->Alloc({.req = chat, .pages = {&page, 1}}).ok());
  ASSERT_TRUE(fence->BindRow({.row = Row(0), .req = chat}).ok());

  // Each pass: what was planned, and the very arrays that the kernels will read.
  const RowPlan plan{.row = Row(0), .req = chat, .new_tokens = 3};
  PoolBuffers arrays;
  arrays.table = {
      .entries = {table.data(), 32}, .entries_size = 4, .stride = 4, .width = 4, .rows = 1};
  arrays.slots = {
      .slots = {slots.data(), 64}, .slots_size = 3, .indptr = {query_start.data(), 32}, .rows = 1};
  arrays.lengths = {.values = {lengths.data(), 32}, .rows = 1};
  ASSERT_TRUE(
      fence->Step({.step = StepId(1), .rows = {&plan, 1}, .pads = {}, .pools = {&arrays, 1}}).ok());
  run_attention();
  ASSERT_TRUE(fence->Confirm({.step = StepId(1)}).ok());
  const Settlement settled = fence->Retire({.step = StepId(1)}).value();
  for (const RowResult& row : settled.rows) {
    row.published ? publish(row.req) : abort_request(row.req);
  }

  EXPECT_EQ(published, 1);
}

}  // namespace
}  // namespace kvfence
