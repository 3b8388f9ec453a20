#include "tests/model/validate_model.h"

#include <algorithm>
#include <optional>

namespace kvfence {
namespace {

constexpr uint32_t kWhole = ~0u;
using Reasons = std::set<Reason>;

// One row in one pool, read out into plain containers.
struct Seen {
  const RowTask* row;
  const PoolTask* task;
  const PoolState* pool;
  const TableView* table;
  const LengthView* lengths;
  bool table_broken = false;
  bool slots_broken = false;
  std::vector<int64_t> entries;  // raw, those the row has
  std::vector<int64_t> slots;
  std::vector<int64_t> prefix;
  std::vector<std::optional<Expectation>> expected;
  std::vector<uint64_t> expected_index;  // in the arena
  uint64_t ps, per_page, entry_tokens, before, length;

  bool Skip(int64_t slot) const { return pool->has_skip_slot ? slot == pool->skip_slot : slot < 0; }
  bool InPool(int64_t page) const { return page >= 0 && page < int64_t{pool->pages}; }
  bool SlotInPool(int64_t slot) const {
    return slot >= 0 && slot < int64_t{pool->pages} * static_cast<int64_t>(ps);
  }
  // (page, part) of entry j; page -1 for negative ones; nothing if the row has no such entry.
  std::optional<std::pair<int64_t, uint64_t>> Entry(uint64_t j) const {
    if (j >= entries.size()) return std::nullopt;
    if (entries[j] < 0) return std::pair<int64_t, uint64_t>{-1, 0};
    const int64_t unit = (entries[j] & table->mask) / table->divisor;
    const int64_t n = static_cast<int64_t>(per_page);
    return std::pair<int64_t, uint64_t>{unit / n, static_cast<uint64_t>(unit % n)};
  }
  std::optional<Expectation> Want(uint64_t k) const {
    return k < expected.size() ? expected[k] : std::nullopt;
  }
  int64_t PageRead(uint64_t k) const {
    if (k < prefix.size()) return prefix[k];
    const auto entry = Entry(k * per_page);
    return entry ? entry->first : -1;
  }
  bool OtherRank(uint64_t position, uint32_t rank) const {
    if (pool->interleave_ranks == 0) return false;
    return (position / pool->interleave_stride) % pool->interleave_ranks != rank;
  }
  uint64_t Fill(int64_t page) const { return pool->records[page].fill_flags & kFillMask; }
};

// [begin, end) by index pointers, or nothing when they make no sense.
std::optional<std::pair<uint64_t, uint64_t>> Bounds(const IntArray& indptr, uint32_t rows,
                                                    uint64_t size, uint32_t row) {
  if (row >= rows || !indptr.present()) return std::nullopt;
  const int64_t a = indptr.Get(row), b = indptr.Get(row + 1);
  if (a < 0 || b < 0 || a > b || b > static_cast<int64_t>(size)) return std::nullopt;
  return std::pair{static_cast<uint64_t>(a), static_cast<uint64_t>(b)};
}

void ReadTable(Seen& seen) {
  const TableView& t = *seen.table;
  uint64_t begin = 0, end = 0;
  if (t.layout == TableLayout::kCsr) {
    const auto bounds = Bounds(t.indptr, t.rows, t.entries_size, seen.row->row);
    seen.table_broken = !bounds;
    if (bounds) std::tie(begin, end) = *bounds;
  } else {
    const int64_t line = t.row_map.present() ? t.row_map.Get(seen.row->row) : seen.row->row;
    if (line < 0 || line >= int64_t{t.rows}) return;
    begin = static_cast<uint64_t>(line) * t.stride;
    end = std::min(begin + t.width, t.entries_size);
  }
  for (uint64_t i = begin; i < end; ++i) seen.entries.push_back(t.entries.Get(i));
}

Seen Read(const GateView& gate, const StepView& step, const PoolTask& task) {
  Seen seen{};
  seen.task = &task;
  seen.row = &step.rows[task.row_task];
  seen.pool = &gate.pools[task.pool];
  seen.table = &step.tables[task.pool];
  seen.lengths = &step.lengths[task.pool];
  seen.ps = seen.pool->page_size;
  seen.per_page = seen.table->entries_per_page;
  seen.entry_tokens = seen.ps / seen.per_page;
  seen.before = seen.row->length_before;
  seen.length = seen.before + seen.row->new_tokens;
  ReadTable(seen);
  const SlotView& slots = step.slots[task.pool];
  if (slots.slots.present() && slots.indptr.present() && seen.row->row < slots.rows) {
    const auto bounds = Bounds(slots.indptr, slots.rows, slots.slots_size, seen.row->row);
    seen.slots_broken = !bounds;
    for (uint64_t i = bounds ? bounds->first : 0; bounds && i < bounds->second; ++i) {
      seen.slots.push_back(slots.slots.Get(i));
    }
  }
  if (task.prefix < step.prefix_count) {
    const PrefixTable& prefix = step.prefixes[task.prefix];
    seen.prefix.assign(prefix.pages, prefix.pages + prefix.count);
  }
  for (uint32_t k = 0; k < task.expected; ++k) {
    const uint32_t chunk = step.chunks[task.chunk_begin + k / kChunkEntries];
    const uint64_t index = uint64_t{chunk} * kChunkEntries + k % kChunkEntries;
    seen.expected_index.push_back(index);
    const bool known = chunk < gate.chunk_count && gate.expectations[index].page != kNoPage;
    seen.expected.push_back(known ? std::optional(gate.expectations[index]) : std::nullopt);
  }
  return seen;
}

std::vector<const PoolTask*> TasksOf(const StepView& step, uint32_t row_task) {
  std::vector<const PoolTask*> tasks;
  for (uint32_t t = 0; t < step.pool_task_count; ++t) {
    if (step.pool_tasks[t].row_task == row_task) tasks.push_back(&step.pool_tasks[t]);
  }
  return tasks;
}

enum class Mode { kValidate, kConfirm, kConfirmStored };

// The judgement of one row in one pool: what holds at each place.
class PoolJudge {
 public:
  PoolJudge(const StepView& step, const Seen& s, Mode mode, const std::vector<Stamp>* seen_stamps)
      : step_(step), s_(s), mode_(mode), seen_stamps_(seen_stamps) {}

  std::map<uint64_t, Reasons> places;       // at -> everything wrong there
  std::map<uint64_t, Reasons> late_places;  // confirm: under their own reasons
  std::optional<Reasons> stray;             // free-form slots in nobody's page
  std::set<uint64_t> prefix_mismatch;       // the shared-prefix table names another page at k

  void Run() {
    if (!s_.table_broken) {
      for (uint64_t k = s_.task->first_page; k < s_.task->end_page; ++k) {
        if (k < s_.task->covered) {
          Covered(k);
        } else {
          Beyond(k);
        }
      }
    }
    s_.pool->free_form ? FreeFormSlots() : Slots();
  }

 private:
  void Hit(uint64_t k, Reason reason) { places[k].insert(reason); }

  void Identity(uint64_t k, int64_t page, bool right_part, bool missing = false) {
    const auto want = s_.Want(k);
    // What is only written through an entry that names no page, the slot answers for.
    const bool read = s_.pool->free_form || k < s_.task->covered;
    if (!read && (page < 0 || page == s_.pool->null_page)) return;
    if (missing && k * s_.ps >= s_.before && LastWritten(k) != 0) return;
    if (!s_.InPool(page) || page == s_.pool->null_page) Hit(k, Reason::kPageOutOfRange);
    if (!want || page != int64_t{want->page} || !right_part) Hit(k, Reason::kPageMismatch);
  }

  // All table entries that stand for tokens [k * ps, end).
  void Entries(uint64_t k, uint64_t end) {
    const bool shared = k < s_.prefix.size();
    if (shared) {
      Identity(k, s_.prefix[k], true);
      const auto want = s_.Want(k);
      if (!want || s_.prefix[k] != int64_t{want->page}) prefix_mismatch.insert(k);
    }
    for (uint64_t p = k * s_.ps; p < end && !shared; ++p) {
      const auto entry = s_.Entry(p / s_.entry_tokens);
      const uint64_t part = p / s_.entry_tokens % s_.per_page;
      Identity(k, entry ? entry->first : -1, !entry || entry->second == part,
               !entry && !s_.pool->free_form);
    }
    const auto want = s_.Want(k);
    const int64_t page = s_.PageRead(k);
    const bool none = !s_.pool->free_form && k >= s_.task->covered && page == s_.pool->null_page;
    if (want && s_.InPool(page) && !none && s_.pool->records[page].tag != want->tag) {
      Hit(k, Reason::kTagMismatch);
    }
  }

  std::optional<bool> LateAtConfirm(uint64_t k) const {
    for (uint32_t i = s_.task->late_begin; i < s_.task->late_end; ++i) {
      if ((step_.late_pages[i] & ~kLateAtConfirm) == k) {
        return (step_.late_pages[i] & kLateAtConfirm) != 0;
      }
    }
    return std::nullopt;
  }

  void FullContent(uint64_t k, std::map<uint64_t, Reasons>& out) {
    const int64_t page = s_.PageRead(k);
    const PageRecord& record = s_.pool->records[page];
    const Expectation want = *s_.Want(k);
    if (s_.pool->free_form) {
      if (Failed(k, page, record.stamp, out)) return;
      const bool cleared = record.stamp == kNobodyStamp && s_.before == 0;
      if (record.stamp != kNoStamp && record.stamp != want.stamp && !cleared) {
        out[k].insert(Reason::kStampMismatch);
      }
      return;
    }
    const uint16_t scale =
        s_.pool->page_scales ? static_cast<uint16_t>(want.tag) : s_.pool->scale_epoch;
    for (uint64_t p = k * s_.ps; p < std::min(s_.before, (k + 1) * s_.ps); ++p) {
      if (record.stamp == kNoStamp) {
        out[k].insert(Reason::kNotCommitted);
        continue;
      }
      if (record.stamp != want.stamp) out[k].insert(Reason::kStampMismatch);
      if (record.scale != scale) out[k].insert(Reason::kScaleMismatch);
      if (p % s_.ps >= s_.Fill(page)) out[k].insert(Reason::kNotCommitted);
    }
    Skipped(k, out);
  }

  // Nothing but a failed copy's there: good only for a row that writes the page and doesn't read
  // it.
  bool Failed(uint64_t k, int64_t page, Stamp stamp, std::map<uint64_t, Reasons>& out) {
    if (stamp != kFailedStamp) return false;
    bool writes = false;
    for (const int64_t slot : s_.slots) {
      const bool inside = slot >= 0 && s_.InPool(slot / static_cast<int64_t>(s_.ps));
      writes = writes || (!s_.Skip(slot) && inside && slot / static_cast<int64_t>(s_.ps) == page);
    }
    const bool reads = s_.before != 0 && s_.pool->free_form == 1;
    if (!writes || reads) out[k].insert(Reason::kNotCommitted);
    return true;
  }

  void Skipped(uint64_t k, std::map<uint64_t, Reasons>& out) {
    const int64_t page = s_.PageRead(k);
    const PageRecord& record = s_.pool->records[page];
    for (uint64_t p = std::max(s_.before, k * s_.ps); p < std::min(s_.length, (k + 1) * s_.ps);
         ++p) {
      const uint64_t i = p - s_.before;
      if (i < s_.slots.size() && !s_.Skip(s_.slots[i])) continue;
      if (s_.OtherRank(p, step_.rank)) continue;
      const bool own = k * s_.ps < s_.before || record.stamp == s_.Want(k)->stamp;
      if (!own || p % s_.ps >= s_.Fill(page)) out[k].insert(Reason::kNotCommitted);
    }
  }

  void Covered(uint64_t k) {
    Entries(k, s_.pool->free_form ? (k + 1) * s_.ps : std::min(s_.length, (k + 1) * s_.ps));
    const int64_t page = s_.PageRead(k);
    const auto want = s_.Want(k);
    if (!want || !s_.InPool(page)) return;
    const auto late = LateAtConfirm(k);
    if (mode_ == Mode::kValidate) {
      if (!late) FullContent(k, places);
      return;
    }
    // Behind the step a page may have gone to another generation.
    if (mode_ == Mode::kConfirmStored && s_.pool->records[page].tag != want->tag) return;
    if (late) {
      if (*late) FullContent(k, late_places);
      return;
    }
    if (!s_.pool->free_form && mode_ == Mode::kConfirm) Skipped(k, places);
    const Stamp stamp = s_.pool->records[page].stamp;
    if (s_.pool->free_form && Failed(k, page, stamp, places)) return;
    Recheck(k, stamp, *want);
  }

  void Recheck(uint64_t k, Stamp stamp, const Expectation& want) {
    if (s_.pool->free_form) {
      const bool cleared = stamp == kNobodyStamp && s_.before == 0;
      if (stamp != kNoStamp && stamp != want.stamp && !cleared) Hit(k, Reason::kStampMismatch);
      return;
    }
    if (k * s_.ps < s_.before) {
      if (stamp == kNoStamp) Hit(k, Reason::kNotCommitted);
      if (stamp != kNoStamp && stamp != want.stamp) Hit(k, Reason::kStampMismatch);
      return;
    }
    const PoolTask& task = *s_.task;
    if (k < task.write_first || k >= uint64_t{task.write_first} + task.write_pages) return;
    const uint64_t w = task.write_begin + k - task.write_first;
    if (mode_ == Mode::kConfirmStored && stamp == step_.write_stamps[w]) return;
    if (stamp != seen_stamps_->at(w)) Hit(k, Reason::kStampMismatch);
  }

  // One past the last position of page k that a new or draft slot writes.
  uint64_t LastWritten(uint64_t k) const {
    uint64_t end = 0;
    for (uint64_t i = 0; i < s_.slots.size() && i < s_.row->new_tokens + s_.row->draft; ++i) {
      if ((s_.before + i) / s_.ps == k && !s_.Skip(s_.slots[i])) end = s_.before + i + 1;
    }
    return end;
  }

  void Beyond(uint64_t k) {
    const uint64_t end = s_.pool->free_form ? 0 : LastWritten(k);
    if (end != 0) {
      Entries(k, end);
    } else if (k < s_.row->reach) {
      for (uint64_t j = k * s_.per_page; j < (k + 1) * s_.per_page; ++j) {
        const auto entry = s_.Entry(j);
        const auto want = s_.Want(k);
        if (!entry || entry->first == s_.pool->null_page) continue;
        if (want && entry->first == int64_t{want->page} && entry->second == j % s_.per_page) {
          continue;
        }
        Hit(k, Reason::kRowTail);
      }
    }
  }

  void SealedOrShared(uint64_t k, int64_t slot, bool open = false) {
    const PageRecord& record = s_.pool->records[slot / static_cast<int64_t>(s_.ps)];
    if (record.fill_flags & kPageShared) Hit(k, Reason::kWriteShared);
    const uint64_t off = static_cast<uint64_t>(slot) % s_.ps;
    const bool holds = s_.pool->free_form || off < (record.fill_flags & kFillMask);
    if ((record.fill_flags & kPageSealed) && holds && !open) {
      Hit(k, Reason::kWriteShared);
    }
  }

  void Slots() {
    for (uint64_t i = 0; i < s_.slots.size(); ++i) {
      const int64_t slot = s_.slots[i];
      if (s_.Skip(slot)) continue;
      const uint64_t p = s_.before + i;
      const uint64_t k = p / s_.ps;
      const bool beyond = k >= s_.task->end_page;
      if (!beyond && s_.table_broken) continue;
      Reasons at;
      if (!s_.SlotInPool(slot)) at.insert(Reason::kPageOutOfRange);
      std::optional<uint64_t> own;
      if (k < s_.prefix.size()) {
        if (s_.InPool(s_.prefix[k])) own = static_cast<uint64_t>(s_.prefix[k]) * s_.ps + p % s_.ps;
      } else if (const auto entry = s_.Entry(p / s_.entry_tokens);
                 entry && s_.InPool(entry->first) && entry->first != s_.pool->null_page) {
        own = static_cast<uint64_t>(entry->first) * s_.ps + entry->second * s_.entry_tokens +
              p % s_.entry_tokens;
      }
      const bool surplus = i >= s_.row->new_tokens + s_.row->draft;
      if (beyond || surplus || !own || slot != static_cast<int64_t>(*own)) {
        at.insert(Reason::kWriteTarget);
      }
      for (Reason reason : at) Hit(k, reason);
      // Its own slots of steps that haven't retired may be written again.
      const bool mine = own && slot == static_cast<int64_t>(*own);
      const bool open = mine && s_.task->open_from != 0 && p >= s_.task->open_from - 1;
      if (!beyond && s_.SlotInPool(slot)) SealedOrShared(k, slot, open);
    }
  }

  void FreeFormSlots() {
    for (int64_t slot : s_.slots) {
      if (s_.Skip(slot)) continue;
      bool own = false;
      for (uint64_t k = s_.task->first_page; k < s_.task->covered; ++k) {
        if (slot < 0 || s_.PageRead(k) != slot / static_cast<int64_t>(s_.ps)) continue;
        own = true;
        if (s_.SlotInPool(slot) && !s_.table_broken) SealedOrShared(k, slot);
      }
      if (stray) continue;
      Reasons wrong;
      if (!s_.SlotInPool(slot)) wrong.insert(Reason::kPageOutOfRange);
      if (!own) wrong.insert(Reason::kWriteTarget);
      std::erase_if(wrong, [&](Reason r) { return (step_.checks & ReasonBit(r)) == 0; });
      if (!wrong.empty()) stray = wrong;
    }
  }

  const StepView& step_;
  const Seen& s_;
  const Mode mode_;
  const std::vector<Stamp>* seen_stamps_;
};

void Lengths(const Seen& s, Reasons& at) {
  const auto wrong = [&] { at.insert(Reason::kLengthMismatch); };
  if (s.table_broken || s.slots_broken) wrong();
  if (s.pool->free_form) return;
  const bool csr = s.table->layout == TableLayout::kCsr;
  if (s.lengths->values.present()) {
    if (s.row->row >= s.lengths->rows) {
      wrong();
    } else if (s.lengths->values.Get(s.row->row) != static_cast<int64_t>(s.length)) {
      wrong();
    }
  } else if (!csr) {
    wrong();
  }
  if (s.prefix.size() > s.task->covered) wrong();
  if (!csr || s.table_broken) return;
  const uint64_t n = s.entries.size();
  if (n != (s.length + s.entry_tokens - 1) / s.entry_tokens) wrong();
  if (!s.table->last_page_len.present()) return;
  const int64_t last = s.table->last_page_len.Get(s.row->row);
  const int64_t said = n == 0 ? 0 : static_cast<int64_t>((n - 1) * s.entry_tokens) + last;
  if (said != static_cast<int64_t>(s.length)) wrong();
}

Reasons RowPlace(const GateView& gate, const StepView& step, uint32_t r) {
  Reasons at;
  const RowTask& row = step.rows[r];
  for (const PoolTask* task : TasksOf(step, r)) Lengths(Read(gate, step, *task), at);
  if (row.row >= gate.rows || gate.row_requests[row.row] != row.request) {
    at.insert(Reason::kRowEpoch);
  }
  if (row.has_table_epoch && row.table_epoch < row.table_changed) at.insert(Reason::kTableEpoch);
  return at;
}

// `pool`: the first in which the row isn't harmless.
Reasons PadPlace(const GateView& gate, const StepView& step, uint32_t r, uint32_t* pool) {
  Reasons at;
  for (const PoolTask* task : TasksOf(step, r)) {
    const Seen s = Read(gate, step, *task);
    if (s.table_broken || s.slots_broken) at.insert(Reason::kLengthMismatch);
    for (uint64_t j = 0; j < s.entries.size(); ++j) {
      if (s.Entry(j)->first != s.pool->null_page) at.insert(Reason::kPadRow);
    }
    for (int64_t slot : s.slots) {
      if (!s.Skip(slot)) at.insert(Reason::kPadRow);
    }
    if (at.contains(Reason::kPadRow) && *pool == kWhole) *pool = task->pool;
  }
  return at;
}

// The first reason in order that the step asks for.
std::optional<Reason> First(const Reasons& at, uint32_t checks) {
  for (Reason reason : at) {
    if ((checks & ReasonBit(reason)) != 0) return reason;
  }
  return std::nullopt;
}

void Add(ModelVerdict& verdict, uint32_t r, uint32_t pool, uint64_t at,
         std::optional<Reason> reason) {
  if (!reason) return;
  verdict.findings.insert(ModelFinding{r, pool, static_cast<uint32_t>(at), *reason});
  verdict.reasons[r] |= ReasonBit(*reason);
}

}  // namespace

ModelVerdict ModelValidate(const GateView& gate, const StepView& step) {
  ModelVerdict verdict;
  verdict.reasons.assign(step.row_count, 0);
  std::map<uint32_t, uint64_t> group_failed;  // first failing page
  for (uint32_t r = 0; r < step.row_count; ++r) {
    const RowTask& row = step.rows[r];
    if (row.doomed != 0) {
      verdict.reasons[r] = 1u << (row.doomed - 1);
      continue;
    }
    const bool pad = row.kind == RowKind::kPad;
    uint32_t pool = kWhole;
    const auto first =
        First(pad ? PadPlace(gate, step, r, &pool) : RowPlace(gate, step, r), step.checks);
    Add(verdict, r, first == Reason::kPadRow ? pool : kWhole, kWhole, first);
    if (pad) continue;
    for (const PoolTask* task : TasksOf(step, r)) {
      const Seen seen = Read(gate, step, *task);
      PoolJudge judge(step, seen, Mode::kValidate, nullptr);
      judge.Run();
      for (const auto& [k, at] : judge.places) {
        const auto reason = First(at, step.checks);
        Add(verdict, r, task->pool, k, reason);
        if (reason != Reason::kPageMismatch || !judge.prefix_mismatch.contains(k)) continue;
        const auto [first, fresh] = group_failed.try_emplace(row.group, k);
        first->second = std::min(first->second, k);
      }
      if (judge.stray) Add(verdict, r, task->pool, kWhole, First(*judge.stray, step.checks));
    }
  }
  for (uint32_t r = 0; r < step.row_count; ++r) {
    const auto failed = group_failed.find(step.rows[r].group);
    if (failed == group_failed.end() || step.rows[r].doomed != 0) continue;
    if ((verdict.reasons[r] & ReasonBit(Reason::kPageMismatch)) != 0) continue;
    uint32_t pool = TasksOf(step, r).back()->pool;
    for (const PoolTask* task : TasksOf(step, r)) {
      if (task->prefix < step.prefix_count) {
        pool = task->pool;
        break;
      }
    }
    Add(verdict, r, pool, failed->second, Reason::kPageMismatch);
  }
  return verdict;
}

ModelVerdict ModelConfirm(const GateView& gate, const StepView& step,
                          const std::vector<uint32_t>& reasons, const std::vector<Stamp>& seen,
                          bool stored) {
  ModelVerdict verdict;
  verdict.reasons = reasons;
  // Neither the flags of pages, nor the age of plans, nor fill and scale of what was judged.
  const uint32_t asked =
      step.checks & ~(ReasonBit(Reason::kWriteShared) | ReasonBit(Reason::kTableEpoch) |
                      ReasonBit(Reason::kScaleMismatch));
  const auto changed = [&](const Reasons& at) {
    return First(at, asked) ? First({Reason::kChangedDuringStep}, step.checks) : std::nullopt;
  };
  for (uint32_t r = 0; r < step.row_count; ++r) {
    if (reasons[r] != 0) continue;
    const bool pad = step.rows[r].kind == RowKind::kPad;
    uint32_t pad_pool = kWhole;
    Add(verdict, r, kWhole, kWhole,
        changed(pad ? PadPlace(gate, step, r, &pad_pool) : RowPlace(gate, step, r)));
    if (pad) continue;
    for (const PoolTask* task : TasksOf(step, r)) {
      const Seen s = Read(gate, step, *task);
      PoolJudge judge(step, s, stored ? Mode::kConfirmStored : Mode::kConfirm, &seen);
      judge.Run();
      for (const auto& [k, at] : judge.places) Add(verdict, r, task->pool, k, changed(at));
      for (const auto& [k, at] : judge.late_places) {
        if (judge.places.contains(k) && First(judge.places[k], asked)) continue;
        Add(verdict, r, task->pool, k, First(at, step.checks));
      }
      if (judge.stray) Add(verdict, r, task->pool, kWhole, changed(*judge.stray));
    }
  }
  return verdict;
}

std::map<uint32_t, Stamp> ModelSeen(const GateView& gate, const StepView& step) {
  std::map<uint32_t, Stamp> seen;
  for (uint32_t t = 0; t < step.pool_task_count; ++t) {
    const PoolTask& task = step.pool_tasks[t];
    if (step.rows[task.row_task].doomed != 0 || step.rows[task.row_task].kind == RowKind::kPad) {
      continue;
    }
    const Seen s = Read(gate, step, task);
    for (uint32_t w = 0; w < task.write_pages; ++w) {
      const int64_t page = s.PageRead(task.write_first + w);
      seen[task.write_begin + w] = s.InPool(page) ? s.pool->records[page].stamp : kNoStamp;
    }
  }
  return seen;
}

namespace {

// Token by token: what is committed in page k after the step, and whether the step wrote there.
void StorePage(const StepView& step, const Seen& s, uint64_t k, ModelStores& stores) {
  const int64_t page = s.PageRead(k);
  if (!s.InPool(page) || page == s.pool->null_page) return;
  PageRecord record = s.pool->records[page];
  const auto want = k < s.expected.size() ? s.expected[k] : std::nullopt;
  std::set<uint64_t> there;  // committed offsets
  const bool own = k * s.ps < s.before || (want && record.stamp == want->stamp);
  for (uint64_t off = 0; own && off < s.Fill(page); ++off) there.insert(off);
  bool wrote = false;
  if (s.pool->free_form) {
    for (int64_t slot : s.slots) {
      if (s.Skip(slot) || slot / static_cast<int64_t>(s.ps) != page) continue;
      wrote = true;
      for (uint64_t off = 0; off <= static_cast<uint64_t>(slot) % s.ps; ++off) there.insert(off);
    }
  } else {
    for (uint64_t i = 0; i < s.row->new_tokens; ++i) {
      const uint64_t p = s.before + i;
      if (p / s.ps != k) continue;
      const bool written = i < s.slots.size() && !s.Skip(s.slots[i]);
      if (!written && !s.OtherRank(p, step.rank)) continue;
      wrote = true;
      there.insert(p % s.ps);
    }
  }
  if (!wrote) return;
  uint64_t fill = 0;
  while (there.contains(fill)) ++fill;
  record.stamp = step.write_stamps[s.task->write_begin + k - s.task->write_first];
  record.fill_flags =
      static_cast<uint16_t>((record.fill_flags & (kPageShared | kPageSealed)) | fill);
  if (!s.pool->page_scales) record.scale = s.pool->scale_epoch;
  if (s.pool->page_scales && !s.row->keep_scales) record.scale = static_cast<uint16_t>(record.tag);
  stores.records[{s.task->pool, page}] = record;
  if (k < s.expected_index.size()) stores.expected_stamps[s.expected_index[k]] = record.stamp;
}

}  // namespace

ModelStores ModelStore(const GateView& gate, const StepView& step,
                       const std::vector<uint32_t>& reasons) {
  ModelStores stores;
  for (uint32_t t = 0; t < step.pool_task_count; ++t) {
    const PoolTask& task = step.pool_tasks[t];
    if (reasons[task.row_task] != 0 || step.rows[task.row_task].kind == RowKind::kPad) continue;
    const Seen s = Read(gate, step, task);
    for (uint32_t w = 0; w < task.write_pages; ++w) {
      StorePage(step, s, task.write_first + w, stores);
    }
  }
  return stores;
}

}  // namespace kvfence
