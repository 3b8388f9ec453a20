// Ownership and content events of the ground truth; see truth_rank.h.
#include "truth_rank.h"

#include <algorithm>
#include <utility>

namespace kvfence {
namespace {

// How many ended requests are remembered: late writes may still name them.
constexpr size_t kEndedKept = 65536;

}  // namespace

CheckTruth::Rank::Rank(const FenceConfig& config, uint32_t rank) : config_(config), rank_(rank) {
  std::map<std::string, uint32_t> named;
  for (const PoolConfig& pool : config_.pools) {
    const auto next = static_cast<uint32_t>(spaces_.size());
    uint32_t space = next;
    if (!pool.space.empty()) space = named.emplace(pool.space, next).first->second;
    if (space == next) spaces_.emplace_back();
    spaces_[space].pages = std::max(spaces_[space].pages, pool.pages);
    space_of_.push_back(space);
  }
  for (Space& space : spaces_) space.chunks.resize((space.pages + kChunk - 1) / kChunk);
}

RequestId CheckTruth::Rank::Resolve(RequestId req) const {
  if (req.incarnation() != 0) return req;
  const auto latest = incarnations_.find(req.name().value());
  return latest == incarnations_.end() ? RequestId() : RequestId(req.name(), latest->second);
}

CheckTruth::Rank::Request* CheckTruth::Rank::Find(RequestId req) {
  const auto found = requests_.find(Resolve(req).word());
  return found == requests_.end() ? nullptr : &found->second;
}

CheckTruth::Rank::Request* CheckTruth::Rank::Living(RequestId req) {
  Request* const found = Find(req);
  return found != nullptr && found->alive ? found : nullptr;
}

CellPtr CheckTruth::Rank::NewCell(RequestId owner) {
  CellPtr cell = std::make_shared<Cell>();
  cell->id = next_id_++;
  cell->owner = owner;
  return cell;
}

CheckTruth::Rank::Key& CheckTruth::Rank::KeyAt(KeyId key, uint32_t pool, size_t number) {
  auto& pools = keys_[key.value()].pools;
  if (pools.empty()) pools[pool];
  const auto own = pools.find(pool);
  std::deque<Key>& pages = own != pools.end() ? own->second : pools.begin()->second;
  if (pages.size() <= number) pages.resize(number + 1);
  return pages[number];
}

CellPtr CheckTruth::Rank::KeyCell(KeyId key, uint32_t pool, size_t number) {
  Key& entry = KeyAt(key, pool, number);
  if (entry.cell == nullptr) entry.cell = NewCell({});  // content from elsewhere, by its key
  return entry.cell;
}

void CheckTruth::Rank::Map(Request* req, uint32_t pool, uint64_t at, CellPtr cell, int64_t page) {
  if (at >= kMaxLogWidth) return;  // beyond any table
  std::vector<Mapping>& list = req->pools[pool];
  if (list.size() <= at) list.resize(at + 1);
  list[at] = {.cell = std::move(cell), .page = page};
}

CheckTruth::Rank::Mapping* CheckTruth::Rank::At(Request* req, uint32_t pool, uint64_t at) {
  if (req == nullptr || at >= req->pools[pool].size()) return nullptr;
  Mapping* const found = &req->pools[pool][at];
  return found->cell == nullptr ? nullptr : found;
}

void CheckTruth::Rank::CutSpared(uint32_t pool, const Page& page) {
  if (page.cell == nullptr || !page.cell->spared || page.cell.use_count() != 2) return;
  const auto size = static_cast<uint32_t>(PoolOf(pool).page_size);
  page.cell->spared = false;
  for (auto& [id, req] : requests_) {
    for (std::vector<Mapping>& list : req.pools) {
      for (Mapping& mapping : list) {
        if (mapping.cell != page.cell || mapping.void_from >= size) continue;
        page.cell->runs.Put(mapping.void_from, size - mapping.void_from, 0);
        mapping.void_from = ~0u;
      }
    }
  }
}

// --- ownership -----------------------------------------------------------------------------------

void CheckTruth::Rank::On(const AdmitEvent& e) {
  const uint32_t inc = ++incarnations_[e.name.value()];
  requests_[RequestId(e.name, inc).word()].pools.resize(config_.pools.size());
}

void CheckTruth::Rank::On(const AllocEvent& e) {
  Request* const req = Living(e.req);
  if (req == nullptr) return;
  const uint32_t pool = e.pool.value();
  const uint64_t at = e.at.value_or(req->pools[pool].size());
  for (size_t i = 0; i < e.pages.size(); ++i) {
    const int64_t number = e.pages[i].value();
    Page* const page = PageOf(pool, number);
    if (page == nullptr || number == static_cast<int64_t>(PoolOf(pool).null_page)) {
      Map(req, pool, at + i, nullptr, -1);  // nothing was given, but the place in the list is taken
      continue;
    }
    page->cell = NewCell(Resolve(e.req));
    // What the request wrote for this place before is what it expects there still.
    if (const Mapping* const old = At(req, pool, at + i)) page->cell->runs = old->cell->runs;
    Map(req, pool, at + i, page->cell, number);
  }
}

void CheckTruth::Rank::On(const ShareEvent& e) {
  Request* const req = Living(e.req);
  if (req == nullptr) return;
  const uint32_t pool = e.pool.value();
  const uint64_t at = e.at.value_or(req->pools[pool].size());
  for (size_t i = 0; i < e.pages.size(); ++i) {
    const int64_t number = e.pages[i].value();
    Page* const page = PageOf(pool, number);
    if (page == nullptr || number == static_cast<int64_t>(PoolOf(pool).null_page)) {
      if (at + i >= req->pools[pool].size()) Map(req, pool, at + i, nullptr, -1);
      continue;
    }
    CutSpared(pool, *page);
    const bool known = i < e.keys.size() && keys_.contains(e.keys[i].value());
    if (!known && page->cell == nullptr) page->cell = NewCell({});
    Map(req, pool, at + i, known ? KeyCell(e.keys[i], pool) : page->cell, number);
  }
}

void CheckTruth::Rank::On(const ForkEvent& e) {
  Request* const from = Living(e.from);
  Request* const to = Living(e.to);
  if (from != nullptr && to != nullptr && from != to) to->pools = from->pools;
}

void CheckTruth::Rank::On(const CowEvent& e) {
  Request* const req = Living(e.req);
  const uint32_t pool = e.pool.value();
  const int64_t number = e.page.value();
  const Mapping* const old = At(req, pool, e.at);
  Page* const to = PageOf(pool, number);
  if (old == nullptr || to == nullptr) return;
  if (number == static_cast<int64_t>(PoolOf(pool).null_page)) return;
  CellPtr cell = NewCell(Resolve(e.req));
  cell->runs = old->cell->runs;
  const auto size = static_cast<uint32_t>(PoolOf(pool).page_size);
  if (old->void_from < size) cell->runs.Put(old->void_from, size - old->void_from, 0);
  const Page* const from = PageOf(pool, old->page);
  if (from != nullptr && from != to) to->runs = from->runs;
  to->cell = cell;
  Map(req, pool, e.at, std::move(cell), number);
}

// Rejected tokens are void, so what comes in their place is the first content there, also for an
// index entry that is made between. Of shared and named pages others still expect all they held.
void CheckTruth::Rank::On(const TrimEvent& e) {
  Request* const req = Living(e.req);
  if (req == nullptr) return;
  if (req->bases > 0 && !e.step) {  // it says what the device knew; that step's tokens stay on top
    --req->bases;
    return;
  }
  for (const Launch& launch : launches_) {
    for (const LaunchedRow& row : launch.rows) {
      // Its tokens stay, on top of those that are kept: the length isn't `tokens`.
      if (e.step && launch.step > *e.step && row.req == Resolve(e.req)) return;
    }
  }
  for (uint32_t pool = 0; pool < req->pools.size(); ++pool) {
    const uint64_t size = PoolOf(pool).page_size;
    if (PoolOf(pool).kind != PoolKind::kKv) continue;
    std::vector<Mapping>& list = req->pools[pool];
    for (uint64_t at = e.tokens / size; at < list.size(); ++at) {
      const CellPtr& cell = list[at].cell;
      const Page* const page = cell == nullptr ? nullptr : PageOf(pool, list[at].page);
      if (page == nullptr) continue;
      const auto kept = static_cast<uint32_t>(at == e.tokens / size ? e.tokens % size : 0);
      if (page->cell != cell || cell.use_count() != 2) {
        cell->spared = true;
        list[at].void_from = std::min(list[at].void_from, kept);
        continue;
      }
      cell->runs.Put(kept, static_cast<uint32_t>(size) - kept, 0);
    }
  }
}

void CheckTruth::Rank::On(const DropEvent& e) {
  Request* const req = Living(e.req);
  if (req == nullptr) return;
  std::vector<Mapping>& list = req->pools[e.pool.value()];
  if (e.at >= list.size()) return;
  if (e.n >= list.size() - e.at) {
    list.resize(e.at);  // a rollback: what is taken next goes here
    return;
  }
  std::fill_n(list.begin() + static_cast<int64_t>(e.at), e.n, Mapping{});
}

void CheckTruth::Rank::On(const ReleaseEvent& e) {
  Request* const req = Living(e.req);
  if (req == nullptr) return;
  req->alive = false;
  for (std::vector<Mapping>& list : req->pools) {  // remembered, but it reads no more
    for (Mapping& mapping : list) {
      if (mapping.cell == nullptr || !mapping.cell->spared) continue;
      const CellPtr kept = NewCell(mapping.cell->owner);
      kept->runs = mapping.cell->runs;
      mapping.cell = kept;
    }
  }
  ended_.push_back(Resolve(e.req).word());
  if (ended_.size() > kEndedKept) {
    requests_.erase(ended_.front());
    ended_.pop_front();
  }
}

// What a trim voided counts again where it still stands.
void CheckTruth::Rank::On(const ReadyEvent& e) {
  Request* const req = Living(e.req);
  if (req == nullptr) return;
  for (uint32_t pool = 0; pool < req->pools.size(); ++pool) {
    std::vector<Mapping>& list = req->pools[pool];
    for (uint64_t at = 0; at < list.size() && at * PoolOf(pool).page_size < e.tokens; ++at) {
      list[at].void_from = ~0u;
    }
  }
}

void CheckTruth::Rank::Publish(KeyId key, uint32_t pool, CellPtr cell) {
  std::deque<Key>& pages = keys_[key.value()].pools[pool];
  if (pages.empty()) pages.emplace_back();
  pages[0] = {std::move(cell), true};
}

void CheckTruth::Rank::On(const PublishEvent& e) {
  if (e.from_key) {
    const CellPtr cell = KeyCell(*e.from_key, e.pool.value());
    Publish(e.key, e.pool.value(), cell);
    if (!e.page) return;
    if (Page* const page = PageOf(e.pool.value(), e.page->value())) page->cell = cell;
    return;
  }
  const Mapping* const mapping = At(Living(e.req), e.pool.value(), e.at);
  if (mapping == nullptr) return;
  const Page* const page = PageOf(e.pool.value(), mapping->page);
  if (page != nullptr && page->cell == mapping->cell) CutSpared(e.pool.value(), *page);
  Publish(e.key, e.pool.value(), mapping->cell);
}

// What the key stood for is remembered, but its page is no longer named by it.
void CheckTruth::Rank::On(const UnpublishEvent& e) {
  const auto found = keys_.find(e.key.value());
  if (found == keys_.end()) return;
  for (auto& [pool, pages] : found->second.pools) {
    for (Key& key : pages) {
      if (key.cell == nullptr) continue;
      const CellPtr kept = NewCell({});
      kept->runs = key.cell->runs;
      key.cell = kept;
    }
  }
}

void CheckTruth::Rank::On(const PinEvent& e) {
  const uint32_t pool = e.pool.value();
  Pin& pin = pins_[e.id.value()];
  pin = {e.dir, pool, {e.pages.begin(), e.pages.end()}, e.key, {}};
  Request* const req = Living(e.req);
  if (req == nullptr || !e.at || !e.key) return;
  if (e.dir ==
      CopyDir::kOut) {  // a key that was never published stands for these pages as they are
    for (size_t i = 0; i < e.pages.size(); ++i) {
      const Mapping* const mapping = At(req, pool, *e.at + i);
      keys_[e.key->value()].pools[pool];
      Key& key = KeyAt(*e.key, pool, i);
      if (mapping == nullptr || key.published) continue;
      key.cell = NewCell({});
      key.cell->runs = mapping->cell->runs;
    }
    return;
  }
  for (size_t i = 0; i < e.pages.size(); ++i) {  // these pages of req now expect the key's content
    Page* const page = PageOf(pool, e.pages[i].value());
    if (page == nullptr || At(req, pool, *e.at + i) == nullptr) continue;
    page->cell = KeyCell(*e.key, pool, i);
    Map(req, pool, *e.at + i, page->cell, e.pages[i].value());
  }
}

void CheckTruth::Rank::On(const UnpinEvent& e) {
  const auto found = pins_.find(e.id.value());
  if (found == pins_.end()) return;
  if (!e.ok) {  // what the copy brought is void
    for (const Written& w : found->second.brought) {
      Outside(found->second.pool, w.page, [&](Page* page) {
        for (const RunList::Run& run : page->runs.Slice(w.first, w.n)) {
          if (run.id == w.id) page->runs.Put(run.first, run.n, 0);
        }
      });
    }
  }
  pins_.erase(found);
}

// --- content -------------------------------------------------------------------------------------

// Attention of launched, not yet confirmed steps may be reading the page: rows that read slots
// whose content changes read wrongly.
void CheckTruth::Rank::Outside(uint32_t pool, int64_t number,
                               const std::function<void(Page*)>& change) {
  Page* const page = PageOf(pool, number);
  if (page == nullptr) return;
  bool watched = false;
  for (const Launch& launch : launches_) {
    watched |= !launch.confirmed && launch.serial <= page->read_serial;
  }
  if (!watched) {
    change(page);
    return;
  }
  const RunList before = page->runs;
  change(page);
  for (Launch& launch : launches_) {
    if (launch.confirmed) continue;
    for (LaunchedRow& row : launch.rows) {
      for (size_t i = row.reads_begin; i < row.reads_end; ++i) {
        const Read& read = launch.reads[i];
        if (read.page != number || space_of_[read.pool] != space_of_[pool] || read.late) continue;
        if (!before.Same(page->runs, read.first, read.n)) row.wrong = true;
      }
    }
  }
}

void CheckTruth::Rank::Fill(RunList* page, Cell* cell, uint32_t first, uint32_t n) {
  uint32_t at = first;
  for (const RunList::Run& run : cell->runs.Slice(first, n)) {
    page->Put(at, run.first - at, cell->id);
    page->Put(run.first, run.n, run.id);
    at = run.end();
  }
  page->Put(at, first + n - at, cell->id);
  // What the cell didn't know yet is its own from now on.
  for (const RunList::Run& run : page->Slice(first, n)) {
    if (run.id == cell->id) cell->runs.Put(run.first, run.n, run.id);
  }
}

void CheckTruth::Rank::On(const WriteEvent& e) {
  const uint32_t pool = e.pool.value();
  const uint64_t size = PoolOf(pool).page_size;
  if (e.first >= size || e.n == 0) return;
  const auto first = static_cast<uint32_t>(e.first);
  const auto n = static_cast<uint32_t>(std::min(e.n, size - e.first));
  const auto pin = pins_.find(e.xfer.value());
  Outside(pool, e.page.value(), [&](Page* page) {
    if (e.as.key) {
      size_t number = 0;  // which of the key's pages the copy brings here
      if (pin != pins_.end()) {
        const auto found = std::ranges::find(pin->second.pages, e.page);
        if (found != pin->second.pages.end()) {
          number = static_cast<size_t>(found - pin->second.pages.begin());
        }
      }
      const CellPtr cell = KeyCell(*e.as.key, pool, number);
      const auto& all = keys_[e.as.key->value()].stored;
      const std::optional<RunList> stored = number < all.size() ? all[number] : std::nullopt;
      if (!stored) {
        Fill(&page->runs, cell.get(), first, n);
        return;
      }
      page->runs.Put(first, n, 0);
      for (const auto& run : stored->Slice(first, n)) page->runs.Put(run.first, run.n, run.id);
    } else if (e.as.req) {
      const Mapping* const mapping = At(Find(e.as.req), pool, e.as.at.value_or(0));
      if (mapping != nullptr) {
        Fill(&page->runs, mapping->cell.get(), first, n);
      } else {
        page->runs.Put(first, n, next_id_++);
      }
    } else {
      page->runs.Put(first, n, 0);
    }
  });
  Bring(e.xfer, pool, e.page.value(), first, n);
}

// Notes what a copy has put into a page: if it fails, that is void, and nothing else.
void CheckTruth::Rank::Bring(NameId xfer, uint32_t pool, int64_t number, uint32_t first,
                             uint32_t n) {
  const auto pin = pins_.find(xfer.value());
  const Page* const page = PageOf(pool, number);
  if (pin == pins_.end() || page == nullptr) return;
  for (const RunList::Run& run : page->runs.Slice(first, n)) {
    pin->second.brought.push_back({space_of_[pool], run.first, run.n, number, run.id});
  }
}

void CheckTruth::Rank::On(const ReadEvent& e) {
  const auto pin = pins_.find(e.xfer.value());
  const Page* const page = PageOf(e.pool.value(), e.page.value());
  if (pin == pins_.end() || page == nullptr || !pin->second.key) return;
  if (pin->second.dir != CopyDir::kOut) return;
  const auto found = std::ranges::find(pin->second.pages, e.page);
  if (found == pin->second.pages.end()) return;
  const auto number = static_cast<size_t>(found - pin->second.pages.begin());
  auto& stored = keys_[pin->second.key->value()].stored;
  if (stored.size() <= number) stored.resize(number + 1);
  stored[number] = page->runs;
}

void CheckTruth::Rank::On(const CopyEvent& e) {
  const Page* const from = PageOf(e.from_pool.value(), e.from.value());
  if (from == nullptr) return;
  const RunList carried = from->runs;
  // A request's place that knows no content yet expects what its other one does.
  if (Page* const to = PageOf(e.to_pool.value(), e.to.value());
      to != nullptr && to->cell != nullptr && from->cell != nullptr &&
      to->cell->owner == from->cell->owner && to->cell->runs.runs().empty()) {
    to->cell->runs = from->cell->runs;
  }
  const uint64_t size = PoolOf(e.to_pool.value()).page_size;
  Outside(e.to_pool.value(), e.to.value(), [&](Page* page) { page->runs = carried; });
  Bring(e.xfer, e.to_pool.value(), e.to.value(), 0, static_cast<uint32_t>(size));
}

}  // namespace kvfence
