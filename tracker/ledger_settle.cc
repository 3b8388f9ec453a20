// Rows and the end of steps: bindings, verdicts, confirm, retire, and what a failing row undoes.
//
// Idea: at launch the ledger took every row for clean. A row that fails later takes its writes back
// (slots, stamp, scale, expectation), and whoever read them fails with it: same-step readers at
// once, rows of later steps when this step is settled. I-9: a row that was never confirmed is
// unverified, not clean.
#include <algorithm>
#include <string>
#include <utility>

#include "kvfence/check.h"
#include "ledger_impl.h"

namespace kvfence {
namespace {

Status NotLaunched(StepId step) {
  return Status(StatusCode::kFailedPrecondition,
                "step " + std::to_string(step.value()) + " isn't launched, or is settled already");
}

}  // namespace

Status Ledger::Impl::BindRow(const BindRowEvent& event) {
  const uint32_t row = event.row.value();
  if (row >= config_.rows) return Status::Invalid("there is no row " + std::to_string(row));
  BeginEvent();
  RequestId id;
  if (event.req) {
    const uint32_t slot = Living(event.req);
    if (slot == kNone) return {};
    id = requests_.at(slot).id;
    if (!stream() && checks_.Has(Reason::kRowEpoch)) {
      for (const auto& record : steps_.records()) {
        for (uint32_t i = 0; i < record->launched.size(); ++i) {
          const LaunchedRow& launched = record->launched[i];
          if (launched.row != event.row || launched.req == id || !record->rows[i].runs) continue;
          Report(Reason::kRowEpoch, {.step = static_cast<int64_t>(record->step),
                                     .req = launched.req,
                                     .row = row,
                                     .expected = launched.req.word(),
                                     .found = id.word()});
          FailRow(*record, i, Reason::kRowEpoch);
        }
      }
    }
  }
  if (rows_[row].req != id) {
    rows_[row].changed_step = steps_.launched();
    rows_[row].failed = {};
  }
  rows_[row].req = id;
  if (deltas_ != nullptr) deltas_->Bind(event.row, id);
  return {};
}

std::vector<uint32_t> Ledger::Impl::Judge(StepId step, std::span<const uint32_t> reasons) {
  StepRecord* record = steps_.Find(step.value());
  if (record == nullptr) return {};
  BeginEvent();
  consequences_.clear();
  const size_t rows = std::min(reasons.size(), record->rows.size());
  for (uint32_t i = 0; i < rows; ++i) {
    if (reasons[i] != 0) FailRow(*record, i, CheckSet(reasons[i]));
  }
  record->judged = true;
  return consequences_;
}

void Ledger::Impl::Fail(StepId step, Row row, Reason reason) {
  StepRecord* record = steps_.Find(step.value());
  if (record == nullptr) return;
  BeginEvent();
  for (uint32_t i = 0; i < record->launched.size(); ++i) {
    if (record->launched[i].row == row) FailRow(*record, i, reason);
  }
}

Status Ledger::Impl::Confirm(StepId step) {
  StepRecord* record = steps_.Find(step.value());
  if (record == nullptr) return NotLaunched(step);
  record->confirmed = true;
  FetchWritten(*record);
  for (uint32_t i = 0; has_state_ && i < record->rows.size(); ++i) {
    if (record->clean(i)) NoteStateWrites(*record, record->rows[i]);
  }
  // The device has made the pages that rows wrote their own. What copies brought there is, too.
  for (const ledger::SlotWrite& w : record->writes) {
    const Page& p = pages_.at(w.pool, w.page);
    if (p.tag != w.tag || !record->clean(w.row) || !MadeOwn(p, w)) continue;
    ExchangeBirths(w.pool, w.page, w.old_expected, w.new_stamp);
  }
  return {};
}

void Ledger::Impl::NoteStateWrites(const StepRecord& record, const ledger::RowRecord& row) {
  if (row.inc == kNone || requests_.at(row.inc).serial != row.serial) return;
  for (uint32_t u = row.uses_begin; u < row.uses_end; ++u) {
    const uint32_t pool = record.uses[u].pool;
    if (config_.pools[pool].kind == PoolKind::kKv) continue;
    for (const Held& held : requests_.at(row.inc).lists[pool]) {
      if (held.node == kNone || pages_.at(pool, held.page).ran) continue;
      Page& p = pages_.at(pool, held.page);
      p.ran = true;
      if (std::exchange(p.failed, false)) ShowContent(pool, held.page);
      UpdateFlags(pool, held.page);
    }
  }
}

void Ledger::Impl::FailRow(StepRecord& record, uint32_t row, CheckSet reasons) {
  LaunchedRow& launched = record.launched[row];
  const bool failed_before = !launched.reasons.empty();
  launched.reasons = launched.reasons + reasons;
  BoundRow& bound = rows_[launched.row.value()];
  // A row that was bound anew since isn't blamed for what it was.
  if (bound.req == launched.req && bound.Sees(record.step)) bound.failed = bound.failed + reasons;
  if (failed_before || reasons.empty()) return;
  if (launching_ == &record) {
    for (int r = kReasonCount; r-- > 0;) {
      if (reasons.Has(static_cast<Reason>(r))) {
        plan_.rows[row].doomed = static_cast<uint8_t>(r + 1);
      }
    }
  }
  record.rows[row].voided = now_;
  record.rows[row].runs = record.judged;
  for (const ledger::SlotWrite& w : record.writes) {
    if (w.row == row) VoidWrite(record, w);
  }
  for (const ledger::SlotWrite& w : record.copies) {
    if (w.row == row) VoidWrite(record, w);
  }
  FailReaders(record, row);
}

// Does a clean launched row other than the write's own write the page too?
bool Ledger::Impl::WrittenSince(const ledger::SlotWrite& write) const {
  for (const auto& record : steps_.records()) {
    for (const ledger::SlotWrite& w : record->writes) {
      const bool same = w.page == write.page && w.pool == write.pool && w.tag == write.tag;
      if (same && &w != &write && record->clean(w.row)) return true;
    }
  }
  return false;
}

// Has a clean row launched after the write's own put other content into the slot?
bool Ledger::Impl::WrittenLater(const StepRecord& record, const ledger::SlotWrite& write,
                                uint32_t slot) const {
  for (const auto& later : steps_.records()) {
    if (later->step < record.step) continue;
    for (const std::vector<ledger::SlotWrite>* writes : {&later->writes, &later->copies}) {
      for (const ledger::SlotWrite& w : *writes) {
        if (later->step == record.step && w.row <= write.row) continue;
        if (w.page != write.page || w.pool != write.pool || w.tag != write.tag) continue;
        if (later->clean(w.row) && w.first <= slot && slot < w.first + w.n) return true;
      }
    }
  }
  return false;
}

void Ledger::Impl::VoidWrite(const StepRecord& record, const ledger::SlotWrite& write) {
  const ledger::RowRecord& row = record.rows[write.row];
  Page& p = pages_.at(write.pool, write.page);
  if (p.tag != write.tag) return;  // gone to another generation, which starts without content
  // Before attention ran the row was stopped from writing, and nobody has touched the page since.
  const bool unwritten = !record.judged && !write.carried && p.version == write.version;
  if (unwritten) {
    content_.Restore(p, write.before);
    p.scale = write.old_scale;
  }
  // From the end: a page filled from its start stays of that shape.
  for (uint32_t i = write.first + write.n; i-- > write.first && !unwritten;) {
    if (!WrittenLater(record, write, i)) VoidSlots(p, {i, i + 1});
  }
  if (!unwritten && write.old_stamp != write.new_stamp && !WrittenSince(write)) {
    const Stamp before = write.old_stamp == kNoStamp ? write.old_expected : write.old_stamp;
    ExchangeBirths(write.pool, write.page, write.new_stamp, before);
    if (config_.pools[write.pool].scales) p.scale = write.old_scale;
  }
  ShowContent(write.pool, write.page);
  const uint32_t inc = row.inc;
  if (inc == kNone || requests_.at(inc).serial != row.serial) return;
  const Held* held = HeldAt(requests_.at(inc), write.pool, write.at);
  if (held == nullptr || held->page != write.page || held->tag != write.tag) return;
  const bool undo = held->stamp == write.new_stamp && (unwritten || !WrittenSince(write));
  // Said again in any case: the device may have followed the write or not.
  SetExpected(inc, write.pool, write.at, undo ? write.old_expected : held->stamp);
}

void Ledger::Impl::FailReaders(StepRecord& record, uint32_t row) {
  if (!checks_.Has(Reason::kNotCommitted)) return;
  for (const SameStepRead& read : record.reads) {
    if (read.writer != row || !record.clean(read.reader)) continue;
    Report(Reason::kNotCommitted, PlaceOf(record, read.reader, read.pool, read.at, read.page));
    consequences_.push_back(read.reader);
    FailRow(record, read.reader, Reason::kNotCommitted);
  }
}

void Ledger::Impl::FailReader(const ledger::SlotWrite& write, StepRecord& later, uint32_t row,
                              uint32_t pool, uint32_t at) {
  if (!later.clean(row)) return;
  const ledger::PoolUse* use = later.UseOf(row, pool, at);
  if (use == nullptr) return;
  const uint64_t start = at * config_.pools[pool].page_size;
  const uint64_t length = later.rows[row].length;
  const bool reads = length > start + write.first && use->begin < start + write.first + write.n;
  if (!reads || write.n == 0) return;
  Report(Reason::kNotCommitted, PlaceOf(later, row, pool, at, write.page));
  FailRow(later, row, Reason::kNotCommitted);
}

void Ledger::Impl::FailReadersOf(const ledger::SlotWrite& write, StepRecord& later) {
  const Page& p = pages_.at(write.pool, write.page);
  if (p.tag == write.tag) {
    for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
      const ledger::Mapping& m = pages_.mapping(n);
      if (m.since >= later.launched_at) continue;
      ForRowsIn(later, m.inc, [&](uint32_t row) { FailReader(write, later, row, m.pool, m.at); });
    }
  }
  const uint32_t space = pages_.space_of(write.pool);
  for (size_t i = 0; i < later.let_go.size(); ++i) {
    const ledger::LetGo gone = later.let_go[i];
    const bool same = gone.page == write.page && gone.tag == write.tag;
    if (same && pages_.space_of(gone.pool) == space) {
      FailReader(write, later, gone.row, gone.pool, gone.at);
    }
  }
}

void Ledger::Impl::SettleRow(StepRecord& record, uint32_t row) {
  if (record.clean(row)) return;
  for (const ledger::Export& e : record.exports) {
    if (e.row != row) continue;
    ReportPage(Reason::kNotCommitted, e.req, e.pool, e.page);
    if (e.key)
      index_.NoteRead(*e.key, e.pool, e.number, {.stamp = kNobodyStamp});  // no good there either
  }
  const uint64_t voided = record.rows[row].voided;
  for (const auto& later : steps_.records()) {
    // Steps launched after the failure was known were judged with the writes void.
    if (later->step <= record.step || later->launched_at > voided) continue;
    for (const ledger::SlotWrite& w : record.writes) {
      if (w.row == row) FailReadersOf(w, *later);
    }
    for (const ledger::SlotWrite& w : record.copies) {
      if (w.row == row) FailReadersOf(w, *later);
    }
  }
}

// Rows that were launched before it was known that an earlier one of their binding had failed.
void Ledger::Impl::FailLater(const StepRecord& record, uint32_t row) {
  const LaunchedRow& failed = record.launched[row];
  const BoundRow& bound = rows_[failed.row.value()];
  if (failed.reasons.empty() || bound.req != failed.req) return;
  for (const auto& later : steps_.records()) {
    if (later->step <= record.step) continue;
    for (uint32_t i = 0; i < later->launched.size(); ++i) {
      const LaunchedRow& launched = later->launched[i];
      if (bound.Sees(later->step) != bound.Sees(record.step)) continue;  // bound anew in between
      if (launched.row == failed.row && launched.req == failed.req && later->clean(i)) {
        FailRow(*later, i, failed.reasons);
      }
    }
  }
}

Status Ledger::Impl::Retire(StepId step, std::vector<LaunchedRow>* rows) {
  if (steps_.Find(step.value()) == nullptr) return NotLaunched(step);
  if (steps_.oldest().step != step.value()) {
    return Status(StatusCode::kFailedPrecondition, "steps are settled in order");
  }
  BeginEvent();
  StepRecord& record = steps_.oldest();
  const auto count = static_cast<uint32_t>(record.rows.size());
  FetchWritten(record);
  for (uint32_t i = 0; i < count; ++i) {
    if (record.confirmed || !record.clean(i) || !checks_.Has(Reason::kUnverified)) continue;
    Report(Reason::kUnverified, {.step = static_cast<int64_t>(step.value()),
                                 .req = record.launched[i].req,
                                 .row = record.launched[i].row.value()});
    FailRow(record, i, Reason::kUnverified);
  }
  for (const std::vector<ledger::SlotWrite>* writes : {&record.writes, &record.copies}) {
    for (const ledger::SlotWrite& w : *writes) {
      if (!record.clean(w.row)) continue;
      Page& p = pages_.at(w.pool, w.page);
      if (p.tag == w.tag) content_.Settle(p, w.first, w.n);
    }
  }
  if (checks_.Has(Reason::kNotCommitted)) {
    for (uint32_t i = 0; i < count; ++i) SettleRow(record, i);
  }
  if (keeps_failed()) {
    for (uint32_t i = 0; i < count; ++i) FailLater(record, i);
  }
  for (uint32_t i = 0; i < count; ++i) record.launched[i].good_prefix = GoodPrefix(record, i);
  if (rows != nullptr) rows->assign(record.launched.begin(), record.launched.end());
  steps_.EndOldest();
  if (config_.level == Level::kAudit) AuditPages(false);
  return {};
}

// Tokens from the start that are certainly good: whole pages, in every pool that keeps them all.
uint64_t Ledger::Impl::GoodPrefix(const StepRecord& record, uint32_t index) const {
  const ledger::RowRecord& row = record.rows[index];
  if (record.clean(index)) return row.length + row.new_tokens;
  if (row.inc == kNone || requests_.at(row.inc).serial != row.serial) return 0;
  if (!requests_.at(row.inc).live) return 0;
  uint64_t good = row.length;
  for (uint32_t u = row.uses_begin; u < row.uses_end; ++u) {
    const uint32_t pool = record.uses[u].pool;
    const PoolConfig& c = config_.pools[pool];
    if (c.kind != PoolKind::kKv || c.window != 0) continue;
    const auto& list = requests_.at(row.inc).lists[pool];
    uint64_t at = 0;
    for (; at < list.size() && (at + 1) * c.page_size <= good; ++at) {
      if (list[at].node == kNone) break;  // not held in the generation that was taken (I-5)
      const Page& p = pages_.at(pool, list[at].page);
      if (list[at].suspect != 0 || p.suspect != 0) break;  // it would fail again
      if (p.stamp != list[at].stamp || !content_.Valid(p, 0, c.page_size)) break;
    }
    good = std::min(good, at * c.page_size);
  }
  return good;
}

}  // namespace kvfence
