// Faults of the allocator's books, of the prefix index and of work on other streams.
#include <algorithm>

#include "injector.h"
#include "kvfence/device_types.h"

namespace kvfence {
namespace {

// --- classes A and B -----------------------------------------------------------------------------

class FreeWhileHeld final : public Injector {
  bool AfterRetire(Scene& s) override {
    const Target target = PickTarget(s.at, s.rng, kNoRequest);
    if (target.request == kNoRequest) return false;
    s.Begin(s.at, {.text = Name(target.page) + " is returned though " + Name(target.request) +
                           " holds it as logical page " + std::to_string(target.at),
                   .pages = {target.page}});
    s.at.FreePageNow(target.page);
    return true;
  }
};

class DoubleFree final : public Injector {
  bool AfterRetire(Scene& s) override {
    // The one returned last is issued next under LIFO, and issued twice soon.
    for (auto it = s.seen.returned.rbegin(); it != s.seen.returned.rend(); ++it) {
      if (s.at.StateOf(*it) != PageState::kFree) continue;
      s.Begin(s.at, {.text = Name(*it) + ", which is free, is returned once more", .pages = {*it}});
      s.at.FreeAgain(*it);
      return true;
    }
    return false;
  }
};

class IssueHeld final : public Injector {
  bool OnAlloc(Scene& s, RequestIndex request, std::vector<PageId>& pages) override {
    const Target target = PickTarget(s.at, s.rng, request);
    if (target.request == kNoRequest || pages.empty()) return false;
    const std::span<const PageId> own = s.at.PagesOf(request);
    if (std::find(own.begin(), own.end(), target.page) != own.end()) return false;
    s.Begin(s.at, {.text = "the allocator issues " + Name(target.page) + " to " + Name(request) +
                           " though " + Name(target.request) + " holds it",
                   .pages = {target.page},
                   .requests = {request}});
    pages[s.rng.Below(pages.size())] = target.page;
    return true;
  }
};

class StaleIndexEntry final : public Injector {
  bool AfterRetire(Scene& s) override {
    // A page that was hit before will be hit again.
    PageId best{};
    uint64_t most = 0;
    const uint64_t start = s.rng.Below(s.at.pages());
    for (uint64_t i = 0; i < s.at.pages(); ++i) {
      const PageId page(static_cast<int64_t>((start + i) % s.at.pages()));
      const uint64_t shares = s.seen.pages[static_cast<size_t>(page.value())].shares;
      if (shares <= most || s.at.StateOf(page) != PageState::kCached) continue;
      best = page;
      most = shares;
    }
    if (most == 0) return false;
    s.Begin(s.at, {.text = "cached " + Name(best) + " is evicted, its index entry stays",
                   .pages = {best}});
    return s.at.EvictLeavingEntry(best);
  }
};

// --- other streams -------------------------------------------------------------------------------

class LateForeignWrite final : public Injector {
  bool Queue(Scene& s) override {
    const Target target = PickTarget(s.at, s.rng, kNoRequest);
    if (target.request == kNoRequest) return false;
    const PageTenure former = s.seen.pages[static_cast<size_t>(target.page.value())].former;
    const RequestId victim = s.at.IdOf(target.request);
    // What is the victim's own at this very place, or may well be the same, isn't foreign.
    const bool same = former.id == victim || former.family == s.at.FamilyOf(target.request);
    if (former.request == kNoRequest || (same && former.at == target.at)) return false;
    const uint64_t content = s.rng.Next();
    const auto begin = s.Begin;
    s.Async(StepId(s.at.step().value() + 1), [=](FaultSurface& at) {
      const std::span<const PageId> pages = at.PagesOf(target.request);
      if (at.IdOf(target.request) != victim || pages.size() <= target.at) return false;
      if (pages[target.at] != target.page) return false;
      begin(at, {.text = "a late copy for " + Name(former.request) + " lands in " +
                         Name(target.page) + ", which is " + Name(target.request) + "'s now",
                 .pages = {target.page},
                 .requests = {target.request}});
      at.Write({.page = target.page,
                .first = 0,
                .n = target.slots,
                .content = content,
                .as = {.req = former.id, .at = former.at}});
      return true;
    });
    return true;
  }
};

class TagFlip final : public Injector {
  bool Queue(Scene& s) override {
    const Target target = PickTarget(s.at, s.rng, kNoRequest);
    if (target.request == kNoRequest) return false;
    const RequestId victim = s.at.IdOf(target.request);
    const Tag bit = Tag{1} << s.rng.Below(32);
    const auto begin = s.Begin;
    Fence* fence = s.fence;
    s.Async(StepId(s.at.step().value() + 1), [=](FaultSurface& at) {
      const std::span<const PageId> pages = at.PagesOf(target.request);
      if (at.IdOf(target.request) != victim || pages.size() <= target.at) return false;
      if (pages[target.at] != target.page) return false;
      begin(at, {.text = "a bit flips in the device's tag of " + Name(target.page) + ", held by " +
                         Name(target.request),
                 .pages = {target.page}});
      if (fence != nullptr) {
        fence->DeviceRecord(RankId(0), PoolId(0), target.page)->tag ^= bit;
      }
      return true;
    });
    return true;
  }
};

class RowUnannounced final : public Injector {
  bool OnBindRow(Scene& s, Row row, RequestIndex request) override {
    if (request == kNoRequest) return false;
    s.Begin(s.at, {.text = Name(row) + " goes to " + Name(request) + ", the fence isn't told",
                   .requests = {request}});
    return true;
  }
};

}  // namespace

std::unique_ptr<Injector> MakePageInjector(std::string_view kind) {
  if (kind == "free_while_held") return std::make_unique<FreeWhileHeld>();
  if (kind == "double_free") return std::make_unique<DoubleFree>();
  if (kind == "issue_held") return std::make_unique<IssueHeld>();
  if (kind == "stale_index_entry") return std::make_unique<StaleIndexEntry>();
  if (kind == "late_foreign_write") return std::make_unique<LateForeignWrite>();
  if (kind == "tag_flip") return std::make_unique<TagFlip>();
  if (kind == "row_unannounced") return std::make_unique<RowUnannounced>();
  return nullptr;
}

}  // namespace kvfence
