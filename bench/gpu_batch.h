// A benchmark's decode step on a device, and the fence's launches over it.
//
// Idea: the arrays of validator_batch.h, copied once to device memory; before that, the launches
// run over them on the CPU, so that what is measured is known to be clean. What a step brings anew
// (rows, tasks, items, zeroed scratch) lies in one piece, as an engine lays it, and one copy brings
// it. Invariant: whoever measured asks MustBeClean, which reads what the last launches left.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gpu_device.h"
#include "gpu_shapes.h"
#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "kvfence/validate.h"
#include "validator_batch.h"

namespace kvfence {

class DeviceBatch {
 public:
  DeviceBatch(const BatchShape& shape, DeviceArrays* memory)
      : pool_(shape.Pages() + 1, shape), batch_(shape, Order(shape), &pool_), scratch_(shape) {
    if (!CleanOnCpu(&batch_, &pool_, &scratch_)) Unclean("on the CPU");
    UploadGate(memory);
    UploadStep(memory);
    BringEachPass(memory);
  }
  ~DeviceBatch() { cudaFreeHost(host_); }
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  // The pass's one copy, from pinned memory of the host; each pass begins with it.
  void Bring(cudaStream_t stream) const {
    Must(cudaMemcpyAsync(brought_, host_, brought_bytes_, cudaMemcpyHostToDevice, stream),
         "the pass's copy");
  }
  void Apply(cudaStream_t stream) const {
    Must(ApplyCuda(gate_, items_, batch_.items.size(), stream), "apply");
  }
  void Validate(cudaStream_t stream) const {
    Must(ValidateCuda(gate_, step_, on_device_, stream), "validate");
  }
  void Confirm(cudaStream_t stream) const {
    Must(ConfirmCuda(gate_, step_, on_device_, stream), "confirm");
  }
  void Launches(cudaStream_t stream) const {
    Apply(stream);
    Validate(stream);
    Confirm(stream);
  }

  // The last launches found nothing and looked at every entry. Waits for them.
  void MustBeClean() {
    Must(cudaDeviceSynchronize(), "the fence's launches");
    std::vector<uint32_t> found(1);
    CopyBack(on_device_.finding_count, &found);
    CopyBack(on_device_.counters, &scratch_.counters);
    CopyBack(on_device_.verdicts, &scratch_.verdicts);
    scratch_.finding_count = found[0];
    if (!scratch_.Clean(batch_)) Unclean("on the device");
  }

  const BatchShape& shape() const { return batch_.shape; }
  uint32_t pages() const { return pool_.state.pages; }
  // As attention reads them: on the device.
  const TableView& table() const { return table_; }
  const LengthView& lengths() const { return lengths_; }

 private:
  static std::vector<uint32_t> Order(const BatchShape& shape) {
    std::vector<uint32_t> order = AllPages(shape.Pages() + 1);
    Rng rng(shape.page_size);
    ShufflePages(order.size(), &rng, &order);
    return order;
  }
  [[noreturn]] void Unclean(const char* where) const {
    std::fprintf(stderr,
                 "gpu_bench: a batch of %u pages a row of %u tokens wasn't clean %s: %u findings, "
                 "%llu entries looked at of %llu\n",
                 shape().pages_per_row, shape().page_size, where, scratch_.finding_count,
                 static_cast<unsigned long long>(scratch_.counters[kCounterEntries]),
                 static_cast<unsigned long long>(shape().Entries()));
    std::exit(1);
  }
  void UploadGate(DeviceArrays* memory) {
    PoolState state = pool_.state;
    state.records = memory->Copy(pool_.records);
    gate_ = batch_.Gate(&pool_);
    gate_.pools = memory->Copy(&state, 1);
    gate_.expectations = memory->Copy(batch_.arena);
    gate_.row_requests = memory->Copy(pool_.row_requests);
  }
  void UploadStep(DeviceArrays* memory) {
    table_ = batch_.table_view;
    table_.entries.data = memory->Copy(batch_.table);
    SlotView slots = batch_.slot_view;
    slots.slots.data = memory->Copy(batch_.slots);
    slots.indptr.data = memory->Copy(batch_.slot_indptr);
    lengths_ = batch_.length_view;
    lengths_.values.data = memory->Copy(batch_.lengths);
    step_ = batch_.Step();
    step_.chunks = memory->Copy(batch_.chunks);
    step_.tables = memory->Copy(&table_, 1);
    step_.slots = memory->Copy(&slots, 1);
    step_.lengths = memory->Copy(&lengths_, 1);
  }
  // Lays an array behind the others of the one copy; `from` null: zeros.
  template <class T>
  T* Lay(const T* from, uint64_t count) {
    brought_bytes_ = (brought_bytes_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (from != nullptr) std::memcpy(host_ + brought_bytes_, from, count * sizeof(T));
    T* at = reinterpret_cast<T*>(brought_ + brought_bytes_);
    brought_bytes_ += count * sizeof(T);
    return at;
  }
  template <class T>
  T* Lay(const std::vector<T>& from) {
    return Lay(from.data(), from.size());
  }
  void BringEachPass(DeviceArrays* memory) {
    const uint64_t rows = shape().rows;
    const uint64_t room = rows * 1024 + 1024;  // twice what a row brings
    void* host = nullptr;
    Must(cudaMallocHost(&host, room), "pinned memory");
    host_ = static_cast<unsigned char*>(host);
    std::memset(host_, 0, room);
    brought_ = memory->Make<unsigned char>(room);
    step_.rows = Lay(batch_.rows);
    step_.pool_tasks = Lay(batch_.tasks);
    step_.write_stamps = Lay(batch_.write_stamps);
    items_ = Lay(batch_.items);
    on_device_.verdicts = Lay<VerdictWord>(nullptr, rows);
    on_device_.row_reasons = Lay<uint32_t>(nullptr, rows);
    on_device_.group_done = Lay<uint64_t>(nullptr, rows);
    on_device_.group_failed = Lay<uint32_t>(nullptr, rows);
    on_device_.counters = Lay<uint64_t>(nullptr, kCounters);
    on_device_.finding_count = Lay<uint32_t>(nullptr, 1);
    KVF_CHECK(brought_bytes_ <= room, "what a pass brings fits");
    on_device_.seen_stamps = memory->Make<Stamp>(rows);
    on_device_.finding_capacity = static_cast<uint32_t>(scratch_.findings.size());
    on_device_.findings = memory->Make<DeviceFinding>(on_device_.finding_capacity);
  }

  BatchPool pool_;
  ValidatorBatch batch_;
  BatchScratch scratch_;
  GateView gate_{};
  StepView step_{};
  StepScratch on_device_{};
  TableView table_;
  LengthView lengths_;
  ApplyItem* items_ = nullptr;
  unsigned char* brought_ = nullptr;  // on the device, and what the host has of it
  unsigned char* host_ = nullptr;
  uint64_t brought_bytes_ = 0;
};

}  // namespace kvfence
