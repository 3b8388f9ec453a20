// What the host itself judges of a launched step, beside what the device compares.
//
// Idea: some questions are about rows of the same step, copies that end inside it, or pages with
// holes; the device's one fill number can't answer them. Rows that fail here are doomed: the device
// only makes them harmless.
#include <algorithm>

#include "ledger_impl.h"

namespace kvfence {

Violation Ledger::Impl::PlaceOf(const StepRecord& record, uint32_t row, uint32_t pool, uint64_t at,
                                int64_t page) const {
  return {.step = static_cast<int64_t>(record.step),
          .req = record.launched[row].req,
          .row = record.launched[row].row.value(),
          .pool = pool,
          .at = static_cast<int64_t>(at),
          .page = page};
}

// I-80: what failed stays failed, and was reported then: a row until it is bound anew, a request
// that hit content of another identity, or holds a suspect page, until it lets go of it.
void Ledger::Impl::FailAgain(StepRecord& record, uint32_t index) {
  const LaunchedRow& launched = record.launched[index];
  const BoundRow& bound = rows_[launched.row.value()];
  CheckSet reasons = bound.req == launched.req ? bound.failed : CheckSet();
  const uint32_t inc = record.rows[index].inc;
  if (inc != kNone && requests_.at(inc).suspects > 0) {
    for (const auto& list : requests_.at(inc).lists) {
      for (const Held& held : list) {
        if (held.suspect != 0) reasons = reasons + static_cast<Reason>(held.suspect - 1);
      }
    }
  }
  if (!reasons.empty()) FailRow(record, index, reasons);
}

// Pages that a copy still brings while the step runs are asked at confirm.
void Ledger::Impl::FindLoads(const StepEvent& event, StepRecord& record, uint32_t index) {
  const uint32_t inc = record.rows[index].inc;
  if (inc == kNone) return;
  for (const NameId id : event.rows[index].loads) {
    for (uint32_t s = pins_.Find(id); s != kNone; s = pins_.at(s).next_same_id) {
      const ledger::Pin& pin = pins_.at(s);
      if (pin.dir != CopyDir::kIn) continue;
      for (const ledger::PinPage& part : pin.pages) {
        const Page& p = pages_.at(pin.pool, part.page);
        if (p.tag != part.tag) continue;
        for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
          const ledger::Mapping& m = pages_.mapping(n);
          if (m.inc != inc) continue;
          for (size_t b = 0; b < event.pools.size(); ++b) {
            if (event.pools[b].pool.value() != m.pool) continue;
            late_.emplace_back(static_cast<uint32_t>(index * event.pools.size() + b),
                               m.at | kLateAtConfirm);
          }
        }
      }
    }
  }
}

void Ledger::Impl::FindSameStepReads(const StepEvent& event, StepRecord& record) {
  // Legal is to write what every other holder relies on and nobody has written yet.
  for (size_t i = 0; i < record.writes.size(); ++i) JudgeSharedWrite(record, record.writes[i]);
  for (size_t i = 0; i < record.writes.size(); ++i) {
    const ledger::SlotWrite write = record.writes[i];
    if (write.n == 0 || !record.clean(write.row)) continue;
    const Page& p = pages_.at(write.pool, write.page);
    for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
      const ledger::Mapping& m = pages_.mapping(n);
      const uint32_t row = RowIn(record, m.inc);
      if (row == kNone || row == write.row || !record.clean(row)) continue;
      for (uint32_t b = 0; b < event.pools.size(); ++b) {
        if (event.pools[b].pool.value() != m.pool) continue;
        const auto task = static_cast<uint32_t>(row * event.pools.size() + b);
        JudgeSameStepRead(record, write, {&record, row, m.at, m.pool}, task);
      }
    }
  }
}

void Ledger::Impl::JudgeSharedWrite(StepRecord& record, const ledger::SlotWrite& write) {
  if (!record.clean(write.row) || !checks_.Has(Reason::kWriteShared)) return;
  const Page& p = pages_.at(write.pool, write.page);
  const uint32_t writer = record.rows[write.row].inc;
  for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
    const ledger::Mapping& m = pages_.mapping(n);
    if (m.inc == writer) continue;
    const uint32_t row = RowIn(record, m.inc);
    // Its length before the step: what it writes itself isn't what it waits for.
    const uint64_t length = row == kNone ? requests_.at(m.inc).length : record.rows[row].length;
    const uint64_t start = uint64_t{m.at} * config_.pools[m.pool].page_size;
    if (!write.overwrites && write.n > 0 && length >= start + write.first + write.n) continue;
    Report(Reason::kWriteShared,
           PlaceOf(record, write.row, write.pool, write.at, static_cast<int64_t>(write.page)));
    FailRow(record, write.row, Reason::kWriteShared);
    return;
  }
}

void Ledger::Impl::JudgeSameStepRead(StepRecord& record, const ledger::SlotWrite& write,
                                     const User& reader, uint32_t task) {
  const ledger::PoolUse* use = record.UseOf(reader.row, reader.pool, reader.at);
  if (use == nullptr) return;
  const uint64_t page_size = config_.pools[reader.pool].page_size;
  const uint64_t start = reader.at * page_size;
  const uint64_t length = record.rows[reader.row].length;
  const uint64_t need = length > start ? std::min(page_size, length - start) : 0;
  const uint64_t first = use->begin > start ? use->begin - start : 0;
  if (need <= write.first || first >= write.first + write.n) return;
  const Page& p = pages_.at(write.pool, write.page);
  // Not complete even with this step's writes: the device's fill says so.
  if (!content_.Valid(p, first, need)) return;
  const Held& held = requests_.at(record.rows[reader.row].inc).lists[reader.pool][reader.at];
  if (held.stamp != write.new_stamp && checks_.Has(Reason::kStampMismatch)) {
    Violation v = PlaceOf(record, reader.row, reader.pool, reader.at, write.page);
    v.expected = held.stamp;
    v.found = write.new_stamp;
    Report(Reason::kStampMismatch, v);
    FailRow(record, reader.row, Reason::kStampMismatch);
    return;
  }
  late_.emplace_back(task, reader.at);
  record.reads.push_back({.reader = reader.row,
                          .writer = write.row,
                          .pool = reader.pool,
                          .at = reader.at,
                          .page = write.page});
}

// The device's fill is the end of the last written run: a hole before it is seen here. Asked before
// the row's own writes, as the device does.
void Ledger::Impl::JudgeHoles(StepRecord& record, uint32_t index, const ledger::PoolUse& use) {
  const ledger::RowRecord& row = record.rows[index];
  const PoolConfig& c = config_.pools[use.pool];
  if (row.inc == kNone || c.kind != PoolKind::kKv || !checks_.Has(Reason::kNotCommitted)) return;
  const auto& list = requests_.at(row.inc).lists[use.pool];
  bool holes = false;
  for (uint64_t at = use.first; at < std::min<uint64_t>(use.end, list.size()); ++at) {
    const Held& held = list[at];
    if (held.node == kNone) continue;
    const Page& p = pages_.at(use.pool, held.page);
    const uint64_t start = at * c.page_size;
    if (!content_.Holey(p) || p.stamp != held.stamp || row.length <= start) continue;
    const uint64_t first = use.begin > start ? use.begin - start : 0;
    const uint64_t last = std::min(c.page_size, row.length - start);
    if (content_.Valid(p, first, last) || content_.Fill(p) < last) continue;
    // A copy that the row waits for may fill it yet, and so may another row of this step.
    if (row.loads_begin != row.loads_end && p.pins != kNone) continue;
    if (config_.same_step_reads && pages_.Shared(p)) continue;
    Report(Reason::kNotCommitted, PlaceOf(record, index, use.pool, at, held.page));
    holes = true;
  }
  if (holes) FailRow(record, index, Reason::kNotCommitted);
}

void Ledger::Impl::JudgeLeases(StepId step) {
  if (pins_.leased().empty()) return;
  const std::vector<uint32_t> leased = pins_.leased();
  for (const uint32_t slot : leased) {
    const ledger::Pin& pin = pins_.at(slot);
    if (steps_.launch_count() <= pin.lease_end) continue;
    for (const ledger::PinPage& part : pin.pages) {
      Report(Reason::kInFlight, {.step = static_cast<int64_t>(step.value()),
                                 .req = pin.req,
                                 .pool = pin.pool,
                                 .page = part.page});
    }
    pins_.EndLease(slot);
  }
}

}  // namespace kvfence
