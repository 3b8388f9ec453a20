#include "kvfence/policy.h"

#include <algorithm>

namespace kvfence {
namespace {

template <class T>
void AddOnce(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

void ApplyPolicy(Policy policy, StepId step, const std::vector<Violation>& violations,
                 const LedgerFacts& facts, SettlementStore* store) {
  size_t failed = 0;
  for (RowResult& row : store->rows) {
    row.published = row.reasons.empty() || policy == Policy::kLog;
    if (row.reasons.empty()) continue;
    ++failed;
    for (const auto& [pool, page] : facts.WrittenPages(step, row.row)) {
      for (const KeyId key : facts.KeysOf(pool, page)) AddOnce(store->unpublish, key);
    }
  }
  for (const Violation& v : violations) {
    if (v.row < 0 || v.pool < 0 || v.page < 0) continue;
    const PoolId pool(static_cast<uint32_t>(v.pool));
    const PageId page(v.page);
    const bool contradicts =
        kContentReasons.Has(v.reason) || v.reason == Reason::kNotCommitted ||
        (v.reason == Reason::kTagMismatch && facts.IsCurrent(pool, page, v.expected));
    if (!contradicts) continue;
    for (const KeyId key : facts.KeysOf(pool, page)) AddOnce(store->unpublish, key);
  }
  // One failing row out of one says nothing about the batch.
  store->storm = failed > 1 && failed * 2 > store->rows.size();
  store->stop |= policy == Policy::kStop && (failed > 0 || !violations.empty());
  if (store->storm || policy == Policy::kLog) return;
  for (const Violation& violation : violations) {
    if (violation.pool < 0 || violation.page < 0) continue;
    const PoolId pool(static_cast<uint32_t>(violation.pool));
    const PageId page(violation.page);
    if (!kContentReasons.Has(violation.reason) && !facts.IsSuspect(pool, page)) continue;
    AddOnce(store->quarantine, std::pair(pool, page));
    for (const KeyId key : facts.KeysOf(pool, page)) AddOnce(store->unpublish, key);
  }
}

}  // namespace kvfence
