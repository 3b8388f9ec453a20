// Launch: what each row of a step may touch, and what follows for content once it is launched.
//
// Idea: the cost is in rows and in pages written, never in all pages that rows read: what a row may
// read already lies on the device as its request's expectations, and the plan only says which
// logical range of them the step reaches. Lengths grow here, for failing rows too, as the engine
// believes. I-8: nothing in this file reads the arrays under judgement.
#include <algorithm>
#include <string>
#include <utility>

#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "ledger_impl.h"

namespace kvfence {
namespace {

// How many launched rows of a request are remembered, at least, for late trims.
constexpr size_t kMaxNotes = 64;

uint32_t PagesOf(uint64_t tokens, uint64_t page_size) {
  return static_cast<uint32_t>((tokens + page_size - 1) / page_size);
}

// The slots of logical page `at` that positions [begin, end) lie in.
SlotRange SlotsIn(uint64_t at, uint64_t page_size, uint64_t begin, uint64_t end) {
  const uint64_t start = at * page_size;
  const uint64_t first = std::clamp(begin, start, start + page_size) - start;
  const uint64_t last = std::clamp(end, start, start + page_size) - start;
  return {first, std::max(first, last)};
}

}  // namespace

Status Ledger::Impl::CheckRowPlan(const RowPlan& plan, uint32_t slot) const {
  if (plan.row.value() >= config_.rows) {
    return Status::Invalid("there is no row " + std::to_string(plan.row.value()));
  }
  constexpr uint64_t kMax = kMaxLogicalPage;
  const uint64_t length = plan.base.value_or(slot == kNone ? 0 : requests_.at(slot).length);
  // As CheckTokens has it, of what the row reaches.
  if (length <= kMax && plan.new_tokens <= kMax && plan.draft <= kMax &&
      plan.reach.value_or(0) <= kMax && length + plan.new_tokens + plan.draft <= kMax) {
    return {};
  }
  return Status(StatusCode::kResourceExhausted,
                "row " + std::to_string(plan.row.value()) + " is longer than a request can be");
}

Status Ledger::Impl::CheckRows(const StepEvent& event) {
  Status status;
  uint32_t task = 0;
  slots_of_rows_.clear();
  for (const RowPlan& plan : event.rows) {
    slots_of_rows_.push_back(requests_.Find(plan.req));
    if (Status s = CheckRowPlan(plan, slots_of_rows_.back()); !s.ok()) return s;
    if (task_of_row_[plan.row.value()] != kNone) return Status::Invalid("a row stands twice");
    task_of_row_[plan.row.value()] = task++;
  }
  for (const Row row : event.pads) {
    if (row.value() >= config_.rows) return Status::Invalid("there is no such padded row");
    if (task_of_row_[row.value()] != kNone) return Status::Invalid("a row stands twice");
    task_of_row_[row.value()] = task++;
  }
  for (const PrefixPlan& prefix : event.prefix) {
    if (Status s = CheckPool(prefix.pool); !s.ok()) return s;
    for (const Row row : prefix.rows) {
      if (row.value() < config_.rows && task_of_row_[row.value()] < event.rows.size()) continue;
      return Status::Invalid("a shared prefix names a row that isn't in the step");
    }
  }
  return status;
}

Status Ledger::Impl::CheckLaunch(const StepEvent& event) {
  if (event.step.value() < steps_.launched()) {
    return Status(StatusCode::kFailedPrecondition,
                  "step " + std::to_string(event.step.value()) + " isn't later than the last one");
  }
  if (event.pools.empty() && !event.rows.empty()) {
    return Status::Invalid("step: rows without any pool can't be judged");
  }
  for (size_t i = 0; i < event.pools.size(); ++i) {
    if (Status s = CheckPool(event.pools[i].pool); !s.ok()) return s;
    for (size_t k = 0; k < i; ++k) {
      if (event.pools[k].pool == event.pools[i].pool) {
        return Status::Invalid("step: a pool stands twice");
      }
    }
  }
  return CheckRows(event);
}

Status Ledger::Impl::Launch(const StepEvent& event, const StepPlan** plan) {
  Status status = CheckLaunch(event);
  if (status.ok()) {
    BeginEvent();
    plan_.rows.clear();
    plan_.pool_tasks.clear();
    plan_.write_stamps.clear();
    plan_.late_pages.clear();
    plan_.same_step_reads.clear();
    plan_.work = 0;
    late_.clear();
    StepRecord& record = steps_.Begin(event.step.value());
    record.launched_at = now_;
    launching_ = &record;
    FetchRows(event);
    for (uint32_t i = 0; i < event.rows.size(); ++i) LaunchRow(event, record, i);
    for (const Row row : event.pads) LaunchPad(event, row);
    FindGroups(event);
    if (config_.same_step_reads) FindSameStepReads(event, record);
    for (uint32_t i = 0; i < event.rows.size(); ++i) {
      if (!event.rows[i].loads.empty()) FindLoads(event, record, i);
    }
    SortLate();
    JudgeLeases(event.step);
    plan_.same_step_reads = record.reads;
    if (config_.ranks > 1) SetDigests(record);
    launching_ = nullptr;
    *plan = &plan_;
  }
  for (const RowPlan& row : event.rows) {
    if (row.row.value() < config_.rows) task_of_row_[row.row.value()] = kNone;
  }
  for (const Row row : event.pads) {
    if (row.value() < config_.rows) task_of_row_[row.value()] = kNone;
  }
  return status;
}

void Ledger::Impl::LaunchRow(const StepEvent& event, StepRecord& record, uint32_t index) {
  const RowPlan& plan = event.rows[index];
  const uint32_t slot = slots_of_rows_[index];
  const RequestId id = slot == kNone ? requests_.Resolve(plan.req) : requests_.at(slot).id;
  const uint64_t before = slot == kNone ? 0 : requests_.at(slot).length;
  const uint64_t length = plan.base.value_or(before);
  RowTask& task = plan_.rows.emplace_back();
  task = {};
  task.request = id.word();
  task.length_before = length;
  task.new_tokens = plan.new_tokens;
  task.draft = plan.draft;
  task.table_epoch = plan.table_epoch.value_or(StepId()).value();
  task.has_table_epoch = plan.table_epoch ? 1 : 0;
  task.row = plan.row.value();
  task.kind = RowKind::kLive;
  task.group = index;
  task.keep_scales = plan.scales ? 0 : 1;
  const uint64_t bound = rows_[plan.row.value()].changed_step;
  task.table_changed = plan.table_changed
                           ? plan.table_changed->value()
                           : std::max(bound, slot == kNone ? 0 : requests_.at(slot).changed_step);

  record.launched.push_back({.row = plan.row, .req = id, .reasons = {}, .good_prefix = 0});
  ledger::RowRecord& row = record.rows.emplace_back();
  row.inc = slot;
  row.length = length;
  row.new_tokens = plan.new_tokens;
  row.uses_begin = static_cast<uint32_t>(record.uses.size());
  row.writes_begin = static_cast<uint32_t>(record.writes.size());
  row.loads_begin = static_cast<uint32_t>(record.loads.size());
  record.loads.insert(record.loads.end(), plan.loads.begin(), plan.loads.end());
  row.loads_end = static_cast<uint32_t>(record.loads.size());
  if (slot == kNone) {
    // A row of a request that has ended, or never began, has nothing that it may touch.
    Report(Reason::kIdentityReused,
           {.step = static_cast<int64_t>(event.step.value()), .req = id, .row = plan.row.value()});
    if (checks_.Has(Reason::kIdentityReused)) FailRow(record, index, Reason::kIdentityReused);
  } else {
    Incarnation& inc = requests_.at(slot);
    row.serial = inc.serial;
    if (plan.base) {
      if (inc.bases.size() >= kMaxNotes) inc.bases.erase(inc.bases.begin());
      inc.bases.push_back({.tokens = length, .step = record.step, .news = length != before});
    }
    if (length < before) {  // what lies beyond was rejected: no content any more, as after a trim
      inc.length = length;
      CutContent(slot);
    }
    inc.length = length + plan.new_tokens;
    // Many at a time: each erasing moves all that stay.
    if (inc.launches.size() >= 2 * kMaxNotes &&
        inc.launches[kMaxNotes - 1].step < steps_.retired()) {
      inc.launches.erase(inc.launches.begin(), inc.launches.begin() + kMaxNotes);
    }
    inc.launches.push_back({.step = record.step, .new_tokens = plan.new_tokens, .row = index});
  }
  if (keeps_failed()) FailAgain(record, index);
  for (const PoolBuffers& buffers : event.pools) LaunchPool(buffers, plan, record, index, length);
  record.rows[index].uses_end = static_cast<uint32_t>(record.uses.size());
  record.rows[index].writes_end = static_cast<uint32_t>(record.writes.size());
}

void Ledger::Impl::LaunchPool(const PoolBuffers& buffers, const RowPlan& plan, StepRecord& record,
                              uint32_t index, uint64_t length) {
  const uint32_t pool = buffers.pool.value();
  const PoolConfig& c = config_.pools[pool];
  const uint32_t slot = record.rows[index].inc;
  const uint64_t end = length + plan.new_tokens;
  PoolTask task{};
  task.row_task = index;
  task.pool = pool;
  task.prefix = ~0u;
  task.expected = slot == kNone ? 0 : static_cast<uint32_t>(requests_.at(slot).lists[pool].size());
  task.write_begin = static_cast<uint32_t>(plan_.write_stamps.size());
  task.work_begin = plan_.work;
  if (pool < 64 && (plan.pools >> pool & 1) == 0) {  // not touched: there's nothing to judge
    plan_.pool_tasks.push_back(task);
    return;
  }
  uint64_t begin = 0;
  if (c.kind == PoolKind::kKv) {
    // A step of `new` tokens reads the last window + new - 1 of them.
    const uint64_t reads = c.window + plan.new_tokens - 1;
    if (c.window != 0 && c.window + plan.new_tokens > 0 && end > reads) begin = end - reads;
    task.first_page = static_cast<uint32_t>(begin / c.page_size);
    task.covered = PagesOf(end, c.page_size);
    task.write_first = static_cast<uint32_t>(length / c.page_size);
    const uint64_t written = plan.new_tokens + plan.draft;
    task.write_pages = written == 0 ? 0 : PagesOf(length + written, c.page_size) - task.write_first;
  } else {
    task.covered = task.expected;
  }
  const uint64_t per_page = std::max<uint64_t>(1, buffers.table.entries_per_page);
  // Beyond the row's entries there is nothing to look at.
  const uint64_t width = c.width != 0 ? c.width : config_.width;
  const uint32_t reach = PagesOf(std::min(plan.reach.value_or(0), width), per_page);
  const uint32_t used = std::max(task.covered, task.write_first + task.write_pages);
  task.end_page = std::max(used, reach);
  plan_.work += task.end_page - task.first_page;
  RowTask& row = plan_.rows[index];
  row.reach = std::max({row.reach, plan.reach.value_or(0), task.covered * per_page});
  record.uses.push_back({.pool = pool, .first = task.first_page, .end = used, .begin = begin});
  if (content_.holey_pages() > 0) JudgeHoles(record, index, record.uses.back());
  LaunchWrites(record, index, plan, length, &task);
  plan_.pool_tasks.push_back(task);
}

void Ledger::Impl::LaunchWrites(StepRecord& record, uint32_t index, const RowPlan& plan,
                                uint64_t length, PoolTask* task) {
  const uint32_t slot = record.rows[index].inc;
  const uint32_t pool = task->pool;
  const uint64_t page_size = config_.pools[pool].page_size;
  const uint64_t end = length + plan.new_tokens;
  for (uint32_t i = 0; i < task->write_pages; ++i) {
    const uint32_t at = task->write_first + i;
    const Held* held = slot == kNone ? nullptr : HeldAt(requests_.at(slot), pool, at);
    const SlotRange fresh = SlotsIn(at, page_size, length, end);
    Stamp stamp = kNoStamp;
    if (held != nullptr) {
      const Page& p = pages_.at(pool, held->page);
      // The first write makes a copied page the writer's own. A page that others may hit keeps the
      // birth mark it was promised with, and so does one where all that is to be written is there
      // already: a step may skip such tokens.
      const bool sealed = p.entries != kNone || p.out_pins > 0;
      const bool there = p.stamp == held->stamp && content_.Valid(p, fresh.first, fresh.last);
      if (sealed) NoteOpen(p, uint64_t{at} * page_size, task);
      stamp = sealed || there ? held->stamp : MakeStamp(record.rows[index].serial, at);
    }
    plan_.write_stamps.push_back(stamp);
    if (held == nullptr || held->node == kNone) continue;
    if (!record.clean(index)) {
      record.unwritten.push_back(
          {.row = index, .pool = pool, .page = held->page, .tag = held->tag});
      continue;
    }
    LaunchWrite(record, {.row = index,
                         .pool = pool,
                         .at = at,
                         .fresh = fresh,
                         .draft = SlotsIn(at, page_size, end, end + plan.draft),
                         .stamp = stamp,
                         .keep_scale = !plan.scales});
  }
}

// What steps have written that haven't retired isn't committed, so not sealed. Where pages are
// reused in stream order a launched step's writes count, here as for those who hit the page.
void Ledger::Impl::NoteOpen(const Page& page, uint64_t start, PoolTask* task) const {
  const uint64_t fill = content_.Fill(page);
  if (stream() || content_.Settled(page, 0, fill)) return;
  for (uint64_t i = 0; i < fill && task->open_from == 0; ++i) {
    const bool open = content_.Valid(page, i, i + 1) && !content_.Settled(page, i, i + 1);
    if (open) task->open_from = static_cast<uint32_t>(start + i + 1);
  }
}

void Ledger::Impl::LaunchWrite(StepRecord& record, const PlannedWrite& write) {
  const ledger::RowRecord& row = record.rows[write.row];
  Held& held = requests_.at(row.inc).lists[write.pool][write.at];
  Page& p = pages_.at(write.pool, held.page);
  ledger::ContentBook::Saved before = content_.Save(p);
  // Draft slots are void when the step is over, whatever stood there.
  VoidSlots(p, write.draft);
  Derive(write.pool, held.page);
  const uint64_t n = write.fresh.last - write.fresh.first;
  ledger::SlotWrite w{.row = write.row,
                      .pool = write.pool,
                      .page = held.page,
                      .tag = p.tag,
                      .at = write.at,
                      .first = static_cast<uint32_t>(write.fresh.first),
                      .n = static_cast<uint32_t>(n),
                      .old_scale = p.scale,
                      .old_stamp = p.stamp,
                      .new_stamp = n == 0 ? p.stamp : write.stamp,
                      .old_expected = held.stamp,
                      .overwrites = write.fresh.first < content_.Fill(p),
                      .carried = false,
                      .version = p.version,
                      .before = std::move(before)};
  if (n == 0) {
    record.writes.push_back(std::move(w));
    return;
  }
  // A page that is filled from its start begins anew: foreign content before it doesn't count.
  const bool fresh_page = row.length <= write.at * config_.pools[write.pool].page_size;
  if (fresh_page && p.stamp != held.stamp) VoidSlots(p, {0, content_.Fill(p)});
  if (!sums_.empty()) {
    // Of less than the page holds from now on.
    const auto sum = sums_.find({write.stamp, write.pool});
    if (sum != sums_.end() && !sum->second.mixed) sums_.erase(sum);
  }
  // A copy that was promised before it was written keeps the mark of what it was copied from: what
  // follows in both may differ.
  const bool theirs = StampIsReal(write.stamp) && StampSerial(write.stamp) != row.serial;
  if (theirs && !content_.Valid(p, write.fresh.first, write.fresh.last)) {
    SumAt(write.stamp, write.pool).mixed = true;
  }
  held.stamp = write.stamp;
  content_.Launch(p, write.fresh.first, n, write.stamp);
  content_.Own(p, write.stamp);
  w.version = p.version;
  record.writes.push_back(std::move(w));
  Derive(write.pool, held.page);
  if (!config_.pools[write.pool].scales) {
    p.scale = scale_epochs_[write.pool];
  } else if (!write.keep_scale) {
    p.scale = static_cast<uint16_t>(p.tag);
  }
}

void Ledger::Impl::LaunchPad(const StepEvent& event, Row row) {
  const auto index = static_cast<uint32_t>(plan_.rows.size());
  RowTask& task = plan_.rows.emplace_back();
  task = {};
  task.row = row.value();
  task.kind = RowKind::kPad;
  task.group = index;
  for (const PoolBuffers& buffers : event.pools) {
    const PoolConfig& c = config_.pools[buffers.pool.value()];
    const uint64_t per_page = std::max<uint64_t>(1, buffers.table.entries_per_page);
    const uint64_t width = buffers.table.width != 0 ? buffers.table.width
                           : c.width != 0           ? c.width
                                                    : config_.width;
    PoolTask part{};
    part.row_task = index;
    part.pool = buffers.pool.value();
    part.prefix = ~0u;
    part.end_page = PagesOf(width, per_page);
    part.write_begin = static_cast<uint32_t>(plan_.write_stamps.size());
    part.work_begin = plan_.work;
    plan_.work += part.end_page;
    plan_.pool_tasks.push_back(part);
  }
}

// Rows that read one shared-prefix table share their fate.
void Ledger::Impl::FindGroups(const StepEvent& event) {
  const size_t pools = event.pools.size();
  for (uint32_t i = 0; i < event.prefix.size(); ++i) {
    const PrefixPlan& prefix = event.prefix[i];
    if (prefix.rows.empty()) continue;
    const uint32_t group = plan_.rows[task_of_row_[prefix.rows.front().value()]].group;
    for (const Row row : prefix.rows) {
      const uint32_t task = task_of_row_[row.value()];
      const uint32_t other = plan_.rows[task].group;
      if (other != group) {
        for (RowTask& t : plan_.rows) t.group = t.group == other ? group : t.group;
      }
      for (size_t k = 0; k < pools; ++k) {
        PoolTask& part = plan_.pool_tasks[task * pools + k];
        if (part.pool == prefix.pool.value()) part.prefix = i;
      }
    }
  }
  // Groups are numbered without gaps.
  plan_.group_count = 0;
  if (event.prefix.empty()) {
    plan_.group_count = static_cast<uint32_t>(plan_.rows.size());
    return;
  }
  std::vector<uint32_t> number(plan_.rows.size(), kNone);
  for (RowTask& t : plan_.rows) {
    if (number[t.group] == kNone) number[t.group] = plan_.group_count++;
    t.group = number[t.group];
  }
}

void Ledger::Impl::SortLate() {
  std::sort(late_.begin(), late_.end(), [](const auto& a, const auto& b) {
    constexpr uint32_t kPage = ~kLateAtConfirm;
    return std::pair(a.first, a.second & kPage) < std::pair(b.first, b.second & kPage);
  });
  for (size_t i = 0; i < late_.size();) {
    PoolTask& task = plan_.pool_tasks[late_[i].first];
    task.late_begin = static_cast<uint32_t>(plan_.late_pages.size());
    const uint32_t of = late_[i].first;
    for (; i < late_.size() && late_[i].first == of; ++i) {
      const uint32_t page = late_[i].second;
      const bool again = plan_.late_pages.size() > task.late_begin &&
                         (plan_.late_pages.back() & ~kLateAtConfirm) == (page & ~kLateAtConfirm);
      if (again) {
        plan_.late_pages.back() |= page & kLateAtConfirm;
      } else {
        plan_.late_pages.push_back(page);
      }
    }
    task.late_end = static_cast<uint32_t>(plan_.late_pages.size());
  }
}

// What the ranks of a step must agree on, row by row.
void Ledger::Impl::SetDigests(StepRecord& record) {
  for (uint32_t i = 0; i < record.rows.size(); ++i) {
    const ledger::RowRecord& row = record.rows[i];
    LaunchedRow& launched = record.launched[i];
    uint64_t digest = Mix64(launched.row.value());
    digest = Mix64(digest ^ launched.req.word());
    digest = Mix64(digest ^ row.length);
    digest = Mix64(digest ^ row.new_tokens);
    launched.digest = Mix64(digest ^ (row.inc == kNone ? 0 : requests_.at(row.inc).digest));
  }
}

}  // namespace kvfence
