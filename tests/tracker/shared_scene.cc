#include "tests/tracker/shared_scene.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace kvfence::testing {
namespace {

// In a child there's nobody to tell but the exit status.
void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "shared scene: %s\n", status.message().c_str());
  std::abort();
}

template <class T>
T Must(Result<T> result) {
  Must(result.status());
  return std::move(result).value();
}

std::string FreshName(const char* what) {
  static std::atomic<int> count{0};
  return "/kvfence_test_" + std::to_string(::getpid()) + '_' + std::to_string(++count) + what;
}

const PoolId kPool{0};

std::vector<uint64_t> PageCounts(const FenceConfig& config) {
  std::vector<uint64_t> counts;
  for (const PoolConfig& pool : config.pools) counts.push_back(pool.pages);
  return counts;
}

}  // namespace

FenceConfig SceneConfig(uint64_t ranks) {
  FenceConfig config;
  PoolConfig pool;
  pool.name = "full";
  pool.pages = 64;
  pool.page_size = 16;
  config.pools = {pool};
  config.rows = kSceneRows;
  config.width = kSceneWidth;
  config.ranks = ranks;
  return config;
}

SharedNames::SharedNames()
    : journal(FreshName("_journal")), board(FreshName("_board")), owner_(::getpid()) {}
SharedNames::~SharedNames() {
  if (::getpid() != owner_) return;
  Must(SharedJournal::Remove(journal));
  Must(VerdictBoard::Remove(board));
}

Scheduler::Scheduler(const SharedNames& names, const FenceConfig& config,
                     SharedJournalOptions options, VerdictBoardOptions board_options)
    : shared_(Must(SharedJournal::Create(names.journal, config, std::move(options)))),
      board_(Must(VerdictBoard::Create(names.board, config, std::move(board_options)))),
      journal_(PageCounts(config)),
      ledger_(config, RankId(0), &journal_, nullptr) {}

Scheduler::Request& Scheduler::Find(uint32_t name) {
  for (Request& request : requests_) {
    if (request.name == name) return request;
  }
  std::abort();
}

void Scheduler::Begin(uint32_t name, uint32_t row, std::vector<int64_t> pages) {
  const RequestId id = ledger_.Admit({.name = NameId(name)});
  std::vector<PageId> ids;
  for (const int64_t page : pages) ids.emplace_back(page);
  Must(ledger_.Alloc({.req = id, .pages = ids}));
  Must(ledger_.BindRow({.row = Row(row), .req = id}));
  requests_.push_back({name, row, std::move(pages), 0});
}

void Scheduler::End(uint32_t name) {
  Must(ledger_.Release({.req = RequestId::Latest(NameId(name))}));
  std::erase_if(requests_, [&](const Request& request) { return request.name == name; });
}

StepMessage Scheduler::Launch(uint64_t step, const std::vector<Work>& work) {
  StepMessage message{};
  message.step = step;
  message.rows = static_cast<uint32_t>(work.size());
  std::vector<RowPlan> plans;
  for (size_t i = 0; i < work.size(); ++i) {
    Request& request = Find(work[i].name);
    request.length += work[i].new_tokens;
    RowPlan plan;
    plan.row = Row(request.row);
    plan.req = RequestId::Latest(NameId(request.name));
    plan.new_tokens = work[i].new_tokens;
    plans.push_back(plan);
    StepMessage::Row& row = message.row[i];
    row.row = request.row;
    row.new_tokens = work[i].new_tokens;
    row.length = static_cast<int64_t>(request.length);
    for (size_t at = 0; at < request.pages.size(); ++at) {
      row.table[at] = static_cast<int32_t>(request.pages[at]);
    }
  }
  PoolBuffers buffers;
  buffers.pool = kPool;
  buffers.table.width = kSceneWidth;
  StepEvent event;
  event.step = StepId(step);
  event.rows = plans;
  event.pools = {&buffers, 1};
  Must(ledger_.Launch(event, &plan_));
  batch_ = &journal_.Seal(StepId(step));
  message.at = {shared_->boot(), batch_->sequence};
  return message;
}

void Scheduler::Append() { Must(shared_->Append(*batch_, plan_)); }

std::vector<LaunchedRow> Scheduler::Settle(uint64_t step) {
  const StepId id(step);
  const auto count = static_cast<uint32_t>(ledger_.Launched(id).size());
  const BoardReading reading = board_->Read(shared_->boot(), id, count);
  ledger_.Judge(id, reading.reasons);
  if (reading.complete()) Must(ledger_.Confirm(id));
  std::vector<LaunchedRow> rows;
  Must(ledger_.Retire(id, &rows));
  journal_.Settled(id);
  return rows;
}

bool Scheduler::Published(uint64_t step) {
  const std::vector<LaunchedRow> rows = Settle(step);
  for (const LaunchedRow& row : rows) {
    if (!row.reasons.empty()) return false;
  }
  return !rows.empty();
}

bool Scheduler::Snapshot(uint64_t step) {
  Result<const JournalBatch*> batch = journal_.SealSnapshot(ledger_, StepId(step));
  if (!batch.ok()) return false;
  Must(shared_->Append(**batch, nullptr));
  return true;
}

Worker::Worker(const SharedNames& names, const FenceConfig& config, uint32_t rank,
               SharedJournalReaderOptions options, VerdictBoardOptions board_options)
    : rank_(rank),
      reader_(
          Must(SharedJournalReader::Open(names.journal, config, RankId(rank), std::move(options)))),
      board_(Must(VerdictBoard::Open(names.board, config, std::move(board_options)))),
      gate_(config, RankId(rank)),
      table_(kSceneRows * kSceneWidth),
      slots_(kSceneRows * kSceneSlots) {}

void Worker::Fill(const StepMessage& message) {
  int32_t counts[kSceneRows] = {};
  for (uint32_t i = 0; i < message.rows; ++i) {
    counts[message.row[i].row] = static_cast<int32_t>(message.row[i].new_tokens);
  }
  for (uint32_t r = 0; r < kSceneRows; ++r) slot_indptr_[r + 1] = slot_indptr_[r] + counts[r];
  for (uint32_t i = 0; i < message.rows; ++i) {
    const StepMessage::Row& row = message.row[i];
    std::copy(row.table, row.table + kSceneWidth, table_.begin() + row.row * kSceneWidth);
    lengths_[row.row] = row.length;
    for (uint32_t k = 0; k < row.new_tokens; ++k) {
      const auto position = static_cast<uint64_t>(row.length) - row.new_tokens + k;
      slots_[static_cast<size_t>(slot_indptr_[row.row]) + k] =
          int64_t{row.table[position / 16]} * 16 + static_cast<int64_t>(position % 16);
    }
  }
}

Answer Worker::Step(const StepMessage& message) {
  Fill(message);
  PoolBuffers buffers;
  buffers.pool = kPool;
  buffers.table.entries = {table_.data(), 32};
  buffers.table.entries_size = table_.size();
  buffers.table.stride = kSceneWidth;
  buffers.table.width = kSceneWidth;
  buffers.table.rows = kSceneRows;
  buffers.slots = {{slots_.data(), 64}, slots_.size(), {slot_indptr_, 32}, kSceneRows};
  buffers.lengths = {{lengths_, 64}, kSceneRows};
  std::vector<RowPlan> rows(message.rows);
  for (uint32_t i = 0; i < message.rows; ++i) rows[i].row = Row(message.row[i].row);
  StepEvent event;
  event.step = StepId(message.step);
  event.rank = rank_;
  event.rows = rows;
  event.pools = {&buffers, 1};

  const StepPlan* plan = reader_->Follow(message.at, event.step, &gate_);
  if (plan != nullptr) {
    gate_.Validate(event, *plan);
  } else {
    gate_.Condemn(event);
  }
  Answer answer{};
  answer.step = message.step;
  answer.state = reader_->state();
  for (uint32_t i = 0; i < message.rows; ++i) {
    const uint32_t row = message.row[i].row;
    answer.first_entry[i] = table_[row * kSceneWidth];
    answer.first_slot[i] = slots_[static_cast<size_t>(slot_indptr_[row])];
  }
  const Gate::Pass& pass = gate_.Confirm(event.step);
  for (uint32_t i = 0; i < message.rows; ++i) answer.reasons[i] = pass.reasons[i];
  Must(board_->Post(reader_->boot(), rank_, event.step, gate_.Verdicts(event.step)));
  gate_.Forget(event.step);
  return answer;
}

}  // namespace kvfence::testing
