#include "kvfence/history.h"

#include <algorithm>
#include <array>

namespace kvfence {

const char* PageVerbName(PageVerb verb) {
  static constexpr std::array<const char*, 14> kNames = {
      "alloc",     "share", "cow",   "drop",  "release", "free", "publish",
      "unpublish", "pin",   "unpin", "write", "read",    "copy", "step_write"};
  return kNames[static_cast<size_t>(verb)];
}

std::vector<PageHistoryEntry> PageHistory::Of(PoolId pool, PageId page, size_t limit) const {
  std::vector<PageHistoryEntry> found;
  for (size_t back = 1; back <= ring_.size() && found.size() < limit; ++back) {
    const PageHistoryEntry& entry = ring_[(next_ + ring_.size() - back) % ring_.size()];
    if (entry.pool == pool.value() && entry.page == page.value()) found.push_back(entry);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace kvfence
