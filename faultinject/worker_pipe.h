// What a worker process and its campaign say to each other over a socket.
//
// To the worker: one RunOrder per run. From it: frames, each a head and so many bytes; of a fault,
// which of the campaign's kinds it is. Both ends
// are the same program, so plain memory will do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "kvfence/finding.h"

namespace kvfence {

struct RunOrder {
  uint64_t number = 0;
  uint32_t stories = 0;
};

enum class FrameKind : uint32_t { kResult, kFault, kProgress, kViolation, kStep, kAbort };
struct FrameHead {
  FrameKind kind{};
  uint32_t size = 0;
};
struct ProgressFrame {
  uint64_t steps = 0, served = 0;
};
struct AbortFrame {
  RequestId req;
  Reason reason{};
};
static_assert(std::is_trivially_copyable_v<Violation> && std::is_trivially_copyable_v<StepStats> &&
              std::is_trivially_copyable_v<AbortFrame>);

// All bytes, however many calls it takes; false: the other end is gone.
bool WriteWhole(int fd, std::string_view bytes);
bool ReadWhole(int fd, void* to, size_t size);

template <class T>
std::string_view BytesOf(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

}  // namespace kvfence
