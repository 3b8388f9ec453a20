// Policy: what a failed row means for the engine, by reason. The blast radius in one place.
//
// A mapping reason ends only the row: the page that it wrongly named may be everybody's first
// prefix page. A content reason makes the page itself suspect, and so does a step that may still
// write it when it goes to another: it's quarantined, leaves the prefix index, and its holders fail
// when they next read it. What a failed row was to write was never
// written, so index entries of those pages go in any case, and so do those of a page about which
// the device contradicts the books (its tag, or that it's written): whoever came by them would
// fail, too. When more than half of a step's rows fail, the batch or the fence is suspect
// (`storm`): nothing is quarantined then, though what is wrong leaves the index: else requests that
// are sent back find it again. Policy `stop` asks the engine to end after this step, at any
// finding, also one that fails no row.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/finding.h"
#include "kvfence/settlement.h"

namespace kvfence {

// What the policy needs to know of the ledger.
class LedgerFacts {
 public:
  virtual ~LedgerFacts() = default;
  virtual std::vector<KeyId> KeysOf(PoolId pool, PageId page) const = 0;
  // Pages that this row of this launched step was to write.
  virtual std::vector<std::pair<PoolId, PageId>> WrittenPages(StepId step, Row row) const = 0;
  // Do its holders fail until it's issued anew: a wrong checksum, or a running step's late write?
  virtual bool IsSuspect(PoolId pool, PageId page) const = 0;
  // Is this the page's generation, as the books have it?
  virtual bool IsCurrent(PoolId pool, PageId page, uint64_t tag) const = 0;
};

// Owns what a Settlement points to.
struct SettlementStore {
  std::vector<RowResult> rows;
  std::vector<KeyId> unpublish;
  std::vector<std::pair<PoolId, PageId>> quarantine;
  bool storm = false;
  bool stop = false;
};

// Completes `store` (whose rows carry their reasons): which rows are published, which keys go,
// which pages are quarantined. `violations` are those of this step. Duplicates are removed, order
// is kept.
void ApplyPolicy(Policy policy, StepId step, const std::vector<Violation>& violations,
                 const LedgerFacts& facts, SettlementStore* store);

}  // namespace kvfence
