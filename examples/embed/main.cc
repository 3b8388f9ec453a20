// An engine of one request and one page, with the fence around its one step: the README's example.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kvfence/fence.h"

namespace {

void Must(const kvfence::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "refused: %s\n", status.message().c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char** /*argv*/) {
  using namespace kvfence;
  // With any argument the batch table is stale: it names page 9, which is nobody's.
  std::array<int32_t, 4> table = {argc > 1 ? 9 : 7, 0, 0, 0};
  std::array<int64_t, 3> slots = {7 * 16, 7 * 16 + 1, 7 * 16 + 2};
  std::array<int32_t, 2> query_start = {0, 3};
  std::array<int32_t, 1> lengths = {3};
  const auto run_attention = [] {};

  FenceConfig config;
  config.pools = {PoolConfig{.name = "full", .pages = 64, .page_size = 16}};
  config.rows = 1;
  config.width = 4;
  auto fence = Fence::Create(config).value();

  // The bookkeeping says what it does, as it does it.
  const RequestId chat = fence->Admit({.name = fence->Intern("chat-17")});
  const PageId page(7);
  Must(fence->Alloc({.req = chat, .pages = {&page, 1}}));
  Must(fence->BindRow({.row = Row(0), .req = chat}));

  // Each pass: what was planned, and the very arrays that the kernels will read (32 and 64 are the
  // bits of an entry).
  const RowPlan plan{.row = Row(0), .req = chat, .new_tokens = 3};
  PoolBuffers arrays;
  arrays.table = {
      .entries = {table.data(), 32}, .entries_size = 4, .stride = 4, .width = 4, .rows = 1};
  arrays.slots = {
      .slots = {slots.data(), 64}, .slots_size = 3, .indptr = {query_start.data(), 32}, .rows = 1};
  arrays.lengths = {.values = {lengths.data(), 32}, .rows = 1};
  Must(fence->Step({.step = StepId(1), .rows = {&plan, 1}, .pads = {}, .pools = {&arrays, 1}}));
  run_attention();
  Must(fence->Confirm({.step = StepId(1)}));
  const Settlement settled = fence->Retire({.step = StepId(1)}).value();
  for (const RowResult& row : settled.rows) {
    std::puts(row.published ? "published" : "not published: the request ends");
  }
}
