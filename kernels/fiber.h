// A fiber: a second stack that the host thread can step onto and off again. The CUDA threads of the
// CPU shim are fibers.
//
// Idea: on x86-64 a switch is a dozen instructions, since only callee-saved registers change hands;
// elsewhere (or with KVFENCE_FIBER_UCONTEXT) it's swapcontext, ten times slower for its system
// calls. Invariant: ASan always knows which stack is in use and TSan which fiber, and a switch
// orders nothing for TSan: what happens before what is the scheduler's to say.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVF_FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define KVF_FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define KVF_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define KVF_FIBER_TSAN 1
#endif

#if !defined(__x86_64__) && !defined(KVFENCE_FIBER_UCONTEXT)
#define KVFENCE_FIBER_UCONTEXT 1
#endif
#if defined(KVFENCE_FIBER_UCONTEXT)
#include <ucontext.h>
#endif

#if defined(KVF_FIBER_TSAN)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
// For code that runs on fibers but is the machine, not the kernel: TSan must not take its memory
// accesses for the kernel's.
#define KVF_UNOBSERVED __attribute__((no_sanitize("thread"), noinline))
#else
#define KVF_UNOBSERVED
#endif

namespace kvfence::cuda_on_cpu {

// `count` stacks in one mapping, each with a page below it that faults when the stack overflows.
class StackSlab {
 public:
  StackSlab() = default;
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;

  // At least `count` stacks from now on. Existing stacks move: no fiber may be on them.
  void Grow(size_t count);
  void Clear();
  void* Bottom(size_t index) const;
  static size_t StackBytes();

 private:
  void* base_ = nullptr;
  size_t count_ = 0;
};

// One stack's worth of saved state, of a fiber or of the host thread.
struct ExecutionContext {
#if defined(KVFENCE_FIBER_UCONTEXT)
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
#if defined(KVF_FIBER_ASAN)
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
#endif
#if defined(KVF_FIBER_TSAN)
  void* tsan_fiber = nullptr;
#endif
};

class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares a run of body(argument) on a stack of StackSlab; it begins at the first Resume. The
  // fiber must be fresh or finished. `body` lets no exception out.
  void Start(void* stack_bottom, void (*body)(void*), void* argument, ExecutionContext* host);
  // On the host: runs the fiber until it suspends or its body returns.
  void Resume();
  // On the fiber: back to the host.
  void Suspend();

  // For TSan: all that this fiber did so far is published under `token` / seen from here on.
  void Release(void* token);
  void Acquire(void* token);

 private:
  static void Main();
  void Leave(bool for_ever);

  ExecutionContext own_;
  ExecutionContext* host_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
};

// Fills in what the sanitizers need to know of the thread that will call Resume.
void DescribeHost(ExecutionContext* host);

}  // namespace kvfence::cuda_on_cpu
