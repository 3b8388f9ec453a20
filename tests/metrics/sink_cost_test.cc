// I-13: what a sink does on the step's thread takes no memory and, with it, no allocator's lock.
//
// The program's operator new is replaced by one that counts per thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/metrics/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVF_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVF_SANITIZED 1
#endif
#endif

namespace {
thread_local int64_t allocations = 0;
}  // namespace

#ifndef KVF_SANITIZED
void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
// GCC takes these for somebody else's once it has inlined one of a pair.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace kvfence::testing {
namespace {

class I13 : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef KVF_SANITIZED
    GTEST_SKIP() << "the sanitizer has an operator new of its own";
#endif
  }
};

TEST_F(I13, SinksAllocateNothing) {
  const auto metrics = Make(HarnessOptions());
  const int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    metrics->OnStep(Stats(64, 8192, 1, 0, 50'000));
    metrics->OnViolation(Found(Reason::kTagMismatch));
    metrics->OnAbort(RequestId(), Reason::kTagMismatch);
    metrics->SetPages({1, 2, 3, 4});
    metrics->SetMode(Metrics::Mode::kStop);
    metrics->AddTagRollovers(1);
    metrics->AddViolationLogDropped(1);
  }
  EXPECT_EQ(allocations - before, 0);
}

TEST_F(I13, TheCounterOfAllocationsCounts) {
  const auto metrics = Make(HarnessOptions());
  const int64_t before = allocations;
  EXPECT_FALSE(metrics->RenderText().empty());
  EXPECT_GT(allocations - before, 0);
}

}  // namespace
}  // namespace kvfence::testing
