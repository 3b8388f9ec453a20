// What lies in the slots of a page, as the ground truth sees it: runs of unique content ids.
//
// An id stands for content born once: two slots are equal only if the same write, or a copy of it,
// filled them. A Cell is what a request, or an index entry, expects of one logical page; those who
// share a page share its cell. Invariant: runs are sorted, don't overlap, and neighbours that touch
// have different ids.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "kvfence/types.h"

namespace kvfence {

class RunList {
 public:
  struct Run {
    uint32_t first = 0;
    uint32_t n = 0;
    uint64_t id = 0;
    uint32_t end() const { return first + n; }
  };

  // Most pages are written once, in order: their one run lies here, not on the heap.
  using Runs = absl::InlinedVector<Run, 1>;

  const Runs& runs() const { return runs_; }
  bool empty() const { return runs_.empty(); }
  // Slots [first, first + n) now hold `id`; 0: nothing.
  void Put(uint32_t first, uint32_t n, uint64_t id);
  // Is all of [first, first + n) filled here?
  bool Covers(uint32_t first, uint32_t n) const;
  // Is any of it filled?
  bool Touches(uint32_t first, uint32_t n) const;
  // Is all of it filled, and the same, here and there?
  bool Agrees(const RunList& other, uint32_t first, uint32_t n) const {
    if (!runs_.empty() && !other.runs_.empty()) {  // the usual case: one run, appended to
      const Run &a = runs_.front(), &b = other.runs_.front();
      if (a.id == b.id && a.first <= first && b.first <= first && a.end() >= first + n &&
          b.end() >= first + n) {
        return true;
      }
    }
    return AgreesRunByRun(other, first, n);
  }
  // Does each slot hold the same, or nothing, here and there?
  bool Same(const RunList& other, uint32_t first, uint32_t n) const;
  // The part inside [first, first + n).
  std::vector<Run> Slice(uint32_t first, uint32_t n) const;

 private:
  bool AgreesRunByRun(const RunList& other, uint32_t first, uint32_t n) const;

  Runs runs_;
};

struct Cell {
  uint64_t id = 0;      // of the content that its owner writes
  RequestId owner;      // who may fill it in place; others who write get a cell of their own
  bool spared = false;  // a request that maps it was trimmed: its Mapping says where
  RunList runs;
};
using CellPtr = std::shared_ptr<Cell>;

}  // namespace kvfence
