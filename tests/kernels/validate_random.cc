#include "tests/kernels/validate_random.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence {
namespace {

PoolSpec RandomPool(Rng& rng, bool first) {
  PoolSpec spec;
  const uint32_t sizes[] = {1, 2, 4, 8};
  spec.page_size = sizes[rng.Below(4)];
  spec.pages = 600;
  spec.null_page = rng.Chance(1, 5) ? static_cast<uint32_t>(rng.Below(spec.pages)) : 0;
  spec.window = rng.Chance(1, 4) ? static_cast<uint32_t>(rng.Between(1, 12)) : 0;
  spec.page_scales = rng.Chance(1, 2);
  spec.free_form = !first && rng.Chance(1, 6);
  if (spec.free_form) spec.window = 0;
  if (rng.Chance(1, 4)) spec.skip_slot = rng.Chance(1, 2) ? -1 : -9;
  if (rng.Chance(1, 8)) {
    spec.interleave_ranks = 2;
    spec.interleave_stride = static_cast<uint32_t>(rng.Between(1, 6));
  }
  spec.bits = rng.Chance(1, 2) ? 32 : 64;
  if (rng.Chance(1, 3))
    spec.per_page = rng.Chance(1, 2) ? spec.page_size : (spec.page_size + 1) / 2;
  if (spec.page_size % spec.per_page != 0) spec.per_page = 1;
  if (rng.Chance(1, 8)) spec.divisor = 2;
  if (rng.Chance(1, 8)) spec.flag = 1 << 28;
  if (rng.Chance(1, 3)) {
    spec.layout = TableLayout::kCsr;
    spec.lengths = rng.Chance(1, 2);
  } else {
    spec.row_map = rng.Chance(1, 3);
  }
  const uint64_t mode = rng.Below(6);
  spec.sanitise = mode == 0   ? SanitiseMode::kNever
                  : mode == 1 ? SanitiseMode::kRestore
                              : SanitiseMode::kInPlace;
  spec.width_pages = 110;
  return spec;
}

// Hands out pages of a pool, never the null page.
class FreePages {
 public:
  explicit FreePages(const PoolSpec& spec, Rng& rng) {
    for (uint32_t p = 0; p < spec.pages; ++p) {
      if (p != spec.null_page) pages_.push_back(p);
    }
    for (size_t i = pages_.size(); i > 1; --i) std::swap(pages_[i - 1], pages_[rng.Below(i)]);
  }
  uint32_t Take() {
    KVF_CHECK(!pages_.empty(), "the pools of random batches hold all their rows");
    const uint32_t page = pages_.back();
    pages_.pop_back();
    return page;
  }

 private:
  std::vector<uint32_t> pages_;
};

struct Prefix {
  uint32_t id = ~0u;
  std::vector<uint32_t> pages;
};

// A csr table names the covered tokens only, so its rows can't draft beyond their last entry.
uint64_t RoomForDraft(const std::vector<PoolSpec>& pools, uint64_t length) {
  uint64_t room = 6;
  for (const PoolSpec& pool : pools) {
    if (pool.layout != TableLayout::kCsr || pool.free_form) continue;
    const uint64_t entry = pool.page_size / pool.per_page;
    room = std::min(room, (entry - length % entry) % entry);
  }
  return room;
}

RowSpec RandomRow(Rng& rng, const std::vector<PoolSpec>& pools, uint32_t row,
                  std::vector<FreePages>& free, const Prefix& prefix) {
  RowSpec spec;
  spec.row = row;
  const uint64_t least = prefix.pages.size() * pools[0].page_size;
  spec.before = least + rng.Below(rng.Chance(1, 6) ? 60 : 14);
  spec.new_tokens = rng.Chance(1, 3) ? rng.Below(10) : 1;
  if (spec.before + spec.new_tokens == 0) spec.new_tokens = 1;
  const uint64_t length = spec.before + spec.new_tokens;
  if (rng.Chance(1, 3)) spec.draft = rng.Below(RoomForDraft(pools, length) + 1);
  if (rng.Chance(1, 4)) spec.reach = rng.Below(108);
  spec.keep_scales = rng.Chance(1, 5);
  if (prefix.id != ~0u) {
    spec.group = 7;
    spec.prefix_of_pool = 0;
    spec.prefix = prefix.id;
  }
  for (size_t p = 0; p < pools.size(); ++p) {
    const uint64_t held = (length + spec.draft + pools[p].page_size - 1) / pools[p].page_size;
    std::vector<uint32_t> pages;
    for (uint64_t k = 0; k < held; ++k) {
      const bool shared = p == 0 && k < prefix.pages.size();
      pages.push_back(shared ? prefix.pages[k] : free[p].Take());
    }
    if (pools[p].free_form) pages.resize(std::min<size_t>(pages.size(), 2));
    spec.pages.push_back(std::move(pages));
  }
  return spec;
}

// A word that tables, slots and lengths should not hold, or hold elsewhere.
int64_t RandomWord(const Batch& batch, Rng& rng, uint32_t pool, int64_t old) {
  const PoolState& state = batch.pools[pool];
  switch (rng.Below(8)) {
    case 0:
      return state.null_page;
    case 1:
      return -static_cast<int64_t>(rng.Between(1, 9));
    case 2:
      return state.pages;
    case 3:
      return old + 1;
    case 4:
      return old - 1;
    case 5:
      return (int64_t{1} << 30) + static_cast<int64_t>(rng.Below(1000));
    default:
      return static_cast<int64_t>(rng.Below(state.pages * state.page_size));
  }
}

void DamageArray(Batch& batch, Rng& rng, uint32_t pool, IntBuffer& buffer) {
  if (buffer.empty()) return;
  const uint64_t i = rng.Below(buffer.size());
  buffer.Set(i, RandomWord(batch, rng, pool, buffer.Get(i)));
}

// An entry that some live row's launch really looks at.
void DamageEntry(Batch& batch, Rng& rng) {
  const PoolTask& task = batch.tasks[rng.Below(batch.tasks.size())];
  const RowTask& row = batch.rows[task.row_task];
  PoolArrays& a = batch.arrays[task.pool];
  if (task.end_page == 0 || a.entries.empty()) return;
  const uint64_t entries = uint64_t{task.end_page} * a.shape.entries_per_page;
  if (entries == 0) return;  // a shape without entries, as fuzzing makes them
  uint64_t i = batch.EntryIndex(task.pool, row.row, rng.Below(entries));
  if (i >= a.entries.size()) i = rng.Below(a.entries.size());
  int64_t word = RandomWord(batch, rng, task.pool, a.entries.Get(i));
  if (rng.Chance(1, 2)) word *= a.shape.divisor * a.shape.entries_per_page;
  a.entries.Set(i, word);
}

void DamageRecord(Batch& batch, Rng& rng) {
  const PoolTask& task = batch.tasks[rng.Below(batch.tasks.size())];
  if (task.expected == 0) return;
  const auto at = static_cast<uint32_t>(rng.Below(task.expected));
  if (batch.ExpectationOf(static_cast<uint32_t>(&task - batch.tasks.data()), at).page == kNoPage) {
    return;
  }
  PageRecord& record = batch.RecordOf(static_cast<uint32_t>(&task - batch.tasks.data()), at);
  switch (rng.Below(7)) {
    case 0:
      record.tag += static_cast<Tag>(rng.Between(1, 2));
      break;
    case 1:
      record.stamp = MakeStamp(77, at);
      break;
    case 2: {
      uint8_t& form = batch.pools[task.pool].free_form;
      if (form != 0 && rng.Chance(1, 2)) form = kCrossForm;
      record.stamp = form != 0 && rng.Chance(1, 2) ? kFailedStamp : kNoStamp;
      break;
    }
    case 3:
      record.scale = static_cast<uint16_t>(record.scale + 1);
      break;
    case 4: {
      const uint64_t fill = rng.Below(batch.pools[task.pool].page_size + 1);
      record.fill_flags = static_cast<uint16_t>((record.fill_flags & ~kFillMask) | fill);
      break;
    }
    case 5:
      record.fill_flags ^= kPageShared;
      break;
    default:
      record.fill_flags ^= kPageSealed;
      batch.tasks[static_cast<size_t>(&task - batch.tasks.data())].open_from =
          static_cast<uint32_t>(rng.Below(12));
      break;
  }
}

// The arrays hold one token more than the plan says; in itself the plan stays sound.
void PlanOneTokenLess(Batch& batch, RowTask* row) {
  --row->new_tokens;
  const uint64_t length = row->length_before + row->new_tokens;
  for (PoolTask& task : batch.tasks) {
    const PoolState& pool = batch.pools[task.pool];
    if (&batch.rows[task.row_task] != row || pool.free_form != 0) continue;
    task.covered = static_cast<uint32_t>((length + pool.page_size - 1) / pool.page_size);
  }
}

void DamageTask(Batch& batch, Rng& rng) {
  RowTask& row = batch.rows[rng.Below(batch.rows.size())];
  const auto task = static_cast<uint32_t>(rng.Below(batch.tasks.size()));
  switch (rng.Below(4)) {
    case 0:
      row.has_table_epoch = 1;
      row.table_epoch = rng.Below(6);
      break;
    case 1:
      if (batch.tasks[task].expected != 0) {
        const auto at = static_cast<uint32_t>(rng.Below(batch.tasks[task].expected));
        Expectation& want = batch.ExpectationOf(task, at);
        want.page = rng.Chance(1, 2) ? kNoPage : static_cast<uint32_t>(rng.Below(20));
      }
      break;
    case 2:
      if (!batch.prefixes.empty() && !batch.prefixes[0].empty()) {
        auto& prefix = batch.prefixes[0];
        prefix[rng.Below(prefix.size())] = RandomWord(batch, rng, 0, 5);
      }
      break;
    default:
      if (row.kind == RowKind::kLive && row.new_tokens > 0) PlanOneTokenLess(batch, &row);
      break;
  }
}

}  // namespace

Batch RandomBatch(Rng& rng, uint32_t pools, uint32_t rows) {
  std::vector<PoolSpec> specs;
  for (uint32_t p = 0; p < pools; ++p) specs.push_back(RandomPool(rng, p == 0));
  std::vector<FreePages> free;
  for (const PoolSpec& spec : specs) free.emplace_back(spec, rng);
  // Rows live at scattered lines; some lines are padded, some aren't in the launch.
  std::vector<uint32_t> lines;
  for (uint32_t r = 0; r < rows * 2 + 2; ++r) lines.push_back(r);
  for (size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[rng.Below(i)]);
  BatchBuilder builder(specs, static_cast<uint32_t>(lines.size()));
  Prefix prefix;
  const bool shared = specs[0].interleave_ranks == 0 && specs[0].window == 0 && rng.Chance(1, 2);
  if (shared) {
    for (uint64_t k = rng.Between(1, 3); k > 0; --k) prefix.pages.push_back(free[0].Take());
    prefix.id = builder.AddPrefix(prefix.pages);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    const bool in_group = shared && r < 3;
    builder.AddRow(RandomRow(rng, specs, lines[r], free, in_group ? prefix : Prefix()));
  }
  for (uint64_t p = rng.Below(3); p > 0; --p) {
    builder.AddPad(lines[rows + p], static_cast<uint32_t>(rng.Below(3)));
  }
  return builder.Build();
}

void Damage(Batch& batch, Rng& rng, bool device_only) {
  const auto pool = static_cast<uint32_t>(rng.Below(batch.pools.size()));
  PoolArrays& a = batch.arrays[pool];
  switch (rng.Below(device_only ? 11 : 13)) {
    case 0:
    case 1:
    case 2:
      DamageEntry(batch, rng);
      break;
    case 3:
    case 4:
      DamageRecord(batch, rng);
      break;
    case 5:
    case 6:
      DamageArray(batch, rng, pool, a.slots);
      break;
    case 7:
      DamageArray(batch, rng, pool, a.lengths);
      break;
    case 8:
      DamageArray(batch, rng, pool, rng.Chance(1, 2) ? a.indptr : a.slot_indptr);
      break;
    case 9:
      DamageArray(batch, rng, pool, rng.Chance(1, 2) ? a.row_map : a.last_page_len);
      break;
    case 10:
      batch.row_requests[rng.Below(batch.row_requests.size())] ^= 1;
      break;
    default:
      DamageTask(batch, rng);
      break;
  }
}

void Vary(Batch& batch, Rng& rng) {
  if (rng.Chance(1, 4)) batch.checks = static_cast<uint32_t>(rng.Next());
  if (rng.Chance(1, 8)) batch.sanitise = false;
  if (rng.Chance(1, 4)) batch.rows[rng.Below(batch.rows.size())].doomed = 1 + 20;
  if (rng.Chance(1, 6)) batch.arrays[rng.Below(batch.arrays.size())].slot_rows = 1;
  if (rng.Chance(1, 3)) {
    PoolTask& task = batch.tasks[rng.Below(batch.tasks.size())];
    task.late_begin = static_cast<uint32_t>(batch.late.size());
    for (uint32_t k = 0; k < task.covered; ++k) {
      if (rng.Chance(1, 2)) batch.late.push_back(k | (rng.Chance(1, 2) ? kLateAtConfirm : 0));
    }
    task.late_end = static_cast<uint32_t>(batch.late.size());
  }
  // Pages that hold more than this row knows of, and are sealed: what a full prefix hit leaves.
  if (rng.Chance(1, 3)) {
    const auto t = static_cast<uint32_t>(rng.Below(batch.tasks.size()));
    PoolTask& task = batch.tasks[t];
    if (task.expected == 0) return;
    const auto at = static_cast<uint32_t>(rng.Below(task.expected));
    Expectation& want = batch.ExpectationOf(t, at);
    PageRecord& record = batch.records[task.pool][want.page];
    record.stamp = want.stamp;
    record.scale = batch.pools[task.pool].page_scales ? static_cast<uint16_t>(record.tag)
                                                      : batch.pools[task.pool].scale_epoch;
    record.fill_flags =
        static_cast<uint16_t>((record.fill_flags & ~kFillMask) | batch.pools[task.pool].page_size);
  }
}

}  // namespace kvfence
