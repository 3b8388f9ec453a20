// Steps of the ground truth: what rows write and read; see truth_rank.h.
#include <algorithm>
#include <utility>

#include "row_tables.h"
#include "truth_rank.h"

namespace kvfence {
namespace {

bool Skipped(const PoolConfig& pool, int64_t slot) {
  return pool.skip_slot ? slot == *pool.skip_slot : slot < 0;
}

// Does the rank hold this position of an interleaved pool?
bool Held(const PoolConfig& pool, uint32_t rank, uint64_t position) {
  return pool.interleave_ranks == 0 ||
         position / pool.interleave_stride % pool.interleave_ranks == rank;
}

bool Overlaps(uint32_t first, uint32_t n, uint32_t other, uint32_t m) {
  return first < other + m && other < first + n;
}

}  // namespace

// --- writes --------------------------------------------------------------------------------------

// The id under which the request's own slots are filled, noted as what it expects there. Slots that
// were filled before, and cells of others, make a cell of its own: who shared the old one still
// expects the old content. A cell whose owner has left it is its next writer's: index entries and
// those who found them wait for what he writes.
uint64_t CheckTruth::Rank::OwnContent(Request* req, RequestId id, uint32_t pool, uint64_t at,
                                      uint32_t first, uint32_t n, int64_t number) {
  Mapping* const mapping = At(req, pool, at);
  if (mapping == nullptr) return next_id_++;
  const Page* const written = PageOf(pool, number);
  if (written != nullptr && written->cell == mapping->cell) CutSpared(pool, *written);
  CellPtr cell = mapping->cell;
  if (cell->owner != id) {
    const Mapping* const owners = At(cell->owner ? Living(cell->owner) : nullptr, pool, at);
    if (owners == nullptr || owners->cell != cell) cell->owner = id;
  }
  if (cell->owner != id || cell->runs.Touches(first, n)) {
    CellPtr own = NewCell(id);
    own->runs = cell->runs;
    Page* const page = PageOf(pool, number);
    if (page != nullptr && page->cell == cell) page->cell = own;
    mapping->cell = cell = std::move(own);
  }
  mapping->void_from = ~0u;  // what stands there from now on is new
  cell->runs.Put(first, n, cell->id);
  return cell->id;
}

// What the n slots of new token `token` and its followers are filled with; they lie on `page` from
// `offset`, and don't cross a logical page.
uint64_t CheckTruth::Rank::Birth(Request* req, const TruthRow& row, const TruthRow::Pool& part,
                                 uint64_t token, int64_t page, uint32_t offset, uint32_t n) {
  const uint32_t pool = part.pool.value();
  const PoolConfig& c = PoolOf(pool);
  // Padding, drafts and surplus are nobody's; other pools don't count in tokens.
  if (req == nullptr || (c.kind == PoolKind::kKv && token >= row.new_tokens)) return next_id_++;
  const RequestId id = Resolve(row.req);
  if (c.kind != PoolKind::kKv) {
    for (uint64_t at = 0; at < req->pools[pool].size(); ++at) {
      if (req->pools[pool][at].page != page) continue;
      return OwnContent(req, id, pool, at, offset, n, page);
    }
    return next_id_++;
  }
  const auto len = static_cast<uint64_t>(std::max<int64_t>(row.len, 0));
  const uint64_t position = (len > row.new_tokens ? len - row.new_tokens : 0) + token;
  const auto meant = static_cast<uint32_t>(position % c.page_size);
  const uint64_t own = OwnContent(req, id, pool, position / c.page_size, meant, n, page);
  return meant == offset ? own : next_id_++;  // in a wrong place it's nobody's
}

void CheckTruth::Rank::WriteTokens(Launch* launch, const TruthRow& row,
                                   const TruthRow::Pool& part) {
  const uint32_t pool = part.pool.value();
  const PoolConfig& c = PoolOf(pool);
  const auto size = static_cast<int64_t>(c.page_size);
  Request* const req = row.req ? Find(row.req) : nullptr;
  const auto len = static_cast<uint64_t>(std::max<int64_t>(row.len, 0));
  const uint64_t base = len > row.new_tokens ? len - row.new_tokens : 0;
  for (size_t i = 0; i < part.slots.size();) {
    const int64_t slot = part.slots[i];
    if (Skipped(c, slot) || slot < 0) {
      ++i;
      continue;
    }
    const int64_t number = slot / size;
    const auto offset = static_cast<uint32_t>(slot % size);
    uint32_t n = 1;
    while (i + n < part.slots.size() && part.slots[i + n] == slot + n && offset + n < c.page_size &&
           (i + n) != row.new_tokens && (base + i + n) % c.page_size != 0 &&
           !Skipped(c, slot + n)) {
      ++n;
    }
    const uint64_t id = Birth(req, row, part, i, number, offset, n);
    if (Page* const page = PageOf(pool, number)) {
      page->runs.Put(offset, n, id);
      const size_t writer = launch->rows.size() - 1;
      const bool first_writer = page->write_serial != launch->serial || page->writer == writer;
      page->writer = first_writer ? writer : kManyRows;
      page->write_serial = launch->serial;
      launch->writes.push_back({space_of_[pool], offset, n, number, id});
    }
    i += n;
  }
}

// --- reads ---------------------------------------------------------------------------------------

bool CheckTruth::Rank::IsLate(const TruthRow& row, uint32_t pool, int64_t page) const {
  for (const NameId load : row.loads) {
    const auto pin = pins_.find(load.value());
    if (pin == pins_.end() || pin->second.pool != pool) continue;
    for (const PageId pinned : pin->second.pages) {
      if (pinned.value() == page) return true;
    }
  }
  return false;
}

bool CheckTruth::Rank::WrittenByOthers(const Launch& launch, const Read& read) const {
  for (size_t r = 0; r < launch.rows.size(); ++r) {
    if (r == launch.reader) continue;
    for (size_t i = launch.rows[r].writes_begin; i < launch.rows[r].writes_end; ++i) {
      const Written& w = launch.writes[i];
      if (w.space == space_of_[read.pool] && w.page == read.page &&
          Overlaps(w.first, w.n, read.first, read.n)) {
        return true;
      }
    }
  }
  return false;
}

bool CheckTruth::Rank::Judge(Request* req, const Read& read) {
  const Page* const page = PageOf(read.pool, read.page);
  const Mapping* const mapping = At(req, read.pool, read.at);
  return page != nullptr && mapping != nullptr &&
         page->runs.Agrees(mapping->cell->runs, read.first, read.n);
}

bool CheckTruth::Rank::Keep(Launch* launch, Request* req, const TruthRow& row, const Read& read) {
  Page* const page = PageOf(read.pool, read.page);
  if (page == nullptr) return false;
  page->read_serial = launch->serial;
  launch->reads.push_back(read);
  if (!row.loads.empty() && IsLate(row, read.pool, read.page)) {
    launch->reads.back().late = true;
    return true;
  }
  return Judge(req, read);
}

// Positions [begin, end) where a table entry is a page, and nothing stands between it and the pool.
bool CheckTruth::Rank::ReadPlain(Launch* launch, Request* req, const TruthRow& row,
                                 const TruthRow::Pool& part, uint64_t begin, uint64_t end) {
  const PoolConfig& c = PoolOf(part.pool.value());
  bool good = true;
  auto offset = static_cast<uint32_t>(begin % c.page_size);
  for (uint64_t at = begin / c.page_size; begin < end; ++at, offset = 0) {
    const uint64_t n = std::min(end - begin, c.page_size - offset);
    const int64_t page = at < part.table.size() ? part.table[at] : NullEntry(c, at);
    good &= Keep(launch, req, row,
                 {part.pool.value(), static_cast<uint32_t>(at), offset, static_cast<uint32_t>(n),
                  page, false});
    begin += n;
  }
  return good;
}

// Positions [begin, end) of one logical page, through the row's table or a prefix table.
bool CheckTruth::Rank::ReadPage(Launch* launch, Request* req, const TruthRow& row,
                                const TruthRow::Pool& part, std::span<const PrefixPlan> prefix,
                                uint64_t begin, uint64_t end) {
  const uint32_t pool = part.pool.value();
  const PoolConfig& c = PoolOf(pool);
  std::span<const int64_t> shared;
  for (const PrefixPlan& plan : prefix) {
    if (plan.pool == part.pool && std::ranges::count(plan.rows, row.row) > 0) shared = plan.table;
  }
  const auto entry = [&](uint64_t index) {
    if (index < shared.size()) return shared[index];
    return index < part.table.size() ? part.table[index] : NullEntry(c, index);
  };
  const auto at = static_cast<uint32_t>(begin / c.page_size);
  const bool whole = !c.slot_entries && c.interleave_ranks == 0;
  bool good = true;
  for (uint64_t p = begin; p < end;) {
    if (!Held(c, rank_, p)) {
      ++p;
      continue;
    }
    const auto offset = static_cast<uint32_t>(p % c.page_size);
    uint64_t n = whole ? end - p : 1;
    int64_t page = entry(c.slot_entries ? p : at);
    if (c.slot_entries) {
      const auto size = static_cast<int64_t>(c.page_size);
      if (page < 0 || page % size != offset) return false;
      while (p + n < end && entry(p + n) == page + static_cast<int64_t>(n) &&
             Held(c, rank_, p + n)) {
        ++n;
      }
      page /= size;
    } else if (!whole) {
      while (p + n < end && Held(c, rank_, p + n)) ++n;
    }
    good &= Keep(launch, req, row, {pool, at, offset, static_cast<uint32_t>(n), page, false});
    p += n;
  }
  return good;
}

// Pools that don't follow the request's length: all that was written for it must be there.
bool CheckTruth::Rank::ReadWhole(Launch* launch, Request* req, const TruthRow& row,
                                 const TruthRow::Pool& part) {
  const uint32_t pool = part.pool.value();
  const PoolConfig& c = PoolOf(pool);
  bool good = true;
  for (uint32_t at = 0; at < req->pools[pool].size(); ++at) {
    const Mapping* const mapping = At(req, pool, at);
    if (mapping == nullptr) continue;
    const uint64_t index = c.slot_entries ? at * c.page_size : at;
    int64_t page = index < part.table.size() ? part.table[index] : NullEntry(c, index);
    if (c.slot_entries) page = page < 0 ? -1 : page / static_cast<int64_t>(c.page_size);
    const RunList::Runs runs = mapping->cell->runs.runs();
    for (const RunList::Run& run : runs) {
      good &= Keep(launch, req, row, {pool, at, run.first, run.n, page, false});
    }
  }
  return good;
}

bool CheckTruth::Rank::ReadPool(Launch* launch, Request* req, const TruthRow& row,
                                const TruthRow::Pool& part, std::span<const PrefixPlan> prefix) {
  const PoolConfig& c = PoolOf(part.pool.value());
  const size_t reads_begin = launch->reads.size();
  bool good = true;
  if (c.kind != PoolKind::kKv) {
    good = ReadWhole(launch, req, row, part);
  } else if (row.len > 0) {
    const auto len = static_cast<uint64_t>(row.len);
    const uint64_t width = c.width != 0 ? c.width : config_.width;
    if ((c.slot_entries ? len : (len + c.page_size - 1) / c.page_size) > width) return false;
    const uint64_t reach = c.window + std::min(row.new_tokens, len) - 1;
    uint64_t begin = c.window != 0 && len > reach ? len - reach : 0;
    if (prefix.empty() && !c.slot_entries && c.interleave_ranks == 0) {
      good = ReadPlain(launch, req, row, part, begin, len);
      begin = len;
    }
    while (begin < len) {
      const uint64_t end = std::min(len, begin / c.page_size * c.page_size + c.page_size);
      good &= ReadPage(launch, req, row, part, prefix, begin, end);
      begin = end;
    }
  }
  if (config_.same_step_reads) return good;
  for (size_t i = reads_begin; i < launch->reads.size(); ++i) {
    const Read& read = launch->reads[i];
    const Page* const page = PageOf(read.pool, read.page);
    if (page->write_serial != launch->serial || page->writer == launch->reader) continue;
    if (WrittenByOthers(*launch, read)) good = false;
  }
  return good;
}

// --- the step's life -----------------------------------------------------------------------------

void CheckTruth::Rank::Step(StepId step, std::span<const TruthRow> rows,
                            std::span<const PrefixPlan> prefix,
                            const std::function<bool(Row)>& fails) {
  Launch& launch = launches_.emplace_back();
  launch.step = step;
  launch.serial = ++serial_;
  for (const TruthRow& row : rows) {
    LaunchedRow& launched = launch.rows.emplace_back();
    launched.row = row.row;
    launched.req = Resolve(row.req);
    launched.tokens = std::max<uint64_t>(row.new_tokens, 1);
    launched.pad = !row.req;
    if (Request* const req = row.based ? Find(row.req) : nullptr) ++req->bases;
    launched.failed = fails(row.row);
    launched.writes_begin = launch.writes.size();
    for (const TruthRow::Pool& part : row.pools) {
      if (!launched.failed) WriteTokens(&launch, row, part);
    }
    launched.writes_end = launch.writes.size();
  }
  for (size_t r = 0; r < rows.size(); ++r) {  // after all writes
    launch.reader = r;
    LaunchedRow& launched = launch.rows[r];
    launched.reads_begin = launched.reads_end = launch.reads.size();
    Request* const req = rows[r].req ? Find(rows[r].req) : nullptr;
    if (launched.failed || launched.pad || req == nullptr) continue;
    for (const TruthRow::Pool& part : rows[r].pools) {
      if (!ReadPool(&launch, req, rows[r], part, prefix)) launched.wrong = true;
    }
    launched.reads_end = launch.reads.size();
  }
}

CheckTruth::Rank::Launch* CheckTruth::Rank::Find(StepId step) {
  for (Launch& launch : launches_) {
    if (launch.step == step) return &launch;
  }
  return nullptr;
}

// Is what the row read, where `w` was written, what `w` put there? Overwritten since, it isn't.
bool CheckTruth::Rank::Relies(const LaunchedRow& row, const Read& read, const Written& w) {
  if (read.page != w.page || space_of_[read.pool] != w.space) return false;
  if (!Overlaps(w.first, w.n, read.first, read.n)) return false;
  const Mapping* const mapping = At(Find(row.req), read.pool, read.at);
  const Page* const page = PageOf(read.pool, read.page);
  if (mapping == nullptr && page == nullptr) return false;
  const RunList& runs = mapping != nullptr ? mapping->cell->runs : page->runs;
  const uint32_t first = std::max(w.first, read.first);
  const uint32_t end = std::min(w.first + w.n, read.first + read.n);
  const auto is_it = [&](const RunList::Run& run) { return run.id == w.id; };
  return std::ranges::any_of(runs.Slice(first, end - first), is_it);
}

// A row that failed after its writes were made: they're void, and who read them read nothing.
void CheckTruth::Rank::Void(Launch* launch, LaunchedRow* row) {
  row->failed = true;
  for (size_t i = row->writes_begin; i < row->writes_end; ++i) {
    const Written& w = launch->writes[i];
    for (Launch& later : launches_) {
      if (later.serial < launch->serial) continue;
      for (LaunchedRow& reader : later.rows) {
        for (size_t k = reader.reads_begin; k < reader.reads_end; ++k) {
          if (Relies(reader, later.reads[k], w)) reader.wrong = true;
        }
      }
    }
    const auto pool =
        static_cast<uint32_t>(std::ranges::find(space_of_, w.space) - space_of_.begin());
    Page* const page = PageOf(pool, w.page);
    if (page == nullptr) continue;
    for (const RunList::Run& run : page->runs.Slice(w.first, w.n)) {
      if (run.id == w.id) page->runs.Put(run.first, run.n, 0);
    }
  }
}

void CheckTruth::Rank::Confirm(StepId step, std::span<const TruthRow> changed,
                               const std::function<bool(Row)>& fails) {
  Launch* const launch = Find(step);
  if (launch == nullptr) return;
  for (LaunchedRow& row : launch->rows) {
    for (size_t i = row.reads_begin; i < row.reads_end && !launch->confirmed; ++i) {
      const Read& read = launch->reads[i];
      if (read.late && !row.failed && !Judge(Find(row.req), read)) row.wrong = true;
    }
    if (!row.failed && fails(row.row)) Void(launch, &row);
  }
  for (const TruthRow& other : changed) {
    for (LaunchedRow& row : launch->rows) {
      Request* const req = Find(row.req);
      if (row.row != other.row || row.failed || req == nullptr) continue;
      Launch scratch;  // what it reads now isn't kept: the step ends here
      scratch.serial = launch->serial;
      for (const TruthRow::Pool& part : other.pools) {
        if (!ReadPool(&scratch, req, other, part, {})) row.wrong = true;
      }
    }
  }
  launch->confirmed = true;
}

void CheckTruth::Rank::Retire(StepId step, const std::function<bool(Row)>& failed) {
  Launch* const launch = Find(step);
  if (launch == nullptr) return;
  for (LaunchedRow& row : launch->rows) {
    if (!row.failed && !row.pad && failed(row.row)) Void(launch, &row);
  }
  std::erase_if(launches_, [&](const Launch& l) { return l.step == step; });
}

}  // namespace kvfence
