// Runs the blocks of a grid one after another, and the threads of a block as fibers; the idea
// stands in cuda_on_cpu_grid.h. Functions that run on fibers are KVF_UNOBSERVED: what they touch is
// the machine, not the kernel.
#include "cuda_on_cpu_grid.h"

#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "kvfence/check.h"

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace kvfence::cuda_on_cpu {

constinit thread_local Grid* current_grid = nullptr;
constinit thread_local Thread* current_thread = nullptr;
constinit thread_local uint64_t schedule_seed = 0;

namespace {

constexpr unsigned char kGarbage = 0xA5;  // what shared memory holds at first

StackSlab& Stacks() {
  thread_local StackSlab slab;
  return slab;
}

bool SameName(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

unsigned ThreadsOf(dim3 block) { return block.x * block.y * block.z; }

template <class T>
void Shuffle(std::vector<T>* items, Rng* rng) {
  for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[rng->Below(i)]);
}

KVF_UNOBSERVED void FillWithGarbage(unsigned char* bytes, size_t count) {
  for (volatile unsigned char* p = bytes; p != bytes + count; ++p) *p = kGarbage;
}

}  // namespace

std::string Index3(unsigned x, unsigned y, unsigned z) {
  char text[40];
  std::snprintf(text, sizeof text, "(%u,%u,%u)", x, y, z);
  return text;
}

Grid::Grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread)
    : grid_(grid),
      block_(block),
      shared_bytes_(shared_bytes),
      thread_(thread),
      thread_count_(ThreadsOf(block)),
      warp_count_((thread_count_ + kWarp - 1) / kWarp),
      owner_(std::make_unique<Thread[]>(thread_count_)),
      threads_(owner_.get()),
      order_(thread_count_) {
  std::iota(order_.begin(), order_.end(), 0u);
  for (unsigned t = 0; t < thread_count_; ++t) {
    threads_[t].linear = t;
    threads_[t].index = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
  }
}

void Grid::Run() {
  const uint64_t blocks = uint64_t{grid_.x} * grid_.y * grid_.z;
  blockDim = block_;
  gridDim = grid_;
  DescribeHost(&host_);
  if (!permuted_) {
    for (uint64_t b = 0; b < blocks && !error_; ++b) RunBlock(b);
  } else {
    std::vector<uint64_t> block_order(blocks);
    std::iota(block_order.begin(), block_order.end(), uint64_t{0});
    Shuffle(&block_order, &rng_);
    for (size_t i = 0; i < blocks && !error_; ++i) RunBlock(block_order[i]);
  }
#if defined(KVF_FIBER_TSAN)
  __tsan_acquire(&orderings_.ended);
#endif
  if (error_) std::rethrow_exception(error_);
}

KVF_UNOBSERVED void Grid::EnterBlock(uint64_t number) {
  blockIdx = {static_cast<unsigned>(number % grid_.x),
              static_cast<unsigned>(number / grid_.x % grid_.y),
              static_cast<unsigned>(number / (uint64_t{grid_.x} * grid_.y))};
}

void Grid::RunBlock(uint64_t number) {
  EnterBlock(number);
  if (permuted_) Shuffle(&order_, &rng_);
  StartThreads();
  for (;;) {
    ResumeReady();
    if (error_) break;
    bool released = ReleaseBarrier();
    for (unsigned w = 0; w < warp_count_; ++w) released |= ReleaseCollectives(w);
    if (AllDone()) break;
    if (!released) {
      error_ = std::make_exception_ptr(LaunchError(DescribeDivergence()));
      break;
    }
  }
  if (error_) Cancel();
  LeaveBlock();
}

void Grid::StartThreads() {
#if defined(KVF_FIBER_TSAN)
  Stacks().Clear();  // fresh memory: a stack's last user is unordered with its next
#endif
  Stacks().Grow(thread_count_);
  for (unsigned t = 0; t < thread_count_; ++t) {
    threads_[t].state = State::kReady;
    threads_[t].fiber.Start(Stacks().Bottom(t), &Grid::ThreadMain, this, &host_);
  }
#if defined(KVF_FIBER_TSAN)
  // The host never acquires from a fiber before the launch ends, so this orders each thread after
  // the launch's caller and after no other block.
  __tsan_release(&orderings_.started);
#endif
}

KVF_UNOBSERVED void Grid::ResumeReady() {
  const unsigned* order = order_.data();
  for (unsigned i = 0; i < thread_count_; ++i) {
    Thread* thread = threads_ + order[i];
    if (thread->state != State::kReady) continue;
    current_thread = thread;
    threadIdx = thread->index;
    thread->fiber.Resume();
  }
  current_thread = nullptr;
}

// The body of every fiber.
KVF_UNOBSERVED void Grid::ThreadMain(void* grid) {
  Grid* const self = static_cast<Grid*>(grid);
  Thread* const thread = current_thread;
  thread->fiber.Acquire(&self->orderings_.started);
  try {
    if (!self->cancelled_) self->thread_();
  } catch (const Cancelled&) {
  } catch (...) {
    AsHost host(self->host_);
    if (!self->error_) self->error_ = std::current_exception();
  }
  thread->fiber.Release(&self->orderings_.ended);
  thread->state = State::kDone;
}

KVF_UNOBSERVED bool Grid::AllDone() const {
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].state != State::kDone) return false;
  }
  return true;
}

KVF_UNOBSERVED void Grid::Wait(State state, const char* name) {
  Thread* self = current_thread;
  self->state = state;
  self->waits_at = name;
  self->fiber.Suspend();
  if (cancelled_) throw Cancelled{};
}

KVF_UNOBSERVED bool Grid::ReleaseBarrier() {
  uint64_t count = 0;
  for (unsigned t = 0; t < thread_count_; ++t) {
    const Thread& thread = threads_[t];
    if (thread.state != State::kAtBarrier) return false;
    if (!SameName(thread.waits_at, threads_[0].waits_at)) return false;
    count += thread.value;
  }
  for (unsigned t = 0; t < thread_count_; ++t)
    threads_[t].fiber.Release(&block_orderings_->barrier);
  for (unsigned t = 0; t < thread_count_; ++t) {
    threads_[t].fiber.Acquire(&block_orderings_->barrier);
    threads_[t].barrier_result = count;
    threads_[t].state = State::kReady;
  }
  return true;
}

KVF_UNOBSERVED bool Grid::CollectiveComplete(unsigned warp, unsigned lane) const {
  const Thread& first = threads_[warp * kWarp + lane];
  for (unsigned left = first.mask; left != 0; left &= left - 1) {
    const Thread& other = threads_[warp * kWarp + unsigned(std::countr_zero(left))];
    if (other.state != State::kAtCollective || other.mask != first.mask ||
        !SameName(other.waits_at, first.waits_at)) {
      return false;
    }
  }
  return true;
}

KVF_UNOBSERVED bool Grid::ReleaseCollectives(unsigned warp) {
  bool released = false;
  const unsigned lanes =
      thread_count_ - warp * kWarp < kWarp ? thread_count_ - warp * kWarp : kWarp;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Thread& thread = threads_[warp * kWarp + lane];
    if (thread.state != State::kAtCollective || !CollectiveComplete(warp, lane)) continue;
    Exchange(warp, thread.mask);
    released = true;
  }
  return released;
}

// Hands every lane in the mask what all of them brought, and lets them go.
KVF_UNOBSERVED void Grid::Exchange(unsigned warp, unsigned mask) {
  Thread* const lanes = threads_ + warp * kWarp;
  char* const token =
      &block_orderings_->collective[warp * kWarp + unsigned(std::countr_zero(mask))];
  const bool orders_memory = lanes[std::countr_zero(mask)].orders_memory;
  for (unsigned to = mask; to != 0; to &= to - 1) {
    Thread* receiver = lanes + std::countr_zero(to);
    for (unsigned from = mask; from != 0; from &= from - 1) {
      const int lane = std::countr_zero(from);
      receiver->seen[lane] = lanes[lane].value;
    }
    if (orders_memory) receiver->fiber.Release(token);
  }
  for (unsigned to = mask; to != 0; to &= to - 1) {
    Thread* receiver = lanes + std::countr_zero(to);
    if (orders_memory) receiver->fiber.Acquire(token);
    receiver->state = State::kReady;
  }
}

unsigned Grid::WarpLanes(unsigned warp) const {
  const unsigned left = thread_count_ - warp * kWarp;
  return left >= kWarp ? ~0u : (1u << left) - 1;
}

// Looks up or makes a shared array of this block. For TSan the host does it: which thread names
// an array first is no order between threads.
KVF_UNOBSERVED void* Grid::Shared(const void* key, size_t bytes) {
  void* found = nullptr;
  {
    AsHost host(host_);
    for (unsigned i = 0; i < shared_count_; ++i) {
      if (shared_[i].key == key) found = shared_[i].bytes;
    }
    if (found == nullptr && shared_count_ < kMaxSharedArrays) {
      auto* made = new unsigned char[bytes];
      shared_[shared_count_++] = SharedArray{key, made};
      FillWithGarbage(made, bytes);
      found = made;
    }
#if defined(KVF_FIBER_TSAN)
    __tsan_release(&orderings_.shared_made);
#endif
  }
#if defined(KVF_FIBER_TSAN)
  __tsan_acquire(&orderings_.shared_made);
#endif
  KVF_CHECK(found != nullptr, "cuda_on_cpu: more shared arrays than a kernel may have");
  return found;
}

void Grid::LeaveBlock() {
#if defined(KVF_FIBER_TSAN)
  // Freeing is a write, and the host is ordered after the fibers only when the launch has ended.
  retired_orderings_.push_back(std::move(owner_of_block_orderings_));
  owner_of_block_orderings_ = std::make_unique<BlockOrderings>();
  block_orderings_ = owner_of_block_orderings_.get();
#endif
  for (unsigned i = 0; i < shared_count_; ++i) {
    std::unique_ptr<unsigned char[]> owned(shared_[i].bytes);
#if defined(KVF_FIBER_TSAN)
    retired_.push_back(std::move(owned));
#endif
  }
  shared_count_ = 0;
}

void Grid::Fence() {
#if defined(KVF_FIBER_TSAN)
  __tsan_acquire(&orderings_.fence);
  __tsan_release(&orderings_.fence);
#endif
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Unwinds the threads that still stand somewhere in the kernel.
void Grid::Cancel() {
  cancelled_ = true;
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].state != State::kDone) threads_[t].state = State::kReady;
  }
  ResumeReady();
}

void Grid::Fail(const std::string& what) { throw LaunchError(what + Where()); }

std::string Grid::Where() const {
  std::string text = " in block " + Index3(blockIdx.x, blockIdx.y, blockIdx.z);
  if (current_thread != nullptr) {
    const uint3 i = current_thread->index;
    text += " thread " + Index3(i.x, i.y, i.z);
  }
  return text;
}

// One line that says where the threads stand, runs of equal ones together.
std::string Grid::DescribeDivergence() const {
  std::string text = "cuda_on_cpu: threads diverge" + Where() + ":";
  const auto stands = [this](unsigned t) -> std::string {
    const Thread& thread = threads_[t];
    if (thread.state == State::kDone) return "exited";
    if (thread.state == State::kAtBarrier) return std::string("waits at ") + thread.waits_at;
    char mask[16];
    std::snprintf(mask, sizeof mask, "%08x", thread.mask);
    return std::string("waits at ") + thread.waits_at + " mask " + mask;
  };
  for (unsigned first = 0; first < thread_count_;) {
    unsigned last = first;
    while (last + 1 < thread_count_ && stands(last + 1) == stands(first)) ++last;
    text += (first == 0 ? " " : "; ") + std::to_string(first) + "-" + std::to_string(last) + " " +
            stands(first);
    first = last + 1;
  }
  return text;
}

}  // namespace kvfence::cuda_on_cpu
