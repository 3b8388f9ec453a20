#include "ledger_pages.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence::ledger {

PageBook::PageBook(const FenceConfig& config) {
  std::vector<std::string> names;
  for (uint32_t pool = 0; pool < config.pools.size(); ++pool) {
    const PoolConfig& c = config.pools[pool];
    const auto known =
        c.space.empty() ? names.end() : std::find(names.begin(), names.end(), c.space);
    const auto space = static_cast<uint32_t>(known - names.begin());
    if (known == names.end()) {
      names.push_back(c.space);
      pools_of_.emplace_back();
      pages_.emplace_back();
    }
    count_.push_back(c.pages);
    space_.push_back(space);
    pools_of_[space].push_back(pool);
    if (pages_[space].size() < c.pages) pages_[space].resize(c.pages);
  }
}

uint32_t PageBook::Map(Page& page, uint32_t pool, uint32_t inc, uint32_t at, uint64_t since) {
  uint32_t node = free_mapping_;
  if (node == kNone) {
    node = static_cast<uint32_t>(mappings_.size());
    mappings_.emplace_back();
  } else {
    free_mapping_ = mappings_[node].next;
  }
  mappings_[node] = {
      .inc = inc, .pool = pool, .at = at, .prev = kNone, .next = page.mappings, .since = since};
  if (page.mappings != kNone) mappings_[page.mappings].prev = node;
  page.mappings = node;
  return node;
}

void PageBook::Unmap(Page& page, uint32_t node) {
  Mapping& m = mappings_[node];
  if (m.prev != kNone) {
    mappings_[m.prev].next = m.next;
  } else {
    KVF_CHECK(page.mappings == node, "I-5: a mapping stands on its own page's list");
    page.mappings = m.next;
  }
  if (m.next != kNone) mappings_[m.next].prev = m.prev;
  m = {};
  m.next = free_mapping_;
  free_mapping_ = node;
}

bool PageBook::Shared(const Page& page) const {
  if (page.mappings == kNone) return false;
  const uint32_t first = mappings_[page.mappings].inc;
  // Mostly the second mapping answers; only one that maps a page many times makes this walk on.
  for (uint32_t n = mappings_[page.mappings].next; n != kNone; n = mappings_[n].next) {
    if (mappings_[n].inc != first) return true;
  }
  return false;
}

}  // namespace kvfence::ledger
