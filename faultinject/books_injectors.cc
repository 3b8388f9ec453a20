// Faults of the books at the moment of a decision: what is returned, what is issued.
#include <algorithm>

#include "injector.h"

namespace kvfence {
namespace {

class DoubleReturn final : public Injector {
  ReturnAction OnReturn(Scene& s, RequestIndex request, PageId page) override {
    // One that others hold, or the index, isn't free after the first return.
    if (s.at.HoldersOf(page).size() > 1) return ReturnAction::kProceed;
    s.Begin(s.at, {.text = Name(request) + " returns " + Name(page) + " twice", .pages = {page}});
    return ReturnAction::kTwice;
  }
};

class IssueTwice final : public Injector {
  bool OnAlloc(Scene& s, RequestIndex request, std::vector<PageId>& pages) override {
    if (pages.size() < 2) return false;
    const size_t i = 1 + s.rng.Below(pages.size() - 1);
    s.Begin(s.at, {.text = "the allocator issues " + Name(pages[i - 1]) + " to " + Name(request) +
                           " twice in one allocation",
                   .pages = {pages[i - 1]},
                   .requests = {request}});
    pages[i] = pages[i - 1];
    return true;
  }
};

class PageLost final : public Injector {
  ReturnAction OnReturn(Scene& s, RequestIndex request, PageId page) override {
    // Nobody else's, or it would come back with them.
    if (lost_ >= s.seen.spare_pages || s.at.HoldersOf(page).size() > 1) {
      return ReturnAction::kProceed;
    }
    const std::span<const PageId> own = s.at.PagesOf(request);
    const auto at = std::find(own.begin(), own.end(), page);
    if (at == own.end() || s.at.StateOf(page) != PageState::kLive) return ReturnAction::kProceed;
    if (s.at.Published(request, static_cast<uint64_t>(at - own.begin()))) {
      return ReturnAction::kProceed;
    }
    ++lost_;
    s.Begin(s.at, {.text = Name(request) + " gives up " + Name(page) + ", and nobody returns it",
                   .pages = {page}});
    return ReturnAction::kSkip;
  }
  uint64_t lost_ = 0;
};

class FreeCached final : public Injector {
  bool AfterRetire(Scene& s) override {
    // Of a hit page that rests in the index, without a request.
    const uint64_t start = s.rng.Below(s.at.pages());
    for (uint64_t i = 0; i < s.at.pages(); ++i) {
      const PageId page(static_cast<int64_t>((start + i) % s.at.pages()));
      if (s.seen.pages[static_cast<size_t>(page.value())].shares == 0) continue;
      if (s.at.StateOf(page) != PageState::kCached) continue;
      s.Begin(s.at, {.text = "cached " + Name(page) + " is returned though the index holds it",
                     .pages = {page}});
      s.at.FreePageNow(page);
      return true;
    }
    return false;
  }
};

class CopySkipped final : public Injector {
  bool AfterRetire(Scene& s) override {
    // The page into which a request will write next, and which others map.
    std::vector<std::pair<RequestIndex, PageId>> shared;
    for (const RequestIndex request : s.at.Running()) {
      const std::span<const PageId> pages = s.at.PagesOf(request);
      const uint64_t next = s.at.LengthOf(request) / s.at.page_size();
      if (next >= pages.size() || s.at.HoldersOf(pages[next]).size() < 2) continue;
      shared.emplace_back(request, pages[next]);
    }
    const auto* picked = PickOf(s.rng, shared);
    if (picked == nullptr) return false;
    const auto& [request, page] = *picked;
    s.Begin(s.at, {.text = Name(page) + ", into which " + Name(request) +
                           " writes next, counts as held by one, though others map it",
                   .pages = {page}});
    s.at.CountAlone(page);
    return true;
  }
};

}  // namespace

std::unique_ptr<Injector> MakeBooksInjector(std::string_view kind) {
  if (kind == "double_return") return std::make_unique<DoubleReturn>();
  if (kind == "page_lost") return std::make_unique<PageLost>();
  if (kind == "issue_twice") return std::make_unique<IssueTwice>();
  if (kind == "free_cached") return std::make_unique<FreeCached>();
  if (kind == "copy_skipped") return std::make_unique<CopySkipped>();
  return nullptr;
}

}  // namespace kvfence
