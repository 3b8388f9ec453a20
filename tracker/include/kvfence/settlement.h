// What a settled step tells the engine to do: which rows may be published, and the blast radius.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "kvfence/reason.h"
#include "kvfence/types.h"

namespace kvfence {

// What became of one row at Retire.
struct RowResult {
  Row row;
  RequestId req;
  CheckSet reasons;          // empty: clean
  bool published = false;    // its token may leave
  uint64_t good_prefix = 0;  // policy recompute: tokens known good, a multiple of the page size
};

// What the engine must do after a step, by the blast-radius rule: rows that may not be published,
// index keys to take out, pages to keep from reuse. Lives until the next Retire.
struct Settlement {
  StepId step{};
  std::span<const RowResult> rows{};
  std::span<const KeyId> unpublish{};
  std::span<const std::pair<PoolId, PageId>> quarantine{};
  bool storm = false;  // more than half the rows failed: suspect the batch, quarantine nothing
  bool stop = false;   // policy stop: there was a finding, serve no more
};

}  // namespace kvfence
