#include "small_world.h"

#include <algorithm>
#include <utility>

namespace kvfence {
namespace {

constexpr std::array<std::string_view, kSmallFaultCount> kFaultNames = {
    "none",        "free_held",  "issue_held",    "late_write", "table_flip",
    "stale_entry", "wrong_slot", "skipped_write", "long_length"};
constexpr std::array<std::string_view, 16> kMoveNames = {
    "A starts",        "B starts",       "A grows",    "B grows",   "A ends",  "B ends",
    "A is withdrawn",  "B is withdrawn", "launch",     "attend",    "confirm", "retire",
    "transfer writes", "transfer ends",  "fault at A", "fault at B"};

// A page of the world other than this one.
int32_t Another(int32_t page) { return page % 3 + 1; }

FenceConfig ConfigOf(uint64_t pages, uint64_t page_size, uint64_t rows, uint64_t width) {
  FenceConfig config;
  PoolConfig& pool = config.pools.emplace_back();
  pool.name = "full";
  pool.pages = pages;
  pool.page_size = page_size;
  config.rows = rows;
  config.width = width;
  config.frees = Frees::kExplicit;
  config.reuse = Reuse::kRetired;
  return config;
}

}  // namespace

std::string_view SmallFaultName(SmallFault fault) {
  return kFaultNames[static_cast<size_t>(fault)];
}
std::string_view MoveName(Move move) { return kMoveNames[static_cast<size_t>(move)]; }

SmallWorld::SmallWorld(SmallFault fault, bool fence) : fault_(fault) {
  if (!fence) return;
  fence_ = Fence::Create(ConfigOf(kPages, kPageSize, kRequests, kMostPages), {this}).value();
}

void SmallWorld::Ask(const Status& status) {
  if (!status.ok()) ++refusals_;
}

// --- what may happen next ------------------------------------------------------------------------

int64_t SmallWorld::NewTokens(const Request& r) const {
  if (!r.running || r.loading || r.outputs == kOutputs) return 0;
  const auto room = static_cast<int64_t>(r.pages.size()) * kPageSize - r.computed;
  return std::min(room, r.computed < kPrompt ? kPrompt - r.computed : 1);
}

std::optional<size_t> SmallWorld::FreeAt() const {
  for (size_t i = free_.size(); i > 0; --i) {
    const int64_t page = free_[i - 1];
    const bool used = step_.stage != Stage::kNone &&
                      std::find(step_.uses.begin(), step_.uses.end(), page) != step_.uses.end();
    const bool pinned = transfer_ != Transfer::kIdle && transfer_page_ == page;
    if (!used && !pinned && !apart_[static_cast<size_t>(page)]) return i - 1;
  }
  return std::nullopt;
}

// A page that the other request holds and this one doesn't.
std::optional<int64_t> SmallWorld::PageOfOther(size_t r) const {
  const Request& other = requests_[1 - r];
  for (const int64_t page : other.pages) {
    const auto& own = requests_[r].pages;
    if (other.running && std::find(own.begin(), own.end(), page) == own.end()) return page;
  }
  return std::nullopt;
}

bool SmallWorld::MayFault(size_t r) const {
  const Request& request = requests_[r];
  if (faulted_ || fault_ == SmallFault::kNone) return false;
  switch (fault_) {
    case SmallFault::kNone:
      return false;
    case SmallFault::kFreeHeld:
      return request.running && !request.loading &&
             holds_[static_cast<size_t>(request.pages.back())] == 1;
    case SmallFault::kIssueHeld:
      return PageOfOther(r).has_value();
    case SmallFault::kLateWrite:
      return r == kB && transfer_ == Transfer::kIdle && transfer_incarnation_ != 0;
    case SmallFault::kTableFlip:
      return step_.stage == Stage::kLaunched && InStep(r);
    case SmallFault::kStaleEntry:
    case SmallFault::kSkippedWrite:
    case SmallFault::kLongLength:
      return step_.stage == Stage::kNone && NewTokens(request) > 0;
    case SmallFault::kWrongSlot:
      return step_.stage == Stage::kNone && NewTokens(request) > 0 && PageOfOther(r).has_value();
  }
  return false;
}

std::vector<Move> SmallWorld::Moves() const {
  std::vector<Move> moves;
  const auto may = [&](bool yes, Move move) {
    if (yes) moves.push_back(move);
  };
  for (const size_t r : {kA, kB}) {
    const Request& q = requests_[r];
    const auto of = [&](Move first) { return static_cast<Move>(static_cast<size_t>(first) + r); };
    const bool free_row = !InStep(r);
    const bool free_transfer = r == kA || transfer_ == Transfer::kIdle;
    may(!q.running && free_row && free_transfer && MayTake(), of(Move::kStartA));
    const bool full = static_cast<int64_t>(q.pages.size()) * kPageSize == q.computed;
    may(q.running && full && q.pages.size() < kMostPages && q.outputs < kOutputs && !InStep(r) &&
            MayTake(),
        of(Move::kGrowA));
    may(q.running && q.outputs == kOutputs, of(Move::kEndA));
    may(q.running && q.outputs < kOutputs, of(Move::kWithdrawA));
    may(MayFault(r), of(Move::kFaultA));
  }
  const bool some = NewTokens(requests_[kA]) > 0 || NewTokens(requests_[kB]) > 0;
  may(step_.stage == Stage::kNone && some, Move::kLaunch);
  may(step_.stage == Stage::kLaunched, Move::kAttend);
  may(step_.stage == Stage::kAttended, Move::kConfirm);
  may(step_.stage == Stage::kConfirmed, Move::kRetire);
  may(transfer_ == Transfer::kPinned, Move::kTransferWrites);
  may(transfer_ == Transfer::kWritten, Move::kTransferEnds);
  return moves;
}

// --- making it happen ----------------------------------------------------------------------------

int64_t SmallWorld::Take(size_t r) {
  if (fault_ == SmallFault::kIssueHeld && victim_ == r) {
    victim_.reset();
    if (const std::optional<int64_t> page = PageOfOther(r)) return *page;
  }
  const size_t at = *FreeAt();
  const int64_t page = free_[at];
  free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(at));
  return page;
}

void SmallWorld::Hold(size_t r, int64_t page) {
  Request& q = requests_[r];
  ++holds_[static_cast<size_t>(page)];
  ++issues_[static_cast<size_t>(page)];
  q.pages.push_back(page);
  const PageId id(page);
  if (fence_) Ask(fence_->Alloc({.req = q.id, .pages = {&id, 1}}));
}

void SmallWorld::Start(size_t r) {
  Request& q = requests_[r];
  const uint32_t incarnation = q.incarnation + 1;
  q = {};
  q.running = true;
  q.incarnation = incarnation;
  if (fence_) {
    q.id = fence_->Admit({.name = fence_->Intern(r == kA ? "A" : "B")});
    Ask(fence_->BindRow({.row = Row(static_cast<uint32_t>(r)), .req = q.id}));
  }
  Hold(r, Take(r));
  if (r == kA) return;
  q.loading = true;
  transfer_ = Transfer::kPinned;
  transfer_page_ = q.pages[0];
  transfer_for_ = q.id;
  transfer_incarnation_ = q.incarnation;
  const PageId page(transfer_page_);
  if (fence_) {
    Ask(fence_->Pin({.id = fence_->Intern("T"),
                     .dir = CopyDir::kIn,
                     .pages = {&page, 1},
                     .req = q.id,
                     .at = 0}));
  }
}

void SmallWorld::GoesBack(int64_t page) {
  free_.push_back(page);
  const PageId id(page);
  if (fence_) Ask(fence_->Free({.pages = {&id, 1}}));
}

// The request gives up its row and its pages; those whose last holder it was are free.
void SmallWorld::End(size_t r) {
  Request& q = requests_[r];
  if (fence_) {
    Ask(fence_->BindRow({.row = Row(static_cast<uint32_t>(r))}));
    Ask(fence_->Release({.req = q.id}));
  }
  for (const int64_t page : q.pages) {
    if (page == lost_[r]) continue;
    if (--holds_[static_cast<size_t>(page)] > 0) continue;
    // What the transfer still writes goes back when that is over.
    if (transfer_ != Transfer::kIdle && page == transfer_page_) continue;
    GoesBack(page);
  }
  lost_[r] = -1;
  const uint32_t incarnation = q.incarnation;
  q = {};
  q.incarnation = incarnation;
}

void SmallWorld::Launch() {
  step_ = {};
  step_.stage = Stage::kLaunched;
  ++steps_;
  slot_list_.clear();
  std::vector<RowPlan> plans;
  for (size_t r = 0; r < kRequests; ++r) {
    const Request& q = requests_[r];
    const int64_t fresh = NewTokens(q);
    for (size_t k = 0; k < kMostPages; ++k) {
      const bool named = fresh > 0 && k < q.pages.size();
      table_[r * kMostPages + k] = named ? static_cast<int32_t>(q.pages[k]) : 0;
      if (named) step_.uses.push_back(q.pages[k]);
    }
    lengths_[r] = fresh > 0 ? q.computed + fresh : 0;
    starts_[r] = static_cast<int32_t>(slot_list_.size());
    for (int64_t p = q.computed; fresh > 0 && p < q.computed + fresh; ++p) {
      slot_list_.push_back(q.pages[static_cast<size_t>(p / kPageSize)] * kPageSize + p % kPageSize);
    }
    step_.fresh[r] = fresh;
    step_.before[r] = q.computed;
    step_.incarnation[r] = q.incarnation;
    if (fresh == 0) continue;
    RowPlan& plan = plans.emplace_back();
    plan.row = Row(static_cast<uint32_t>(r));
    plan.req = q.id;
    plan.new_tokens = static_cast<uint64_t>(fresh);
  }
  starts_[kRequests] = static_cast<int32_t>(slot_list_.size());
  BendStep();
  if (!fence_) return;
  PoolBuffers buffers;
  buffers.table = {.entries = {table_.data(), 32},
                   .entries_size = table_.size(),
                   .stride = kMostPages,
                   .width = kMostPages,
                   .rows = kRequests};
  buffers.slots = {.slots = {slot_list_.data(), 64},
                   .slots_size = slot_list_.size(),
                   .indptr = {starts_.data(), 32},
                   .rows = kRequests};
  buffers.lengths = {.values = {lengths_.data(), 64}, .rows = kRequests};
  Ask(fence_->Step({.step = StepId(steps_), .rows = plans, .pads = {}, .pools = {&buffers, 1}}));
}

// A fault that waited for this launch alters what the kernels will read.
void SmallWorld::BendStep() {
  if (!victim_ || fault_ == SmallFault::kIssueHeld) return;
  const size_t r = *victim_;
  victim_.reset();
  if (step_.fresh[r] == 0) return;
  const auto last = static_cast<size_t>(starts_[r + 1] - 1);
  if (fault_ == SmallFault::kStaleEntry) {
    table_[r * kMostPages] = Another(table_[r * kMostPages]);
  } else if (fault_ == SmallFault::kSkippedWrite) {
    slot_list_[last] = -1;
  } else if (fault_ == SmallFault::kLongLength) {
    ++lengths_[r];
  } else if (const std::optional<int64_t> page = PageOfOther(r)) {
    slot_list_[last] = *page * kPageSize;
  }
}

// Writes all, then reads all, through what stands in the buffers now.
void SmallWorld::Attend() {
  step_.stage = Stage::kAttended;
  for (size_t r = 0; r < kRequests; ++r) {
    for (int32_t i = starts_[r]; i < starts_[r + 1]; ++i) {
      const int64_t slot = slot_list_[static_cast<size_t>(i)];
      if (slot < 0 || slot >= kPages * kPageSize) continue;
      slots_[static_cast<size_t>(slot / kPageSize)][static_cast<size_t>(slot % kPageSize)] =
          Content(r, step_.incarnation[r], step_.before[r] + i - starts_[r]);
    }
  }
  for (size_t r = 0; r < kRequests; ++r) {
    if (step_.fresh[r] == 0) continue;
    bool right = lengths_[r] == step_.before[r] + step_.fresh[r];
    for (int64_t p = 0; right && p < lengths_[r]; ++p) {
      const int32_t page = table_[r * kMostPages + static_cast<size_t>(p / kPageSize)];
      right = page >= 0 && page < kPages &&
              slots_[static_cast<size_t>(page)][static_cast<size_t>(p % kPageSize)] ==
                  Content(r, step_.incarnation[r], p);
    }
    step_.right[r] = right;
  }
}

void SmallWorld::Retire() {
  std::array<bool, kRequests> clean{};
  clean.fill(fence_ == nullptr);
  if (fence_) {
    Result<Settlement> settled = fence_->Retire({.step = StepId(steps_)});
    Ask(settled.status());
    if (settled.ok()) {
      for (const RowResult& row : settled->rows) clean[row.row.value()] = row.published;
      for (const auto& [pool, page] : settled->quarantine) {
        apart_[static_cast<size_t>(page.value())] = true;
      }
    }
  }
  const Step step = std::exchange(step_, {});
  for (size_t r = 0; r < kRequests; ++r) {
    Request& q = requests_[r];
    const bool withdrawn = !q.running || q.incarnation != step.incarnation[r];
    if (step.fresh[r] == 0 || withdrawn) continue;
    if (!clean[r]) {
      ++ended_by_fence_;
      End(r);
      continue;
    }
    q.computed += step.fresh[r];
    ++published_;
    if (!step.right[r]) ++wrong_published_;
    if (q.computed >= kPrompt) ++q.outputs;
  }
}

void SmallWorld::Fault(size_t r) {
  faulted_ = true;
  Request& q = requests_[r];
  if (fault_ == SmallFault::kFreeHeld) {
    const int64_t page = q.pages.back();
    --holds_[static_cast<size_t>(page)];
    GoesBack(page);
    // The request goes on using it, and knows no better: but it isn't returned a second time.
    lost_[r] = page;
  } else if (fault_ == SmallFault::kLateWrite) {
    TransferWrites(false);
  } else if (fault_ == SmallFault::kTableFlip) {
    table_[r * kMostPages] = Another(table_[r * kMostPages]);
  } else {
    victim_ = r;
  }
}

void SmallWorld::Make(Move move) {
  const size_t r = static_cast<size_t>(move) % 2;
  switch (move) {
    case Move::kStartA:
    case Move::kStartB:
      return Start(r);
    case Move::kGrowA:
    case Move::kGrowB:
      return Hold(r, Take(r));
    case Move::kEndA:
    case Move::kEndB:
      ++finished_;
      return End(r);
    case Move::kWithdrawA:
    case Move::kWithdrawB:
      return End(r);
    case Move::kLaunch:
      return Launch();
    case Move::kAttend:
      return Attend();
    case Move::kConfirm:
      step_.stage = Stage::kConfirmed;
      if (fence_) Ask(fence_->Confirm({.step = StepId(steps_)}));
      return;
    case Move::kRetire:
      return Retire();
    case Move::kTransferWrites:
      transfer_ = Transfer::kWritten;
      return TransferWrites(true);
    case Move::kTransferEnds:
      return EndTransfer();
    case Move::kFaultA:
    case Move::kFaultB:
      return Fault(r);
  }
}

void SmallWorld::TransferWrites(bool pinned) {
  for (int64_t o = 0; o < kPageSize; ++o) {
    slots_[static_cast<size_t>(transfer_page_)][static_cast<size_t>(o)] =
        Content(kB, transfer_incarnation_, o);
  }
  if (!fence_) return;
  Ask(fence_->Write({.page = PageId(transfer_page_),
                     .first = 0,
                     .n = kPageSize,
                     .as = {.req = transfer_for_, .at = 0},
                     .xfer = pinned ? fence_->Intern("T") : NameId()}));
}

void SmallWorld::EndTransfer() {
  transfer_ = Transfer::kIdle;
  if (fence_) Ask(fence_->Unpin({.id = fence_->Intern("T")}));
  if (holds_[static_cast<size_t>(transfer_page_)] == 0) GoesBack(transfer_page_);
  Request& b = requests_[kB];
  if (!b.running || b.incarnation != transfer_incarnation_) return;
  b.loading = false;
  b.computed = kPageSize;
  if (fence_) Ask(fence_->Ready({.req = b.id, .tokens = kPageSize}));
}

std::string SmallWorld::Key() const {
  std::string key;
  const auto put = [&](auto value) { key += std::to_string(static_cast<int64_t>(value)) + ','; };
  for (size_t r = 0; r < kRequests; ++r) {
    const Request& q = requests_[r];
    for (const int64_t value : {int64_t{q.running}, int64_t{q.incarnation}, q.computed, q.outputs,
                                int64_t{q.loading}, lost_[r]}) {
      put(value);
    }
    for (const int64_t page : q.pages) put(page);
    key += '/';
  }
  for (const int64_t page : free_) put(page);
  key += '/';
  for (size_t p = 0; p < kPages; ++p) {
    put(holds_[p]), put(issues_[p]), put(apart_[p]);
    for (const uint32_t content : slots_[p]) put(content);
  }
  if (step_.stage != Stage::kNone) {
    for (const int32_t entry : table_) put(entry);
    for (const int64_t slot : slot_list_) put(slot);
    for (size_t r = 0; r < kRequests; ++r) {
      put(step_.fresh[r]), put(step_.before[r]), put(step_.incarnation[r]), put(step_.right[r]);
      put(lengths_[r]), put(starts_[r]);
    }
  }
  put(step_.stage), put(transfer_), put(transfer_page_), put(transfer_incarnation_);
  put(faulted_), put(victim_.value_or(9));
  // What the fence has found so far stands for what it remembers of it.
  for (const Violation& v : violations_) put(v.reason), put(v.page), put(v.row), put(v.at);
  return key;
}

}  // namespace kvfence
