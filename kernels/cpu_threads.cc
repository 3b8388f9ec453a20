#include "kvfence/cpu_threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace kvfence {

struct CpuThreads::State {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t call = 0;     // number of the present call; a thread works once per call
  unsigned working = 0;  // threads that haven't finished it
  bool ending = false;
  uint64_t count = 0;
  const std::function<void(uint64_t, unsigned)>* f = nullptr;
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> threads;

  void TakeItems(unsigned thread) {
    for (uint64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*f)(i, thread);
  }

  void Main(unsigned thread) {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ending || call != seen; });
      if (ending) return;
      seen = call;
      lock.unlock();
      TakeItems(thread);
      lock.lock();
      if (--working == 0) changed.notify_all();
    }
  }
};

CpuThreads::CpuThreads(unsigned threads) : state_(std::make_unique<State>()) {
  for (unsigned t = 1; t < threads; ++t) {
    state_->threads.emplace_back([state = state_.get(), t] { state->Main(t); });
  }
}

CpuThreads::~CpuThreads() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

unsigned CpuThreads::size() const { return static_cast<unsigned>(state_->threads.size()) + 1; }

void CpuThreads::ForEach(uint64_t count, const std::function<void(uint64_t, unsigned)>& f) {
  State& state = *state_;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.count = count;
    state.f = &f;
    state.next.store(0);
    state.working = size() - 1;
    ++state.call;
  }
  state.changed.notify_all();
  state.TakeItems(0);
  std::unique_lock<std::mutex> lock(state.mutex);
  state.changed.wait(lock, [&] { return state.working == 0; });
}

}  // namespace kvfence
