// Requests: admission, prefix hits, publication, fork, rejection, preemption.
#include <algorithm>
#include <utility>

#include "naive_engine.h"

namespace kvfence::testing {

size_t NaiveEngine::Admit(const Command& c, std::string_view identity) {
  Request r;
  r.name = "r" + std::to_string(names_++);
  // A preempted request comes back under its name.
  for (const Request& old : requests_) {
    const bool again = std::ranges::none_of(
        requests_, [&](const Request& other) { return other.alive && other.name == old.name; });
    if (again && c[5] % 3 == 0) r.name = old.name;
  }
  r.identity = identity;
  r.pages.resize(pools_.size());
  r.shown.resize(pools_.size());
  Object event = Event("admit");
  event.Text("req", r.name);
  if (!r.identity.empty()) event.Raw("identity", "{\"adapter\":\"" + r.identity + "\"}");
  Say(event);
  requests_.push_back(std::move(r));
  return requests_.size() - 1;
}

// More requests than these only wait for rows.
bool NaiveEngine::Crowded() const {
  return std::ranges::count_if(requests_, [](const Request& r) { return r.alive; }) >= 7;
}

void NaiveEngine::AdmitAny(const Command& c) {
  if (Crowded()) return;
  Admit(c, c[1] % 4 == 0 ? "a" : "");
}

// A request that's alive and not waiting for a copy. `idle_only`: without launched steps.
std::optional<size_t> NaiveEngine::Pick(uint8_t b, bool idle_only) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Request& r = requests_[i];
    if (r.alive && !r.copying && (!idle_only || r.launched == 0)) found.push_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[b % found.size()];
}

// --- the prefix index ----------------------------------------------------------------------------

// Is all of the prefix written by work that a hit may rely on?
bool NaiveEngine::Complete(const Prefix& prefix) const {
  return std::ranges::all_of(prefix.parts, [&](const Part& part) {
    const Page& page = pools_[part.pool].pages[static_cast<size_t>(part.page)];
    return (world_.stream ? page.launched : page.committed) >= part.n;
  });
}

void NaiveEngine::Hit(const Command& c) {
  if (index_.empty()) return AdmitAny(c);
  const Prefix prefix = index_[c[1] % index_.size()];
  if (!Complete(prefix)) return;
  HitOf(prefix, c);
}

std::optional<size_t> NaiveEngine::HitOf(const Prefix& prefix, const Command& c) {
  if (Crowded()) return {};
  const bool other = Strikes(Fault::kOtherIdentity);
  const size_t index = Admit(c, other ? (prefix.identity.empty() ? "b" : "") : prefix.identity);
  const bool keyed = other || c[2] % 4 != 0;
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    std::vector<int64_t> pages;
    std::vector<std::string> keys, digests;
    uint64_t first = 0;
    for (const Part& part : prefix.parts) {
      if (part.pool != pool) continue;
      if (pages.empty()) first = part.at;
      int64_t page = part.page;
      if (const auto live = Sources(pool); !live.empty() && Strikes(Fault::kWrongHit)) {
        page = live[strike_.pick % live.size()];
      }
      pages.push_back(page);
      keys.push_back(part.key);
      digests.push_back("d" + part.key);
    }
    if (pages.empty()) continue;
    Request& r = requests_[index];
    r.pages[pool].assign(first, -1);
    for (const int64_t page : pages) {
      ++At(pool, page).refs;
      r.pages[pool].push_back(page);
    }
    Object event = Event("share");
    event.Text("req", r.name).Raw("pages", Numbers(pages));
    event.Count("tokens", prefix.tokens - first * pools_[pool].shape.page_size);
    if (first != 0) event.Count("at", first);
    if (keyed) event.Raw("keys", Strings(keys));
    if (keyed && c[2] % 4 == 1) event.Raw("digests", Strings(digests));
    event.Text("pool", pools_[pool].shape.name);
    Say(event);
  }
  requests_[index].length = prefix.tokens;
  return index;
}

void NaiveEngine::Publish(const Command& c) {
  const auto found = Pick(c[1], false);
  if (!found || index_.size() >= 5) return;
  const Request& r = requests_[*found];
  const bool ahead = c[2] % 4 == 0;  // pages that it has, though not all are written
  const uint64_t held = r.pages[0].size() * pools_[0].shape.page_size;
  uint64_t tokens = (ahead ? held : r.length) / world_.unit * world_.unit;
  const uint64_t less = c[3] % 3 * world_.unit;
  if (tokens > less) tokens -= less;
  PublishFirst(*found, tokens, ahead);
}

// The first `tokens` tokens enter the index, as far as windows still need them.
bool NaiveEngine::PublishFirst(size_t request, uint64_t tokens, bool ahead) {
  const Request& r = requests_[request];
  if (tokens == 0) return false;
  Prefix prefix{tokens, r.identity, {}};
  const std::string name = "k" + std::to_string(names_++) + ".";
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const PoolShape& shape = pools_[pool].shape;
    for (uint64_t at = FirstRead(shape, tokens); at < tokens / shape.page_size; ++at) {
      if (at >= r.pages[pool].size() || r.pages[pool][at] < 0) return false;
      const int64_t page = r.pages[pool][at];
      if (!ahead && At(pool, page).launched < shape.page_size) return false;
      // What is named may not be written anew: rejected tokens may still lie there.
      const uint64_t own = r.length - std::min(r.length, at * shape.page_size);
      if (At(pool, page).launched > own) return false;
      prefix.parts.push_back({pool, at, page, shape.page_size,
                              name + std::to_string(pool) + "." + std::to_string(at)});
    }
  }
  for (const Part& part : prefix.parts) {
    ++At(part.pool, part.page).entries;
    Say(Event("publish")
            .Text("key", part.key)
            .Text("req", r.name)
            .Count("at", part.at)
            .Text("digest", "d" + part.key)
            .Text("pool", pools_[part.pool].shape.name));
  }
  index_.push_back(std::move(prefix));
  return true;
}

void NaiveEngine::Evict(const Command& c) {
  if (!index_.empty()) Unpublish(c[1] % index_.size());
}

void NaiveEngine::Unpublish(size_t index) {
  const Prefix prefix = index_[index];
  const bool missed = Strikes(Fault::kUnpublishMissed);
  if (!Strikes(Fault::kStaleHit)) index_.erase(index_.begin() + static_cast<int64_t>(index));
  for (const Part& part : prefix.parts) {
    Page& page = At(part.pool, part.page);
    if (page.entries > 0) --page.entries;
    if (!missed) Say(Event("unpublish").Text("key", part.key));
    MaybeGiveBack(part.pool, part.page);
  }
}

// --- what becomes of a request -------------------------------------------------------------------

void NaiveEngine::Fork(const Command& c) {
  const auto found = Pick(c[1], !world_.stream);
  if (!found || requests_[*found].length == 0) return;
  if (Crowded()) return;
  const size_t to = Admit(c, requests_[*found].identity);
  const Request& from = requests_[*found];
  requests_[to].pages = from.pages;
  requests_[to].length = from.length;
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    for (const int64_t page : from.pages[pool]) {
      if (page >= 0) ++At(pool, page).refs;
    }
  }
  Say(Event("fork").Text("from", from.name).Text("to", requests_[to].name));
}

// Rejected tokens: the length goes back, and perhaps the pages behind it.
void NaiveEngine::Trim(const Command& c) {
  const auto found = Pick(c[1], true);
  if (!found) return;
  Request& r = requests_[*found];
  const uint64_t less = 1 + c[2] % 3;
  if (r.length <= less) return;
  // A window slides with the length: what it gave up doesn't come back.
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const uint64_t first = FirstRead(pools_[pool].shape, r.length - less);
    if (first < r.pages[pool].size() && r.pages[pool][first] < 0) return;
  }
  r.length -= less;
  Object event = Event("trim");
  event.Text("req", r.name).Count("tokens", r.length);
  if (r.last_step != 0 && c[3] % 2 == 0) event.Count("step", r.last_step);
  if (!Strikes(Fault::kTrimForgotten)) Say(event);
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const uint64_t size = pools_[pool].shape.page_size;
    for (uint64_t at = r.length / size; at < r.pages[pool].size(); ++at) {
      if (r.pages[pool][at] < 0) continue;
      Page& page = At(pool, r.pages[pool][at]);
      if (page.refs > 1 || page.entries > 0 || page.outs > 0) continue;
      const uint64_t left = at == r.length / size ? r.length % size : 0;
      page.committed = std::min(page.committed, left);
      page.launched = std::min(page.launched, left);
    }
  }
  if (c[4] % 2 == 0) DropTail(r, r.length);
}

void NaiveEngine::DropTail(Request& r, uint64_t tokens) {
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const uint64_t size = pools_[pool].shape.page_size;
    const uint64_t keep = (tokens + size - 1) / size;
    if (keep >= r.pages[pool].size()) continue;
    Say(Event("drop")
            .Text("req", r.name)
            .Count("at", keep)
            .Count("n", r.pages[pool].size() - keep)
            .Text("pool", pools_[pool].shape.name));
    while (r.pages[pool].size() > keep) {
      const int64_t page = r.pages[pool].back();
      r.pages[pool].pop_back();
      if (page >= 0) LetGo(pool, page);
    }
    r.shown[pool].resize(std::min<size_t>(r.shown[pool].size(), keep));
  }
}

// Gives up what no window reaches any more; the device's row may go on naming it.
void NaiveEngine::Slide(const Command& c) {
  const auto found = Pick(c[1], false);
  if (!found) return;
  Request& r = requests_[*found];
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const uint64_t end =
        std::min<uint64_t>(FirstRead(pools_[pool].shape, r.length), r.pages[pool].size());
    uint64_t first = 0;
    while (first < end && r.pages[pool][first] < 0) ++first;
    if (first >= end || end == r.pages[pool].size()) continue;
    r.shown[pool].resize(std::max<size_t>(r.shown[pool].size(), end), 0);
    Say(Event("drop")
            .Text("req", r.name)
            .Count("at", first)
            .Count("n", end - first)
            .Text("pool", pools_[pool].shape.name));
    for (uint64_t at = first; at < end; ++at) {
      const int64_t page = std::exchange(r.pages[pool][at], -1);
      r.shown[pool][at] = page;
      if (page >= 0) LetGo(pool, page);
    }
  }
}

void NaiveEngine::Release(const Command& c) {
  const auto found = Pick(c[1], c[2] % 3 == 0);
  if (!found) return;
  End(*found, c[3] % 2 == 0);
  if (c[4] % 2 == 0) SayFrees();
}

void NaiveEngine::End(size_t request, bool row_first) {
  Request& r = requests_[request];
  if (r.row >= 0 && row_first) Bind(r.row, -1);
  Say(Event("release").Text("req", r.name));
  r.alive = false;
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    for (const int64_t page : r.pages[pool]) {
      if (page >= 0) LetGo(pool, page);
    }
  }
  if (r.row >= 0) Bind(r.row, -1);
}

// Pages taken before they are needed.
void NaiveEngine::Ahead(const Command& c) {
  const auto found = Pick(c[1], false);
  if (!found) return;
  const Request& r = requests_[*found];
  const uint64_t most =
      world_.width * std::ranges::min(world_.pools, {}, &PoolShape::page_size).page_size;
  const uint64_t fresh = std::min(most - std::min(most, r.length), uint64_t{1} + c[2] % 4);
  if (fresh > 0) MakeRoom(*found, fresh, 0);
}

void NaiveEngine::SwapRows(const Command& c) {
  const auto a = Pick(c[1], true), b = Pick(c[2], true);
  if (!a || !b || a == b || requests_[*a].row < 0 || requests_[*b].row < 0) return;
  const int row_a = requests_[*a].row, row_b = requests_[*b].row;
  if (row_uses_[static_cast<size_t>(row_a)] != 0 || row_uses_[static_cast<size_t>(row_b)] != 0) {
    return;
  }
  Bind(row_a, static_cast<int>(*b));
  Bind(row_b, static_cast<int>(*a));
}

}  // namespace kvfence::testing
