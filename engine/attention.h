// The simulated kernels of one pass: append and attention over the step's buffers.
//
// All rows read what precedes their new tokens; then all write the new tokens' content through
// their slots (where rows read each other's new tokens, row by row in scheduled order); then all
// read what they cover, through table and length, and give a result. Every word comes from the
// buffers, wrong ones too. Entries within reach beyond the covered ones are touched as kernels with
// tiles do: the null page there adds nothing, another page spoils the result. A part with a window
// reads the last W positions only, and whatever stands in the table below them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_memory.h"
#include "served_model.h"
#include "step_buffers.h"

namespace kvfence {

class AttentionPass {
 public:
  // Both by part of the model; `kv` must outlive the pass.
  // What the pass writes it multiplies by `quantiser` (odd), and what it reads by its inverse.
  AttentionPass(std::vector<KvMemory>* kv, std::vector<uint64_t> windows, int64_t null_page,
                uint64_t quantiser = 1)
      : kv_(*kv),
        windows_(std::move(windows)),
        null_page_(null_page),
        quantise_(quantiser),
        dequantise_(InverseOf(quantiser)) {}

  // `parts`: the buffers of each part; rows and new tokens agree over all. With `undo`, what the
  // pass overwrites is noted there.
  void Run(std::span<const StepBuffers> parts, PassResult* out, UndoLog* undo = nullptr);
  void Undo(const UndoLog& log);

 private:
  bool simple() const { return windows_.size() == 1 && windows_[0] == 0; }
  uint64_t Covered(const KvMemory& kv, const StepBuffers& buffers, uint64_t row, int64_t length,
                   uint64_t* wild) const;
  uint64_t Between(const KvMemory& kv, const StepBuffers& buffers, uint64_t row, int64_t begin,
                   int64_t end, uint64_t* wild) const;
  // What the token at `position` finds before it, in all parts.
  uint64_t Before(std::span<const StepBuffers> parts, uint64_t row, int64_t position,
                  uint64_t* wild) const;
  uint64_t Tail(const KvMemory& kv, const StepBuffers& buffers, uint64_t row) const;
  // Of a pass that ends at `length`.
  uint64_t Result(std::span<const StepBuffers> parts, uint64_t row, int64_t length,
                  uint64_t* wild) const;
  void Verify(std::span<const StepBuffers> parts, PassResult* out);
  void AppendRow(std::span<const StepBuffers> parts, uint64_t row, PassResult* out, UndoLog* undo);
  void Append(const StepBuffers& buffers, uint64_t row, uint64_t sum, PassResult* out,
              UndoLog* undo);
  void AppendToAll(std::span<const StepBuffers> parts, uint64_t row, uint64_t sum, PassResult* out,
                   UndoLog* undo);
  void Store(size_t part, int64_t slot, uint64_t content, PassResult* out, UndoLog* undo);

  std::vector<KvMemory>& kv_;
  std::vector<uint64_t> windows_;
  int64_t null_page_;
  uint64_t quantise_;
  uint64_t dequantise_;
  std::vector<uint64_t> sums_;
  std::vector<uint32_t> right_;  // by row: guesses that are right, up to the first wrong one
};

}  // namespace kvfence
