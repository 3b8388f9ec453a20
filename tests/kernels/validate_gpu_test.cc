// Apply, validate and confirm on a device, where there is one, against the CPU backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "kvfence/backend.h"
#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "tests/kernels/validate_random.h"
#include "tests/kernels/validate_run.h"

#if defined(KVFENCE_HAVE_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace kvfence {
namespace {

TEST(ValidateNoGpu, WithoutADeviceTheRefusalSaysWhy) {
  std::string why;
  if (CudaAvailable(&why)) GTEST_SKIP() << "there is a device";
  Rng rng(1);
  Batch batch = RandomBatch(rng, 1, 2);
  batch.Bind();
  const ApplyItem item{};
  for (const Status& status : {ApplyCuda(batch.gate(), &item, 1, nullptr),
                               ValidateCuda(batch.gate(), batch.step(), batch.scratch(), nullptr),
                               ConfirmCuda(batch.gate(), batch.step(), batch.scratch(), nullptr)}) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_FALSE(status.message().empty());
  }
}

#if defined(KVFENCE_HAVE_CUDA)

// Arrays of a batch in managed memory for as long as this lives; copied back on request.
class OnDevice {
 public:
  explicit OnDevice(Batch& batch)
      : gate_(batch.gate()), step_(batch.step()), scratch_(batch.scratch()), batch_(batch) {
    for (uint32_t p = 0; p < gate_.pool_count; ++p) MovePool(p);
    const uint32_t tasks = step_.pool_task_count;
    gate_.pools = Move(pools_.data(), pools_.size());
    gate_.expectations = Move(gate_.expectations, uint64_t{gate_.chunk_count} * kChunkEntries);
    gate_.row_requests = Move(gate_.row_requests, gate_.rows);
    step_.rows = Move(step_.rows, step_.row_count);
    step_.pool_tasks = Move(step_.pool_tasks, tasks);
    step_.chunks = Move(step_.chunks, batch.chunks.size());
    step_.write_stamps = Move(step_.write_stamps, batch.write_stamps.size());
    step_.late_pages = Move(step_.late_pages, batch.late.size());
    prefixes_.assign(step_.prefixes, step_.prefixes + step_.prefix_count);
    for (PrefixTable& prefix : prefixes_) prefix.pages = Move(prefix.pages, prefix.count);
    step_.prefixes = Move(prefixes_.data(), prefixes_.size());
    step_.tables = Move(tables_.data(), tables_.size());
    step_.slots = Move(slots_.data(), slots_.size());
    step_.lengths = Move(lengths_.data(), lengths_.size());
    scratch_.verdicts = Move(scratch_.verdicts, step_.row_count);
    scratch_.row_reasons = Move(scratch_.row_reasons, step_.row_count);
    scratch_.group_done = Move(scratch_.group_done, step_.group_count);
    scratch_.group_failed = Move(scratch_.group_failed, step_.group_count);
    scratch_.seen_stamps = Move(scratch_.seen_stamps, batch.seen_stamps.size());
    scratch_.findings = Move(scratch_.findings, scratch_.finding_capacity);
    scratch_.finding_count = Move(scratch_.finding_count, 1);
    scratch_.counters = Move(scratch_.counters, kCounters);
  }
  ~OnDevice() {
    for (const Moved& moved : moved_) cudaFree(moved.device);
  }

  void Validate() {
    Zero();
    Check(ValidateCuda(gate_, step_, scratch_, nullptr));
  }
  void Confirm() { Check(ConfirmCuda(gate_, step_, scratch_, nullptr)); }
  // Both launches captured, then run once as a graph.
  void Capture() {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    Zero();
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_TRUE(ValidateCuda(gate_, step_, scratch_, stream).ok());
    EXPECT_TRUE(ConfirmCuda(gate_, step_, scratch_, stream).ok());
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    size_t nodes = 0;
    ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, 2u) << "each call is one launch and nothing else";
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  // Pools and tables hold device pointers: the batch's own stay as they are.
  void CopyBack() {
    for (const Moved& moved : moved_) {
      if (moved.host != nullptr) std::memcpy(moved.host, moved.device, moved.bytes);
    }
    batch_.BindViews();
  }

 private:
  struct Moved {
    void* host;
    void* device;
    size_t bytes;
  };

  // What validate counts in, as the copy before it would bring it.
  void Zero() {
    std::fill_n(scratch_.verdicts, step_.row_count, VerdictWord{0});
    std::fill_n(scratch_.row_reasons, step_.row_count, 0u);
    std::fill_n(scratch_.group_done, step_.group_count, uint64_t{0});
    std::fill_n(scratch_.group_failed, step_.group_count, 0u);
    std::fill_n(scratch_.counters, kCounters, uint64_t{0});
    *scratch_.finding_count = 0;
  }

  static void Check(const Status& status) {
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  template <class T>
  T* Move(T* host, uint64_t count) {
    if (count == 0) return host;
    void* device = nullptr;
    KVF_CHECK(cudaMallocManaged(&device, count * sizeof(T)) == cudaSuccess, "managed memory");
    std::memcpy(device, host, count * sizeof(T));
    constexpr bool has_pointers = std::is_same_v<std::remove_const_t<T>, PoolState> ||
                                  std::is_same_v<std::remove_const_t<T>, TableView> ||
                                  std::is_same_v<std::remove_const_t<T>, SlotView> ||
                                  std::is_same_v<std::remove_const_t<T>, LengthView> ||
                                  std::is_same_v<std::remove_const_t<T>, PrefixTable>;
    void* back = has_pointers || std::is_const_v<T>
                     ? nullptr
                     : const_cast<void*>(static_cast<const void*>(host));
    moved_.push_back(Moved{back, device, count * sizeof(T)});
    return static_cast<T*>(device);
  }
  void Move(IntArray& array, uint64_t count) {
    if (!array.present()) return;
    array.data = Move(static_cast<unsigned char*>(array.data), count * array.bits / 8);
  }

  void MovePool(uint32_t p) {
    TableView table = step_.tables[p];
    SlotView slots = step_.slots[p];
    LengthView lengths = step_.lengths[p];
    PoolArrays& a = batch_.arrays[p];
    Move(table.entries, a.entries.size());
    Move(table.indptr, a.indptr.size());
    Move(table.last_page_len, a.last_page_len.size());
    Move(table.row_map, a.row_map.size());
    Move(table.saved, a.saved.size());
    Move(slots.slots, a.slots.size());
    Move(slots.indptr, a.slot_indptr.size());
    Move(lengths.values, a.lengths.size());
    tables_.push_back(table);
    slots_.push_back(slots);
    lengths_.push_back(lengths);
    pools_.push_back(gate_.pools[p]);
    pools_.back().records = Move(batch_.records[p].data(), batch_.records[p].size());
  }

  GateView gate_;
  StepView step_;
  StepScratch scratch_;
  Batch& batch_;
  std::vector<Moved> moved_;
  std::vector<PoolState> pools_;
  std::vector<TableView> tables_;
  std::vector<SlotView> slots_;
  std::vector<LengthView> lengths_;
  std::vector<PrefixTable> prefixes_;
};

class GpuValidate : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!CudaAvailable(&why)) GTEST_SKIP() << why;
  }
};

TEST_F(GpuValidate, SaysWhatTheCpuSaysOnRandomBatches) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    Batch cpu = RandomBatch(rng, static_cast<uint32_t>(1 + seed % 3), 5);
    Vary(cpu, rng);
    for (uint64_t i = seed % 5; i > 0; --i) Damage(cpu, rng);
    Batch gpu = cpu;
    cpu.Bind();
    gpu.Bind();
    ValidateCpuOn(cpu);
    {
      OnDevice device(gpu);
      device.Validate();
      device.CopyBack();
    }
    ASSERT_TRUE(OutcomeOf(cpu) == OutcomeOf(gpu)) << "validate, seed " << seed;
    ConfirmCpuOn(cpu);
    {
      OnDevice device(gpu);
      device.Confirm();
      device.CopyBack();
    }
    ASSERT_TRUE(OutcomeOf(cpu) == OutcomeOf(gpu)) << "confirm, seed " << seed;
  }
}

TEST_F(GpuValidate, CanBeCapturedIntoAGraph) {
  Rng rng(7);
  Batch cpu = RandomBatch(rng, 2, 5);
  Damage(cpu, rng);
  Batch gpu = cpu;
  cpu.Bind();
  gpu.Bind();
  ValidateCpuOn(cpu);
  ConfirmCpuOn(cpu);
  OnDevice device(gpu);
  device.Capture();
  device.CopyBack();
  EXPECT_TRUE(OutcomeOf(cpu) == OutcomeOf(gpu));
}

#endif

}  // namespace
}  // namespace kvfence
