// Stacks and switches; see fiber.h. Nothing here knows of CUDA.
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "kvfence/check.h"

#if defined(KVF_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(KVFENCE_FIBER_UCONTEXT)
// void kvf_fiber_switch(void** save_to, void* load_from): System V ABI. Pushes the six callee-saved
// registers, swaps stacks, pops the other side's, and returns into it.
extern "C" void kvf_fiber_switch(void** save_to, void* load_from);
asm(R"(
.pushsection .text
.globl kvf_fiber_switch
.hidden kvf_fiber_switch
.type kvf_fiber_switch, @function
.p2align 4
kvf_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kvf_fiber_switch, . - kvf_fiber_switch
.popsection
)");
#endif

namespace kvfence::cuda_on_cpu {
namespace {

constexpr size_t kCalleeSavedRegisters = 6;
// The fiber that Main, which takes no argument, is to run.
constinit thread_local Fiber* starting = nullptr;

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

KVF_UNOBSERVED void SwitchStacks(ExecutionContext* from, ExecutionContext* to) {
#if defined(KVF_FIBER_TSAN)
  constexpr unsigned kNoOrdering = 1;  // __tsan_switch_to_fiber_no_sync
  __tsan_switch_to_fiber(to->tsan_fiber, kNoOrdering);
#endif
#if defined(KVFENCE_FIBER_UCONTEXT)
  swapcontext(&from->context, &to->context);
#else
  kvf_fiber_switch(&from->stack_pointer, to->stack_pointer);
#endif
}

// Around a switch: tells ASan that stack `to` is next, and, once back, that `from` is in use again.
void AnnounceLeave([[maybe_unused]] ExecutionContext* from, [[maybe_unused]] ExecutionContext* to,
                   [[maybe_unused]] bool for_ever) {
#if defined(KVF_FIBER_ASAN)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &from->fake_stack, to->stack_bottom,
                                 to->stack_bytes);
#endif
}
void AnnounceArrival([[maybe_unused]] ExecutionContext* here,
                     [[maybe_unused]] ExecutionContext* previous) {
#if defined(KVF_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(here->fake_stack, &previous->stack_bottom,
                                  &previous->stack_bytes);
#endif
}

#if !defined(KVFENCE_FIBER_UCONTEXT)
// What kvf_fiber_switch will pop: zeroes for the registers, then the address to return into. Above
// it a null return address, so that `entry` finds its stack aligned as after a call.
KVF_UNOBSERVED void* FirstFrame(void* stack_bottom, void (*entry)()) {
  auto* top =
      reinterpret_cast<uintptr_t*>(static_cast<char*>(stack_bottom) + StackSlab::StackBytes());
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(entry);
  for (size_t i = 0; i < kCalleeSavedRegisters; ++i) *--top = 0;
  return top;
}
#endif

}  // namespace

size_t StackSlab::StackBytes() {
#if defined(KVF_FIBER_ASAN) || defined(KVF_FIBER_TSAN)
  return size_t{256} << 10;
#else
  return size_t{64} << 10;
#endif
}

void StackSlab::Grow(size_t count) {
  if (count <= count_) return;
  Clear();
  const size_t stride = StackBytes() + PageBytes();
  void* base = mmap(nullptr, stride * count, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  KVF_CHECK(base != MAP_FAILED, "cuda_on_cpu: no address space for fiber stacks");
  for (size_t i = 0; i < count; ++i) {
    KVF_CHECK(mprotect(static_cast<char*>(base) + i * stride, PageBytes(), PROT_NONE) == 0,
              "cuda_on_cpu: no guard page below a fiber stack");
  }
  base_ = base;
  count_ = count;
}

void StackSlab::Clear() {
  if (base_ == nullptr) return;
  munmap(base_, (StackBytes() + PageBytes()) * count_);
  base_ = nullptr;
  count_ = 0;
}

StackSlab::~StackSlab() { Clear(); }

void* StackSlab::Bottom(size_t index) const {
  return static_cast<char*>(base_) + index * (StackBytes() + PageBytes()) + PageBytes();
}

void DescribeHost([[maybe_unused]] ExecutionContext* host) {
#if defined(KVF_FIBER_TSAN)
  host->tsan_fiber = __tsan_get_current_fiber();
#endif
}

Fiber::~Fiber() {
#if defined(KVF_FIBER_TSAN)
  if (own_.tsan_fiber != nullptr) __tsan_destroy_fiber(own_.tsan_fiber);
#endif
}

void Fiber::Start(void* stack_bottom, void (*body)(void*), void* argument, ExecutionContext* host) {
  body_ = body;
  argument_ = argument;
  host_ = host;
  own_ = [&] {
    ExecutionContext fresh;
#if defined(KVF_FIBER_ASAN)
    fresh.stack_bottom = stack_bottom;
    fresh.stack_bytes = StackSlab::StackBytes();
#endif
#if defined(KVF_FIBER_TSAN)
    if (own_.tsan_fiber != nullptr) __tsan_destroy_fiber(own_.tsan_fiber);
    fresh.tsan_fiber = __tsan_create_fiber(0);
#endif
    return fresh;
  }();
#if defined(KVFENCE_FIBER_UCONTEXT)
  getcontext(&own_.context);
  own_.context.uc_stack.ss_sp = stack_bottom;
  own_.context.uc_stack.ss_size = StackSlab::StackBytes();
  own_.context.uc_link = nullptr;
  makecontext(&own_.context, &Fiber::Main, 0);
#else
  own_.stack_pointer = FirstFrame(stack_bottom, &Fiber::Main);
#endif
}

KVF_UNOBSERVED void Fiber::Main() {
  Fiber* self = starting;
  AnnounceArrival(&self->own_, self->host_);
  self->body_(self->argument_);
  self->Leave(/*for_ever=*/true);
  KVF_CHECK(false, "cuda_on_cpu: a finished fiber was resumed");
}

KVF_UNOBSERVED void Fiber::Resume() {
  starting = this;
  AnnounceLeave(host_, &own_, false);
  SwitchStacks(host_, &own_);
  AnnounceArrival(host_, &own_);
}

KVF_UNOBSERVED void Fiber::Leave(bool for_ever) {
  AnnounceLeave(&own_, host_, for_ever);
  SwitchStacks(&own_, host_);
  AnnounceArrival(&own_, host_);
}

KVF_UNOBSERVED void Fiber::Suspend() { Leave(/*for_ever=*/false); }

KVF_UNOBSERVED void Fiber::Release([[maybe_unused]] void* token) {
#if defined(KVF_FIBER_TSAN)
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_.tsan_fiber, 1);
  __tsan_release(token);
  __tsan_switch_to_fiber(caller, 1);
#endif
}

KVF_UNOBSERVED void Fiber::Acquire([[maybe_unused]] void* token) {
#if defined(KVF_FIBER_TSAN)
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_.tsan_fiber, 1);
  __tsan_acquire(token);
  __tsan_switch_to_fiber(caller, 1);
#endif
}

}  // namespace kvfence::cuda_on_cpu
