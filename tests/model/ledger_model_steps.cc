// Lengths, rows and steps of the naive ledger.
#include <algorithm>

#include "tests/model/ledger_model.h"

namespace kvfence::testing {

// --- length --------------------------------------------------------------------------------------

void LedgerModel::On(const TrimEvent& event) {
  Begin();
  const auto req = Alive(event.req);
  if (!req) return;
  Request& request = requests.at(*req);
  const uint64_t oldest = steps.empty() ? last_step_ : steps.front().step;
  const auto idle = [&](const std::array<uint64_t, 3>& base) {
    return base[2] == 0 && (base[0] != event.tokens || base[1] < oldest);
  };
  while (!request.bases.empty() && idle(request.bases.front())) {
    request.bases.erase(request.bases.begin());
  }
  if (!request.bases.empty()) {
    if (request.bases.front()[0] != event.tokens) {
      Violation v;
      v.reason = Reason::kLengthMismatch;
      v.req = *req;
      findings.insert(Text(v));
    }
    request.bases.erase(request.bases.begin());
  } else {
    request.length = event.tokens;
    for (const auto& [step, tokens] : request.launches) {
      if (event.step && step > event.step->value()) request.length += tokens;
    }
  }
  Cut(*req);
}

void LedgerModel::Cut(RequestId req) {
  for (uint32_t pool = 0; pool < pages.size(); ++pool) {
    for (uint64_t at = 0; at < requests.at(req).lists[pool].size(); ++at) CutPage(req, pool, at);
  }
}

void LedgerModel::CutPage(RequestId req, uint32_t pool, uint64_t at) {
  const Request& request = requests.at(req);
  const Entry& e = request.lists[pool][at];
  const auto spared = spared_.find({req, pool, at});
  const uint64_t void_from = spared == spared_.end() ? ~uint64_t{0} : spared->second;
  spared_.erase({req, pool, at});
  if (e.page < 0 || e.tag != pages[pool][e.page].tag || !TagLive(e.tag)) return;
  Page& p = pages[pool][e.page];
  const uint64_t size = config_.pools[pool].page_size;
  uint64_t end = 0;
  for (uint64_t i = 0; i < size; ++i) end = p.slots[i].valid ? i + 1 : end;
  const uint64_t cut =
      std::min(void_from, request.length > at * size ? request.length - at * size : 0);
  if (cut >= end) return;
  if (Requests(pool, e.page).size() > 1 || Entries(pool, e.page) > 0 || OutPins(pool, e.page) > 0) {
    spared_[{req, pool, at}] = cut;
    return;
  }
  for (uint64_t i = cut; i < size; ++i) Void(p, i);
  for (LaunchedStep& step : steps) {
    for (LaunchedRow& row : step.rows) {
      for (Written& w : row.written) {
        if (w.pool != pool || w.page != e.page || w.tag != p.tag) continue;
        std::erase_if(w.slots, [&](uint64_t s) { return s >= cut; });
      }
    }
  }
}

void LedgerModel::Tidy() {
  const auto spared = spared_;
  for (const auto& [place, from] : spared) {
    const auto& [req, pool, at] = place;
    const bool there = requests.count(req) != 0 && at < requests.at(req).lists[pool].size();
    if (there) {
      CutPage(req, pool, at);
    } else {
      spared_.erase({req, pool, at});
    }
  }
}

// --- rows and steps ------------------------------------------------------------------------------

void LedgerModel::On(const BindRowEvent& event) {
  Begin();
  if (!event.req) return;
  const auto req = Alive(event.req);
  if (!req || config_.reuse == Reuse::kStream) return;
  for (LaunchedStep& step : steps) {
    for (uint32_t i = 0; i < step.rows.size(); ++i) {
      const LaunchedRow& row = step.rows[i];
      if (row.row != event.row || row.req == *req || !row.runs) continue;
      Violation v;
      v.reason = Reason::kRowEpoch;
      v.step = static_cast<int64_t>(step.step);
      v.req = row.req;
      v.row = event.row.value();
      findings.insert(Text(v));
      FailRow(step, i, Reason::kRowEpoch);
    }
  }
}

bool LedgerModel::FailUsers(uint32_t pool, int64_t page, bool unconfirmed) {
  bool any = false;
  for (LaunchedStep& step : steps) {
    if (unconfirmed && step.confirmed) continue;
    for (uint32_t i = 0; i < step.rows.size(); ++i) {
      if (!step.rows[i].runs) continue;
      const auto& had = step.rows[i].had;
      const bool uses = std::any_of(had.begin(), had.end(),
                                    [&](const Had& h) { return h.pool == pool && h.page == page; });
      if (!uses) continue;
      any = true;
      FailRow(step, i, Reason::kInFlight);
    }
  }
  return any;
}

bool LedgerModel::WrittenByOther(const Written& w) const {
  for (const LaunchedStep& step : steps) {
    for (const LaunchedRow& row : step.rows) {
      if (!row.reasons.empty()) continue;
      for (const Written& other : row.written) {
        if (!other.copied && &other != &w && other.pool == w.pool && other.page == w.page &&
            other.tag == w.tag) {
          return true;
        }
      }
    }
  }
  return false;
}

void LedgerModel::FailRow(LaunchedStep& step, uint32_t row, CheckSet reasons) {
  LaunchedRow& r = step.rows[row];
  const bool before = !r.reasons.empty();
  r.reasons = r.reasons + reasons;
  if (before || reasons.empty()) return;
  r.voided = now_;
  r.runs = step.judged;
  for (const Written& w : r.written) {
    Page& p = pages[w.pool][w.page];
    if (p.tag != w.tag) continue;
    // Failed before attention ran, and nobody touched the page: as if it had never been launched.
    const bool unwritten = !step.judged && !w.copied && p.changes == w.changes;
    if (unwritten) {
      for (size_t i = 0; i < p.slots.size(); ++i) {
        const Slot now = p.slots[i];
        p.slots[i] = w.before.slots[i];
        p.slots[i].copy = now.copy;  // what copies did meanwhile they have done
        p.slots[i].brought = now.brought;
      }
      p.changes = w.before.changes;
    }
    for (const uint64_t slot : w.slots) {
      if (unwritten) break;
      // Another launched row that is clean has written it since: that stands.
      const auto by = p.slots[slot].by;
      if (by.first != 0 && by != std::pair(step.step + 1, row)) continue;
      Void(p, slot);
    }
    const bool alone = unwritten || !WrittenByOther(w);
    if (!unwritten && w.old_stamp != w.new_stamp && alone) {
      const Stamp before = w.old_stamp == kNoStamp ? w.old_expected : w.old_stamp;
      for (Slot& slot : p.slots) {
        if (slot.birth == w.new_stamp) slot.birth = before;
        if (slot.brought == w.new_stamp) slot.brought = before;
      }
    }
    const auto request = requests.find(r.req);
    if (request == requests.end() || w.at >= request->second.lists[w.pool].size()) continue;
    Entry& e = request->second.lists[w.pool][w.at];
    if (e.page == w.page && e.tag == w.tag && e.stamp == w.new_stamp && alone) {
      e.stamp = w.old_expected;
    }
  }
}

void LedgerModel::On(const StepEvent& event) {
  Begin();
  LaunchedStep& step = steps.emplace_back();
  step.step = event.step.value();
  step.when = now_;
  for (const RowPlan& plan : event.rows) LaunchRow(event, step, plan);
  last_step_ = step.step + 1;
}

void LedgerModel::LaunchRow(const StepEvent& event, LaunchedStep& step, const RowPlan& plan) {
  const auto index = static_cast<uint32_t>(step.rows.size());
  LaunchedRow& row = step.rows.emplace_back();
  row.row = plan.row;
  row.req = Named(plan.req);
  row.begin.resize(pages.size());
  if (requests.count(row.req) == 0) {
    Violation v;
    v.reason = Reason::kIdentityReused;
    v.req = row.req;
    v.row = plan.row.value();
    v.step = static_cast<int64_t>(step.step);
    findings.insert(Text(v));
    row.reasons = Reason::kIdentityReused;
    row.voided = now_;
    row.runs = false;
    return;
  }
  Request& request = requests.at(row.req);
  row.serial = request.serial;
  row.length = plan.base.value_or(request.length);
  if (plan.base) {
    request.bases.push_back({*plan.base, step.step, *plan.base != request.length ? 1u : 0u});
  }
  if (row.length < request.length) {
    request.length = row.length;
    Cut(row.req);
  }
  request.length = row.length + plan.new_tokens;
  request.launches.emplace_back(step.step, plan.new_tokens);
  for (const PoolBuffers& b : event.pools) LaunchPool(step, index, b.pool.value(), plan);
}

void LedgerModel::LaunchPool(LaunchedStep& step, uint32_t index, uint32_t pool,
                             const RowPlan& plan) {
  LaunchedRow& row = step.rows[index];
  const PoolConfig& c = config_.pools[pool];
  const uint64_t end = row.length + plan.new_tokens;
  const uint64_t reads = c.window + plan.new_tokens - (c.window + plan.new_tokens > 0 ? 1 : 0);
  row.begin[pool] = c.window != 0 && end > reads ? end - reads : 0;
  const auto& list = requests.at(row.req).lists[pool];
  for (uint64_t at = 0; at < list.size(); ++at) {
    const uint64_t start = at * c.page_size;
    if (start >= end + plan.draft || start + c.page_size <= row.begin[pool]) continue;
    const Entry& e = list[at];
    if (e.page < 0 || e.tag != pages[pool][e.page].tag || !TagLive(e.tag)) continue;
    row.had.push_back({pool, at, e.page, e.tag});
    JudgeHole(step, index, pool, at);
  }
  if (holes_) FailRow(step, index, Reason::kNotCommitted);
  holes_ = false;
  if (!row.reasons.empty()) return;
  for (const Had& h : row.had) {
    if (h.pool != pool || (h.at + 1) * c.page_size <= row.length) continue;
    if (plan.new_tokens + plan.draft > 0) LaunchPage(step, index, pool, plan, h.at);
  }
}

// A hole before the last written slot, among the slots that the row reads.
void LedgerModel::JudgeHole(LaunchedStep& step, uint32_t index, uint32_t pool, uint64_t at) {
  const LaunchedRow& row = step.rows[index];
  const Entry& e = requests.at(row.req).lists[pool][at];
  const Page& p = pages[pool][e.page];
  const uint64_t start = at * config_.pools[pool].page_size;
  uint64_t end = 0;
  bool whole = true;
  for (uint64_t i = 0; i < p.slots.size(); ++i) {
    end = p.slots[i].valid ? i + 1 : end;
    const bool reads = start + i < row.length && start + i >= row.begin[pool];
    whole = whole && (!reads || p.slots[i].valid);
  }
  const uint64_t last =
      row.length > start ? std::min<uint64_t>(p.slots.size(), row.length - start) : 0;
  if (whole || last == 0 || end < last || Shown(pool, e.page) != e.stamp) return;
  Violation v;
  v.reason = Reason::kNotCommitted;
  v.step = static_cast<int64_t>(step.step);
  v.req = row.req;
  v.row = row.row.value();
  v.pool = pool;
  v.page = e.page;
  findings.insert(Text(v));
  holes_ = true;
}

void LedgerModel::LaunchPage(LaunchedStep& step, uint32_t index, uint32_t pool, const RowPlan& plan,
                             uint64_t at) {
  LaunchedRow& row = step.rows[index];
  Entry& e = requests.at(row.req).lists[pool][at];
  Page& p = pages[pool][e.page];
  const uint64_t size = config_.pools[pool].page_size;
  const uint64_t end = row.length + plan.new_tokens;
  std::set<uint64_t> slots;
  bool there = Shown(pool, e.page) == e.stamp;
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t position = at * size + i;
    if (position >= row.length && position < end) {
      slots.insert(i);
      there = there && p.slots[i].valid;
    }
  }
  const Page before = p;
  const bool sealed = Entries(pool, e.page) > 0 || OutPins(pool, e.page) > 0;
  const Stamp stamp = sealed || there ? e.stamp : MakeStamp(row.serial, at);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t position = at * size + i;
    if (position >= end && position < end + plan.draft) Void(p, i);
  }
  Written w;
  w.pool = pool;
  w.page = e.page;
  w.tag = e.tag;
  w.at = at;
  w.slots = slots;
  w.old_stamp = Shown(pool, e.page);
  w.new_stamp = slots.empty() ? w.old_stamp : stamp;
  w.old_expected = e.stamp;
  w.before = before;
  w.changes = p.changes;
  if (slots.empty()) {
    row.written.push_back(w);
    return;
  }
  if (row.length <= at * size && Shown(pool, e.page) != e.stamp) {
    for (uint64_t i = 0; i < size; ++i) Void(p, i);
  }
  for (const uint64_t i : slots) {
    p.slots[i].valid = true;
    p.slots[i].by = {step.step + 1, index};
  }
  for (Slot& slot : p.slots) slot.birth = slot.valid ? stamp : kNoStamp;
  ++p.changes;
  e.stamp = stamp;
  w.changes = p.changes;
  row.written.push_back(w);
}

void LedgerModel::Judge(StepId id, const std::vector<uint32_t>& reasons) {
  Begin();
  for (LaunchedStep& step : steps) {
    if (step.step != id.value()) continue;
    for (uint32_t i = 0; i < step.rows.size(); ++i) FailRow(step, i, CheckSet(reasons[i]));
    step.judged = true;
  }
}

void LedgerModel::On(const ConfirmEvent& event) {
  Begin();
  for (LaunchedStep& step : steps) {
    if (step.step != event.step.value()) continue;
    step.confirmed = true;
    for (LaunchedRow& row : step.rows) {
      for (const Written& w : row.written) {
        Page& p = pages[w.pool][w.page];
        if (!row.reasons.empty() || p.tag != w.tag || !MadeOwn(p, w)) continue;
        for (Slot& slot : p.slots) {  // the page is the row's now, whoever brings it
          if (slot.birth == w.old_expected) slot.birth = w.new_stamp;
          if (slot.brought == w.old_expected) slot.brought = w.new_stamp;
        }
      }
    }
  }
}

// Rows of later steps, launched before the failure was known, that read what `row` was to write.
void LedgerModel::FailReaders(const LaunchedStep& failed, const LaunchedRow& row) {
  for (LaunchedStep& later : steps) {
    if (later.step <= failed.step || later.when > row.voided) continue;
    for (const Written& w : row.written) {
      for (uint32_t i = 0; i < later.rows.size(); ++i) {
        LaunchedRow& reader = later.rows[i];
        for (const Had& h : reader.had) {
          if (!reader.reasons.empty()) break;
          if (h.pool != w.pool || h.page != w.page || h.tag != w.tag) continue;
          const uint64_t start = h.at * config_.pools[h.pool].page_size;
          const bool reads = std::any_of(w.slots.begin(), w.slots.end(), [&](uint64_t s) {
            return start + s < reader.length && start + s >= reader.begin[h.pool];
          });
          if (!reads) continue;
          Violation v;
          v.reason = Reason::kNotCommitted;
          v.step = static_cast<int64_t>(later.step);
          v.req = reader.req;
          v.row = reader.row.value();
          v.pool = h.pool;
          v.page = h.page;
          findings.insert(Text(v));
          FailRow(later, i, Reason::kNotCommitted);
        }
      }
    }
  }
}

void LedgerModel::On(const RetireEvent& event) {
  Begin();
  LaunchedStep& step = steps.front();
  for (uint32_t i = 0; i < step.rows.size(); ++i) {
    LaunchedRow& row = step.rows[i];
    if (step.confirmed || !row.reasons.empty()) continue;
    Violation v;
    v.reason = Reason::kUnverified;
    v.step = static_cast<int64_t>(event.step.value());
    v.req = row.req;
    v.row = row.row.value();
    findings.insert(Text(v));
    FailRow(step, i, Reason::kUnverified);
  }
  for (const LaunchedRow& row : step.rows) {
    if (!row.reasons.empty()) continue;
    for (const Written& w : row.written) {
      Page& p = pages[w.pool][w.page];
      if (p.tag != w.tag) continue;
      for (const uint64_t slot : w.slots) {
        if (p.slots[slot].valid) p.slots[slot].committed = true;
        if (p.slots[slot].by.first == step.step + 1) p.slots[slot].by = {0, 0};
      }
    }
  }
  for (const LaunchedRow& row : step.rows) {
    if (row.reasons.empty()) continue;
    FailReaders(step, row);
    for (const auto& [pool, page, req] : row.exported) {
      Say(Reason::kNotCommitted, req, pool, page);
    }
  }
  steps.erase(steps.begin());
}

}  // namespace kvfence::testing
