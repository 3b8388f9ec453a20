// The kernels that a measurement needs beside those measured, and the baselines.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu_device.h"
#include "resampling.h"

namespace kvfence {
namespace {

constexpr uint64_t kFlushBytes = Gpu::kMostCopied;  // several times any L2
constexpr uint32_t kEvents = 8;
constexpr uint32_t kWarmUps = 3;
constexpr uint32_t kEmptyLaunches = 100;

__global__ void EmptyKernel() {}

// `nowhere` is written if all words cancel, which they don't: so the reads can't be left out.
__global__ void ReadKernel(const uint4* data, uint64_t count, unsigned long long* nowhere) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  uint4 sum = make_uint4(1, 0, 0, 0);
#pragma unroll 4
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 word = __ldg(data + i);
    sum.x += word.x;
    sum.y += word.y;
    sum.z += word.z;
    sum.w += word.w;
  }
  if ((sum.x | sum.y | sum.z | sum.w) == 0) *nowhere = 1;
}

// Numbers without NaN, of like size: e4m3 below 2, bf16 from 1/8 to 1/2.
__global__ void FillKernel(uint64_t* words, uint64_t count, bool e4m3, uint64_t seed) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint64_t x = (i + seed) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    words[i] = e4m3 ? x & 0xBFBFBFBFBFBFBFBFu : (x & 0x81FF81FF81FF81FFu) | 0x3E003E003E003E00u;
  }
}

}  // namespace

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void Must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_bench: %s: %s\n", what, status.message().c_str());
  std::exit(1);
}

void LaunchEmpty(cudaStream_t stream) {
  EmptyKernel<<<1, 32, 0, stream>>>();
  Must(cudaGetLastError(), "an empty kernel");
}

void LaunchRead(const void* data, uint64_t bytes, void* nowhere, cudaStream_t stream) {
  ReadKernel<<<2048, 256, 0, stream>>>(static_cast<const uint4*>(data), bytes / sizeof(uint4),
                                       static_cast<unsigned long long*>(nowhere));
  Must(cudaGetLastError(), "a straight read");
}

void LaunchFill(void* data, uint64_t bytes, KvType type, uint64_t seed, cudaStream_t stream) {
  FillKernel<<<2048, 256, 0, stream>>>(static_cast<uint64_t*>(data), bytes / sizeof(uint64_t),
                                       type == KvType::kE4m3, seed);
  Must(cudaGetLastError(), "filling a cache");
}

Gpu::Gpu(uint32_t rounds) : rounds_(rounds) {
  Must(cudaSetDevice(0), "device 0");
  Must(cudaGetDeviceProperties(&properties_, 0), "the device's properties");
  Must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  events_.resize(kEvents);
  for (cudaEvent_t& event : events_) Must(cudaEventCreate(&event), "an event");
  flush_ = memory_.Make<uint8_t>(kFlushBytes);
  nowhere_ = memory_.Make<uint64_t>(1);
  LaunchFill(flush_, kFlushBytes, KvType::kE4m3, 1, stream_);
  MeasureBaselines();
}

Gpu::~Gpu() {
  cudaStreamSynchronize(stream_);
  for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

uint64_t Gpu::FreeBytes() const {
  size_t free_bytes = 0;
  size_t all = 0;
  Must(cudaMemGetInfo(&free_bytes, &all), "free memory");
  return free_bytes;
}

void Gpu::Wait() { Must(cudaStreamSynchronize(stream_), "waiting for the device"); }

void Gpu::Flush(uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) LaunchRead(flush_, kFlushBytes, nowhere_, stream_);
}

double Gpu::Between(int first) const {
  float ms = 0;
  Must(cudaEventElapsedTime(&ms, events_[first], events_[first + 1]), "elapsed time");
  return double{ms} * 1000;
}

std::vector<double> Gpu::PartsUs(const std::vector<Work>& parts) {
  std::vector<std::vector<double>> times(parts.size());
  for (uint32_t round = 0; round < kWarmUps + rounds_; ++round) {
    Flush();
    Must(cudaEventRecord(events_[0], stream_), "an event");
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i](stream_);
      Must(cudaEventRecord(events_[i + 1], stream_), "an event");
    }
    Wait();
    for (size_t i = 0; i < parts.size() && round >= kWarmUps; ++i) {
      times[i].push_back(Between(static_cast<int>(i)));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_part : times) medians.push_back(MedianInPlace(of_part));
  return medians;
}

double Gpu::WarmUs(const Work& work, uint32_t times) {
  const Work repeated = [&](cudaStream_t stream) {
    for (uint32_t i = 0; i < times; ++i) work(stream);
  };
  std::vector<double> each;
  for (uint32_t round = 0; round < kWarmUps + rounds_; ++round) {
    Flush(4);  // long enough for the host to submit them all
    work(stream_);
    Must(cudaEventRecord(events_[0], stream_), "an event");
    repeated(stream_);
    Must(cudaEventRecord(events_[1], stream_), "an event");
    Wait();
    if (round >= kWarmUps) each.push_back(Between(0) / times);
  }
  return MedianInPlace(each);
}

std::vector<std::vector<double>> Gpu::InTurnsUs(const std::vector<Work>& arms) {
  std::vector<std::vector<double>> times(arms.size());
  for (uint32_t round = 0; round < kWarmUps + rounds_; ++round) {
    for (size_t turn = 0; turn < arms.size(); ++turn) {
      const size_t arm = (turn + round) % arms.size();
      Flush();
      Must(cudaEventRecord(events_[0], stream_), "an event");
      arms[arm](stream_);
      Must(cudaEventRecord(events_[1], stream_), "an event");
      Wait();
      if (round >= kWarmUps) times[arm].push_back(Between(0));
    }
  }
  return times;
}

Work Gpu::Captured(const Work& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a graph's capture");
  work(stream_);
  Must(cudaStreamEndCapture(stream_, &graph), "a graph's capture");
  Must(cudaGraphInstantiate(&exec, graph, 0), "a graph");
  Must(cudaGraphDestroy(graph), "a graph");
  graphs_.push_back(exec);
  return [exec](cudaStream_t stream) { Must(cudaGraphLaunch(exec, stream), "a graph's launch"); };
}

double Gpu::CopyUs(uint64_t bytes_moved) {
  const uint64_t bytes = std::min(bytes_moved / 2, kFlushBytes / 2);
  const uint64_t from = kFlushBytes / 2 - bytes;  // what the flush read least lately
  return ColdUs([=, this](cudaStream_t stream) {
    Must(cudaMemcpyAsync(flush_ + kFlushBytes / 2, flush_ + from, bytes, cudaMemcpyDeviceToDevice,
                         stream),
         "a device copy");
  });
}

void Gpu::MeasureBaselines() {
  const double bytes = static_cast<double>(kFlushBytes);
  copy_gb_per_s = bytes / CopyUs(kFlushBytes) / 1000;
  read_gb_per_s = bytes / ColdUs([this](cudaStream_t) { Flush(); }) / 1000;
  const Work launches = [](cudaStream_t stream) {
    for (uint32_t i = 0; i < kEmptyLaunches; ++i) LaunchEmpty(stream);
  };
  launch_us = WarmUs(LaunchEmpty, kEmptyLaunches);
  node_us = ColdUs(Captured(launches)) / kEmptyLaunches;
}

}  // namespace kvfence
