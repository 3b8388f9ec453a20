#include "tests/kernels/validate_run.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/validate_cuda.cuh"
#include "kvfence/reason.h"

namespace kvfence {
namespace {

std::string BytesOf(const void* data, size_t size) {
  return std::string(static_cast<const char*>(data), size);
}
std::string BytesOf(IntBuffer buffer) {
  std::string text;
  for (uint64_t i = 0; i < buffer.size(); ++i) text += std::to_string(buffer.Get(i)) + " ";
  return text;
}

constexpr unsigned kBlocks = 3;
constexpr unsigned kThreads = 64;

void ZeroForShim(Batch& batch) {
  batch.Bind();
  std::fill(batch.verdicts.begin(), batch.verdicts.end(), 0);
  std::fill(batch.row_reasons.begin(), batch.row_reasons.end(), 0);
  std::fill(batch.group_done.begin(), batch.group_done.end(), 0);
  std::fill(batch.group_failed.begin(), batch.group_failed.end(), 0);
  std::fill(batch.counters.begin(), batch.counters.end(), 0);
  batch.finding_count = 0;
}

}  // namespace

void ValidateCpuOn(Batch& batch) {
  batch.Bind();
  ValidateCpu(batch.gate(), batch.step(), batch.scratch());
}
void ConfirmCpuOn(Batch& batch, ConfirmPart part) {
  batch.BindViews();
  ConfirmCpu(batch.gate(), batch.step(), batch.scratch(), part);
}
void ValidateShimOn(Batch& batch, uint64_t schedule) {
  ZeroForShim(batch);
  const cuda_on_cpu::ScopedSchedule order(schedule);
  KVF_LAUNCH(fence::ValidateKernel, kBlocks, kThreads, 0, nullptr, batch.gate(), batch.step(),
             batch.scratch());
}
void ConfirmShimOn(Batch& batch, ConfirmPart part, uint64_t schedule) {
  batch.BindViews();
  const cuda_on_cpu::ScopedSchedule order(schedule);
  KVF_LAUNCH(fence::ConfirmKernel, kBlocks, kThreads, 0, nullptr, batch.gate(), batch.step(),
             batch.scratch(), part);
}

void ApplyShimOn(Batch& batch, const std::vector<ApplyItem>& items, uint64_t schedule) {
  batch.BindViews();
  const cuda_on_cpu::ScopedSchedule order(schedule);
  const uint64_t count = items.size();
  KVF_LAUNCH(fence::ApplyKernel, 2, kThreads, 0, nullptr, batch.gate(), items.data(), count);
}

std::string Show(const std::set<ModelFinding>& findings) {
  std::string text;
  for (const ModelFinding& f : findings) {
    text += "row " + std::to_string(f.row_task) + " pool " + std::to_string(int(f.pool)) + " at " +
            std::to_string(int(f.at)) + " " + std::string(ReasonName(f.reason)) + "; ";
  }
  return text;
}

std::set<ModelFinding> FindingsOf(const Batch& batch, uint32_t first) {
  std::set<ModelFinding> set;
  for (uint32_t i = first; i < batch.finding_count; ++i) {
    const DeviceFinding& f = batch.findings.at(i);
    set.insert(ModelFinding{f.row_task, f.pool, f.at, static_cast<Reason>(f.reason)});
  }
  // A place reports once.
  if (set.size() != batch.finding_count - first) throw std::logic_error("a place reported twice");
  return set;
}

std::vector<uint32_t> ReasonsOf(const Batch& batch) {
  std::vector<uint32_t> reasons;
  for (uint32_t r = 0; r < batch.rows.size(); ++r) reasons.push_back(batch.ReasonsOf(r));
  return reasons;
}

std::vector<std::vector<std::string>> MemoryOf(const Batch& batch) {
  std::vector<std::vector<std::string>> memory;
  for (size_t p = 0; p < batch.pools.size(); ++p) {
    const PoolArrays& a = batch.arrays[p];
    memory.push_back({BytesOf(batch.records[p]), BytesOf(a.entries), BytesOf(a.indptr),
                      BytesOf(a.last_page_len), BytesOf(a.row_map), BytesOf(a.saved),
                      BytesOf(a.slots), BytesOf(a.slot_indptr), BytesOf(a.lengths)});
  }
  memory.push_back({BytesOf(batch.arena), BytesOf(batch.row_requests)});
  return memory;
}

Outcome OutcomeOf(const Batch& batch) {
  Outcome out{batch.verdicts, batch.row_reasons, batch.seen_stamps, {},
              batch.counters, MemoryOf(batch)};
  for (uint32_t i = 0; i < batch.finding_count; ++i) {
    out.findings.push_back(BytesOf(&batch.findings[i], sizeof(DeviceFinding)));
  }
  std::sort(out.findings.begin(), out.findings.end());
  return out;
}

}  // namespace kvfence
