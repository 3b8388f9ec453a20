// Page history: the last things that happened to pages, for incident records.
//
// One ring over all pages, so that its memory is fixed and an append costs a store; looking a page
// up scans the ring, which only incidents do. It's never needed for a decision (I-16). Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvfence/types.h"

namespace kvfence {

enum class PageVerb : uint8_t {
  kAlloc,
  kShare,
  kCow,
  kDrop,
  kRelease,
  kFree,
  kPublish,
  kUnpublish,
  kPin,
  kUnpin,
  kWrite,
  kRead,
  kCopy,
  kStepWrite,
};
const char* PageVerbName(PageVerb verb);

struct PageHistoryEntry {
  uint64_t event = 0;  // number of the event in this fence's life
  int64_t step = -1;   // the last launched step then
  RequestId req;
  uint32_t pool = 0;
  int64_t page = -1;
  PageVerb verb{};
};

class PageHistory {
 public:
  explicit PageHistory(size_t capacity = size_t{1} << 16) : capacity_(capacity) {}

  void Append(const PageHistoryEntry& entry) {
    if (ring_.size() < capacity_) {  // memory comes with use
      ring_.push_back(entry);
      return;
    }
    ring_[next_] = entry;
    if (++next_ == capacity_) next_ = 0;
  }
  // The page's last `limit` entries that the ring still holds, oldest first.
  std::vector<PageHistoryEntry> Of(PoolId pool, PageId page, size_t limit = 16) const;

 private:
  size_t capacity_;
  std::vector<PageHistoryEntry> ring_;
  size_t next_ = 0;  // the oldest, once the ring is full
};

}  // namespace kvfence
