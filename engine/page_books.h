// The engine's side of one group's allocator: pages taken, shared, published and given back, each
// change told to the tracker in the order in which it happens.
//
// Idea: PagePool refuses what would corrupt it, so a fault of the books can't be made by misusing
// it; what a less careful allocator would do next is acted out here: pages whose number stands in
// the free list twice (`again_`), pages that were said to be free while held (`early_`), and shared
// ones whose sharing wasn't counted (`alone_`). Without faults all are empty and every call of the
// pool succeeds (I-45).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kvfence/check.h"
#include "kvfence/engine.h"
#include "kvfence/engine_report.h"
#include "kvfence/page_pool.h"
#include "kvfence/prefix_index.h"

namespace kvfence {

// The tracker that the books speak to; one without state takes no room here (I-141).
template <class TrackerT>
class TrackerLink {
 public:
  explicit TrackerLink(TrackerT* to) : to_(to) {}
  TrackerT* operator->() const { return to_; }
  TrackerT& operator*() const { return *to_; }

 private:
  TrackerT* to_;
};
template <class TrackerT>
requires std::is_empty_v<TrackerT>
class TrackerLink<TrackerT> {
 public:
  explicit TrackerLink(TrackerT*) {}
  TrackerT* operator->() { return &nobody_; }
  TrackerT& operator*() { return nobody_; }

 private:
  [[no_unique_address]] TrackerT nobody_;
};

template <class TrackerT>
class PageBooks final : public IndexListener {
 public:
  PageBooks(std::unique_ptr<PagePool> pool, TrackerT* tracker, EngineReport* report,
            bool faults_expected)
      : id_(pool->id()),
        pool_(std::move(pool)),
        index_(std::make_unique<PrefixIndex>(pool_.get(), this)),
        tracker_(tracker),
        report_(report),
        faults_expected_(faults_expected),
        keys_(faults_expected ? static_cast<size_t>(pool_->pages()) : 0) {}

  const PagePool& pool() const { return *pool_; }
  PoolId id() const { return id_; }
  PageState StateOf(PageId page) const {
    const std::optional<PageInfo> info = pool_->Describe(page);
    return info ? info->state : PageState::kNull;
  }
  // Pages in the free list; where groups draw from one space, it's the same list.
  uint64_t Free() const { return pool_->counts().free; }
  // Cached pages that can be evicted.
  uint64_t Evictable() const { return pool_->counts().evictable; }
  // Do several requests hold the page? As far as the books say so (see CountAlone).
  bool Shared(PageId page) const {
    const std::optional<PageInfo> info = pool_->Describe(page);
    return info && info->references > 1 &&
           std::find(alone_.begin(), alone_.end(), page) == alone_.end();
  }
  bool Pinned(PageId page) const {
    const std::optional<PageInfo> info = pool_->Describe(page);
    return info && info->pins_in + info->pins_out > 0;
  }
  void Pin(PageId page, PinDir dir) { Must(pool_->Pin(page, dir).status()); }
  // True: the page has gone back, the fence must hear it.
  bool Unpin(PageId page, PinDir dir) {
    Result<PageChange> change = pool_->Unpin(page, dir);
    if (!Must(change.status()) || !change->returned) return false;
    ++report_->pages_returned;
    if (!Forget(&early_, page)) return true;
    Forget(&again_, page);
    return false;
  }
  void EvictOne() {
    const bool evicted = index_->EvictOne().ok();
    KVF_CHECK(evicted || faults_expected_, "I-45 without faults the allocator refuses nothing");
  }

  // One page with a reference; the caller has made sure that there is one.
  PageId Take() {
    ++report_->pages_issued;
    for (auto it = again_.rbegin(); it != again_.rend(); ++it) {
      const PageState state = StateOf(*it);
      if (state != PageState::kLive && state != PageState::kCached) continue;
      const PageId page = *it;
      again_.erase(std::next(it).base());
      Forget(&early_, page);
      Must(pool_->AddReference(page).status());
      return page;
    }
    const std::optional<PageId> page = IssueEvicting(*pool_, *index_);
    KVF_CHECK(page.has_value(), "I-46 pages that were counted as available can be taken");
    Forget(&early_, *page);
    return *page;
  }

  // What OnAlloc exchanged: the page that was taken goes back unseen, the other is held instead.
  bool Exchange(PageId taken, PageId other) {
    if (!AddReference(other)) return false;
    return Must(pool_->Return(taken).status());
  }

  // One more reference to a page, whatever state it is in. False: nobody may have it.
  // False: an entry that was left behind names a page that waits for a copy to end, or was set
  // apart.
  bool MayShare(PageId page) const {
    const PageState state = StateOf(page);
    return state == PageState::kLive || state == PageState::kCached || state == PageState::kFree;
  }
  bool AddReference(PageId page) {
    if (StateOf(page) == PageState::kFree) return Must(pool_->IssuePage(page));
    return Must(pool_->AddReference(page).status());
  }

  // A request's reference goes back. True: the fence must hear that the page is free.
  bool Return(PageId page) {
    Result<PageChange> change = pool_->Return(page);
    if (!Must(change.status())) return false;
    if (!change->returned) return false;
    Forget(&alone_, page);
    ++report_->pages_returned;
    // It was announced when it was freed too early; its number no longer stands in the list twice.
    if (!Forget(&early_, page)) return true;
    Forget(&again_, page);
    return false;
  }

  // The page that a hit would map.
  std::optional<PageId> Lookup(KeyId key) const {
    for (const SharedPage& left : left_entries_) {
      if (left.key == key) return left.page;
    }
    const LookupResult found = index_->Lookup(key);
    if (found.outcome != LookupOutcome::kHit) return std::nullopt;
    return found.entry.page;
  }
  // The hit is used: an entry that should be gone misleads one request, so that one fault stays
  // one.
  void NoteHit(KeyId key) { ForgetLeft(key); }
  // True: a new entry stands.
  bool Publish(KeyId key, PageId page, IdentityId identity) {
    ForgetLeft(key);
    Result<PublishOutcome> outcome = index_->Publish(key, page, kNoStamp, identity);
    // A page set apart stays out of the index.
    if (!outcome.ok()) return false;
    if (*outcome == PublishOutcome::kPresent) return false;
    ++report_->pages_published;
    if (faults_expected_) keys_[static_cast<size_t>(page.value())] = key;
    return true;
  }
  // Unknown keys are gone already.
  void Unpublish(KeyId key) {
    ForgetLeft(key);
    (void)index_->Unpublish(key).ok();
  }

  // A suspect page: out of the index, and out of use until it has rested without holders.
  void SetApart(PageId page, uint64_t until_step) {
    Result<PageChange> change = pool_->Quarantine(page);
    if (!change.ok()) return;
    (void)index_->UnpublishPage(page).ok();
    resting_.push_back({until_step, page});
    ++report_->pages_quarantined;
  }
  void EndRests(uint64_t step) {
    for (size_t n = resting_.size(); n > 0; --n) {
      const auto [until, page] = resting_.front();
      resting_.pop_front();
      if (until > step || !pool_->EndQuarantine(page).ok()) {
        if (StateOf(page) == PageState::kQuarantined) resting_.push_back({until, page});
      }
    }
  }
  bool resting() const { return !resting_.empty(); }

  // --- faults (see FaultSurface) ----------------------------------------------------------------
  // The page's number enters the free list though it's held, or is there already.
  void ListAgain(PageId page, bool held) {
    again_.push_back(page);
    if (held) early_.push_back(page);
  }
  // Until it's free the page counts as held by one request, whoever holds it.
  void CountAlone(PageId page) { alone_.push_back(page); }
  // Frees a cached page and lets its entry stand. The key's entry is remembered as naive indexes
  // do: without a tag.
  bool EvictLeavingEntry(PageId page) {
    const std::optional<PageInfo> info = pool_->Describe(page);
    const KeyId* key = KeyOf(page);
    if (!info || info->state != PageState::kCached || key == nullptr) return false;
    left_entries_.push_back({*key, page});
    Result<PageChange> change = pool_->DropIndexHold(page);
    return Must(change.status());
  }
  PoolCounts counts() const { return pool_->counts(); }
  // Empty when the books agree and nobody holds a page.
  std::string AuditIdle() const {
    if (const std::optional<AuditBreach> breach = pool_->Audit()) return breach->what;
    if (const std::optional<AuditBreach> breach = index_->Audit()) return breach->what;
    const PoolCounts counts = pool_->counts();
    if (counts.live != 0) return std::to_string(counts.live) + " pages still held by requests";
    return "";
  }

 private:
  // event `unpublish`
  void OnUnpublish(const PrefixEntry& entry) override {
    KVF_IF_HEARD (*tracker_) tracker_->Unpublish({.key = entry.key, .pool = id_});
  }
  // event `free`: an evicted page
  void OnReturn(PageId page) override {
    ++report_->pages_evicted;
    ++report_->pages_returned;
    if (!Forget(&early_, page))
      KVF_IF_HEARD (*tracker_) tracker_->Free({.pages = {&page, 1}, .pool = id_});
  }

  static bool Forget(std::vector<PageId>* list, PageId page) {
    if (list->empty()) return false;
    const auto it = std::find(list->begin(), list->end(), page);
    if (it == list->end()) return false;
    list->erase(it);
    return true;
  }
  // With faults the books may be off by now, and a careful pool refuses: that's counted.
  bool Must(const Status& status) {
    if (status.ok()) return true;
    KVF_CHECK(faults_expected_, "I-45 without faults the allocator refuses nothing");
    ++report_->odd_books;
    return false;
  }
  void ForgetLeft(KeyId key) {
    std::erase_if(left_entries_, [key](const SharedPage& left) { return left.key == key; });
  }
  const KeyId* KeyOf(PageId page) const {
    const auto i = static_cast<size_t>(page.value());
    return i < keys_.size() && keys_[i] != KeyId() ? &keys_[i] : nullptr;
  }

  PoolId id_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<PrefixIndex> index_;
  [[no_unique_address]] TrackerLink<TrackerT> tracker_;
  EngineReport* report_;
  bool faults_expected_;
  std::vector<PageId> again_;
  std::vector<PageId> early_;
  std::vector<PageId> alone_;
  std::vector<SharedPage> left_entries_;
  std::vector<KeyId> keys_;  // by page, the key it was last published under (with faults only)
  std::deque<std::pair<uint64_t, PageId>> resting_;
};

}  // namespace kvfence
