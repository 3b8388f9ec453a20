// What ASan and TSan must see in a kernel that runs on the CPU shim, each planted bug in a child
// process. Without the sanitizer a test here is skipped and says so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "kvfence/cuda_on_cpu.h"

namespace kvfence {
namespace {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVF_TEST_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define KVF_TEST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define KVF_TEST_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define KVF_TEST_ASAN 1
#endif

#if defined(KVF_TEST_ASAN)
__global__ void PastTheSharedArray(int* out) {
  KVF_SHARED_ARRAY(int, few, 4);
  volatile unsigned index = 4 + threadIdx.x;
  few[0] = 1;
  *out = (&few[0])[index];
}
#endif

TEST(CudaOnCpuDeathTest, AsanSeesAReadPastASharedArray) {
#if defined(KVF_TEST_ASAN)
  int out = 0;
  EXPECT_DEATH(KVF_LAUNCH(PastTheSharedArray, 1, 1, 0, 0, &out), "heap-buffer-overflow");
#else
  GTEST_SKIP() << "needs ASan";
#endif
}

#if defined(KVF_TEST_TSAN)
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

// A neighbour's shared word read after one barrier and overwritten after another, or not.
template <bool kSecondBarrier>
__global__ void ReadThenOverwrite(int* out) {
  KVF_SHARED_DYNAMIC(int, words);
  words[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = words[(threadIdx.x + 1) % blockDim.x];
  if (kSecondBarrier) __syncthreads();
  words[threadIdx.x] = 0;
}
// Lanes hand over through memory, with a shuffle (orders nothing) or __syncwarp between.
template <bool kSyncWarp>
__global__ void HandOver(int* out) {
  KVF_SHARED_DYNAMIC(int, words);
  words[threadIdx.x] = int(threadIdx.x);
  if (kSyncWarp) {
    __syncwarp();
  } else {
    __shfl_xor_sync(~0u, 1, 1);
  }
  out[threadIdx.x] = words[threadIdx.x ^ 1];
}

// Runs the launch in a child; the child's exit code says whether TSan reported a race.
#define EXPECT_RACE(statement) \
  EXPECT_EXIT(                 \
      {                        \
        statement;             \
        std::exit(0);          \
      },                       \
      testing::ExitedWithCode(66), "data race")
#define EXPECT_NO_RACE(statement) \
  EXPECT_EXIT(                    \
      {                           \
        statement;                \
        std::exit(0);             \
      },                          \
      testing::ExitedWithCode(0), "")
#endif

TEST(CudaOnCpuDeathTest, TsanSeesAMissingBarrierAndOnlyThat) {  // I-63
#if defined(KVF_TEST_TSAN)
  int out[64];
  EXPECT_RACE(KVF_LAUNCH(ReadThenOverwrite<false>, 1, 64, 256, 0, out));
  EXPECT_NO_RACE(KVF_LAUNCH(ReadThenOverwrite<true>, 1, 64, 256, 0, out));
  EXPECT_RACE(KVF_LAUNCH(HandOver<false>, 1, 32, 256, 0, out));
  EXPECT_NO_RACE(KVF_LAUNCH(HandOver<true>, 1, 32, 256, 0, out));
#else
  GTEST_SKIP() << "needs TSan";
#endif
}

TEST(CudaOnCpuDeathTest, TsanSeesARaceBetweenBlocksWithoutFences) {  // I-63
#if defined(KVF_TEST_TSAN)
  std::vector<unsigned> written(4 * 64);
  unsigned ticket = 0, out = 0;
  EXPECT_RACE(KVF_LAUNCH(LastBlockSums<false>, 4, 64, 0, 0, written.data(), &ticket, &out));
  EXPECT_NO_RACE(KVF_LAUNCH(LastBlockSums<true>, 4, 64, 0, 0, written.data(), &ticket, &out));
#else
  GTEST_SKIP() << "needs TSan";
#endif
}

}  // namespace
}  // namespace kvfence
