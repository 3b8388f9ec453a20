// Asynchronous copies: a transfer into a request's pages, an offload out of the prefix index.
#include <algorithm>
#include <utility>

#include "naive_engine.h"

namespace kvfence::testing {

std::string NaiveEngine::PinId(const Copy& copy, const Part& part) const {
  return copy.id + "." + std::to_string(part.pool) + "." + std::to_string(part.at);
}

void NaiveEngine::Pin(const Copy& copy, const Part& part, std::string_view id) {
  if (!copy.pinned) return;
  Object event = Event("pin");
  event.Text("id", id).Text("dir", copy.in ? "in" : "out").Raw("pages", Numbers({part.page}));
  if (copy.in) event.Text("req", requests_[copy.request].name).Count("at", part.at);
  if (!part.key.empty()) event.Text("key", part.key);
  event.Text("pool", pools_[part.pool].shape.name);
  Say(event);
}

// A request whose first tokens come from elsewhere: another engine, or what was offloaded.
void NaiveEngine::StartIn(const Command& c) {
  if (Crowded()) return;
  const bool load = !stored_.empty() && c[1] % 2 == 0;
  const Prefix source = load ? stored_[c[2] % stored_.size()] : Prefix();
  const uint64_t tokens = load ? source.tokens : 1 + c[2] % (2 * world_.unit);
  Copy copy{.in = true, .request = requests_.size(), .tokens = tokens};
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const PoolShape& shape = pools_[pool].shape;
    const uint64_t end = (tokens + shape.page_size - 1) / shape.page_size;
    const uint64_t first = FirstRead(shape, tokens);
    if (end > world_.width || Usable(pool, true) < end - first) return;
    for (uint64_t at = first; at < end; ++at) {
      copy.parts.push_back(
          {pool, at, -1, std::min(shape.page_size, tokens - at * shape.page_size), ""});
    }
  }
  for (Part& part : copy.parts) {
    for (const Part& kept : source.parts) {
      if (kept.pool == part.pool && kept.at == part.at) part.key = kept.key;
    }
    if (load && part.key.empty()) return;
  }
  Admit(c, source.identity);
  copy.id = "x" + std::to_string(names_++);
  requests_.back().copying = true;
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    std::vector<int64_t> pages;
    for (Part& part : copy.parts) {
      if (part.pool != pool) continue;
      const auto page = Take(pool, true);
      if (!page) continue;  // a fault took what was counted
      part.page = *page;
      if (pages.empty()) requests_.back().pages[pool].assign(part.at, -1);
      requests_.back().pages[pool].push_back(*page);
      pages.push_back(*page);
    }
    if (pages.empty()) continue;
    Say(Event("alloc")
            .Text("req", requests_.back().name)
            .Raw("pages", Numbers(pages))
            .Count("at", requests_.back().pages[pool].size() - pages.size())
            .Text("pool", pools_[pool].shape.name));
  }
  std::erase_if(copy.parts, [](const Part& part) { return part.page < 0; });
  copy.pinned = !Strikes(Fault::kPinMissing);
  for (const Part& part : copy.parts) {
    Pin(copy, part, PinId(copy, part));
    ++At(part.pool, part.page).ins;
  }
  copies_.push_back(std::move(copy));
}

// A prefix goes to the host, page by page, while everything else goes on.
void NaiveEngine::StartOut(const Command& c) {
  if (index_.empty() || copies_.size() >= 3) return;
  const Prefix& prefix = index_[c[1] % index_.size()];
  const bool whole = std::ranges::all_of(prefix.parts, [&](const Part& part) {
    const Page& page = At(part.pool, part.page);
    return page.committed >= part.n && page.ins == 0 && page.committed == page.launched;
  });
  if (!whole) return;
  Copy copy{.in = false, .parts = prefix.parts, .stored = prefix};
  copy.id = "x" + std::to_string(names_++);
  copy.pinned = !Strikes(Fault::kPinMissing);
  for (const Part& part : copy.parts) {
    Pin(copy, part, PinId(copy, part));
    ++At(part.pool, part.page).outs;
  }
  copies_.push_back(std::move(copy));
}

// Content arrives in one page of a request.
void NaiveEngine::Brought(Copy& copy, size_t index, bool as_other) {
  const Part& part = copy.parts[index];
  const std::string by_request =
      Object().Text("req", requests_[copy.request].name).Count("at", part.at).Done();
  std::string as = part.key.empty() ? by_request : Object().Text("key", part.key).Done();
  if (as_other) {
    as = part.key.empty() ? Object()
                                .Text("req", requests_[strike_.pick % requests_.size()].name)
                                .Count("at", strike_.pick / 8 % 3u)
                                .Done()
                          : "null";
  }
  if (Strikes(Fault::kWriteMissing)) return;
  Object event = Event("write");
  event.Index("page", part.page).Count("first", 0).Count("n", part.n).Raw("as", as);
  if (Strikes(Fault::kLateWrite)) {
    late_.push_back({part.pool, part.at, part.page, part.n, as});
    return;
  }
  event.Text("xfer", PinId(copy, part)).Text("pool", pools_[part.pool].shape.name);
  Say(event);
  if (!pools_[part.pool].shape.scales || Strikes(Fault::kScaleMissing)) return;
  Say(Event("scale").Index("page", part.page).Text("pool", pools_[part.pool].shape.name));
}

void NaiveEngine::Continue(const Command& c) {
  if (copies_.empty()) return;
  const size_t index = c[1] % copies_.size();
  Copy& copy = copies_[index];
  if (copy.done == copy.parts.size()) return copy.in ? FinishIn(c, index) : FinishOut(index);
  const Part& part = copy.parts[copy.done];
  if (copy.in) {
    if (copy.done + 1 == copy.parts.size() && Strikes(Fault::kEarlyUnpin)) {
      const size_t last = copy.done;
      Copy kept = copy;
      FinishIn({1, 1, 1, 1, 1, 1}, index);
      return Brought(kept, last, false);
    }
    Brought(copy, copy.done, Strikes(Fault::kWrongCopy));
  } else {
    Say(Event("read")
            .Index("page", part.page)
            .Text("xfer", PinId(copy, part))
            .Text("pool", pools_[part.pool].shape.name));
  }
  ++copy.done;
}

void NaiveEngine::FinishIn(const Command& c, size_t index) {
  const Copy copy = copies_[index];
  copies_.erase(copies_.begin() + static_cast<int64_t>(index));
  const bool failed = c[2] % 8 == 0;
  const bool used = !failed || Strikes(Fault::kFailedCopyUsed);
  for (const Part& part : copy.parts) {
    Page& page = At(part.pool, part.page);
    --page.ins;
    if (used) page.committed = page.launched = part.n;
    Object event = Event("unpin");
    event.Text("id", PinId(copy, part));
    if (failed) event.Raw("ok", "false");
    if (copy.pinned) Say(event);
  }
  Request& r = requests_[copy.request];
  r.copying = false;
  if (!used) return End(copy.request, true);
  Say(Event("ready").Text("req", r.name).Count("tokens", copy.tokens));
  r.length = copy.tokens;
}

void NaiveEngine::FinishOut(size_t index) {
  const Copy copy = copies_[index];
  copies_.erase(copies_.begin() + static_cast<int64_t>(index));
  for (const Part& part : copy.parts) {
    if (copy.pinned) Say(Event("unpin").Text("id", PinId(copy, part)));
    --At(part.pool, part.page).outs;
    MaybeGiveBack(part.pool, part.page);
  }
  stored_.push_back(copy.stored);
}

// Only by a fault: somebody who has no business there writes into a live page.
void NaiveEngine::StrayWrite(const Command& c) {
  const size_t pool = c[1] % pools_.size();
  const auto live = Sources(pool);
  if (live.empty() || requests_.empty() || !Strikes(Fault::kStrayWrite)) return;
  const uint64_t size = pools_[pool].shape.page_size;
  const std::string as = strike_.pick % 3 == 0
                             ? "null"
                             : Object()
                                   .Text("req", requests_[strike_.pick / 3 % requests_.size()].name)
                                   .Count("at", c[2] % 3u)
                                   .Done();
  const uint64_t first = c[3] % size;
  Say(Event("write")
          .Index("page", live[c[4] % live.size()])
          .Count("first", first)
          .Count("n", size - first)
          .Raw("as", as)
          .Text("pool", pools_[pool].shape.name));
}

}  // namespace kvfence::testing
