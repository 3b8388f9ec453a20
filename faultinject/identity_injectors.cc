// Faults of identity, ranks and scales: the right page for the wrong key, the wrong incarnation,
// one rank that differs from the others, scales of another generation.
#include <algorithm>

#include "injector.h"

namespace kvfence {
namespace {

// A key that leaves out the adapter, the media or the salt finds what another request published.
class KeyCollides final : public Injector {
  bool OnShare(Scene& s, RequestIndex request, std::vector<SharedPage>& hits) override {
    if (hits.empty() || hits[0].page == s.at.null_page()) return false;
    std::vector<std::pair<RequestIndex, SharedPage>> others;
    for (const RequestIndex other : s.at.Running()) {
      if (other == request || s.at.IdentityOf(other) == s.at.IdentityOf(request)) continue;
      if (const std::optional<SharedPage> page = s.at.Published(other, 0)) {
        others.emplace_back(other, *page);
      }
    }
    const auto* other = PickOf(s.rng, others);
    if (other == nullptr) return false;
    s.Begin(s.at, {.text = Name(request) + " hits " + Name(other->second.page) + ", which " +
                           Name(other->first) + " published under another identity",
                   .pages = {other->second.page},  // a sibling may come by it
                   .requests = {request}});
    hits[0] = other->second;
    return true;
  }
};

class OldIncarnation final : public Injector {
  bool BeforeValidate(Scene& s) override {
    // A row that decodes: what is sent back has published since it was last.
    const StepRow* picked = PickRow(
        s, [](const StepRow& row) { return row.publishes && row.new_tokens <= kMostDecoded; });
    if (picked == nullptr) return false;
    const StepRow& row = *picked;
    const std::span<const PageId> pages = s.at.PagesOf(row.request);
    // Whoever had one of its pages before may have ended, or run as another incarnation now.
    for (const PageId page : pages) {
      const PageTenure& former = s.seen.pages[static_cast<size_t>(page.value())].former;
      if (former.request == kNoRequest || s.at.IdOf(former.request) == former.id) continue;
      const std::string text = Name(row.row) + " of " + Name(row.request) +
                               " runs for an incarnation of " + Name(former.request) +
                               " that has ended";
      const uint64_t first = std::min<uint64_t>(row.length_before / s.at.page_size(), pages.size());
      s.Begin(s.at, {.text = text,
                     .pages = {pages.begin() + static_cast<std::ptrdiff_t>(first), pages.end()},
                     .requests = {row.request}});
      s.at.SetRowRequest(row.row, former.id);
      return true;
    }
    return false;
  }
  static constexpr uint64_t kMostDecoded = 8;  // new tokens, guesses included
};

// A row of whose request a rank's scheduler hasn't heard yet, say.
class RankRow final : public Injector {
  bool BeforeValidate(Scene& s) override {
    if (s.at.ranks() < 2) return false;
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr) return false;
    const RankId rank(static_cast<uint32_t>(1 + s.rng.Below(s.at.ranks() - 1)));
    s.Begin(s.at, {.text = "rank " + std::to_string(rank.value()) + " takes " + Name(row->row) +
                           " of " + Name(row->request) + " for padding",
                   .requests = {row->request}});
    s.at.DropRowOn(rank, row->row);
    return true;
  }
};

class RankTable final : public Injector {
  bool BeforeValidate(Scene& s) override {
    if (s.at.ranks() < 2) return false;
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.covered > 0; });
    if (row == nullptr) return false;
    const RankId rank(static_cast<uint32_t>(1 + s.rng.Below(s.at.ranks() - 1)));
    const uint64_t k = s.rng.Below(row->covered);
    const int64_t was = s.at.DeviceEntry(row->row, k);
    const int64_t now = was == 1 ? 2 : was - 1;
    s.Begin(s.at, {.text = "on rank " + std::to_string(rank.value()) + " alone, entry " +
                           std::to_string(k) + " of " + Name(row->row) + " (" + Name(row->request) +
                           ") is page " + std::to_string(now),
                   .requests = {row->request}});
    s.at.SetDeviceEntryOf(rank, row->row, k, now);
    return true;
  }
};

}  // namespace

std::unique_ptr<Injector> MakeIdentityInjector(std::string_view kind) {
  if (kind == "key_collides") return std::make_unique<KeyCollides>();
  if (kind == "old_incarnation") return std::make_unique<OldIncarnation>();
  if (kind == "rank_row") return std::make_unique<RankRow>();
  if (kind == "rank_table") return std::make_unique<RankTable>();
  return nullptr;
}

}  // namespace kvfence
