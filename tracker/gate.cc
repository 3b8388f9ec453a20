// Journal batches in, verdicts out: the gate's bookkeeping around the three launches.
#include "kvfence/gate.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "gate_pass.h"
#include "kvfence/check.h"

namespace kvfence {
namespace {

PoolState StateOf(const PoolConfig& config) {
  PoolState state{};
  state.pages = static_cast<uint32_t>(config.pages);
  state.page_size = static_cast<uint32_t>(config.page_size);
  state.null_page = static_cast<uint32_t>(config.null_page);
  state.window = static_cast<uint32_t>(config.window);
  state.has_skip_slot = config.skip_slot.has_value();
  state.skip_slot = config.skip_slot.value_or(-1);
  state.page_scales = config.scales;
  state.free_form = config.kind == PoolKind::kKv      ? 0
                    : config.kind == PoolKind::kCross ? kCrossForm
                                                      : 1;
  state.interleave_ranks = static_cast<uint32_t>(config.interleave_ranks);
  state.interleave_stride = static_cast<uint32_t>(config.interleave_stride);
  return state;
}

}  // namespace

// A request's chunks, per pool.
struct Gate::Held {
  struct List {
    std::vector<uint32_t> chunks;
    uint32_t count = 0;
  };
  std::vector<List> lists;
};

class Gate::Requests {
 public:
  absl::flat_hash_map<uint64_t, Held> by_word;
};

Gate::Gate(const FenceConfig& config, RankId rank)
    : config_(config),
      rank_(rank),
      row_requests_(config.rows, 0),
      requests_(std::make_unique<Requests>()) {
  std::map<std::string, uint32_t> spaces;
  for (const PoolConfig& pool : config.pools) {
    uint32_t space = static_cast<uint32_t>(records_.size());
    if (!pool.space.empty()) space = spaces.try_emplace(pool.space, space).first->second;
    if (space == records_.size()) records_.emplace_back();
    if (records_[space].size() < pool.pages) records_[space].resize(pool.pages);
    space_of_pool_.push_back(space);
    pools_.push_back(StateOf(pool));
  }
  for (size_t p = 0; p < pools_.size(); ++p) pools_[p].records = records_[space_of_pool_[p]].data();
}

Gate::~Gate() = default;

// Nanoseconds that the launch took.
template <class F>
uint64_t Gate::Timed(F launch) {
  const auto begin = std::chrono::steady_clock::now();
  launch();
  const auto took = std::chrono::steady_clock::now() - begin;
  const auto ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  launch_ns_ += ns;
  return ns;
}

void Gate::Apply(const JournalBatch& batch) {
  const bool intact = batch.Intact();
  if (intact && batch.snapshot && batch.sequence >= next_sequence_) {
    Restart();
    next_sequence_ = batch.sequence;
  }
  if (!intact || batch.sequence != next_sequence_) lost_ = true;
  // What a damaged batch says of itself counts for nothing either.
  if (intact) next_sequence_ = std::max(next_sequence_, batch.sequence + 1);
  if (lost_) return;
  items_.clear();
  for (const JournalDelta& delta : batch.deltas) ApplyDelta(delta);
  Timed([&] { ApplyCpu(Device(), items_.data(), items_.size()); });
  for (const auto& pass : passes_) {
    if (pass->stored && !pass->confirmed) FollowContent(*pass);
  }
}

void Gate::ApplyDelta(const JournalDelta& delta) {
  ApplyItem item{};
  item.pool = delta.pool;
  switch (delta.kind) {
    case DeltaKind::kPage:
      item.target = ApplyTarget::kPage;
      item.index = static_cast<uint32_t>(delta.index);
      item.fields = delta.fields;
      item.record = delta.record;
      break;
    case DeltaKind::kExpect: {
      const auto found = requests_->by_word.find(delta.request);
      KVF_CHECK(
          found != requests_->by_word.end() && delta.index < found->second.lists[delta.pool].count,
          "I-8 an expectation lies inside its request's list");
      const Held::List& list = found->second.lists[delta.pool];
      item.target = ApplyTarget::kExpectation;
      item.index = list.chunks[delta.index / kChunkEntries] * kChunkEntries +
                   static_cast<uint32_t>(delta.index % kChunkEntries);
      item.expectation = delta.expectation;
      break;
    }
    case DeltaKind::kResize:
      ResizeList(delta.request, delta.pool, static_cast<uint32_t>(delta.index));
      return;
    case DeltaKind::kEnd:
      for (uint32_t p = 0; p < pools_.size(); ++p) ResizeList(delta.request, p, 0);
      requests_->by_word.erase(delta.request);
      return;
    case DeltaKind::kBind:
      item.target = ApplyTarget::kRow;
      item.index = static_cast<uint32_t>(delta.index);
      item.row = {delta.request, 0};
      break;
    case DeltaKind::kScaleEpoch:
      pools_[delta.pool].scale_epoch = static_cast<uint16_t>(delta.index);
      return;
  }
  items_.push_back(item);
}

void Gate::Restart() {
  for (const auto& pass : passes_) {
    for (uint32_t i = 0; i < pass->rows.size(); ++i) {
      if (!pass->confirmed) FailRow(pass->pass.step, i, ReasonBit(Reason::kUnverified));
    }
  }
  for (auto& space : records_) std::fill(space.begin(), space.end(), PageRecord{});
  for (PoolState& pool : pools_) pool.scale_epoch = 0;
  std::fill(row_requests_.begin(), row_requests_.end(), uint64_t{0});
  requests_->by_word.clear();
  // The arena stays: passes in flight still name its chunks.
  free_chunks_.clear();
  for (uint32_t c = static_cast<uint32_t>(arena_.size() / kChunkEntries); c-- > 0;) {
    free_chunks_.push_back(c);
  }
  chunks_in_use_ = 0;
  live_entries_ = 0;
  next_sequence_ = 1;
  lost_ = false;
}

uint32_t Gate::TakeChunk() {
  ++chunks_in_use_;
  if (free_chunks_.empty()) {
    const uint32_t chunk = static_cast<uint32_t>(arena_.size() / kChunkEntries);
    arena_.resize(arena_.size() + kChunkEntries, Expectation{kNoPage, 0, kNoStamp});
    return chunk;
  }
  const uint32_t chunk = free_chunks_.back();
  free_chunks_.pop_back();
  return chunk;
}

void Gate::ResizeList(uint64_t request, uint32_t pool, uint32_t count) {
  Held& held = requests_->by_word[request];
  if (held.lists.empty()) held.lists.resize(pools_.size());
  Held::List& list = held.lists[pool];
  const size_t chunks = (count + kChunkEntries - 1) / kChunkEntries;
  while (list.chunks.size() > chunks) {
    free_chunks_.push_back(list.chunks.back());
    list.chunks.pop_back();
    --chunks_in_use_;
  }
  while (list.chunks.size() < chunks) list.chunks.push_back(TakeChunk());
  // Entries that are new in the list hold nothing until the ledger says so.
  for (uint32_t at = list.count; at < count; ++at) {
    ApplyItem item{};
    item.target = ApplyTarget::kExpectation;
    item.pool = pool;
    item.index = list.chunks[at / kChunkEntries] * kChunkEntries + at % kChunkEntries;
    item.expectation = {kNoPage, 0, kNoStamp};
    items_.push_back(item);
  }
  live_entries_ += count;
  live_entries_ -= list.count;
  list.count = count;
}

void Gate::Stamp(PoolId pool, uint32_t page, const PageRecord& record) {
  ApplyItem item{};
  item.target = ApplyTarget::kPage;
  item.pool = pool.value();
  item.index = page;
  item.fields = kApplyContent;
  item.record = record;
  ApplyCpu(Device(), &item, 1);
}

GateView Gate::Device() {
  return {pools_.data(),        static_cast<uint32_t>(pools_.size()),
          arena_.data(),        static_cast<uint32_t>(arena_.size() / kChunkEntries),
          row_requests_.data(), static_cast<uint32_t>(row_requests_.size())};
}

void Gate::Place(const StepEvent& event, const StepPlan& plan, InFlight& pass) {
  pass.CopyPlan(event, plan, pools_.size());
  for (PoolTask& task : pass.pool_tasks) {
    task.chunk_begin = static_cast<uint32_t>(pass.chunks.size());
    if (lost_) task.expected = 0;  // nothing that a lost gate knows is believed
    if (task.expected == 0) continue;
    const auto found = requests_->by_word.find(pass.rows[task.row_task].request);
    KVF_CHECK(
        found != requests_->by_word.end() && found->second.lists[task.pool].count >= task.expected,
        "I-8 the gate has all expectations that the plan counts");
    const std::vector<uint32_t>& chunks = found->second.lists[task.pool].chunks;
    pass.chunks.insert(pass.chunks.end(), chunks.begin(), chunks.end());
  }
}

StepView Gate::ViewOf(InFlight& pass) const {
  StepView view{};
  view.step = pass.pass.step.value();
  view.rank = rank_.value();
  view.checks = config_.checks().mask();
  view.sanitise = config_.policy != Policy::kLog;
  view.same_step_reads = config_.same_step_reads;
  pass.Fill(view);
  return view;
}

void Gate::Collect(InFlight& pass) {
  std::vector<DeviceFinding>& findings = pass.pass.findings;
  const uint32_t count = std::min(pass.finding_count, pass.finding_capacity);
  findings.assign(pass.findings.get(), pass.findings.get() + count);
  pass.pass.findings_cut = pass.finding_count > count;
  pass.finding_count = 0;
  const auto place = [](const DeviceFinding& f) {
    return std::tuple(f.row_task, f.pool + 1, f.at, f.reason);  // whole rows first
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  // A place reports once, the first that applies, also where its shared table fails it besides.
  findings.erase(std::unique(findings.begin(), findings.end(),
                             [](const auto& a, const auto& b) {
                               return a.row_task == b.row_task && a.pool == b.pool && a.at == b.at;
                             }),
                 findings.end());
  for (size_t i = 0; i < pass.rows.size(); ++i) {
    const VerdictWord word = pass.verdicts[i];
    pass.pass.reasons[i] = VerdictIsOf(word, pass.pass.step.value())
                               ? VerdictReasons(word)
                               : ReasonBit(Reason::kUnverified);
  }
  pass.pass.entries = pass.counters[kCounterEntries];
}

const Gate::Pass& Gate::Validate(const StepEvent& event, const StepPlan& plan) {
  std::unique_ptr<InFlight> pass;
  if (spare_.empty()) {
    pass = std::make_unique<InFlight>();
  } else {
    pass = std::move(spare_.back());
    spare_.pop_back();
  }
  pass->Reset(event.step);
  Place(event, plan, *pass);
  if (lost_) {
    for (RowTask& row : pass->rows) row.doomed = 1 + static_cast<uint8_t>(Reason::kUnverified);
  }
  passes_.push_back(std::move(pass));
  InFlight& current = *passes_.back();
  current.pass.validate_ns =
      Timed([&] { ValidateCpu(Device(), ViewOf(current), current.Scratch()); });
  Collect(current);
  return current.pass;
}

const Gate::Pass& Gate::Condemn(const StepEvent& event) {
  StepPlan plan;
  const auto add = [&](Row row) {
    RowTask& task = plan.rows.emplace_back();
    task = {};
    task.row = row.value();
    task.kind = RowKind::kPad;  // nothing is known of its length: all its entries, all its slots
    task.group = static_cast<uint32_t>(plan.rows.size() - 1);
    task.doomed = 1 + static_cast<uint8_t>(Reason::kUnverified);
    for (const PoolBuffers& buffers : event.pools) {
      PoolTask& pool = plan.pool_tasks.emplace_back();
      pool = {};
      pool.row_task = task.group;
      pool.pool = buffers.pool.value();
      pool.prefix = ~0u;
    }
  };
  for (const RowPlan& row : event.rows) add(row.row);
  for (const Row row : event.pads) add(row);
  plan.group_count = static_cast<uint32_t>(plan.rows.size());
  return Validate(event, plan);
}

void Gate::Sanitise(StepId step, std::span<const uint32_t> row_tasks) {
  InFlight* pass = Find(step);
  KVF_CHECK(pass != nullptr, "I-9 only a pass in flight can be sanitised");
  const StepView view = ViewOf(*pass);
  for (const uint32_t task : row_tasks) {
    if (view.sanitise) SanitiseRowCpu(Device(), view, task);
  }
}

void Gate::FailRow(StepId step, uint32_t row_task, uint32_t reasons) {
  InFlight* pass = Find(step);
  if (pass == nullptr) return;
  pass->verdicts[row_task] =
      MakeVerdict(step.value(), VerdictReasons(pass->verdicts[row_task]) | reasons);
}

const Gate::Pass& Gate::Confirm(StepId step) {
  InFlight* pass = Find(step);
  KVF_CHECK(pass != nullptr, "I-9 only a pass in flight can be confirmed");
  if (pass->confirmed && pass->confirmed_at != next_sequence_) {
    // The books have gone on: it's too late to ask once more.
  } else if (pass->stored) {
    AskAgain(*pass);
  } else {
    const ConfirmPart part = pass->confirmed ? ConfirmPart::kRecheckOnly : ConfirmPart::kBoth;
    Timed([&] { ConfirmCpu(Device(), ViewOf(*pass), pass->Scratch(), part); });
  }
  pass->confirmed = true;
  pass->confirmed_at = next_sequence_;
  Collect(*pass);
  return pass->pass;
}

void Gate::ConfirmEarly(const std::function<void(const Pass&)>& f) {
  for (const auto& pass : passes_) {
    if (pass->confirmed) continue;
    if (pass->stored) {
      AskAgain(*pass);
    } else {
      StepView view = ViewOf(*pass);
      pass->not_yet_late = pass->late_pages;
      for (uint32_t& page : pass->not_yet_late) page &= ~kLateAtConfirm;
      view.late_pages = pass->not_yet_late.data();
      Timed([&] { ConfirmCpu(Device(), view, pass->Scratch()); });
      KeepExpected(*pass);
      pass->stored = true;
    }
    Collect(*pass);
    f(pass->pass);
  }
}

// I-81: once more, after later deltas were applied: the pass's own expectations are asked, and what
// those deltas may rightly have changed (generations, row bindings) isn't.
void Gate::AskAgain(InFlight& pass) {
  GateView device = Device();
  device.expectations = pass.kept.data();
  device.chunk_count = static_cast<uint32_t>(pass.kept.size() / kChunkEntries);
  StepView view = ViewOf(pass);
  view.chunks = pass.kept_chunks.data();
  view.checks &= ~(ReasonBit(Reason::kTagMismatch) | ReasonBit(Reason::kRowEpoch));
  std::vector<PoolTask> tasks = pass.pool_tasks;
  std::vector<uint32_t> late;
  for (PoolTask& task : tasks) LeaveOutReturned(pass, task, late);
  view.pool_tasks = tasks.data();
  view.late_pages = late.data();
  Timed([&] { ConfirmCpu(device, view, pass.Scratch(), ConfirmPart::kRecheckOnly); });
}

// Pages that went back since are somebody else's by now, and content that was cut since is
// nobody's: what they hold isn't asked, for the host settled it. What a copy is still to bring is
// asked. Appends the task's late pages, old and new, to `late`.
void Gate::LeaveOutReturned(const InFlight& pass, PoolTask& task, std::vector<uint32_t>& late) {
  const auto begin = static_cast<uint32_t>(late.size());
  uint32_t next = task.late_begin;
  const auto page_of = [&](uint32_t i) { return pass.late_pages[i] & ~kLateAtConfirm; };
  for (uint32_t k = 0; k < task.expected; ++k) {
    while (next < task.late_end && page_of(next) < k) late.push_back(pass.late_pages[next++]);
    const uint32_t chunk = pass.kept_chunks[task.chunk_begin + k / kChunkEntries];
    const Expectation& want = pass.kept[uint64_t{chunk} * kChunkEntries + k % kChunkEntries];
    if (want.page == kNoPage || want.page >= pools_[task.pool].pages) continue;
    const PageRecord& record = pools_[task.pool].records[want.page];
    const bool awaited = next < task.late_end && page_of(next) == k;
    if (record.tag == want.tag && (awaited || record.stamp != kNoStamp)) continue;
    late.push_back(k);
    if (next < task.late_end && page_of(next) == k) ++next;
  }
  while (next < task.late_end) late.push_back(pass.late_pages[next++]);
  task.late_begin = begin;
  task.late_end = static_cast<uint32_t>(late.size());
}

void Gate::KeepExpected(InFlight& pass) {
  pass.kept.clear();
  pass.kept_chunks = pass.chunks;
  for (uint32_t& chunk : pass.kept_chunks) {
    const auto begin = arena_.begin() + static_cast<std::ptrdiff_t>(chunk) * kChunkEntries;
    chunk = static_cast<uint32_t>(pass.kept.size() / kChunkEntries);
    pass.kept.insert(pass.kept.end(), begin, begin + kChunkEntries);
  }
}

// What rightful work has made of a page since: its birth mark is the one to be found from now on.
void Gate::FollowContent(InFlight& pass) {
  for (const PoolTask& task : pass.pool_tasks) {
    for (uint32_t k = 0; k < task.expected; ++k) {
      const uint32_t chunk = pass.kept_chunks[task.chunk_begin + k / kChunkEntries];
      Expectation& want = pass.kept[uint64_t{chunk} * kChunkEntries + k % kChunkEntries];
      if (want.page == kNoPage || want.page >= pools_[task.pool].pages) continue;
      const PageRecord& record = pools_[task.pool].records[want.page];
      if (record.tag != want.tag || record.stamp == kNoStamp) continue;
      want.stamp = record.stamp;
      // A page that the pass filled from its start may have been taken over by a fork since.
      const uint32_t w = k - task.write_first;
      if (k >= task.write_first && w < task.write_pages) {
        pass.seen_stamps[task.write_begin + w] = record.stamp;
      }
    }
  }
}

bool Gate::Confirmed(StepId step) const {
  const InFlight* pass = Find(step);
  return pass != nullptr && pass->confirmed;
}

std::span<const RowTask> Gate::Rows(StepId step) const {
  const InFlight* pass = Find(step);
  return pass == nullptr ? std::span<const RowTask>() : std::span<const RowTask>(pass->rows);
}

std::span<const VerdictWord> Gate::Verdicts(StepId step) const {
  const InFlight* pass = Find(step);
  if (pass == nullptr) return {};
  return pass->verdicts;
}

Gate::InFlight* Gate::Find(StepId step) const {
  for (const auto& pass : passes_) {
    if (pass->pass.step == step) return pass.get();
  }
  return nullptr;
}

void Gate::Forget(StepId step) {
  for (auto it = passes_.begin(); it != passes_.end(); ++it) {
    if ((*it)->pass.step == step) {
      spare_.push_back(std::move(*it));
      passes_.erase(it);
      return;
    }
  }
}

uint64_t Gate::page_bytes() const {
  uint64_t bytes = 0;
  for (const auto& space : records_) bytes += space.size() * sizeof(PageRecord);
  return bytes;
}

uint64_t Gate::expectation_bytes() const {
  return uint64_t{chunks_in_use_} * kChunkEntries * sizeof(Expectation);
}

PageRecord& Gate::RecordForTest(PoolId pool, uint32_t page) {
  return pools_[pool.value()].records[page];
}

}  // namespace kvfence
