// One launch on the CPU shim: a grid, and the block of it that is running.
//
// Idea: in each round every ready thread runs until its next barrier or collective. Then complete
// groups are let go: a warp collective when all lanes of its mask wait at the same function with
// the same mask, the block barrier when all threads wait at it. A round that lets nobody go though
// somebody waits is divergence. Invariant: a thread leaves a barrier only after every thread of its
// group has arrived, and for TSan exactly that order exists and no other (I-63).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "kvfence/cuda_on_cpu.h"
#include "kvfence/rng.h"

namespace kvfence::cuda_on_cpu {

inline constexpr unsigned kWarp = 32;
inline constexpr uint64_t kMaxThreadsPerBlock = 1024;

enum class State : uint8_t { kReady, kAtBarrier, kAtCollective, kDone };

struct Thread {
  Fiber fiber;
  uint3 index{};
  unsigned linear = 0;
  State state = State::kReady;
  // What it waits for, and what it brings.
  const char* waits_at = nullptr;
  unsigned mask = 0;
  bool orders_memory = false;
  uint64_t value = 0;
  // What it gets.
  uint64_t barrier_result = 0;
  uint64_t seen[kWarp] = {};
};

// Thrown through a fiber whose block has failed, so that its frames are unwound.
struct Cancelled {};

// Bytes of one shared array. malloc'ed one by one, so that ASan guards their ends.
struct SharedArray {
  const void* key;
  unsigned char* bytes;  // owned by the grid, until the block or (under TSan) the launch has ended
};
inline constexpr unsigned kMaxSharedArrays = 64;

// Addresses that stand for an ordering between threads; only TSan looks at them. What was released
// at an address stays there, so each block has its own for its barriers.
struct LaunchOrderings {
  char started = 0, ended = 0, fence = 0, shared_made = 0;
};
struct BlockOrderings {
  char barrier = 0;
  char collective[kMaxThreadsPerBlock] = {};  // by the lowest thread of the group
};

// While it lives, TSan takes this fiber's accesses for the host's: for the machine's own memory.
class AsHost {
 public:
  KVF_UNOBSERVED explicit AsHost([[maybe_unused]] const ExecutionContext& host) {
#if defined(KVF_FIBER_TSAN)
    self_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(host.tsan_fiber, 1);
#endif
  }
  KVF_UNOBSERVED ~AsHost() {
#if defined(KVF_FIBER_TSAN)
    __tsan_switch_to_fiber(self_, 1);
#endif
  }
  AsHost(const AsHost&) = delete;
  AsHost& operator=(const AsHost&) = delete;

 private:
  [[maybe_unused]] void* self_ = nullptr;
};

// Whose launch, which thread of it, and in what order, on this host thread.
class Grid;
extern constinit thread_local Grid* current_grid;
extern constinit thread_local Thread* current_thread;
extern constinit thread_local uint64_t schedule_seed;

class Grid {
 public:
  Grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);
  void Run();

  // From fibers.
  void Wait(State state, const char* name);
  void* Shared(const void* key, size_t bytes);
  size_t dynamic_bytes() const { return shared_bytes_; }
  unsigned WarpLanes(unsigned warp) const;
  void Fence();
  void Fail(const std::string& what);

 private:
  void EnterBlock(uint64_t number);
  void RunBlock(uint64_t number);
  void StartThreads();
  void ResumeReady();
  bool ReleaseBarrier();
  bool ReleaseCollectives(unsigned warp);
  bool CollectiveComplete(unsigned warp, unsigned lane) const;
  void Exchange(unsigned warp, unsigned mask);
  void LeaveBlock();
  void Cancel();
  static void ThreadMain(void* grid);
  bool AllDone() const;
  std::string Where() const;
  std::string DescribeDivergence() const;

  const dim3 grid_, block_;
  const size_t shared_bytes_;
  const std::function<void()>& thread_;
  const unsigned thread_count_, warp_count_;
  std::unique_ptr<Thread[]> owner_;
  Thread* const threads_;  // raw: used in code that TSan must not see
  std::vector<unsigned> order_;
  // A plain array: what Shared() calls on a fiber's stack would be seen by TSan.
  SharedArray shared_[kMaxSharedArrays];
  unsigned shared_count_ = 0;
  std::vector<std::unique_ptr<unsigned char[]>> retired_;
  ExecutionContext host_;
  Rng rng_{schedule_seed};
  const bool permuted_ = schedule_seed != 0;
  bool cancelled_ = false;
  std::exception_ptr error_;
  LaunchOrderings orderings_;
  std::unique_ptr<BlockOrderings> owner_of_block_orderings_ = std::make_unique<BlockOrderings>();
  BlockOrderings* block_orderings_ = owner_of_block_orderings_.get();
  std::vector<std::unique_ptr<BlockOrderings>> retired_orderings_;
};

std::string Index3(unsigned x, unsigned y, unsigned z);  // "(x,y,z)"

}  // namespace kvfence::cuda_on_cpu
