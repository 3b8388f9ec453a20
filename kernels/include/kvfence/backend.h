// Which backends this build and this machine have.
//
// Idea: a missing GPU is an answer, not a failure: the CPU backend is always there, and callers
// that asked for CUDA get the reason in words. Invariant: kCuda is listed only after a device
// answered.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

enum class Backend { kCpu, kCuda };

constexpr std::string_view BackendName(Backend backend) {
  return backend == Backend::kCpu ? "cpu" : "cuda";
}

// True when this build has CUDA and at least one device answers. If not, `why` (may be null) says
// what is missing. Asks the driver each time; thread-safe.
bool CudaAvailable(std::string* why);

// What can be used here, kCpu first.
std::vector<Backend> AvailableBackends();

}  // namespace kvfence
