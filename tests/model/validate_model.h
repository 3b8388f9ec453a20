// What validate and confirm must say, written naively from docs/events.md ("Findings").
//
// Idea: token by token and slot by slot, with std containers, as slow as it likes; it shares no
// code with the kernels (no *_core.h). Invariant: it only reads; what confirm stores is returned.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kvfence/reason.h"
#include "kvfence/validate.h"

namespace kvfence {

struct ModelFinding {
  uint32_t row_task;
  uint32_t pool;
  uint32_t at;
  Reason reason;
  friend auto operator<=>(const ModelFinding&, const ModelFinding&) = default;
};

struct ModelVerdict {
  std::set<ModelFinding> findings;
  std::vector<uint32_t> reasons;  // one mask per row task
};

ModelVerdict ModelValidate(const GateView& gate, const StepView& step);

// `reasons`: the masks before confirm; `seen`: for each write page (by its index in write_stamps),
// the stamp that its page had at validate. `stored`: the step's own stores have been made already.
ModelVerdict ModelConfirm(const GateView& gate, const StepView& step,
                          const std::vector<uint32_t>& reasons, const std::vector<Stamp>& seen,
                          bool stored);

// The stamps that validate must have seen, by index in write_stamps.
std::map<uint32_t, Stamp> ModelSeen(const GateView& gate, const StepView& step);

// What the step stores for the rows whose mask is empty: records by (pool, page) and expectations
// by arena index, only those that are touched.
struct ModelStores {
  std::map<std::pair<uint32_t, int64_t>, PageRecord> records;
  std::map<uint64_t, Stamp> expected_stamps;
};
ModelStores ModelStore(const GateView& gate, const StepView& step,
                       const std::vector<uint32_t>& reasons);

}  // namespace kvfence
