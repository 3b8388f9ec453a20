// Forward passes: who is scheduled, the arrays that kernels would read, what becomes of the step.
#include <algorithm>
#include <utility>

#include "naive_engine.h"

namespace kvfence::testing {

void NaiveEngine::Bind(int row, int request) {
  for (Request& r : requests_) {
    if (r.row == row) r.row = -1;
  }
  Object event = Event("row");
  event.Index("row", row);
  if (request < 0) {
    event.Raw("req", "null");
  } else {
    event.Text("req", requests_[static_cast<size_t>(request)].name);
    requests_[static_cast<size_t>(request)].row = row;
  }
  if (request < 0 || !Strikes(Fault::kRowForgotten)) Say(event);
}

bool NaiveEngine::GetRow(size_t request) {
  if (requests_[request].row >= 0) return true;
  for (int row = 0; row < static_cast<int>(world_.rows); ++row) {
    const bool bound =
        std::ranges::any_of(requests_, [&](const Request& r) { return r.alive && r.row == row; });
    const bool busy = row_uses_[static_cast<size_t>(row)] != 0;
    if (bound || (busy && !world_.stream)) continue;
    // A row of a step that isn't confirmed is still being read.
    const bool running = std::ranges::any_of(steps_, [&](const Step& step) {
      return !step.confirmed && std::ranges::count(step.rows, row) != 0;
    });
    if (running) continue;
    Bind(row, static_cast<int>(request));
    return true;
  }
  return false;
}

// Pages for `fresh` and `draft` more tokens, and private ones where they are to be written. False,
// and nothing done: there isn't room.
bool NaiveEngine::MakeRoom(size_t request, uint64_t fresh, uint64_t draft) {
  Request& r = requests_[request];
  std::vector<std::vector<uint64_t>> copied(pools_.size());
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const uint64_t size = pools_[pool].shape.page_size;
    const uint64_t held = r.pages[pool].size();
    const uint64_t end = (r.length + fresh + draft + size - 1) / size;
    if (end > world_.width) return false;
    for (uint64_t at = r.length / size; at < std::min(end, held); ++at) {
      const Page& page = At(pool, r.pages[pool][at]);
      const uint64_t first = at == r.length / size ? r.length % size : 0;
      const bool sealed = page.entries > 0 || page.outs > 0;
      if (page.refs <= 1 && !(sealed && (first < page.launched || page.outs > 0))) continue;
      if (page.committed != page.launched && !world_.stream) return false;
      copied[pool].push_back(at);
    }
    const uint64_t need = copied[pool].size() + (end > held ? end - held : 0);
    if (Usable(pool, false) < need) SayFrees();
    if (Usable(pool, false) < need) return false;
  }
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const uint64_t size = pools_[pool].shape.page_size;
    for (const uint64_t at : copied[pool]) {
      if (Strikes(Fault::kCowSkipped)) continue;
      const auto page = Take(pool, false);
      if (!page) return false;
      const int64_t old = std::exchange(r.pages[pool][at], *page);
      At(pool, *page).committed = At(pool, old).committed;
      At(pool, *page).launched = At(pool, old).launched;
      Say(Event("cow")
              .Text("req", r.name)
              .Count("at", at)
              .Index("page", *page)
              .Text("pool", pools_[pool].shape.name));
      LetGo(pool, old);
    }
    std::vector<int64_t> pages;
    while (r.pages[pool].size() * size < r.length + fresh + draft) {
      const auto page = Take(pool, false);
      if (!page) break;  // a fault took what was counted
      pages.push_back(*page);
      r.pages[pool].push_back(*page);
    }
    if (pages.empty()) continue;
    Say(Event("alloc")
            .Text("req", r.name)
            .Raw("pages", Numbers(pages))
            .Text("pool", pools_[pool].shape.name));
  }
  return true;
}

std::vector<int64_t> NaiveEngine::TableOf(size_t pool, const Request& r, bool stale) const {
  const PoolShape& shape = pools_[pool].shape;
  const uint64_t parts = shape.slots ? shape.page_size : 1;
  std::vector<int64_t> table;
  for (uint64_t k = 0; k < world_.width; ++k) {
    int64_t page = k < r.pages[pool].size() ? r.pages[pool][k] : 0;
    if (page < 0) page = stale && k < r.shown[pool].size() ? r.shown[pool][k] : 0;
    for (uint64_t part = 0; part < parts; ++part) {
      table.push_back(shape.slots ? page * static_cast<int64_t>(parts) + static_cast<int64_t>(part)
                                  : page);
    }
  }
  return table;
}

NaiveEngine::RowOut NaiveEngine::LayOut(size_t request, uint64_t fresh, uint64_t draft) const {
  const Request& r = requests_[request];
  RowOut row{.row = r.row, .request = static_cast<int>(request), .fresh = fresh, .draft = draft};
  row.before = r.length;
  row.len = static_cast<int64_t>(r.length + fresh);
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    row.tables.push_back(TableOf(pool, r, request % 2 == 0));
    const uint64_t size = pools_[pool].shape.page_size;
    std::vector<int64_t>& slots = row.writes.emplace_back();
    for (uint64_t p = r.length; p < r.length + fresh + draft; ++p) {
      if (p / size >= r.pages[pool].size()) break;
      slots.push_back(r.pages[pool][p / size] * static_cast<int64_t>(size) +
                      static_cast<int64_t>(p % size));
    }
  }
  return row;
}

bool NaiveEngine::AddRow(const Command& c, size_t request, Step& step, std::vector<RowOut>& rows) {
  const Request& before = requests_[request];
  uint64_t fresh = before.length == 0 || c[2] % 3 == 0 ? 1 + c[3] % (2 * world_.unit) : 1;
  if (before.length != 0 && c[2] % 5 == 1) fresh = 2;
  const uint64_t draft = c[4] % 8 == 0 ? 1 + c[4] / 8 % 2u : 0;
  if (!GetRow(request)) return false;
  if (!MakeRoom(request, fresh, draft)) return false;
  RowOut row = LayOut(request, fresh, draft);
  Request& r = requests_[request];
  if (r.launched == 0 && c[4] % 5 == 1) row.extra.Count("base", r.length);
  if (c[4] % 7 == 2) row.extra.Count("reach", row.tables[0].size());
  if (c[4] % 7 == 3) row.extra.Count("table_epoch", step.number);
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    const PoolShape& shape = pools_[pool].shape;
    for (uint64_t at = FirstRead(shape, r.length); at < r.pages[pool].size(); ++at) {
      if (r.pages[pool][at] < 0) continue;
      Page& page = At(pool, r.pages[pool][at]);
      const uint64_t first = at * shape.page_size, end = r.length + fresh;
      const uint64_t written = end > first && first + shape.page_size > r.length
                                   ? std::min(shape.page_size, end - first)
                                   : 0;
      row.rewrites |= written > 0 && first + page.launched > r.length;
      ++page.uses;
      // What is written anew, by drafts too, isn't what was there before.
      if (first + shape.page_size > r.length && end + draft > first) {
        const uint64_t from = r.length > first ? r.length - first : 0;
        page.committed = std::min(page.committed, from);
        page.launched = std::max(written, std::min(page.launched, from));
      }
      step.uses.push_back({pool, r.pages[pool][at], page.generation, written});
    }
  }
  r.length += fresh;
  r.last_step = step.number;
  ++r.launched;
  ++row_uses_[static_cast<size_t>(r.row)];
  step.requests.push_back(request);
  step.rows.push_back(r.row);
  rows.push_back(std::move(row));
  return true;
}

// With same-step reads: another request hits what the last row is only about to write.
void NaiveEngine::Twin(const Command& c, Step& step, std::vector<RowOut>& rows) {
  if (!world_.same_step_reads || c[5] % 2 != 0 || rows.empty() || index_.size() >= 5) return;
  if (rows.back().rewrites) return;
  const RowOut& row = rows.back();
  const auto request = static_cast<size_t>(row.request);
  const uint64_t tokens = requests_[request].length / world_.unit * world_.unit;
  if (tokens <= row.before || !PublishFirst(request, tokens, true)) return;
  const Prefix prefix = index_.back();
  // All but what this step writes must be there already.
  for (const Part& part : prefix.parts) {
    const Page& page = At(part.pool, part.page);
    const bool now = (part.at + 1) * pools_[part.pool].shape.page_size > row.before;
    if (!now && (world_.stream ? page.launched : page.committed) < part.n) return;
  }
  if (const auto twin = HitOf(prefix, c)) AddRow(c, *twin, step, rows);
}

void NaiveEngine::AddPads(const Command& c, const Step& step, std::vector<RowOut>& pads) {
  for (int row = 0; row < static_cast<int>(world_.rows) && c[5] % 4 == 1; ++row) {
    const bool bound =
        std::ranges::any_of(requests_, [&](const Request& r) { return r.alive && r.row == row; });
    if (bound || std::ranges::count(step.rows, row) != 0) continue;
    if (row_uses_[static_cast<size_t>(row)] != 0) continue;
    RowOut pad{.row = row};
    pad.len = c[5] / 4 % 4;
    for (size_t pool = 0; pool < pools_.size(); ++pool) {
      pad.tables.push_back(TableOf(pool,
                                   Request{.pages = std::vector<std::vector<int64_t>>(2),
                                           .shown = std::vector<std::vector<int64_t>>(2)},
                                   false));
      pad.writes.emplace_back(c[5] / 16 % 2, -1);
      const auto live = Sources(pool);
      if (live.empty() || !Strikes(Fault::kBusyPad)) continue;
      const int64_t page = live[strike_.pick % live.size()];
      const auto size = static_cast<int64_t>(pools_[pool].shape.page_size);
      pad.tables.back()[0] = pools_[pool].shape.slots ? page * size : page;
      if (strike_.pick % 2 == 0) pad.writes.back().push_back(page * size);
    }
    pads.push_back(std::move(pad));
  }
}

// Two rows that begin with the same pages may read them through one table.
std::string NaiveEngine::SharedPrefix(const Command& c, const std::vector<RowOut>& rows) {
  if (c[1] % 2 != 0 || pools_[0].shape.slots) return "";
  for (size_t a = 0; a < rows.size(); ++a) {
    for (size_t b = a + 1; b < rows.size(); ++b) {
      std::vector<int64_t> same;
      const uint64_t size = pools_[0].shape.page_size;
      while (same.size() < rows[a].tables[0].size()) {
        const int64_t page = rows[a].tables[0][same.size()];
        const uint64_t end = (same.size() + 1) * size;
        if (page == 0 || page != rows[b].tables[0][same.size()]) break;
        if (end > rows[a].before || end > rows[b].before) break;
        same.push_back(page);
      }
      if (same.empty()) continue;
      if (Strikes(Fault::kWrongPrefix)) {
        const auto live = Sources(0);
        same[strike_.pick % same.size()] = live[strike_.pick / 4 % live.size()];
      }
      Object prefix;
      prefix.Raw("rows", Numbers({rows[a].row, rows[b].row})).Raw("table", Numbers(same));
      return "[" + prefix.Done() + "]";
    }
  }
  return "";
}

// --- faults in the arrays ------------------------------------------------------------------------

void NaiveEngine::SpoilTable(RowOut& row) {
  const size_t pool = strike_.pick % pools_.size();
  const PoolShape& shape = pools_[pool].shape;
  std::vector<int64_t>& table = row.tables[pool];
  const uint64_t covered = shape.slots
                               ? row.before + row.fresh
                               : (row.before + row.fresh + shape.page_size - 1) / shape.page_size;
  const uint64_t parts = shape.slots ? shape.page_size : 1;
  const uint64_t least = FirstRead(shape, row.before) * parts;
  if (covered <= least || covered > table.size()) return;
  const uint64_t at = least + strike_.pick / 4 % (covered - least);
  if (const auto live = Sources(pool); !live.empty() && Strikes(Fault::kForeignEntry)) {
    const int64_t page = strike_.pick % 3 == 0 ? 1 + strike_.pick % (shape.pages - 1)
                                               : live[strike_.pick / 8 % live.size()];
    table[at] =
        shape.slots ? page * static_cast<int64_t>(parts) + static_cast<int64_t>(at % parts) : page;
  }
  if (Strikes(Fault::kSwappedEntries)) std::swap(table[at], table[least]);
  if (Strikes(Fault::kNullEntry)) table[at] = shape.slots ? static_cast<int64_t>(at % parts) : 0;
  if (Strikes(Fault::kStaleTable)) {
    for (uint64_t k = row.before / shape.page_size * parts; k < covered; ++k) {
      table[k] = shape.slots ? static_cast<int64_t>(k % parts) : 0;
    }
  }
}

void NaiveEngine::SpoilWrites(RowOut& row) {
  const size_t pool = strike_.pick % pools_.size();
  std::vector<int64_t>& slots = row.writes[pool];
  if (slots.empty()) return;
  const auto size = static_cast<int64_t>(pools_[pool].shape.page_size);
  if (const auto live = Sources(pool); !live.empty() && Strikes(Fault::kWrongSlot)) {
    slots[strike_.pick / 2 % slots.size()] = live[strike_.pick / 8 % live.size()] * size;
  }
  if (Strikes(Fault::kShiftedSlots)) {
    for (int64_t& slot : slots) slot += strike_.pick / 2 % 2 == 0 ? 1 : size;
  }
  if (Strikes(Fault::kSkippedWrites)) std::ranges::fill(slots, -1);
}

void NaiveEngine::SpoilRows(std::vector<RowOut>& rows) {
  for (RowOut& row : rows) {
    SpoilTable(row);
    SpoilWrites(row);
    if (Strikes(Fault::kWrongLength)) {
      const int64_t by[] = {1, -1, static_cast<int64_t>(world_.unit), -row.len, INT64_MAX / 2};
      row.len += by[strike_.pick % 5];
    }
  }
  if (rows.size() > 1 && Strikes(Fault::kRowSwap)) {
    std::swap(rows[0].tables, rows[1].tables);
    if (strike_.pick % 2 == 0) std::swap(rows[0].writes, rows[1].writes);
  }
}

// --- saying it -----------------------------------------------------------------------------------

std::string NaiveEngine::ByPool(const std::vector<std::vector<int64_t>>& words) const {
  Object object;
  for (size_t pool = 0; pool < pools_.size(); ++pool) {
    object.Raw(pools_[pool].shape.name, Numbers(words[pool]));
  }
  return object.Done();
}

void NaiveEngine::PutByPool(Object& object, const char* one, const char* many,
                            const std::vector<std::vector<int64_t>>& words) const {
  if (pools_.size() == 1) {
    object.Raw(one, Numbers(words[0]));
  } else {
    object.Raw(many, ByPool(words));
  }
}

void NaiveEngine::SayStep(const Step& step, const std::vector<RowOut>& rows,
                          const std::vector<RowOut>& pads, const std::string& prefix) {
  const auto show = [&](const RowOut& row) {
    Object object;
    object.Index("row", row.row);
    if (row.request >= 0) {
      object.Text("req", requests_[static_cast<size_t>(row.request)].name).Count("new", row.fresh);
      if (row.draft > 0) object.Count("draft", row.draft);
    }
    PutByPool(object, "table", "tables", row.tables);
    object.Index("len", row.len);
    PutByPool(object, "write", "writes", row.writes);
    const std::string extra = row.extra.Done();
    std::string text = object.Done();
    if (extra != "{}") text.replace(text.size() - 1, 1, "," + extra.substr(1));
    return text;
  };
  for (uint64_t rank = 0; rank < world_.ranks; ++rank) {
    Object event = Event("step");
    event.Count("step", step.number).Raw("rows", List(rows, show));
    if (!pads.empty()) event.Raw("pads", List(pads, show));
    if (!prefix.empty()) event.Raw("prefix", prefix);
    if (world_.ranks > 1) event.Count("rank", rank);
    lines_.push_back(event.Done());
  }
}

void NaiveEngine::Launch(const Command& c) {
  if (steps_.size() >= 1u + c[5] % 3u) return Settle(c);
  Step step{.number = step_number_ + 1};
  std::vector<RowOut> rows, pads;
  const size_t known = requests_.size();
  for (size_t i = 0; i < known; ++i) {
    if (!requests_[i].alive || requests_[i].copying) continue;
    if ((c[1] >> i % 8 & 1) == 0 && c[1] != 0) continue;
    AddRow(c, i, step, rows);
  }
  Twin(c, step, rows);
  AddPads(c, step, pads);
  if (rows.empty() && pads.empty()) return;
  ++step_number_;
  const std::string prefix = SharedPrefix(c, rows);
  SpoilRows(rows);
  if (!rows.empty() && Strikes(Fault::kTableChanged)) {
    RowOut changed = rows[strike_.pick % rows.size()];
    const size_t pool = strike_.pick / 2 % pools_.size();
    const auto live = Sources(pool);
    const auto size = static_cast<int64_t>(pools_[pool].shape.page_size);
    if (!live.empty()) {
      const int64_t page = live[strike_.pick / 4 % live.size()];
      changed.tables[pool][0] = pools_[pool].shape.slots ? page * size : page;
    }
    Object row;
    row.Index("row", changed.row);
    PutByPool(row, "table", "tables", changed.tables);
    step.changed = "[" + row.Done() + "]";
  }
  SayStep(step, rows, pads, prefix);
  steps_.push_back(std::move(step));
}

void NaiveEngine::Settle(const Command& c) {
  for (Step& step : steps_) {
    if (step.confirmed) continue;
    if (c[1] % 3 != 0 || &step == &steps_.front()) return Confirm(step);
    break;
  }
  if (!steps_.empty() && steps_.front().confirmed) Retire();
}

void NaiveEngine::Confirm(Step& step) {
  step.confirmed = true;
  for (uint64_t rank = 0; rank < world_.ranks; ++rank) {
    Object event = Event("confirm");
    event.Count("step", step.number);
    if (!step.changed.empty()) event.Raw("rows", step.changed);
    if (world_.ranks > 1) event.Count("rank", rank);
    lines_.push_back(event.Done());
  }
}

void NaiveEngine::Retire() {
  const Step step = steps_.front();
  steps_.pop_front();
  for (uint64_t rank = 0; rank < world_.ranks; ++rank) {
    Object event = Event("retire");
    event.Count("step", step.number);
    if (world_.ranks > 1) event.Count("rank", rank);
    lines_.push_back(event.Done());
  }
  for (const Use& use : step.uses) {
    Page& page = At(use.pool, use.page);
    --page.uses;
    if (page.generation == use.generation) {
      page.committed = std::max(page.committed, std::min(use.end, page.launched));
    }
  }
  for (const size_t request : step.requests) --requests_[request].launched;
  for (const int row : step.rows) --row_uses_[static_cast<size_t>(row)];
}

}  // namespace kvfence::testing
