// Entries live in a slab and stand in two lists that run through it: all by age, and per page.
//
// The hash map only finds a key's entry. Everything that is walked is walked along the lists, so
// that order never depends on a hash (I-20).
#include "kvfence/prefix_index.h"

#include <absl/container/flat_hash_map.h>

#include <string>

#include "kvfence/rng.h"

namespace kvfence {
namespace {

constexpr uint32_t kNone = 0xFFFFFFFFu;

struct Links {
  uint32_t next = kNone;
  uint32_t prev = kNone;
};

struct Ends {
  uint32_t head = kNone;
  uint32_t tail = kNone;
};

struct Node {
  PrefixEntry entry;
  Links by_age;
  Links by_page;
};

// A Status can't be copied; a failed Result's is handed on by its words.
Status Failure(const Result<PageChange>& result) {
  return Status(result.status().code(), result.status().message());
}

}  // namespace

KeyId ChainKey(KeyId parent, std::span<const uint32_t> tokens, IdentityId identity) {
  // Each step mixes one word into the state by a bijection, so keys of equal-length chains that
  // differ in one word never collide, others as 64-bit hashes do.
  uint64_t hash = Mix64(parent.value() ^ Mix64(identity.value()));
  for (const uint32_t token : tokens) hash = Mix64(hash ^ token);
  hash = Mix64(hash ^ (uint64_t{1} << 63) ^ tokens.size());
  return KeyId(hash == 0 ? 1 : hash);
}

struct PrefixIndex::Impl {
  Impl(PagePool* pool_in, IndexListener* listener_in)
      : pool(pool_in), listener(listener_in), pages(static_cast<size_t>(pool_in->pages())) {}

  uint32_t NewNode() {
    if (!spare.empty()) {
      const uint32_t node = spare.back();
      spare.pop_back();
      return node;
    }
    nodes.emplace_back();
    return static_cast<uint32_t>(nodes.size() - 1);
  }

  Ends& PageEnds(const PrefixEntry& entry) {
    return pages[static_cast<size_t>(entry.page.value())];
  }

  void Append(Ends& ends, Links Node::*links, uint32_t node) {
    nodes[node].*links = Links{kNone, ends.tail};
    (ends.tail == kNone ? ends.head : (nodes[ends.tail].*links).next) = node;
    ends.tail = node;
  }

  void Unlink(Ends& ends, Links Node::*links, uint32_t node) {
    const Links old = nodes[node].*links;
    (old.prev == kNone ? ends.head : (nodes[old.prev].*links).next) = old.next;
    (old.next == kNone ? ends.tail : (nodes[old.next].*links).prev) = old.prev;
  }

  bool Stale(const PrefixEntry& entry) const { return pool->tag(entry.page) != entry.tag; }

  void Insert(const PrefixEntry& entry) {
    const uint32_t node = NewNode();
    nodes[node].entry = entry;
    Append(age, &Node::by_age, node);
    Append(PageEnds(entry), &Node::by_page, node);
    by_key[entry.key.value()] = node;
  }

  // Takes the entry out, tells the listener, and drops the hold that the entry has.
  Result<PageChange> Erase(uint32_t node) {
    const PrefixEntry entry = nodes[node].entry;
    Unlink(age, &Node::by_age, node);
    Unlink(PageEnds(entry), &Node::by_page, node);
    nodes[node] = Node();
    spare.push_back(node);
    by_key.erase(entry.key.value());
    if (listener != nullptr) listener->OnUnpublish(entry);
    // A stale entry's hold ended with the generation that it names: the page is someone else's now.
    if (Stale(entry)) return PageChange{PageState::kFree, false};
    Result<PageChange> change = pool->DropIndexHold(entry.page);
    if (change.ok() && change->returned && listener != nullptr) listener->OnReturn(entry.page);
    return change;
  }

  PagePool* pool;
  IndexListener* listener;
  absl::flat_hash_map<uint64_t, uint32_t> by_key;
  std::vector<Node> nodes;
  std::vector<uint32_t> spare;
  Ends age;
  std::vector<Ends> pages;
};

PrefixIndex::PrefixIndex(PagePool* pool, IndexListener* listener)
    : impl_(std::make_unique<Impl>(pool, listener)) {}

PrefixIndex::~PrefixIndex() {
  impl_->listener = nullptr;
  // What the pool refuses to drop was dropped behind our back: there is nothing left to do.
  static_cast<void>(Clear());
}

Result<PublishOutcome> PrefixIndex::Publish(KeyId key, PageId page, Stamp stamp,
                                            IdentityId identity) {
  const auto found = impl_->by_key.find(key.value());
  const bool replaces = found != impl_->by_key.end();
  if (replaces && !impl_->Stale(impl_->nodes[found->second].entry)) {
    return PublishOutcome::kPresent;
  }
  if (Result<PageChange> held = impl_->pool->HoldForIndex(page); !held.ok()) return Failure(held);
  if (replaces) static_cast<void>(impl_->Erase(found->second));  // stale: the pool isn't asked
  impl_->Insert(PrefixEntry{key, page, impl_->pool->tag(page), stamp, identity});
  return replaces ? PublishOutcome::kReplacedStale : PublishOutcome::kPublished;
}

LookupResult PrefixIndex::Lookup(KeyId key) const {
  const auto found = impl_->by_key.find(key.value());
  if (found == impl_->by_key.end()) return LookupResult{};
  const PrefixEntry& entry = impl_->nodes[found->second].entry;
  if (impl_->Stale(entry)) return LookupResult{LookupOutcome::kStale, entry};
  if (impl_->pool->Describe(entry.page)->quarantined) {
    return LookupResult{LookupOutcome::kQuarantined, entry};
  }
  return LookupResult{LookupOutcome::kHit, entry};
}

PrefixMatch PrefixIndex::MatchPrefix(std::span<const KeyId> keys) const {
  PrefixMatch match;
  match.stop.outcome = LookupOutcome::kHit;
  for (const KeyId key : keys) {
    const LookupResult result = Lookup(key);
    if (result.outcome != LookupOutcome::kHit) {
      match.stop = result;
      break;
    }
    match.hits.push_back(result.entry);
  }
  return match;
}

Status PrefixIndex::Unpublish(KeyId key) {
  const auto found = impl_->by_key.find(key.value());
  if (found == impl_->by_key.end()) {
    return Status::Invalid("unpublish: no entry has key " + std::to_string(key.value()));
  }
  if (Result<PageChange> change = impl_->Erase(found->second); !change.ok()) {
    return Failure(change);
  }
  return Status();
}

Status PrefixIndex::UnpublishPage(PageId page) {
  if (page.value() < 0 || page.value() >= impl_->pool->pages()) {
    return Status::Invalid("unpublish: page " + std::to_string(page.value()) +
                           " is beyond the pool");
  }
  const Ends& ends = impl_->pages[static_cast<size_t>(page.value())];
  Status first;
  while (ends.head != kNone) {
    Result<PageChange> change = impl_->Erase(ends.head);
    if (!change.ok() && first.ok()) first = Failure(change);
  }
  return first;
}

Status PrefixIndex::Clear() {
  Status first;
  while (impl_->age.head != kNone) {
    Result<PageChange> change = impl_->Erase(impl_->age.head);
    if (!change.ok() && first.ok()) first = Failure(change);
  }
  return first;
}

Result<Eviction> PrefixIndex::EvictOne() {
  const std::optional<PageId> page = impl_->pool->OldestEvictable();
  if (!page) return Status(StatusCode::kResourceExhausted, "evict: no page is evictable");
  const Ends& ends = impl_->pages[static_cast<size_t>(page->value())];
  Eviction eviction{*page, PageState::kCached, 0};
  while (ends.head != kNone) {
    Result<PageChange> change = impl_->Erase(ends.head);
    ++eviction.keys;
    if (!change.ok()) return Failure(change);
    if (change->returned) eviction.state = change->state;
  }
  if (eviction.state == PageState::kCached) {
    return Status(StatusCode::kFailedPrecondition,
                  "evict: page " + std::to_string(page->value()) +
                      " is held in the index's name by something else");
  }
  return eviction;
}

size_t PrefixIndex::size() const { return impl_->by_key.size(); }

uint64_t PrefixIndex::stale_entries() const {
  uint64_t stale = 0;
  for (uint32_t node = impl_->age.head; node != kNone; node = impl_->nodes[node].by_age.next) {
    stale += impl_->Stale(impl_->nodes[node].entry) ? 1 : 0;
  }
  return stale;
}

std::optional<AuditBreach> PrefixIndex::Audit() const {
  const Impl& impl = *impl_;
  const size_t bound = impl.nodes.size();
  size_t walked = 0;
  for (uint32_t node = impl.age.head; node != kNone; node = impl.nodes[node].by_age.next) {
    const PrefixEntry& entry = impl.nodes[node].entry;
    if (++walked > bound) return AuditBreach{PageId(-1), "the list by age runs in a circle"};
    const auto found = impl.by_key.find(entry.key.value());
    if (found == impl.by_key.end() || found->second != node) {
      return AuditBreach{entry.page, "an entry isn't found by its key"};
    }
  }
  if (walked != impl.by_key.size()) {
    return AuditBreach{PageId(-1), std::to_string(walked) + " entries by age, " +
                                       std::to_string(impl.by_key.size()) + " by key"};
  }
  size_t on_pages = 0;
  for (int64_t page = 0; page < impl.pool->pages(); ++page) {
    uint32_t fresh = 0;
    uint32_t node = impl.pages[static_cast<size_t>(page)].head;
    for (; node != kNone; node = impl.nodes[node].by_page.next) {
      const PrefixEntry& entry = impl.nodes[node].entry;
      if (++on_pages > walked) return AuditBreach{PageId(page), "its entries run in a circle"};
      if (entry.page != PageId(page)) return AuditBreach{PageId(page), "lists another's entry"};
      fresh += impl.Stale(entry) ? 0 : 1;
    }
    const PageInfo info = *impl.pool->Describe(PageId(page));
    if (info.index_holds != fresh && (!info.pool || *info.pool == impl.pool->id())) {
      return AuditBreach{PageId(page), std::to_string(fresh) +
                                           " entries name it, the pool counts " +
                                           std::to_string(info.index_holds)};
    }
  }
  if (on_pages != walked) return AuditBreach{PageId(-1), "an entry stands on no page"};
  return std::nullopt;
}

std::optional<PageId> IssueEvicting(PagePool& pool, PrefixIndex& index) {
  for (;;) {
    if (const std::optional<PageId> page = pool.Issue()) return page;
    if (!index.EvictOne().ok()) return std::nullopt;
  }
}

}  // namespace kvfence
