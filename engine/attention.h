// The simulated kernels of one pass: append and attention over the step's buffers.
//
// All rows read what precedes their new tokens; then all write the new tokens' content through
// their slots; then all read what they cover, through table and length, and give a result. Every
// word comes from the buffers, wrong ones too. Entries within reach beyond the covered ones are
// touched as kernels with tiles do: the null page there adds nothing, another page spoils the
// result.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_memory.h"
#include "step_buffers.h"

namespace kvfence {

struct PassResult {
  std::vector<uint64_t> results;  // by row, padded ones included
  uint64_t wild_accesses = 0;     // beyond the pool or the table; nothing is touched there
};

class AttentionPass {
 public:
  AttentionPass(KvMemory* kv, int64_t null_page) : kv_(kv), null_page_(null_page) {}

  // With `undo`, what the pass overwrites is noted there.
  void Run(const StepBuffers& buffers, PassResult* out, UndoLog* undo = nullptr);

 private:
  uint64_t Covered(const StepBuffers& buffers, uint64_t row, int64_t length, uint64_t* wild) const;
  uint64_t Tail(const StepBuffers& buffers, uint64_t row) const;
  void Append(const StepBuffers& buffers, uint64_t row, uint64_t sum, PassResult* out,
              UndoLog* undo);

  KvMemory* kv_;
  int64_t null_page_;
  std::vector<uint64_t> sums_;
};

}  // namespace kvfence
