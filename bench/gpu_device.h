// A GPU for measurements: its memory, its stream, and the device time of work on it.
//
// Idea: work is timed by events in the stream, behind a read of more memory than the L2 holds: it
// leaves nothing of the last repetition in the cache, and keeps the device busy while the host
// submits what is timed, so that the host's speed is no part of it. Medians over repetitions after
// a warm-up. Invariant: a CUDA error ends the program with exit 1 and what failed; no figure is
// made of work that didn't run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/status.h"

namespace kvfence {

void Must(cudaError_t error, const char* what);
void Must(const Status& status, const char* what);

// Device memory that lives as long as this does.
class DeviceArrays {
 public:
  DeviceArrays() = default;
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;
  ~DeviceArrays() {
    for (void* array : arrays_) cudaFree(array);
  }

  template <class T>
  T* Make(uint64_t count) {
    void* array = nullptr;
    Must(cudaMalloc(&array, count * sizeof(T)), "device memory");
    arrays_.push_back(array);
    return static_cast<T*>(array);
  }
  template <class T>
  T* Copy(const T* host, uint64_t count) {
    T* array = Make<T>(count);
    Must(cudaMemcpy(array, host, count * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
    return array;
  }
  template <class T>
  T* Copy(const std::vector<T>& host) {
    return Copy(host.data(), host.size());
  }

 private:
  std::vector<void*> arrays_;
};

template <class T>
void CopyBack(const T* device, std::vector<T>* host) {
  Must(cudaMemcpy(host->data(), device, host->size() * sizeof(T), cudaMemcpyDeviceToHost),
       "copy from the device");
}

// Submits something to the stream.
using Work = std::function<void(cudaStream_t)>;

// Kernels of gpu_device.cu.
void LaunchEmpty(cudaStream_t stream);
void LaunchRead(const void* data, uint64_t bytes, void* nowhere, cudaStream_t stream);
void LaunchFill(void* data, uint64_t bytes, KvType type, uint64_t seed, cudaStream_t stream);

class Gpu {
 public:
  explicit Gpu(uint32_t rounds);  // device 0
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  const cudaDeviceProp& properties() const { return properties_; }
  cudaStream_t stream() const { return stream_; }
  uint32_t rounds() const { return rounds_; }
  uint64_t FreeBytes() const;
  void Wait();

  // Median device microseconds of each part; between parts stands an event.
  std::vector<double> PartsUs(const std::vector<Work>& parts);
  double ColdUs(const Work& work) { return PartsUs({work})[0]; }
  // Of one of `times` repetitions that follow each other without a flush.
  double WarmUs(const Work& work, uint32_t times);
  // Device microseconds of each arm in each round; the arms take turns, each round from another
  // one.
  std::vector<std::vector<double>> InTurnsUs(const std::vector<Work>& arms);
  // Work that replays what `work` submits, captured as a graph once.
  Work Captured(const Work& work);

  // Baselines, measured at once.
  double launch_us = 0,
         node_us = 0;        // of an empty kernel among its like: in the stream, in a graph
  double copy_gb_per_s = 0;  // device to device, bytes read and written
  double read_gb_per_s = 0;  // a straight read
  // A device copy that reads and writes so many bytes, half each; at most kMostCopied.
  double CopyUs(uint64_t bytes_moved);
  static constexpr uint64_t kMostCopied = uint64_t{1} << 30;

 private:
  void Flush(uint32_t times = 1);
  void MeasureBaselines();
  double Between(int first) const;  // microseconds from event `first` to the one behind it

  uint32_t rounds_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::vector<cudaGraphExec_t> graphs_;
  DeviceArrays memory_;
  uint8_t* flush_ = nullptr;
  uint64_t* nowhere_ = nullptr;
};

}  // namespace kvfence
