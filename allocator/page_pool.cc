// PagePool: judges a call (Refuse), changes one fact, lets the space place the page.
#include "kvfence/page_pool.h"

#include <limits>
#include <utility>

#include "page_space.h"

namespace kvfence {
namespace {

constexpr int64_t kMaxPages = (int64_t{1} << 31) - 1;  // a page's top bit is the may-write bit

uint32_t Index(PageId page) { return static_cast<uint32_t>(page.value()); }

// Adds one, or says that the counter is full.
template <class Counter>
bool Increment(Counter& counter) {
  if (counter == std::numeric_limits<Counter>::max()) return false;
  ++counter;
  return true;
}

Status Full(PageId page, const char* verb) {
  return Status(StatusCode::kResourceExhausted,
                std::string(verb) + ": page " + std::to_string(page.value()) + ": count is full");
}

}  // namespace

std::string_view PageStateName(PageState state) {
  static constexpr std::string_view kNames[kPageStateCount] = {
      "null", "retired", "quarantined", "live", "cached", "draining", "free"};
  return kNames[static_cast<size_t>(state)];
}

PagePool::PagePool(std::shared_ptr<PageSpace> space, PoolId id, uint8_t index)
    : space_(std::move(space)), id_(id), index_(index) {}
PagePool::~PagePool() = default;

Result<std::unique_ptr<PagePool>> PagePool::Create(const PoolOptions& options) {
  if (options.pages < 2 || options.pages > kMaxPages) {
    return Status::Invalid("a pool needs 2 to 2^31-1 pages, not " + std::to_string(options.pages));
  }
  if (options.null_page.value() < 0 || options.null_page.value() >= options.pages) {
    return Status::Invalid("null page " + std::to_string(options.null_page.value()) +
                           " is not in the pool");
  }
  if (TagLive(options.first_tag))
    return Status::Invalid("the first tag must be even: pages are free");
  auto space = std::make_shared<PageSpace>(options);
  space->pools.push_back(PoolBooks{options.id, {}, {}});
  return std::unique_ptr<PagePool>(new PagePool(std::move(space), options.id, 0));
}

Result<std::unique_ptr<PagePool>> PagePool::CreateSibling(PoolId id) {
  if (space_->pools.size() >= kMaxPools) {
    return Status(StatusCode::kResourceExhausted, "too many pools on one page space");
  }
  space_->pools.push_back(PoolBooks{id, {}, {}});
  const auto index = static_cast<uint8_t>(space_->pools.size() - 1);
  return std::unique_ptr<PagePool>(new PagePool(space_, id, index));
}

Status PagePool::Wrong(PageId page, const char* verb, const char* why) const {
  return Status(StatusCode::kFailedPrecondition,
                std::string(verb) + ": page " + std::to_string(page.value()) + " " + why);
}

Status PagePool::RefuseIndex(PageId page, const char* verb) const {
  const char* why = nullptr;
  if (!space_->tags.Contains(page)) {
    why = " is beyond the pool";
  } else if (Index(page) == space_->null_page) {
    why = " is the null page";
  }
  if (why == nullptr) return Status();
  return Status::Invalid(std::string(verb) + ": page " + std::to_string(page.value()) + why);
}

Status PagePool::Refuse(PageId page, const char* verb) const {
  if (Status status = RefuseIndex(page, verb); !status.ok()) return status;
  const PageFacts& record = space_->records[Index(page)];
  if (record.pool == kNoPool) return Wrong(page, verb, "is not issued (returned twice?)");
  if (record.pool != index_) return Wrong(page, verb, "is issued to another pool");
  return Status();
}

std::optional<PageId> PagePool::Issue() {
  const uint32_t page = space_->free_list.head;
  if (page == kNoPageIndex) return std::nullopt;
  space_->IssueFree(page, index_);
  return PageId(page);
}

bool PagePool::IssueAll(std::span<PageId> out) {
  if (space_->free_list.size < out.size()) return false;
  for (PageId& page : out) page = *Issue();
  return true;
}

Status PagePool::IssuePage(PageId page) {
  if (Status status = RefuseIndex(page, "issue"); !status.ok()) return status;
  if (space_->Where(Index(page)).list != PageList::kFree) {
    return Wrong(page, "issue", "is not free");
  }
  space_->IssueFree(Index(page), index_);
  return Status();
}

Result<PageChange> PagePool::AddReference(PageId page) {
  if (Status status = Refuse(page, "share"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  if (record.quarantined) return Wrong(page, "share", "is quarantined");
  if (!record.held()) return Wrong(page, "share", "is held by nobody and waits for a copy to end");
  const PagePlace before = space_->Where(Index(page));
  if (!Increment(record.references)) return Full(page, "share");
  return space_->Settle(Index(page), before);
}

Result<PageChange> PagePool::Return(PageId page) {
  if (Status status = Refuse(page, "return"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  if (record.references == 0) return Wrong(page, "return", "has no reference left: returned twice");
  const PagePlace before = space_->Where(Index(page));
  --record.references;
  return space_->Settle(Index(page), before);
}

Result<PageChange> PagePool::Pin(PageId page, PinDir dir) {
  if (Status status = Refuse(page, "pin"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  if (record.quarantined) return Wrong(page, "pin", "is quarantined");
  if (!record.held()) return Wrong(page, "pin", "is held by nobody");
  const PagePlace before = space_->Where(Index(page));
  const bool first = !record.pinned();
  if (!Increment(dir == PinDir::kIn ? record.pins_in : record.pins_out)) return Full(page, "pin");
  if (first) ++space_->pinned_pages;
  return space_->Settle(Index(page), before);
}

Result<PageChange> PagePool::Unpin(PageId page, PinDir dir) {
  if (Status status = Refuse(page, "unpin"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  uint16_t& pins = dir == PinDir::kIn ? record.pins_in : record.pins_out;
  if (pins == 0) return Wrong(page, "unpin", "has no such pin");
  const PagePlace before = space_->Where(Index(page));
  --pins;
  if (!record.pinned()) --space_->pinned_pages;
  return space_->Settle(Index(page), before);
}

Result<PageChange> PagePool::HoldForIndex(PageId page) {
  if (Status status = Refuse(page, "publish"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  if (record.quarantined) return Wrong(page, "publish", "is quarantined");
  if (!record.held()) return Wrong(page, "publish", "is held by nobody");
  const PagePlace before = space_->Where(Index(page));
  if (!Increment(record.index_holds)) return Full(page, "publish");
  return space_->Settle(Index(page), before);
}

Result<PageChange> PagePool::DropIndexHold(PageId page) {
  if (Status status = Refuse(page, "unpublish"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  if (record.index_holds == 0) return Wrong(page, "unpublish", "isn't held by an index entry");
  const PagePlace before = space_->Where(Index(page));
  --record.index_holds;
  return space_->Settle(Index(page), before);
}

Status PagePool::Touch(PageId page) {
  if (Status status = Refuse(page, "touch"); !status.ok()) return status;
  // Live and pinned pages stand in no list: they enter it at its end anyway.
  if (space_->Where(Index(page)).list == PageList::kEvictable) space_->MoveToTail(Index(page));
  return Status();
}

std::optional<PageId> PagePool::OldestEvictable() const {
  const uint32_t page = space_->pools[index_].evictable.head;
  if (page == kNoPageIndex) return std::nullopt;
  return PageId(page);
}

Result<PageChange> PagePool::Quarantine(PageId page) {
  if (Status status = RefuseIndex(page, "quarantine"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  // A page that is issued to nobody may be set apart by any pool of the space.
  if (record.pool != kNoPool && record.pool != index_) {
    return Wrong(page, "quarantine", "is issued to another pool");
  }
  const PagePlace before = space_->Where(Index(page));
  if (before.state == PageState::kRetired) return Wrong(page, "quarantine", "is retired");
  record.quarantined = 1;
  return space_->Settle(Index(page), before);
}

Result<PageChange> PagePool::EndQuarantine(PageId page) {
  if (Status status = RefuseIndex(page, "end quarantine"); !status.ok()) return status;
  PageFacts& record = space_->records[Index(page)];
  const PagePlace before = space_->Where(Index(page));
  if (before.state != PageState::kQuarantined) {
    return Wrong(page, "end quarantine", "isn't quarantined");
  }
  if (record.pinned()) return Wrong(page, "end quarantine", "is pinned: a copy may still write it");
  if (record.held()) return Wrong(page, "end quarantine", "is still held");
  record.quarantined = 0;
  return space_->Settle(Index(page), before);
}

int64_t PagePool::pages() const { return static_cast<int64_t>(space_->records.size()); }
PageId PagePool::null_page() const { return PageId(space_->null_page); }
Tag PagePool::tag(PageId page) const { return space_->tags.tag(page); }
std::span<const Tag> PagePool::tags() const { return space_->tags.tags(); }

std::optional<PageInfo> PagePool::Describe(PageId page) const {
  if (!space_->tags.Contains(page)) return std::nullopt;
  const PageFacts& record = space_->records[Index(page)];
  PageInfo info{space_->Where(Index(page)).state,
                tag(page),
                record.references,
                record.index_holds,
                record.pins_in,
                record.pins_out,
                record.quarantined != 0,
                std::nullopt};
  if (record.pool != kNoPool) info.pool = space_->pools[record.pool].id;
  return info;
}

PoolCounts PagePool::counts() const {
  const PoolBooks& mine = space_->pools[index_];
  auto of = [](const auto& by_state, PageState state) {
    return by_state[static_cast<size_t>(state)];
  };
  PoolCounts counts;
  counts.pages = space_->records.size();
  counts.free = of(space_->by_state, PageState::kFree);
  counts.live = of(mine.by_state, PageState::kLive);
  counts.cached = of(mine.by_state, PageState::kCached);
  counts.evictable = mine.evictable.size;
  counts.draining = of(mine.by_state, PageState::kDraining);
  counts.quarantined =
      of(mine.by_state, PageState::kQuarantined) + of(space_->by_state, PageState::kQuarantined);
  counts.retired = of(space_->by_state, PageState::kRetired);
  counts.pinned = space_->pinned_pages;
  return counts;
}

std::optional<AuditBreach> PagePool::Audit() const { return AuditSpace(*space_); }

}  // namespace kvfence
