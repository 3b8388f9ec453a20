// Faults of the books at the moment of a decision: what is returned, what is issued.
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

}  // namespace

std::unique_ptr<Injector> MakeBooksInjector(std::string_view kind) {
  if (kind == "double_return") return std::make_unique<DoubleReturn>();
  if (kind == "issue_twice") return std::make_unique<IssueTwice>();
  if (kind == "free_cached") return std::make_unique<FreeCached>();
  return nullptr;
}

}  // namespace kvfence
