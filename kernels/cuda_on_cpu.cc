// The entry points of the CPU shim: launches, and what a running thread asks of its grid.
#include "kvfence/cuda_on_cpu.h"

#include <string>

#include "cuda_on_cpu_grid.h"
#include "kvfence/check.h"

namespace kvfence::cuda_on_cpu {
namespace {

constexpr size_t kMaxSharedBytes = size_t{227} << 10;  // sm_90 and sm_100

Grid& Running(const char* who) {
  if (current_grid == nullptr) throw LaunchError(std::string(who) + " outside a kernel");
  return *current_grid;
}

void RefuseBadLaunch(dim3 grid, dim3 block, size_t shared_bytes) {
  if (current_grid != nullptr) throw LaunchError("cuda_on_cpu: a kernel launches a kernel");
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool block_fits = block.x <= 1024 && block.y <= 1024 && block.z <= 64;
  const bool grid_fits = grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || blocks == 0 || threads > kMaxThreadsPerBlock || !block_fits || !grid_fits) {
    throw LaunchError("cuda_on_cpu: invalid configuration: grid " + Index3(grid.x, grid.y, grid.z) +
                      " block " + Index3(block.x, block.y, block.z));
  }
  if (shared_bytes > kMaxSharedBytes) {
    throw LaunchError("cuda_on_cpu: " + std::to_string(shared_bytes) + " bytes of shared memory");
  }
}

}  // namespace

ScopedSchedule::ScopedSchedule(uint64_t seed) : saved_(schedule_seed) { schedule_seed = seed; }
ScopedSchedule::~ScopedSchedule() { schedule_seed = saved_; }

void RunGrid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread) {
  RefuseBadLaunch(grid, block, shared_bytes);
  Grid running(grid, block, shared_bytes, thread);
  struct Scope {
    explicit Scope(Grid* grid) { current_grid = grid; }
    ~Scope() { current_grid = nullptr; }
  } scope(&running);
  running.Run();
}

KVF_UNOBSERVED int BlockBarrier(const char* name, bool predicate) {
  Grid& grid = Running(name);
  current_thread->value = predicate;
  grid.Wait(State::kAtBarrier, name);
  return static_cast<int>(current_thread->barrier_result);
}

KVF_UNOBSERVED const uint64_t* WarpExchange(const char* name, unsigned mask, uint64_t value,
                                            bool orders_memory) {
  Grid& grid = Running(name);
  Thread* self = current_thread;
  const unsigned lane = self->linear % kWarp;
  if ((mask >> lane & 1u) == 0) {
    grid.Fail(std::string("cuda_on_cpu: ") + name + " by a lane outside its own mask");
  }
  self->mask = mask & grid.WarpLanes(self->linear / kWarp);
  self->value = value;
  self->orders_memory = orders_memory;
  grid.Wait(State::kAtCollective, name);
  return self->seen;
}

unsigned LaneIndex() {
  Running("lane index");
  return current_thread->linear % kWarp;
}

unsigned WarpLanes() { return Running("warp lanes").WarpLanes(current_thread->linear / kWarp); }

void MemoryFence() { Running("__threadfence").Fence(); }

void Trap() {
  Running("__trap").Fail("cuda_on_cpu: __trap, or a shuffle from a lane that brought nothing,");
  KVF_CHECK(false, "cuda_on_cpu: a failed thread went on");
}

void* SharedMemory(const void* key, size_t bytes) {
  return Running("shared memory").Shared(key, bytes);
}

void* DynamicSharedMemory() {
  Grid& grid = Running("dynamic shared memory");
  return grid.Shared(&grid, grid.dynamic_bytes());
}

}  // namespace kvfence::cuda_on_cpu
