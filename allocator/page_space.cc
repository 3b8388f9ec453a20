// From facts to place, and from one place to the next: the only writer of lists and counts.
#include "page_space.h"

namespace kvfence {
namespace {

PageId Id(uint32_t page) { return PageId(page); }

}  // namespace

PageSpace::PageSpace(const PoolOptions& options)
    : records(static_cast<size_t>(options.pages)),
      tags(static_cast<size_t>(options.pages), options.first_tag),
      null_page(static_cast<uint32_t>(options.null_page.value())),
      order(options.order) {
  for (uint32_t page = 0; page < records.size(); ++page) {
    const PagePlace place = Where(page);
    ++Count(place);
    if (place.list == PageList::kFree) Append(free_list, page);
  }
}

PageChange PageSpace::Settle(uint32_t page, const PagePlace& before) {
  PageFacts& record = records[page];
  bool returned = false;
  if (!record.held() && !record.pinned() && tags.Live(Id(page))) {
    KVF_CHECK(tags.Return(Id(page)).ok(), "I-51 only an issued page goes back");
    record.pool = kNoPool;
    returned = true;
  }
  const PagePlace after = Where(page);
  if (after.list != before.list) {
    if (before.list == PageList::kFree) Remove(free_list, page);
    if (before.list == PageList::kEvictable) Remove(pools[before.pool].evictable, page);
    if (after.list == PageList::kEvictable) Append(pools[after.pool].evictable, page);
    if (after.list == PageList::kFree) {
      order == ReuseOrder::kLifo ? Prepend(free_list, page) : Append(free_list, page);
    }
  }
  --Count(before);
  ++Count(after);
  return PageChange{after.state, returned};
}

void PageSpace::IssueFree(uint32_t page, uint8_t pool) {
  PageFacts& record = records[page];
  const PagePlace before = Where(page);
  KVF_CHECK(page != null_page, "I-6 the null page is never issued");
  KVF_CHECK(before.list == PageList::kFree && !record.held() && !record.pinned(),
            "I-52 only a page in the free list is issued");
  KVF_CHECK(tags.Issue(Id(page)).ok(), "I-2 a retired page is never issued");
  Remove(free_list, page);
  record.pool = pool & kNoPool;
  record.references = 1;
  --Count(before);
  ++Count(PagePlace{PageState::kLive, PageList::kNone, pool});
  // The page after this one is likely to be next, and far away in memory.
  if (free_list.head != kNoPageIndex) {
    __builtin_prefetch(&records[free_list.head], 1);
    __builtin_prefetch(&tags.tags()[free_list.head], 1);
  }
}

void PageSpace::MoveToTail(uint32_t page) {
  PageListEnds& ends = pools[records[page].pool].evictable;
  Remove(ends, page);
  Append(ends, page);
}

void PageSpace::Append(PageListEnds& ends, uint32_t page) {
  PageFacts& record = records[page];
  record.next = kNoPageIndex;
  record.prev = ends.tail;
  (ends.tail == kNoPageIndex ? ends.head : records[ends.tail].next) = page;
  ends.tail = page;
  ++ends.size;
}

void PageSpace::Prepend(PageListEnds& ends, uint32_t page) {
  PageFacts& record = records[page];
  record.prev = kNoPageIndex;
  record.next = ends.head;
  (ends.head == kNoPageIndex ? ends.tail : records[ends.head].prev) = page;
  ends.head = page;
  ++ends.size;
}

void PageSpace::Remove(PageListEnds& ends, uint32_t page) {
  PageFacts& record = records[page];
  (record.prev == kNoPageIndex ? ends.head : records[record.prev].next) = record.next;
  (record.next == kNoPageIndex ? ends.tail : records[record.next].prev) = record.prev;
  record.next = kNoPageIndex;
  record.prev = kNoPageIndex;
  --ends.size;
}

}  // namespace kvfence
