#include "tests/kernels/validate_batch.h"

#include <algorithm>

#include "kvfence/check.h"

namespace kvfence {
namespace {

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
uint64_t EntryTokens(const PoolSpec& spec) { return spec.page_size / spec.per_page; }

}  // namespace

// --- Batch --------------------------------------------------------------------------------------

void Batch::BindViews() {
  tables_.clear();
  slot_views_.clear();
  length_views_.clear();
  prefix_views_.clear();
  for (size_t p = 0; p < pools.size(); ++p) {
    pools[p].records = records[p].data();
    PoolArrays& a = arrays[p];
    TableView table = a.shape;
    table.entries = a.entries.View();
    table.entries_size = a.entries.size();
    table.indptr = a.indptr.View();
    table.last_page_len = a.last_page_len.View();
    table.row_map = a.row_map.View();
    table.saved = a.saved.View();
    tables_.push_back(table);
    slot_views_.push_back(
        SlotView{a.slots.View(), a.slots.size(), a.slot_indptr.View(), a.slot_rows});
    length_views_.push_back(LengthView{a.lengths.View(), a.length_rows});
  }
  for (auto& prefix : prefixes) {
    prefix_views_.push_back(PrefixTable{prefix.data(), static_cast<uint32_t>(prefix.size()), 0});
  }
}

void Batch::Bind() {
  BindViews();
  const uint64_t rubbish = 0x0505050505050505u;
  verdicts.assign(rows.size(), MakeVerdict(step_number - 1, 0));
  row_reasons.assign(rows.size(), static_cast<uint32_t>(rubbish));
  group_done.assign(groups, rubbish);
  group_failed.assign(groups, static_cast<uint32_t>(rubbish));
  seen_stamps.assign(write_stamps.size(), rubbish);
  findings.assign(finding_capacity, DeviceFinding{});
  finding_count = 77;
  counters.assign(kCounters, rubbish);
}

GateView Batch::gate() {
  GateView view{};
  view.pools = pools.data();
  view.pool_count = static_cast<uint32_t>(pools.size());
  view.expectations = arena.data();
  view.chunk_count = static_cast<uint32_t>(arena.size() / kChunkEntries);
  view.row_requests = row_requests.data();
  view.rows = static_cast<uint32_t>(row_requests.size());
  return view;
}

StepView Batch::step() {
  StepView view{};
  view.step = step_number;
  view.rank = rank;
  view.checks = checks;
  view.sanitise = sanitise ? 1 : 0;
  view.rows = rows.data();
  view.row_count = static_cast<uint32_t>(rows.size());
  view.pool_tasks = tasks.data();
  view.pool_task_count = static_cast<uint32_t>(tasks.size());
  for (const PoolTask& task : tasks) view.work += task.end_page - task.first_page;
  view.chunks = chunks.data();
  view.write_stamps = write_stamps.data();
  view.late_pages = late.data();
  view.prefixes = prefix_views_.data();
  view.prefix_count = static_cast<uint32_t>(prefix_views_.size());
  view.group_count = groups;
  view.tables = tables_.data();
  view.slots = slot_views_.data();
  view.lengths = length_views_.data();
  return view;
}

StepScratch Batch::scratch() {
  return StepScratch{verdicts.data(),     row_reasons.data(), group_done.data(),
                     group_failed.data(), seen_stamps.data(), findings.data(),
                     &finding_count,      finding_capacity,   counters.data()};
}

Expectation& Batch::ExpectationOf(uint32_t task, uint32_t at) {
  const uint32_t chunk = chunks.at(tasks.at(task).chunk_begin + at / kChunkEntries);
  return arena.at(uint64_t{chunk} * kChunkEntries + at % kChunkEntries);
}

PageRecord& Batch::RecordOf(uint32_t task, uint32_t at) {
  return records.at(tasks.at(task).pool).at(ExpectationOf(task, at).page);
}

uint64_t Batch::EntryIndex(uint32_t pool, uint32_t row, uint64_t j) const {
  const PoolArrays& a = arrays.at(pool);
  const bool csr = a.shape.layout == TableLayout::kCsr;
  // A row that broken arrays don't reach: no entry.
  if (row >= a.indptr.size() && csr) return a.entries.size();
  if (row >= a.row_map.size() && !csr && !a.row_map.empty()) return a.entries.size();
  if (csr) return static_cast<uint64_t>(a.indptr.Get(row)) + j;
  const int64_t line = a.row_map.empty() ? row : a.row_map.Get(row);
  return static_cast<uint64_t>(line) * a.shape.stride + j;
}

void Batch::SetPage(uint32_t pool, uint32_t row, uint64_t page_index, int64_t page) {
  PoolArrays& a = arrays.at(pool);
  const uint64_t n = a.shape.entries_per_page;
  for (uint64_t sub = 0; sub < n; ++sub) {
    const int64_t unit = page * static_cast<int64_t>(n) + static_cast<int64_t>(sub);
    a.entries.Set(EntryIndex(pool, row, page_index * n + sub),
                  page < 0 ? page : unit * a.shape.divisor);
  }
}

uint64_t Batch::SlotIndex(uint32_t pool, uint32_t row, uint64_t i) const {
  return static_cast<uint64_t>(arrays.at(pool).slot_indptr.Get(row)) + i;
}

uint32_t Batch::ReasonsOf(uint32_t row_task) const {
  const VerdictWord word = verdicts.at(row_task);
  KVF_CHECK(VerdictIsOf(word, step_number), "no verdict of this step");
  return VerdictReasons(word);
}

// --- BatchBuilder -------------------------------------------------------------------------------

BatchBuilder::BatchBuilder(std::vector<PoolSpec> pools, uint32_t rows)
    : specs_(std::move(pools)), row_count_(rows) {
  batch_.row_requests.assign(rows, 0);
  for (const PoolSpec& spec : specs_) {
    PoolState state{};
    state.pages = spec.pages;
    state.page_size = spec.page_size;
    state.null_page = spec.null_page;
    state.window = spec.window;
    state.has_skip_slot = spec.skip_slot ? 1 : 0;
    state.skip_slot = spec.skip_slot.value_or(0);
    state.page_scales = spec.page_scales ? 1 : 0;
    state.free_form = spec.free_form ? 1 : 0;
    state.scale_epoch = spec.scale_epoch;
    state.interleave_ranks = spec.interleave_ranks;
    state.interleave_stride = spec.interleave_stride;
    batch_.pools.push_back(state);
    std::vector<PageRecord> records(spec.pages);
    for (uint32_t p = 0; p < spec.pages; ++p) records[p] = PageRecord{kTag(p), 0, 0, kNoStamp};
    batch_.records.push_back(std::move(records));
    batch_.arrays.emplace_back();
  }
}

uint32_t BatchBuilder::AddPrefix(const std::vector<uint32_t>& pages) {
  batch_.prefixes.emplace_back(pages.begin(), pages.end());
  return static_cast<uint32_t>(batch_.prefixes.size() - 1);
}

void BatchBuilder::AddRow(const RowSpec& spec) { live_.push_back(spec); }
void BatchBuilder::AddPad(uint32_t row, uint32_t skipped_slots) {
  pads_.emplace_back(row, skipped_slots);
}

const RowSpec* BatchBuilder::LiveAt(uint32_t row) const {
  for (const RowSpec& spec : live_) {
    if (spec.row == row) return &spec;
  }
  return nullptr;
}

// Chunks are handed out from the back, so that their order says nothing.
void BatchBuilder::AddExpectations(PoolTask& task, const RowSpec& spec) {
  const PoolSpec& pool = specs_[task.pool];
  const auto& pages = spec.pages[task.pool];
  task.expected = static_cast<uint32_t>(pages.size());
  task.chunk_begin = static_cast<uint32_t>(batch_.chunks.size());
  for (size_t k = 0; k < pages.size(); ++k) {
    if (k % kChunkEntries == 0) {
      batch_.arena.insert(batch_.arena.begin(), kChunkEntries, Expectation{9, 9, 9});
      for (uint32_t& chunk : batch_.chunks) ++chunk;
      batch_.chunks.push_back(0);
    }
    Expectation& want = batch_.arena[k % kChunkEntries];
    want = Expectation{kNoPage, 0, kNoStamp};
    if (pages[k] == kNoPage) continue;
    PageRecord& record = batch_.records[task.pool][pages[k]];
    const uint64_t first = k * pool.page_size;
    const bool holds = pool.free_form || first < spec.before;
    if (record.stamp != kNoStamp) record.fill_flags |= kPageShared;
    if (record.stamp == kNoStamp && holds) {
      record.stamp = MakeStamp(Serial(spec.row), k);
      const uint64_t fill =
          pool.free_form ? 1 : std::min<uint64_t>(pool.page_size, spec.before - first);
      record.fill_flags = static_cast<uint16_t>(fill);
      record.scale =
          pool.page_scales ? static_cast<uint16_t>(record.tag & 0xFFFF) : pool.scale_epoch;
    }
    want = Expectation{pages[k], record.tag, holds ? record.stamp : MakeStamp(Serial(spec.row), k)};
  }
}

PoolTask BatchBuilder::MakeTask(uint32_t pool, const RowSpec& spec) {
  const PoolSpec& p = specs_[pool];
  const uint64_t length = spec.before + spec.new_tokens;
  PoolTask task{};
  task.row_task = static_cast<uint32_t>(batch_.rows.size() - 1);
  task.pool = pool;
  task.prefix = spec.prefix_of_pool == pool ? spec.prefix : ~0u;
  AddExpectations(task, spec);
  task.late_begin = task.late_end = static_cast<uint32_t>(batch_.late.size());
  const uint64_t reads = p.window + spec.new_tokens - 1;
  if (p.window != 0 && length > reads) {
    task.first_page = static_cast<uint32_t>((length - reads) / p.page_size);
  }
  task.covered = p.free_form ? task.expected : static_cast<uint32_t>(CeilDiv(length, p.page_size));
  const uint64_t written = spec.new_tokens + spec.draft;
  task.write_begin = static_cast<uint32_t>(batch_.write_stamps.size());
  task.end_page = task.covered;
  if (p.free_form) {
    task.write_pages = task.expected;
  } else if (written != 0) {
    const uint64_t last = (spec.before + written - 1) / p.page_size;
    task.write_first = static_cast<uint32_t>(spec.before / p.page_size);
    task.write_pages = static_cast<uint32_t>(last - task.write_first + 1);
    task.end_page = std::max(task.end_page, static_cast<uint32_t>(last + 1));
  }
  task.end_page = std::max(task.end_page, static_cast<uint32_t>(spec.reach));
  for (uint32_t w = 0; w < task.write_pages; ++w) {
    batch_.write_stamps.push_back(MakeStamp(Serial(spec.row) + 500, task.write_first + w));
  }
  return task;
}

void BatchBuilder::AddRowTask(const RowSpec& spec) {
  RowTask row{};
  row.request = 0x5000 + spec.row;
  batch_.row_requests[spec.row] = row.request;
  row.length_before = spec.before;
  row.new_tokens = spec.new_tokens;
  row.draft = spec.draft;
  row.row = spec.row;
  row.kind = RowKind::kLive;
  row.group = spec.group ? *spec.group : 1000000 + spec.row;
  row.keep_scales = spec.keep_scales ? 1 : 0;
  row.table_changed = 3;
  row.reach = spec.reach;
  batch_.rows.push_back(row);
  for (uint32_t pool = 0; pool < specs_.size(); ++pool) {
    const PoolTask task = MakeTask(pool, spec);
    batch_.rows.back().reach = std::max<uint64_t>(batch_.rows.back().reach, task.covered);
    batch_.tasks.push_back(task);
  }
}

void BatchBuilder::AddPadTask(uint32_t r) {
  RowTask row{};
  row.row = r;
  row.kind = RowKind::kPad;
  row.group = 1000000 + r;
  batch_.rows.push_back(row);
  for (uint32_t pool = 0; pool < specs_.size(); ++pool) {
    PoolTask task{};
    task.row_task = static_cast<uint32_t>(batch_.rows.size() - 1);
    task.pool = pool;
    task.prefix = ~0u;
    task.end_page = specs_[pool].width_pages;
    batch_.tasks.push_back(task);
  }
}

int64_t BatchBuilder::Encode(const PoolSpec& spec, uint64_t page, uint64_t sub) {
  const auto unit = static_cast<int64_t>(page * spec.per_page + sub);
  // Bits that the decode drops hold anything.
  const int64_t rest = spec.divisor > 1 ? static_cast<int64_t>(page % 2) : 0;
  return (unit * spec.divisor + rest) | (page % 3 == 0 ? spec.flag : 0);
}

void BatchBuilder::FillEntries(uint32_t pool) {
  const PoolSpec& spec = specs_[pool];
  PoolArrays& a = batch_.arrays[pool];
  const bool csr = spec.layout == TableLayout::kCsr;
  if (csr) a.indptr.Push(0);
  for (uint32_t line = 0; line < a.shape.rows; ++line) {
    const uint32_t row = csr || !spec.row_map ? line : line - 1;  // row_map: line = row + 1
    const RowSpec* live = row < row_count_ ? LiveAt(row) : nullptr;
    const uint64_t length = live == nullptr ? 0 : live->before + live->new_tokens;
    uint64_t count = csr ? CeilDiv(length, EntryTokens(spec)) : a.shape.stride;
    if (csr && spec.free_form && live != nullptr) count = live->pages[pool].size() * spec.per_page;
    for (uint64_t j = 0; j < count; ++j) {
      const uint64_t k = j / spec.per_page;
      const bool held =
          live != nullptr && k < live->pages[pool].size() && live->pages[pool][k] != kNoPage;
      // Beyond the width lies what nobody may look at.
      const bool beyond = !csr && j >= a.shape.width;
      const uint64_t page = held ? live->pages[pool][k] : spec.null_page;
      a.entries.Push(beyond ? -7 : Encode(spec, page, j % spec.per_page));
    }
    if (!csr) continue;
    a.indptr.Push(static_cast<int64_t>(a.entries.size()));
    a.last_page_len.Push(
        count == 0 ? 0 : static_cast<int64_t>(length - (count - 1) * EntryTokens(spec)));
  }
}

void BatchBuilder::FillSlots(uint32_t pool) {
  const PoolSpec& spec = specs_[pool];
  PoolArrays& a = batch_.arrays[pool];
  const int64_t skip = spec.skip_slot.value_or(-1);
  a.slot_indptr.Push(0);
  for (uint32_t row = 0; row < row_count_; ++row) {
    const RowSpec* live = LiveAt(row);
    for (const auto& [pad, skipped] : pads_) {
      for (uint32_t i = 0; pad == row && i < skipped; ++i) a.slots.Push(skip);
    }
    for (uint64_t i = 0; live != nullptr && i < live->new_tokens + live->draft; ++i) {
      const uint64_t position = live->before + i;
      const auto& pages = live->pages[pool];
      const uint64_t k = spec.free_form ? 0 : position / spec.page_size;
      if (k >= pages.size() || pages[k] == kNoPage) {
        a.slots.Push(skip);
        continue;
      }
      const bool elsewhere = spec.interleave_ranks != 0 &&
                             position / spec.interleave_stride % spec.interleave_ranks != 0;
      const uint64_t slot = uint64_t{pages[k]} * spec.page_size +
                            (spec.free_form ? i % spec.page_size : position % spec.page_size);
      a.slots.Push(elsewhere ? skip : static_cast<int64_t>(slot));
    }
    a.slot_indptr.Push(static_cast<int64_t>(a.slots.size()));
  }
  a.slot_rows = row_count_;
}

void BatchBuilder::FillArrays(uint32_t pool) {
  const PoolSpec& spec = specs_[pool];
  PoolArrays& a = batch_.arrays[pool];
  for (IntBuffer* buffer : {&a.entries, &a.indptr, &a.last_page_len, &a.row_map, &a.saved, &a.slots,
                            &a.slot_indptr, &a.lengths}) {
    *buffer = IntBuffer(spec.bits);
  }
  a.shape.layout = spec.layout;
  a.shape.sanitise = spec.sanitise;
  a.shape.entries_per_page = spec.per_page;
  a.shape.divisor = spec.divisor;
  a.shape.mask = spec.flag != 0 ? ~spec.flag : -1;
  a.shape.rows = row_count_;
  if (spec.layout == TableLayout::kDense) {
    a.shape.width = uint64_t{spec.width_pages} * spec.per_page;
    a.shape.stride = a.shape.width + 2;
    if (spec.row_map) {
      a.shape.rows = row_count_ + 2;
      for (uint32_t row = 0; row < row_count_; ++row) a.row_map.Push(row + 1);
    }
  }
  FillEntries(pool);
  FillSlots(pool);
  if (spec.sanitise == SanitiseMode::kRestore) {
    for (uint64_t i = 0; i < a.entries.size(); ++i) a.saved.Push(0);
  }
  if (!spec.lengths) return;
  a.length_rows = row_count_;
  for (uint32_t row = 0; row < row_count_; ++row) {
    const RowSpec* live = LiveAt(row);
    a.lengths.Push(live == nullptr ? 0 : static_cast<int64_t>(live->before + live->new_tokens));
  }
}

Batch BatchBuilder::Build() {
  for (const RowSpec& spec : live_) AddRowTask(spec);
  for (const auto& [row, skipped] : pads_) AddPadTask(row);
  uint64_t work = 0;
  for (PoolTask& task : batch_.tasks) {
    task.work_begin = work;
    work += task.end_page - task.first_page;
  }
  std::vector<uint32_t> groups;
  for (RowTask& row : batch_.rows) {
    auto at = std::find(groups.begin(), groups.end(), row.group);
    if (at == groups.end()) at = groups.insert(groups.end(), row.group);
    row.group = static_cast<uint32_t>(at - groups.begin());
  }
  batch_.groups = static_cast<uint32_t>(groups.size());
  for (uint32_t pool = 0; pool < specs_.size(); ++pool) FillArrays(pool);
  batch_.Bind();
  return batch_;
}

}  // namespace kvfence
