// Managed copies of host arrays, for tests that run on a device: one pointer serves both sides.
#pragma once

#if defined(KVFENCE_HAVE_CUDA)
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/check.h"
#include "kvfence/status.h"

namespace kvfence {

class Managed {
 public:
  Managed() = default;
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;
  ~Managed() {
    for (const Moved& moved : all_) cudaFree(moved.copy);
  }

  template <class T>
  T* Make(size_t count) {
    void* array = nullptr;
    KVF_CHECK(cudaMallocManaged(&array, count * sizeof(T) + 1) == cudaSuccess, "managed memory");
    all_.push_back({nullptr, array, 0});
    return static_cast<T*>(array);
  }
  template <class T>
  T* Copy(const T* data, size_t count) {
    if (data == nullptr) return nullptr;
    T* copy = Make<T>(count);
    std::memcpy(static_cast<void*>(copy), data, count * sizeof(T));
    return copy;
  }
  // A copy that Back() writes to where it came from.
  template <class T>
  T* Lend(T* data, size_t count) {
    T* copy = Copy(data, count);
    if (copy != nullptr) all_.back() = {data, copy, count * sizeof(T)};
    return copy;
  }
  IntArray Copy(IntArray array, size_t count) {
    array.data = Copy(static_cast<const uint8_t*>(array.data), count * array.bits / 8);
    return array;
  }
  FloatArray Copy(FloatArray array, size_t count) {
    array.data = Copy(static_cast<const uint8_t*>(array.data), count * Bytes(array));
    return array;
  }
  FloatArray Lend(FloatArray array, size_t count) {
    array.data = Lend(static_cast<uint8_t*>(array.data), count * Bytes(array));
    return array;
  }
  // Waits for the device; then what was lent is what the device made of it.
  Status Back() {
    if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
      return Status(StatusCode::kUnavailable, cudaGetErrorString(error));
    }
    for (const Moved& moved : all_) {
      if (moved.host != nullptr) std::memcpy(moved.host, moved.copy, moved.bytes);
    }
    return Status();
  }

 private:
  struct Moved {
    void* host;  // null: only a copy
    void* copy;
    size_t bytes;
  };
  static size_t Bytes(const FloatArray& array) { return array.type == FloatType::kF32 ? 4 : 2; }

  std::vector<Moved> all_;
};

}  // namespace kvfence
#endif
