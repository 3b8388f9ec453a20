// The CPU shim itself: what a kernel may rely on, and that it is never kinder than a device.
#include "kvfence/cuda_on_cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace kvfence {
namespace {

using cuda_on_cpu::LaunchError;
using cuda_on_cpu::ScopedSchedule;

__global__ void WriteIndices(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[at] = at + 1;
}

TEST(CudaOnCpu, EveryThreadOfEveryBlockRunsOnce) {
  for (uint64_t seed : {0u, 1u, 7u}) {
    ScopedSchedule schedule(seed);
    std::vector<unsigned> out(2 * 3 * 2 * 4 * 5 * 3);
    KVF_LAUNCH(WriteIndices, dim3(2, 3, 2), dim3(4, 5, 3), 0, 0, out.data());
    for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i + 1);
  }
}

// A block sum with two barriers; a third use of the same shared word shows leftovers.
__global__ void BlockSum(const int* in, int* out, int n) {
  KVF_SHARED_ARRAY(int, partial, 8);
  int sum = 0;
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) total += partial[w];
    out[blockIdx.x] = total;
  }
}

TEST(CudaOnCpu, BarriersShufflesAndSharedMemoryMakeABlockSum) {
  std::vector<int> in(1000);
  std::iota(in.begin(), in.end(), 1);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    ScopedSchedule schedule(seed);
    for (unsigned threads : {32u, 64u, 256u}) {
      std::vector<int> out(3);
      KVF_LAUNCH(BlockSum, 3, threads, 0, nullptr, in.data(), out.data(), 1000);
      EXPECT_EQ(out, std::vector<int>(3, 500500)) << threads;
    }
  }
}

// Two barriers in a row: a thread may not read its neighbour's word of the next round.
__global__ void PassAround(int* out, int rounds) {
  KVF_SHARED_DYNAMIC(int, ring);
  ring[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  for (int i = 0; i < rounds; ++i) {
    const int next = ring[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    ring[threadIdx.x] = next;
    __syncthreads();
  }
  out[threadIdx.x] = ring[threadIdx.x];
}

TEST(CudaOnCpu, DynamicSharedMemoryKeepsItsRoundsApart) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    ScopedSchedule schedule(seed);
    std::vector<int> out(96);
    KVF_LAUNCH(PassAround, 1, 96, 96 * sizeof(int), 0, out.data(), 100);
    for (int i = 0; i < 96; ++i) EXPECT_EQ(out[size_t(i)], (i + 100) % 96);
  }
}

__global__ void LookAtShared(unsigned char* first, bool* static_array_is_garbage) {
  KVF_SHARED_DYNAMIC(unsigned char, dynamic);
  KVF_SHARED_ARRAY(unsigned, fixed, 2);
  first[blockIdx.x] = dynamic[0];
  static_array_is_garbage[blockIdx.x] = fixed[1] != 0;
  dynamic[0] = 1;
  fixed[1] = 0;
}

TEST(CudaOnCpu, SharedMemoryStartsAsGarbageInEveryBlock) {
  unsigned char first[3] = {};
  bool garbage[3] = {};
  KVF_LAUNCH(LookAtShared, 3, 1, 16, 0, first, garbage);
  for (int b = 0; b < 3; ++b) {
    EXPECT_GT(first[b], 1);
    EXPECT_TRUE(garbage[b]);
  }
}

struct WarpResults {
  int shfl, up, down, xored, segment;
  unsigned ballot, add, low, high, ored, anded, match;
  int any, all, signed_low;
};

__global__ void WarpFunctions(WarpResults* out) {
  const int lane = int(threadIdx.x);
  WarpResults r{};
  r.shfl = __shfl_sync(~0u, lane * 10, 7);
  r.up = __shfl_up_sync(~0u, lane, 3);
  r.down = __shfl_down_sync(~0u, lane, 3);
  r.xored = __shfl_xor_sync(~0u, lane, 5);
  r.segment = __shfl_sync(~0u, lane, 1, 8);
  r.ballot = __ballot_sync(~0u, lane % 3 == 0);
  r.any = __any_sync(~0u, lane == 31);
  r.all = __all_sync(~0u, lane != 31);
  r.add = __reduce_add_sync(~0u, unsigned(lane));
  r.low = __reduce_min_sync(~0u, unsigned(lane) + 5);
  r.high = __reduce_max_sync(~0u, unsigned(lane));
  r.ored = __reduce_or_sync(~0u, 1u << (lane % 4));
  r.anded = __reduce_and_sync(~0u, 0xF0u | unsigned(lane));
  r.signed_low = __reduce_min_sync(~0u, -lane);
  r.match = __match_any_sync(~0u, lane / 16);
  out[lane] = r;
}

TEST(CudaOnCpu, WarpFunctionsAgreeWithTheirDefinitions) {
  WarpResults out[32];
  KVF_LAUNCH(WarpFunctions, 1, 32, 0, 0, out);
  for (int lane = 0; lane < 32; ++lane) {
    const WarpResults& r = out[lane];
    EXPECT_EQ(r.shfl, 70);
    EXPECT_EQ(r.up, lane < 3 ? lane : lane - 3);
    EXPECT_EQ(r.down, lane > 28 ? lane : lane + 3);
    EXPECT_EQ(r.xored, lane ^ 5);
    EXPECT_EQ(r.segment, lane / 8 * 8 + 1);
    EXPECT_EQ(r.ballot, 0x49249249u);
    EXPECT_EQ(r.any, 1);
    EXPECT_EQ(r.all, 0);
    EXPECT_EQ(r.add, 496u);
    EXPECT_EQ(r.low, 5u);
    EXPECT_EQ(r.high, 31u);
    EXPECT_EQ(r.ored, 15u);
    EXPECT_EQ(r.anded, 0xF0u);
    EXPECT_EQ(r.signed_low, -31);
    EXPECT_EQ(r.match, lane < 16 ? 0xFFFFu : 0xFFFF0000u);
  }
}

// Halves of a warp on different paths, and a last warp of 8 lanes with a full mask.
__global__ void SubWarps(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x >= 32) {
    out[threadIdx.x] = __reduce_add_sync(~0u, 1u);
  } else if (lane < 16) {
    unsigned sum = __reduce_add_sync(0x0000FFFFu, lane);
    __syncwarp(0x0000FFFFu);
    out[threadIdx.x] = sum + __reduce_add_sync(0x0000FFFFu, 1u);
  } else {
    out[threadIdx.x] = __reduce_max_sync(0xFFFF0000u, lane);
  }
}

TEST(CudaOnCpu, MasksSplitAWarpAndMissingLanesOfTheLastWarpDoNotCount) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    ScopedSchedule schedule(seed);
    unsigned out[40];
    KVF_LAUNCH(SubWarps, 1, 40, 0, 0, out);
    for (int t = 0; t < 40; ++t) EXPECT_EQ(out[t], t < 16 ? 136u : t < 32 ? 31u : 8u) << t;
  }
}

struct AtomicResults {
  unsigned sum = 0, ticket = 0, swapped = 5, compared = 5;
  int low = 0;
  unsigned long long ored = 0;
  float total = 0;
  unsigned count = 0, any = 0, all = 9;
};

__global__ void Atomics(AtomicResults* r) {
  atomicAdd(&r->sum, threadIdx.x);
  atomicMin(&r->low, -int(threadIdx.x));
  atomicOr(&r->ored, 1ull << threadIdx.x);
  atomicAdd(&r->total, 0.5f);
  atomicInc(&r->ticket, 63);
  const int count = __syncthreads_count(threadIdx.x < 10);
  const int any = __syncthreads_or(threadIdx.x == 63);
  const int all = __syncthreads_and(threadIdx.x != 63);
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  r->count = unsigned(count);
  r->any = unsigned(any);
  r->all = unsigned(all);
  const unsigned before = atomicExch(&r->swapped, 7u);
  atomicCAS(&r->compared, before, 9u);
  atomicCAS(&r->compared, before, 11u);
}

TEST(CudaOnCpu, AtomicsAndCountingBarriers) {
  AtomicResults r;
  KVF_LAUNCH(Atomics, 2, 64, 0, 0, &r);
  EXPECT_EQ(r.sum, 2u * 2016);
  EXPECT_EQ(r.low, -63);
  EXPECT_EQ(r.ored, ~0ull);
  EXPECT_EQ(r.ticket, 0u);
  EXPECT_EQ(r.total, 64.0f);
  EXPECT_EQ(r.count, 10u);
  EXPECT_EQ(r.any, 1u);
  EXPECT_EQ(r.all, 0u);
  EXPECT_EQ(r.swapped, 7u);
  EXPECT_EQ(r.compared, 9u);
}

// The last block to finish sees what all others wrote. Right only with a fence on both sides.
template <bool kFences>
__global__ void LastBlockSums(unsigned* written, unsigned* ticket, unsigned* out) {
  KVF_SHARED_ARRAY(unsigned, rank, 1);
  written[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kFences) __threadfence();
    rank[0] = atomicAdd(ticket, 1u);
    if (kFences) __threadfence();
  }
  __syncthreads();
  if (rank[0] != gridDim.x - 1 || threadIdx.x != 0) return;
  unsigned sum = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) sum += written[i];
  *out = sum;
}

TEST(CudaOnCpu, TheLastBlockSeesAllOthersInAnyBlockOrder) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    ScopedSchedule schedule(seed);
    std::vector<unsigned> written(4 * 64);
    unsigned ticket = 0, out = 0;
    KVF_LAUNCH((LastBlockSums<true>), 4, 64, 0, 0, written.data(), &ticket, &out);
    EXPECT_EQ(out, 256u);
  }
}

__global__ void OrderOfBlocks(unsigned* order, unsigned* next) {
  if (threadIdx.x == 0) order[atomicAdd(next, 1u)] = blockIdx.x;
}

TEST(CudaOnCpu, ASeedPermutesTheBlocksAndRepeats) {
  const auto order_of = [](uint64_t seed) {
    ScopedSchedule schedule(seed);
    std::vector<unsigned> order(16);
    unsigned next = 0;
    KVF_LAUNCH(OrderOfBlocks, 16, 32, 0, 0, order.data(), &next);
    return order;
  };
  std::vector<unsigned> ascending(16);
  std::iota(ascending.begin(), ascending.end(), 0u);
  EXPECT_EQ(order_of(0), ascending);
  EXPECT_NE(order_of(1), ascending);
  EXPECT_EQ(order_of(1), order_of(1));
  const std::vector<unsigned> shuffled = order_of(2);
  EXPECT_EQ(std::set<unsigned>(shuffled.begin(), shuffled.end()).size(), 16u);
}

// What a kernel launch threw, as text; empty when it ran.
template <class F>
std::string ErrorOf(F launch) {
  try {
    launch();
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "";
}

__global__ void HalfTheBlockSyncs() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void HalfTheWarpVotes() {
  if (threadIdx.x < 16) __ballot_sync(~0u, 1);
}
__global__ void TwoFunctionsOneMask() {
  if (threadIdx.x % 2 == 0) {
    __any_sync(~0u, 1);
  } else {
    __all_sync(~0u, 1);
  }
}
__global__ void SyncAgainstVote() {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __ballot_sync(~0u, 1);
  }
}
__global__ void OutsideOwnMask() { __ballot_sync(1u, 1); }
__global__ void ShuffleFromNobody() { __shfl_sync(~0u, 1, 20); }
__global__ void OneTraps() {
  if (threadIdx.x == 3) __trap();
  __syncthreads();
}
__global__ void Nested() { KVF_LAUNCH(OneTraps, 1, 1, 0, 0); }

TEST(CudaOnCpu, DivergenceStopsTheLaunchAndSaysWho) {
  EXPECT_EQ(ErrorOf([] { KVF_LAUNCH(HalfTheBlockSyncs, 1, 64, 0, 0); }),
            "cuda_on_cpu: threads diverge in block (0,0,0): 0-31 waits at __syncthreads; "
            "32-63 exited");
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(HalfTheWarpVotes, 1, 32, 0, 0); }).find("mask ffffffff"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(TwoFunctionsOneMask, 1, 32, 0, 0); }).find("__all_sync"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(SyncAgainstVote, 1, 32, 0, 0); }), "");
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(OutsideOwnMask, 1, 2, 0, 0); }).find("thread (1,0,0)"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(ShuffleFromNobody, 1, 8, 0, 0); }), "");
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(OneTraps, 1, 64, 0, 0); }).find("__trap"), std::string::npos);
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(Nested, 1, 1, 0, 0); }), "");
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(OneTraps, 1, 1025, 0, 0); }), "");
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(OneTraps, 0, 32, 0, 0); }), "");
  EXPECT_NE(ErrorOf([] { KVF_LAUNCH(OneTraps, 1, 32, size_t{1} << 20, 0); }), "");
  EXPECT_NE(ErrorOf([] { __syncthreads(); }), "");
}

struct Counted {
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  ~Counted() { --*alive_; }
  int* alive_;
};
__global__ void HoldsObjects(int* alive) {
  Counted held(alive + threadIdx.x);
  if (threadIdx.x != 5) __syncthreads();
}

TEST(CudaOnCpu, AFailedBlockIsUnwoundAndTheNextLaunchIsUnharmed) {
  std::vector<int> alive(64);
  EXPECT_NE(ErrorOf([&] { KVF_LAUNCH(HoldsObjects, 2, 64, 0, 0, alive.data()); }), "");
  EXPECT_EQ(alive, std::vector<int>(64));
  std::vector<unsigned> out(64);
  KVF_LAUNCH(WriteIndices, 1, 64, 0, 0, out.data());
  EXPECT_EQ(out[63], 64u);
}

TEST(CudaOnCpu, HostThreadsLaunchSideBySide) {
  std::vector<int> in(512, 1);
  std::vector<std::vector<int>> out(3, std::vector<int>(4));
  std::vector<std::thread> hosts;
  for (std::vector<int>& mine : out) {
    hosts.emplace_back([&in, &mine] {
      for (int i = 0; i < 20; ++i) KVF_LAUNCH(BlockSum, 4, 64, 0, 0, in.data(), mine.data(), 512);
    });
  }
  for (std::thread& host : hosts) host.join();
  for (const std::vector<int>& mine : out) EXPECT_EQ(mine, std::vector<int>(4, 512));
}

}  // namespace
}  // namespace kvfence
