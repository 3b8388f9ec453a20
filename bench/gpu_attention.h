// Decode attention over caches on a device, one for each layer that has its own.
//
// Idea: table and lengths are those that the fence judges; numbers are filled in on the device, so
// that gigabytes needn't be copied there. Layers beyond the caches that fit begin at the first
// again, gigabytes after it was read.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_batch.h"
#include "gpu_device.h"
#include "gpu_shapes.h"
#include "kvfence/attention.h"

namespace kvfence {

class DeviceAttention {
 public:
  DeviceAttention(const AttentionShape& shape, const DeviceBatch& batch, uint32_t caches, Gpu* gpu,
                  DeviceArrays* memory);

  // Bytes that one layer's cache takes.
  static uint64_t CacheBytes(const AttentionShape& shape, uint64_t pages);
  void Launch(uint32_t layer, cudaStream_t stream) const;
  // The outputs are finite, and not all of them zero.
  void MustMakeSense() const;

 private:
  void Common(const DeviceBatch& batch, PagedRows* rows) const;

  AttentionShape shape_;
  uint32_t caches_;
  uint64_t cache_bytes_;
  uint8_t* cache_;
  uint16_t* o_;
  uint64_t o_numbers_;
  DecodeAttention gqa_;
  MlaDecodeAttention mla_;
};

}  // namespace kvfence
