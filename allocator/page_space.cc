// Facts to state, state to list and count: the one place where a page changes where it is.
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
  const auto pages = static_cast<uint32_t>(records.size());
  for (uint32_t page = 0; page < pages; ++page) {
    PageRecord& record = records[page];
    record.state = Classify(page);
    record.list = ListFor(record.state, record);
    ++by_state[static_cast<size_t>(record.state)];
    if (record.list == PageList::kFree) Append(free_list, page);
  }
}

PageState PageSpace::Classify(uint32_t page) const {
  if (page == null_page) return PageState::kNull;
  const PageRecord& record = records[page];
  if (tags.Retired(Id(page))) return PageState::kRetired;
  if (record.quarantined) return PageState::kQuarantined;
  if (!tags.Live(Id(page))) return PageState::kFree;
  if (record.references != 0) return PageState::kLive;
  if (record.index_holds != 0) return PageState::kCached;
  return PageState::kDraining;
}

PageList PageSpace::ListFor(PageState state, const PageRecord& record) {
  if (state == PageState::kFree) return PageList::kFree;
  if (state == PageState::kCached && !record.pinned()) return PageList::kEvictable;
  return PageList::kNone;
}

bool PageSpace::Place(uint32_t page) {
  PageRecord& record = records[page];
  const uint16_t old_pool = record.pool;
  bool returned = false;
  if (tags.Live(Id(page)) && !record.held() && !record.pinned()) {
    KVF_CHECK(tags.Return(Id(page)).ok(), "I-21 only an issued page goes back");
    record.pool = kNoPool;
    returned = true;
  }
  const PageState state = Classify(page);
  const PageList list = ListFor(state, record);
  if (list != record.list) {
    if (record.list == PageList::kFree) Remove(free_list, page);
    if (record.list == PageList::kEvictable) Remove(pools[old_pool].evictable, page);
    record.list = list;
    if (list == PageList::kEvictable) Append(pools[record.pool].evictable, page);
    if (list == PageList::kFree) {
      order == ReuseOrder::kLifo ? Prepend(free_list, page) : Append(free_list, page);
    }
  }
  --Count(record.state, old_pool);
  ++Count(state, record.pool);
  record.state = state;
  return returned;
}

void PageSpace::IssueFree(uint32_t page, uint32_t pool) {
  PageRecord& record = records[page];
  KVF_CHECK(page != null_page, "I-6 the null page is never issued");
  KVF_CHECK(
      record.list == PageList::kFree && !record.held() && !record.pinned() && !record.quarantined,
      "I-22 only a page in the free list is issued");
  KVF_CHECK(tags.Issue(Id(page)).ok(), "I-2 a retired page is never issued");
  Remove(free_list, page);
  --Count(record.state, record.pool);
  record.list = PageList::kNone;
  record.state = PageState::kLive;
  record.pool = static_cast<uint16_t>(pool);
  record.references = 1;
  ++Count(record.state, record.pool);
}

void PageSpace::MoveToTail(uint32_t page) {
  PageListEnds& ends = pools[records[page].pool].evictable;
  Remove(ends, page);
  Append(ends, page);
}

void PageSpace::Append(PageListEnds& ends, uint32_t page) {
  PageRecord& record = records[page];
  record.next = kNoPage;
  record.prev = ends.tail;
  (ends.tail == kNoPage ? ends.head : records[ends.tail].next) = page;
  ends.tail = page;
  ++ends.size;
}

void PageSpace::Prepend(PageListEnds& ends, uint32_t page) {
  PageRecord& record = records[page];
  record.prev = kNoPage;
  record.next = ends.head;
  (ends.head == kNoPage ? ends.tail : records[ends.head].prev) = page;
  ends.head = page;
  ++ends.size;
}

void PageSpace::Remove(PageListEnds& ends, uint32_t page) {
  PageRecord& record = records[page];
  (record.prev == kNoPage ? ends.head : records[record.prev].next) = record.next;
  (record.next == kNoPage ? ends.tail : records[record.next].prev) = record.prev;
  record.next = record.prev = kNoPage;
  --ends.size;
}

uint64_t& PageSpace::Count(PageState state, uint16_t pool) {
  const auto index = static_cast<size_t>(state);
  return pool == kNoPool ? by_state[index] : pools[pool].by_state[index];
}

}  // namespace kvfence
