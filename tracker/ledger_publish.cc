// The prefix index: publish and unpublish.
//
// Idea: an entry is a promise made at publish time (this page, in this generation, with this birth
// mark). It's never refreshed from the page's present state, so a promise that has gone stale shows
// at the hit instead of being laundered.
#include "ledger_impl.h"

namespace kvfence {
namespace {

// What an entry is made from.
struct Promise {
  uint32_t pool = 0;
  uint32_t page = kNoPage;
  Tag tag = 0;
  IdentityId identity;
  NameId digest;
  std::vector<Stamp> stamps;
};

}  // namespace

Status Ledger::Impl::Publish(const PublishEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  if (event.page.has_value() != event.from_key.has_value()) {
    return Status::Invalid("publish: `page` and `from_key` go together");
  }
  BeginEvent();
  const uint32_t pool = event.pool.value();
  Promise made;
  uint32_t moved = kNone;  // the entry that the new one takes the place of
  made.pool = pool;
  made.digest = event.digest;
  if (event.page) {
    if (SayOutOfRange(pool, *event.page)) return {};
    const uint32_t from = index_.Find(*event.from_key, pool);
    if (from == kNone || index_.at(from).stamps.empty()) {
      ReportPage(Reason::kStaleIndexEntry, {}, pool, event.page->value());
      return {};
    }
    made.page = static_cast<uint32_t>(event.page->value());
    // A page that isn't live has no generation to promise: the entry is stale from the start.
    const Tag now = pages_.at(pool, made.page).tag;
    made.tag = TagLive(now) ? now : now - 1;
    made.identity = event.identity.value_or(index_.at(from).identity);
    if (made.digest == NameId()) made.digest = index_.at(from).digest;
    made.stamps = {index_.Expected(from, 0)};
    moved = index_.at(from).published ? from : kNone;
  } else {
    const uint32_t slot = Living(event.req);
    if (slot == kNone) return {};
    const Incarnation& inc = requests_.at(slot);
    const Held* held = HeldAt(inc, pool, event.at);
    if (held == nullptr) {
      ReportPage(Reason::kPageOutOfRange, inc.id, pool, -1, static_cast<int64_t>(event.at));
      return {};
    }
    made.page = held->page;
    const Tag now = pages_.at(pool, held->page).tag;
    // A page that has been returned has no present generation to promise: the request's is stale.
    made.tag = TagLive(now) ? now : held->tag;
    made.identity = event.identity.value_or(inc.identity);
    made.stamps = {held->stamp};
  }
  const PageId page(made.page);
  const Keeping keeping(this, pool, {&page, 1});
  if (moved != kNone) UnpublishEntry(moved);
  const uint32_t entry = index_.FindOrMake(event.key, pool);
  if (index_.at(entry).published) UnpublishEntry(entry);
  ledger::IndexEntry& e = index_.at(entry);
  e.pool = made.pool;
  e.page = made.page;
  e.tag = made.tag;
  e.identity = made.identity;
  e.digest = made.digest;
  e.stamps = std::move(made.stamps);
  e.published = true;
  const Tag now = pages_.at(pool, made.page).tag;
  if (made.tag == now && TagLive(now)) LinkEntry(entry);
  return {};
}

void Ledger::Impl::UnpublishEntry(uint32_t entry) {
  ledger::IndexEntry& e = index_.at(entry);
  const bool held = e.linked;
  e.published = false;
  index_.Remember(entry);
  if (!held) return;
  const uint32_t pool = e.pool;
  const uint32_t page = e.page;
  pages_.at(pool, page).last_expected = index_.Expected(entry, 0);
  UnlinkEntry(entry);
  MaybeGiveBack(pool, page);
}

Status Ledger::Impl::Unpublish(const UnpublishEvent& event) {
  BeginEvent();
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  const uint32_t entry = index_.Find(event.key, event.pool.value());
  if (entry == kNone || !index_.at(entry).published) {
    Report(Reason::kStaleIndexEntry, {});
    return {};
  }
  UnpublishEntry(entry);
  return {};
}

}  // namespace kvfence
