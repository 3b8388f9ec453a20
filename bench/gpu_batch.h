// A benchmark's decode step on a device, and the fence's launches over it.
//
// Idea: the arrays of validator_batch.h, copied once to device memory; before that, the launches
// run over them on the CPU, so that what is measured is known to be clean. Scratch lies in one
// piece, as an engine lays it, so that one memset zeroes it. Invariant: whoever measured asks
// MustBeClean, which reads what the last launches on the device left.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gpu_device.h"
#include "gpu_shapes.h"
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
    MakeScratch(memory);
    items_ = memory->Copy(batch_.items);
  }
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  void Apply(cudaStream_t stream) const {
    Must(ApplyCuda(gate_, items_, batch_.items.size(), stream), "apply");
  }
  void Validate(cudaStream_t stream) const {
    Must(ValidateCuda(gate_, step_, on_device_, stream), "validate");
  }
  void Confirm(cudaStream_t stream) const {
    Must(ConfirmCuda(gate_, step_, on_device_, stream), "confirm");
  }
  void All(cudaStream_t stream) const {
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
    step_.rows = memory->Copy(batch_.rows);
    step_.pool_tasks = memory->Copy(batch_.tasks);
    step_.chunks = memory->Copy(batch_.chunks);
    step_.write_stamps = memory->Copy(batch_.write_stamps);
    step_.tables = memory->Copy(&table_, 1);
    step_.slots = memory->Copy(&slots, 1);
    step_.lengths = memory->Copy(&lengths_, 1);
  }
  void MakeScratch(DeviceArrays* memory) {
    const uint64_t rows = shape().rows;
    auto* words = memory->Make<uint64_t>(3 * rows + kCounters + 1);
    on_device_.verdicts = words;
    on_device_.group_done = words + rows;
    on_device_.counters = words + 2 * rows;
    auto* halves = reinterpret_cast<uint32_t*>(on_device_.counters + kCounters);
    on_device_.row_reasons = halves;
    on_device_.group_failed = halves + rows;
    on_device_.finding_count = halves + 2 * rows;
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
};

}  // namespace kvfence
