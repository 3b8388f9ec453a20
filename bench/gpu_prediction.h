// What a launch on a GPU must move, and how long that takes at least: predicted, not measured.
//
// Idea: bytes are counted from the arrays that the launch reads and writes, each once as they come
// from memory; time is launches, and then the larger of two: bytes over bandwidth, and reads that
// wait for each other. A thread asks for a page's chunk, then its entry and expectation, then its
// record; a launch has as many blocks as are resident at once, and what is more takes rounds. The
// first alone is the floor, with the second it is what we expect. Plain C++: the same formulas are
// applied to the data sheet's figures (gpu_prediction) and to what a device showed of itself
// (gpu_bench).
//
// What is taken: a launch finds nothing in the L2 (attention has read gigabytes since the last).
// Within a launch it keeps the page records if they fill at most half of it: then each is fetched
// once, however many rows share the page; else each entry fetches a sector of 32 bytes.
// Expectations and table entries are each row's own, so sharing saves records only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu_shapes.h"
#include "kvfence/device_types.h"
#include "kvfence/validate.h"

namespace kvfence {

// --- bytes --------------------------------------------------------------------------------------

inline constexpr uint64_t kSectorBytes = 32;  // what a read at random fetches

struct LaunchBytes {
  uint64_t entries = 0;       // of the tables, 4 bytes each
  uint64_t expectations = 0;  // 16 each
  uint64_t records = 0;       // 16 a page, or a sector an entry
  uint64_t rows = 0;          // tasks, chunk ids, lengths, slots, bindings, verdicts and scratch
  uint64_t stores = 0;        // what confirm and apply leave in records and expectations

  uint64_t Total() const { return entries + expectations + records + rows + stores; }
};

inline LaunchBytes ReadBytes(const BatchShape& shape, uint64_t l2_bytes) {
  LaunchBytes bytes;
  bytes.entries = shape.Entries() * sizeof(int32_t);
  bytes.expectations = shape.Entries() * sizeof(Expectation);
  const uint64_t records = shape.Pages() * sizeof(PageRecord);
  const bool kept = records <= l2_bytes / 2;
  bytes.records = kept ? records : shape.Entries() * kSectorBytes;
  const uint64_t row = sizeof(RowTask) + sizeof(PoolTask) + sizeof(int32_t) /* length */ +
                       sizeof(int64_t) + sizeof(int32_t) /* slot, its pointer */ +
                       sizeof(uint64_t) /* binding */ + shape.ChunksPerRow() * sizeof(uint32_t);
  bytes.rows = shape.rows * row;
  return bytes;
}

// Copied as zeros, then written: a row's verdict and reasons; its group's two words.
inline LaunchBytes ValidateBytes(const BatchShape& shape, uint64_t l2_bytes) {
  LaunchBytes bytes = ReadBytes(shape, l2_bytes);
  const uint64_t scratch =
      sizeof(VerdictWord) + sizeof(uint32_t) + sizeof(uint64_t) + sizeof(uint32_t);
  bytes.rows += shape.rows * (2 * scratch + sizeof(Stamp) /* seen */);
  return bytes;
}

// The same reads and the verdicts; of each row's written page a record and an expectation, and the
// stamps that it had and gets.
inline LaunchBytes ConfirmBytes(const BatchShape& shape, uint64_t l2_bytes) {
  LaunchBytes bytes = ReadBytes(shape, l2_bytes);
  bytes.rows += shape.rows * (sizeof(VerdictWord) + sizeof(uint32_t) + 2 * sizeof(Stamp));
  bytes.stores = shape.rows * (sizeof(PageRecord) + sizeof(Expectation));
  return bytes;
}

// Three items a row: 32 bytes each; a record is read and written, an expectation and a binding
// written.
inline LaunchBytes ApplyBytes(const BatchShape& shape) {
  LaunchBytes bytes;
  bytes.rows = shape.rows * 3 * sizeof(ApplyItem);
  bytes.records = shape.rows * kSectorBytes;
  bytes.stores = shape.rows * (sizeof(PageRecord) + sizeof(Expectation) + sizeof(uint64_t));
  return bytes;
}

// --- devices ------------------------------------------------------------------------------------

struct GpuModel {
  const char* name;
  uint32_t multiprocessors;
  double tb_per_s;  // memory bandwidth
  double l2_mb;
  double bf16_tflops;  // dense, on tensor cores
  // Device time from one small launch in a stream to the next, and from node to node of a graph;
  // an empty kernel shows it. Assumed alike for all devices until gpu_bench has measured it.
  double launch_us = 2.5;
  double node_us = 1.5;
  const char* source = "";

  uint64_t L2Bytes() const { return static_cast<uint64_t>(l2_mb * 1e6); }
};

// NVIDIA's data sheets and architecture papers as published comparisons quote them; for a device at
// hand gpu_bench asks the driver for multiprocessors and L2, and measures bandwidth.
inline constexpr GpuModel kGpuModels[] = {
    {"H200", 132, 4.8, 50, 989, 2.5, 1.5, "H200 SXM datasheet; L2 as H100's"},
    {"H100 SXM", 132, 3.35, 50, 989, 2.5, 1.5, "H100 SXM datasheet; Hopper architecture paper"},
    {"A100 80GB", 108, 2.04, 40, 312, 2.5, 1.5,
     "A100 SXM datasheet (2,039 GB/s); Ampere architecture paper"},
    {"L40S", 142, 0.864, 96, 362, 2.5, 1.5, "L40S datasheet; Ada architecture paper"},
    {"B200", 148, 8.0, 126, 2250, 2.5, 1.5,
     "DGX B200 datasheet (64 TB/s for eight; others say 7.7 each); on its L2 sources differ (65 to "
     "126 MB), which changes no figure here"},
};

// Assumptions about waiting, of all devices, not looked up for each: published microbenchmarks (as
// Luo et al., arXiv 2402.13499) put a read of an idle memory somewhere near 0.3 us and one of the
// L2 near 0.15; a loaded memory is taken as 0.5.
inline constexpr double kMemoryUs = 0.5;
inline constexpr double kCacheUs = 0.15;
// Registers allow two blocks of 256 threads on a multiprocessor (results/kernel_resources.json).
inline constexpr uint32_t kFenceBlockThreads = 256;
inline constexpr uint32_t kFenceBlocksAtOnce = 2;

// --- time ---------------------------------------------------------------------------------------

struct PredictedTime {
  double launch_us = 0;  // launches, and a copy
  double bytes_us = 0;
  double waits_us = 0;  // reads that wait for each other

  double Busy() const { return std::max(bytes_us, waits_us); }
  double Floor() const { return launch_us + bytes_us; }
  double Expected() const { return launch_us + Busy(); }
  // One after the other.
  PredictedTime& operator+=(const PredictedTime& next) {
    waits_us = Busy() + next.Busy();
    bytes_us += next.bytes_us;
    launch_us += next.launch_us;
    return *this;
  }
};

inline double BytesUs(uint64_t bytes, const GpuModel& gpu) {
  return static_cast<double>(bytes) / (gpu.tb_per_s * 1e6);
}

// Validate's and confirm's chain: a block finds its first task by binary search and opens it, each
// round reads chunk, then entry and expectation, then record, and the last block goes through
// reasons, groups and verdicts once more.
inline double FenceWaits(const BatchShape& shape, const GpuModel& gpu) {
  const uint64_t items = shape.Entries() + 2 * shape.rows;
  const uint64_t at_once = uint64_t{gpu.multiprocessors} * kFenceBlocksAtOnce;
  const uint64_t blocks =
      std::clamp<uint64_t>((items + kFenceBlockThreads - 1) / kFenceBlockThreads, 1, at_once);
  const uint64_t share = (items + blocks - 1) / blocks;
  const uint64_t rounds = (share + kFenceBlockThreads - 1) / kFenceBlockThreads;
  uint32_t search = 0;
  while (shape.rows >> search > 1) ++search;
  const double open = kMemoryUs + (search + 3) * kCacheUs;
  const double round = kCacheUs + 2 * kMemoryUs;
  const double done = 4 * kCacheUs;  // a fence, and an atomic that is waited for
  const double last = 8 * kCacheUs;
  return open + static_cast<double>(rounds) * round + done + last;
}

enum class Submitted { kLaunched, kGraph };
inline double SubmitUs(const GpuModel& gpu, Submitted how) {
  return how == Submitted::kLaunched ? gpu.launch_us : gpu.node_us;
}

inline PredictedTime PredictApply(const BatchShape& shape, const GpuModel& gpu, Submitted how) {
  return {.launch_us = SubmitUs(gpu, how),
          .bytes_us = BytesUs(ApplyBytes(shape).Total(), gpu),
          .waits_us = 2 * kMemoryUs};  // the item, then the record
}
inline PredictedTime PredictValidate(const BatchShape& shape, const GpuModel& gpu, Submitted how) {
  return {.launch_us = SubmitUs(gpu, how),
          .bytes_us = BytesUs(ValidateBytes(shape, gpu.L2Bytes()).Total(), gpu),
          .waits_us = FenceWaits(shape, gpu)};
}
// Its last block reads each written page, its expectation and its stamps before it stores.
inline PredictedTime PredictConfirm(const BatchShape& shape, const GpuModel& gpu, Submitted how) {
  return {.launch_us = SubmitUs(gpu, how),
          .bytes_us = BytesUs(ConfirmBytes(shape, gpu.L2Bytes()).Total(), gpu),
          .waits_us = FenceWaits(shape, gpu) + 2 * kMemoryUs};
}
inline PredictedTime PredictFence(const BatchShape& shape, const GpuModel& gpu, Submitted how) {
  PredictedTime time = PredictApply(shape, gpu, how);
  time += PredictValidate(shape, gpu, how);
  time += PredictConfirm(shape, gpu, how);
  return time;
}

// With the one copy that brings the step's arrays; small, it's as long as a launch.
inline PredictedTime PredictPass(const BatchShape& shape, const GpuModel& gpu, Submitted how) {
  PredictedTime time = PredictFence(shape, gpu, how);
  time.launch_us += SubmitUs(gpu, how);
  return time;
}

// Attention can't be faster than the cache is read, nor than tensor cores multiply.
inline double AttentionFloorUs(const AttentionShape& shape, const GpuModel& gpu) {
  return BytesUs(shape.KvBytes(), gpu);
}
inline double AttentionFlopsUs(const AttentionShape& shape, const GpuModel& gpu) {
  return static_cast<double>(shape.Flops()) / (gpu.bf16_tflops * 1e6);
}

// What the kernels here do beyond that (kernels/attention_mma.cuh): a block has up to 16 query
// heads of a KV head, so that larger groups ask for the cache several times, at once, from the L2
// if it keeps up; smaller ones are padded; and each query and weight is two BF16 numbers. Below 4
// query heads to a KV head they don't use tensor cores: 0.
inline constexpr uint32_t kMmaHeads = 16, kFewestMmaHeads = 4, kMmaParts = 2;
inline uint32_t GroupOf(const AttentionShape& shape) {
  return shape.mla() ? shape.qo_heads : shape.qo_heads / shape.kv_heads;
}
inline uint32_t KvReads(const AttentionShape& shape) {
  return (GroupOf(shape) + kMmaHeads - 1) / kMmaHeads;
}
inline double OwnFlopsUs(const AttentionShape& shape, const GpuModel& gpu) {
  if (GroupOf(shape) < kFewestMmaHeads) return 0;
  const double padded = static_cast<double>(KvReads(shape) * kMmaHeads) / GroupOf(shape);
  return kMmaParts * padded * AttentionFlopsUs(shape, gpu);
}

}  // namespace kvfence
