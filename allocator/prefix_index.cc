// PrefixIndex's calls, over the table of entries (prefix_table.h).
#include "kvfence/prefix_index.h"

#include <string>

#include "kvfence/rng.h"
#include "prefix_table.h"

namespace kvfence {
namespace {

// A Status can't be copied; a failed Result's is handed on by its words.
Status Failure(const Result<PageChange>& result) {
  return Status(result.status().code(), result.status().message());
}

}  // namespace

KeyId ChainKey(KeyId parent, std::span<const uint32_t> tokens, IdentityId identity) {
  // Each step mixes one word into the state by a bijection, so two chains of equal length that
  // differ in one word have different keys (but for 0 and 1), others collide as 64-bit hashes do.
  uint64_t hash = Mix64(parent.value() ^ Mix64(identity.value()));
  for (const uint32_t token : tokens) hash = Mix64(hash ^ token);
  hash = Mix64(hash ^ (uint64_t{1} << 63) ^ tokens.size());
  return KeyId(hash == 0 ? 1 : hash);
}

PrefixIndex::PrefixIndex(PagePool* pool, IndexListener* listener)
    : table_(std::make_unique<PrefixEntries>(pool, listener)) {}

PrefixIndex::~PrefixIndex() {
  table_->listener = nullptr;
  // What the pool refuses to drop was dropped behind our back: there is nothing left to do.
  static_cast<void>(Clear());
}

Result<PublishOutcome> PrefixIndex::Publish(KeyId key, PageId page, Stamp stamp,
                                            IdentityId identity) {
  const auto found = table_->by_key.find(key.value());
  const bool replaces = found != table_->by_key.end();
  if (replaces && !table_->Stale(table_->nodes[found->second].entry)) {
    return PublishOutcome::kPresent;
  }
  if (Result<PageChange> held = table_->pool->HoldForIndex(page); !held.ok()) return Failure(held);
  if (replaces) static_cast<void>(table_->Erase(found->second));  // stale: the pool isn't asked
  table_->Insert(PrefixEntry{key, page, table_->pool->tag(page), stamp, identity});
  return replaces ? PublishOutcome::kReplacedStale : PublishOutcome::kPublished;
}

LookupResult PrefixIndex::Lookup(KeyId key) const {
  const auto found = table_->by_key.find(key.value());
  if (found == table_->by_key.end()) return LookupResult{};
  const PrefixEntry& entry = table_->nodes[found->second].entry;
  if (table_->Stale(entry)) return LookupResult{LookupOutcome::kStale, entry};
  if (table_->pool->Describe(entry.page)->quarantined) {
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
  const auto found = table_->by_key.find(key.value());
  if (found == table_->by_key.end()) {
    return Status::Invalid("unpublish: no entry has key " + std::to_string(key.value()));
  }
  if (Result<PageChange> change = table_->Erase(found->second); !change.ok()) {
    return Failure(change);
  }
  return Status();
}

Status PrefixIndex::UnpublishPage(PageId page) {
  if (page.value() < 0 || page.value() >= table_->pool->pages()) {
    return Status::Invalid("unpublish: page " + std::to_string(page.value()) +
                           " is beyond the pool");
  }
  const EntryEnds& ends = table_->pages[static_cast<size_t>(page.value())];
  Status first;
  while (ends.head != kNoEntry) {
    Result<PageChange> change = table_->Erase(ends.head);
    if (!change.ok() && first.ok()) first = Failure(change);
  }
  return first;
}

Status PrefixIndex::Clear() {
  Status first;
  while (table_->age.head != kNoEntry) {
    Result<PageChange> change = table_->Erase(table_->age.head);
    if (!change.ok() && first.ok()) first = Failure(change);
  }
  return first;
}

Result<Eviction> PrefixIndex::EvictOne() {
  const std::optional<PageId> page = table_->pool->OldestEvictable();
  if (!page) return Status(StatusCode::kResourceExhausted, "evict: no page is evictable");
  const EntryEnds& ends = table_->pages[static_cast<size_t>(page->value())];
  Eviction eviction{*page, PageState::kCached, 0};
  while (ends.head != kNoEntry) {
    Result<PageChange> change = table_->Erase(ends.head);
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

size_t PrefixIndex::size() const { return table_->by_key.size(); }

uint64_t PrefixIndex::stale_entries() const {
  uint64_t stale = 0;
  for (uint32_t node = table_->age.head; node != kNoEntry; node = table_->nodes[node].by_age.next) {
    stale += table_->Stale(table_->nodes[node].entry) ? 1 : 0;
  }
  return stale;
}

std::optional<AuditBreach> PrefixIndex::Audit() const { return table_->Audit(); }

std::optional<PageId> IssueEvicting(PagePool& pool, PrefixIndex& index) {
  for (;;) {
    if (const std::optional<PageId> page = pool.Issue()) return page;
    if (!index.EvictOne().ok()) return std::nullopt;
  }
}

}  // namespace kvfence
