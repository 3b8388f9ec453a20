// Running a batch: on the CPU backend, or the CUDA source through the shim; and reading the result.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/kernels/validate_batch.h"
#include "tests/model/validate_model.h"

namespace kvfence {

// Validate binds the batch first, confirm keeps its scratch.
void ValidateCpuOn(Batch& batch);
void ConfirmCpuOn(Batch& batch, ConfirmPart part = ConfirmPart::kBoth);
// With a small grid, so that several blocks share the work; blocks and threads in an order drawn
// from `schedule` (0: ascending).
void ValidateShimOn(Batch& batch, uint64_t schedule);
void ConfirmShimOn(Batch& batch, ConfirmPart part, uint64_t schedule);
void ApplyShimOn(Batch& batch, const std::vector<ApplyItem>& items, uint64_t schedule);

std::string Show(const std::set<ModelFinding>& findings);
// The findings from `first` on. Throws if a place reported twice: tests show what was thrown.
std::set<ModelFinding> FindingsOf(const Batch& batch, uint32_t first = 0);
std::vector<uint32_t> ReasonsOf(const Batch& batch);

template <class T>
std::string BytesOf(const std::vector<T>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
}

// All memory that a launch may write or must leave alone, comparable.
std::vector<std::vector<std::string>> MemoryOf(const Batch& batch);

// Everything a launch leaves behind; findings as a sorted list, for their order is free.
struct Outcome {
  std::vector<VerdictWord> verdicts;
  std::vector<uint32_t> row_reasons;
  std::vector<Stamp> seen;
  std::vector<std::string> findings;
  std::vector<uint64_t> counters;
  std::vector<std::vector<std::string>> memory;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
Outcome OutcomeOf(const Batch& batch);

}  // namespace kvfence
