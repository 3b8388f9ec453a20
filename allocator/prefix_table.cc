// Entries in and out of the slab, the map and both lists; and the audit of all of them.
#include "prefix_table.h"

#include <string>

namespace kvfence {

PrefixEntries::PrefixEntries(PagePool* pool_in, IndexListener* listener_in)
    : pool(pool_in), listener(listener_in), pages(static_cast<size_t>(pool_in->pages())) {}

void PrefixEntries::Insert(const PrefixEntry& entry) {
  uint32_t node;
  if (spare.empty()) {
    node = static_cast<uint32_t>(nodes.size());
    nodes.emplace_back();
  } else {
    node = spare.back();
    spare.pop_back();
  }
  nodes[node].entry = entry;
  Append(age, &EntryNode::by_age, node);
  Append(PageEnds(entry), &EntryNode::by_page, node);
  by_key[entry.key.value()] = node;
}

Result<PageChange> PrefixEntries::Erase(uint32_t node) {
  const PrefixEntry entry = nodes[node].entry;
  Unlink(age, &EntryNode::by_age, node);
  Unlink(PageEnds(entry), &EntryNode::by_page, node);
  nodes[node] = EntryNode();
  spare.push_back(node);
  by_key.erase(entry.key.value());
  if (listener != nullptr) listener->OnUnpublish(entry);
  // A stale entry's hold ended with the generation that it names: the page is someone else's now.
  if (Stale(entry)) return PageChange{PageState::kFree, false};
  Result<PageChange> change = pool->DropIndexHold(entry.page);
  if (change.ok() && change->returned && listener != nullptr) listener->OnReturn(entry.page);
  return change;
}

void PrefixEntries::Append(EntryEnds& ends, EntryLinks EntryNode::*links, uint32_t node) {
  nodes[node].*links = EntryLinks{kNoEntry, ends.tail};
  (ends.tail == kNoEntry ? ends.head : (nodes[ends.tail].*links).next) = node;
  ends.tail = node;
}

void PrefixEntries::Unlink(EntryEnds& ends, EntryLinks EntryNode::*links, uint32_t node) {
  const EntryLinks old = nodes[node].*links;
  (old.prev == kNoEntry ? ends.head : (nodes[old.prev].*links).next) = old.next;
  (old.next == kNoEntry ? ends.tail : (nodes[old.next].*links).prev) = old.prev;
}

std::optional<AuditBreach> PrefixEntries::AuditAges() const {
  size_t walked = 0;
  for (uint32_t node = age.head; node != kNoEntry; node = nodes[node].by_age.next) {
    const PrefixEntry& entry = nodes[node].entry;
    if (++walked > nodes.size()) return AuditBreach{PageId(-1), "the list by age is a circle"};
    const auto found = by_key.find(entry.key.value());
    if (found == by_key.end() || found->second != node) {
      return AuditBreach{entry.page, "an entry isn't found by its key"};
    }
  }
  if (walked != by_key.size()) {
    return AuditBreach{PageId(-1), std::to_string(walked) + " entries by age, " +
                                       std::to_string(by_key.size()) + " by key"};
  }
  return std::nullopt;
}

std::optional<AuditBreach> PrefixEntries::AuditPage(PageId page, size_t& on_pages) const {
  uint32_t fresh = 0;
  uint32_t node = pages[static_cast<size_t>(page.value())].head;
  for (; node != kNoEntry; node = nodes[node].by_page.next) {
    const PrefixEntry& entry = nodes[node].entry;
    if (++on_pages > nodes.size()) return AuditBreach{page, "its entries run in a circle"};
    if (entry.page != page) return AuditBreach{page, "lists another page's entry"};
    fresh += Stale(entry) ? 0 : 1;
  }
  const PageInfo info = *pool->Describe(page);
  const bool siblings = info.pool && *info.pool != pool->id();  // its index counts the holds
  if (!siblings && info.index_holds != fresh) {
    return AuditBreach{page, std::to_string(fresh) + " entries name it, the pool counts " +
                                 std::to_string(info.index_holds) + " holds"};
  }
  return std::nullopt;
}

std::optional<AuditBreach> PrefixEntries::Audit() const {
  if (auto breach = AuditAges()) return breach;
  size_t on_pages = 0;
  for (int64_t page = 0; page < pool->pages(); ++page) {
    if (auto breach = AuditPage(PageId(page), on_pages)) return breach;
  }
  if (on_pages != by_key.size()) return AuditBreach{PageId(-1), "an entry stands on no page"};
  return std::nullopt;
}

}  // namespace kvfence
