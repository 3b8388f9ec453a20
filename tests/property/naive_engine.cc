// The engine's page books, and how a command becomes something to do.
#include "naive_engine.h"

#include <algorithm>
#include <utility>

namespace kvfence::testing {

World MakeWorld(const Command& bytes) {
  World world;
  world.explicit_frees = bytes[0] % 2 == 0;
  world.stream = bytes[0] / 2 % 2 == 0;
  world.same_step_reads = bytes[0] / 4 % 3 == 0;
  world.ranks = bytes[0] / 16 % 5 == 0 ? 2 : 1;
  const uint64_t sizes[] = {2, 4, 1};
  world.pools.push_back(
      {.name = "full", .pages = 16 + bytes[1] % 24, .page_size = sizes[bytes[2] % 3]});
  world.pools[0].scales = bytes[1] / 16 % 4 == 0;
  world.pools[0].slots = bytes[1] / 64 == 0;
  if (bytes[3] % 2 == 0) {
    world.pools.push_back({.name = "window",
                           .pages = 14 + bytes[4] % 16,
                           .page_size = sizes[bytes[3] / 2 % 3],
                           .window = 3u + bytes[4] / 16 % 5u});
    world.pools[1].scales = bytes[3] / 8 % 4 == 0;
    world.pools[1].slots = bytes[3] / 32 % 4 == 0;
  }
  world.rows = 3 + bytes[5] % 4;
  world.width = 5 + bytes[5] / 4 % 5;
  for (const PoolShape& pool : world.pools) world.unit = std::max(world.unit, pool.page_size);
  return world;
}

std::string World::Header(std::string_view about) const {
  const auto show = [&](const PoolShape& pool) {
    Object object;
    object.Text("name", pool.name).Index("pages", pool.pages).Count("page_size", pool.page_size);
    if (pool.window != 0) object.Count("window", pool.window);
    if (pool.scales) object.Raw("scales", "true");
    if (pool.slots) object.Text("entries", "slots").Count("width", width * pool.page_size);
    return object.Done();
  };
  Object header;
  header.Count("kvfence_log", 1).Raw("pools", List(pools, show));
  header.Count("rows", rows).Count("width", width);
  if (ranks > 1) header.Count("ranks", ranks);
  if (explicit_frees) header.Text("frees", "explicit");
  if (stream) header.Text("reuse", "stream");
  if (same_step_reads) header.Raw("same_step_reads", "true");
  if (!about.empty()) header.Text("about", about);
  return header.Done();
}

NaiveEngine::NaiveEngine(const World& world, Strike strike) : world_(world), strike_(strike) {
  for (const PoolShape& shape : world_.pools) {
    Pool& pool = pools_.emplace_back();
    pool.shape = shape;
    pool.pages.resize(static_cast<size_t>(shape.pages));
    for (int64_t page = shape.pages - 1; page > 0; --page) pool.free_list.push_back(page);
  }
  row_uses_.assign(world_.rows, 0);
}

bool NaiveEngine::Strikes(Fault fault) {
  if (fault != strike_.fault || struck_ || seen_++ != strike_.nth) return false;
  struck_ = true;
  return true;
}

Object NaiveEngine::Event(std::string_view verb) const {
  Object object;
  object.Text("ev", verb);
  return object;
}

void NaiveEngine::Say(const Object& line) {
  if (Strikes(Fault::kLostEvent)) return;
  lines_.push_back(line.Done());
  if (Strikes(Fault::kTwiceEvent)) lines_.push_back(line.Done());
}

// --- pages ---------------------------------------------------------------------------------------

bool NaiveEngine::CanUse(const Page& page, bool for_copy) const {
  if (!page.free || page.ins != 0 || page.outs != 0) return false;
  return page.uses == 0 || (world_.stream && !for_copy);
}

uint64_t NaiveEngine::Usable(size_t pool, bool for_copy) const {
  return static_cast<uint64_t>(std::ranges::count_if(pools_[pool].free_list, [&](int64_t page) {
    return CanUse(pools_[pool].pages[static_cast<size_t>(page)], for_copy);
  }));
}

std::vector<int64_t> NaiveEngine::Sources(size_t pool) const {
  std::vector<int64_t> live;
  for (int64_t page = 1; page < pools_[pool].shape.pages; ++page) {
    const Page& p = pools_[pool].pages[static_cast<size_t>(page)];
    if (!p.free && p.refs > 0) live.push_back(page);
  }
  return live;
}

// A page off the free list, the last one that came back first. Its holder is the caller.
std::optional<int64_t> NaiveEngine::Take(size_t pool, bool for_copy) {
  Pool& p = pools_[pool];
  std::optional<int64_t> taken;
  if (const auto live = Sources(pool); !live.empty() && Strikes(Fault::kIssueHeld)) {
    taken = live[strike_.pick % live.size()];
  }
  const auto busy = std::ranges::find_if(p.free_list, [&](int64_t page) {
    return At(pool, page).free && !CanUse(At(pool, page), for_copy);
  });
  if (!taken && busy != p.free_list.end() && Strikes(Fault::kEarlyReissue)) taken = *busy;
  for (auto it = p.free_list.rbegin(); it != p.free_list.rend() && !taken; ++it) {
    if (CanUse(At(pool, *it), for_copy)) taken = *it;
  }
  if (!taken) return std::nullopt;
  const auto at = std::ranges::find(p.free_list, *taken);
  if (at != p.free_list.end()) p.free_list.erase(at);
  Page& page = At(pool, *taken);
  page.free = false;
  page.waits = false;
  ++page.generation;
  ++page.refs;
  page.committed = page.launched = 0;
  return taken;
}

void NaiveEngine::GiveBack(size_t pool, int64_t page) {
  Page& p = At(pool, page);
  p.free = true;
  p.waits = false;
  ++p.generation;
  p.committed = p.launched = 0;
  pools_[pool].free_list.push_back(page);
}

// A page that nobody holds goes back; while a copy is under way, at its end.
void NaiveEngine::MaybeGiveBack(size_t pool, int64_t page) {
  Page& p = At(pool, page);
  if (p.free || p.waits || p.refs > 0 || p.entries > 0 || p.ins > 0 || p.outs > 0) return;
  if (!world_.explicit_frees) return GiveBack(pool, page);
  p.waits = true;
  to_free_.emplace_back(pool, page);
}

void NaiveEngine::LetGo(size_t pool, int64_t page) {
  --At(pool, page).refs;
  MaybeGiveBack(pool, page);
}

// Explicit logs: says which pages go back, pool by pool.
void NaiveEngine::SayFrees() {
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    std::vector<int64_t> pages;
    for (const auto& [of, page] : to_free_) {
      if (of == pool && At(pool, page).waits) pages.push_back(page);
    }
    for (const int64_t page : pages) GiveBack(pool, page);
    if (world_.explicit_frees && !pages.empty() && Strikes(Fault::kDoubleFree)) {
      // Once more, or a page that somebody holds; and it lies in the free list from now on.
      const auto live = Sources(pool);
      const bool held = !live.empty() && strike_.pick % 4 != 0;
      const int64_t page = held ? live[strike_.pick / 4 % live.size()] : pages[0];
      pages.push_back(page);
      At(pool, page).free = true;
      pools_[pool].free_list.push_back(page);
    }
    if (pages.empty()) continue;
    Say(Event("free").Raw("pages", Numbers(pages)).Text("pool", pools_[pool].shape.name));
  }
  to_free_.clear();
}

// The first logical page that the next step of a request this long can read.
uint64_t NaiveEngine::FirstRead(const PoolShape& shape, uint64_t length) const {
  if (shape.window == 0 || length + 1 <= shape.window) return 0;
  return (length + 1 - shape.window) / shape.page_size;
}

// --- commands ------------------------------------------------------------------------------------

void NaiveEngine::Do(const Command& c) {
  if (!late_.empty() && c[1] % 4 == 0) {  // by a fault: a copy's last write, after its end
    const Part part = late_.back();
    late_.pop_back();
    Say(Event("write")
            .Index("page", part.page)
            .Count("first", 0)
            .Count("n", part.n)
            .Raw("as", part.key)
            .Text("pool", pools_[part.pool].shape.name));
  }
  const uint8_t what = c[0] % 32;
  if (what < 7) return Launch(c);
  if (what < 10) return Settle(c);
  if (what < 11) return AdmitAny(c);
  if (what < 16) return Hit(c);
  if (what < 18) return Publish(c);
  if (what < 19) return Evict(c);
  if (what < 21) return Fork(c);
  if (what < 23) return Trim(c);
  if (what < 24) return Slide(c);
  if (what < 26) return Release(c);
  if (what < 27) return Ahead(c);
  if (what < 28) return StartIn(c);
  if (what < 29) return StartOut(c);
  if (what < 31) {
    for (int parts = 1 + c[3] % 3; parts > 0; --parts) Continue(c);
    return;
  }
  if (c[1] % 4 == 0) return SwapRows(c);
  if (c[1] % 4 == 1) return StrayWrite(c);
  return Audit(c);
}

void NaiveEngine::Audit(const Command& c) {
  if (c[1] % 2 == 0) SayFrees();
  const bool idle =
      to_free_.empty() && std::ranges::none_of(requests_, [](const Request& r) { return r.alive; });
  if (idle && c[2] % 2 == 0) {
    Say(Event("audit").Raw("idle", "true"));
  } else {
    Say(Event("audit"));
  }
}

void NaiveEngine::Drain() {
  for (size_t left = 0; !copies_.empty() && left < 1000; ++left) Continue({1, 1, 1, 1, 1, 1});
  while (!steps_.empty()) Settle({1, 1, 1, 1, 1, 1});
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].alive) End(i, i % 2 == 0);
  }
  while (!index_.empty()) Unpublish(index_.size() - 1);
  SayFrees();
  Say(Event("audit").Raw("idle", "true"));
}

std::string WriteHistory(const World& world, const std::vector<Command>& commands, Strike strike,
                         bool* struck) {
  NaiveEngine engine(world, strike);
  for (const Command& command : commands) engine.Do(command);
  engine.Drain();
  if (struck != nullptr) *struck = engine.struck();
  const std::string about = strike.fault == Fault::kNone
                                ? std::string("a legal history")
                                : "a history with one fault: " +
                                      std::string(kFaultNames[static_cast<size_t>(strike.fault)]);
  std::string log = world.Header(about) + "\n";
  for (const std::string& line : engine.lines()) log.append(line).append("\n");
  return log;
}

}  // namespace kvfence::testing
