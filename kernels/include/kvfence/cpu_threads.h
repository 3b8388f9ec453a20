// A few threads that wait for work: what the CPU backend spreads a call over.
//
// Idea: items of one call are handed out by a counter, so that a slow item delays only its thread.
// Which thread takes which item is left to chance; what is computed must not depend on it (I-62).
// Not for several callers at once: one call of ForEach at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace kvfence {

class CpuThreads {
 public:
  // `threads` in all, the caller of ForEach counted; at least 1.
  explicit CpuThreads(unsigned threads);
  ~CpuThreads();
  CpuThreads(const CpuThreads&) = delete;
  CpuThreads& operator=(const CpuThreads&) = delete;

  unsigned size() const;

  // Calls f(item, thread) once for each item < count, thread < size(); returns when all are done.
  // What one call writes is visible to the caller, and to the next call. f must not throw.
  void ForEach(uint64_t count, const std::function<void(uint64_t item, unsigned thread)>& f);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvfence
