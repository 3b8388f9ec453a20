// What is there: the CPU always, CUDA only when a device answers, and otherwise a reason.
#include "kvfence/backend.h"

#include <gtest/gtest.h>

namespace kvfence {
namespace {

TEST(Backend, TheCpuIsAlwaysThereAndCudaOnlyWithADevice) {
  const std::vector<Backend> backends = AvailableBackends();
  ASSERT_FALSE(backends.empty());
  EXPECT_EQ(backends[0], Backend::kCpu);
  std::string why;
  const bool cuda = CudaAvailable(&why);
  EXPECT_EQ(backends.size(), cuda ? 2u : 1u);
  EXPECT_EQ(why.empty(), cuda) << why;
}

TEST(Backend, Names) {
  EXPECT_EQ(BackendName(Backend::kCpu), "cpu");
  EXPECT_EQ(BackendName(Backend::kCuda), "cuda");
}

}  // namespace
}  // namespace kvfence
