#include "kvfence/journal.h"

#include <xxhash.h>

#include <cstring>

#include "kvfence/check.h"
#include "kvfence/validate.h"

namespace kvfence {

uint64_t JournalBatch::ComputeChecksum() const {
  const uint64_t head[3] = {sequence, step, snapshot ? 1u : 0u};
  const uint64_t seed = XXH3_64bits(head, sizeof(head));
  return XXH3_64bits_withSeed(deltas.data(), deltas.size() * sizeof(JournalDelta), seed);
}

Journal::Journal(std::span<const uint64_t> pages) : open_(std::make_unique<JournalBatch>()) {
  for (const uint64_t count : pages) {
    tag_pending_.emplace_back(count, 0);
    content_pending_.emplace_back(count, 0);
  }
}

JournalDelta& Journal::Append(DeltaKind kind) {
  JournalDelta& delta = open_->deltas.emplace_back();
  std::memset(static_cast<void*>(&delta), 0, sizeof(delta));
  delta.kind = kind;
  return delta;
}

void Journal::Page(PoolId pool, uint32_t page, uint32_t fields, const PageRecord& record) {
  uint64_t& pending = tag_pending_[pool.value()][page];
  if (immediate_ != nullptr && fields == kApplyContent && pending != sequence_ + 1) {
    immediate_->Stamp(pool, page, record);
    // What waits in the batch is older, and must not be the last word.
    if (content_pending_[pool.value()][page] != sequence_ + 1) return;
  }
  if ((fields & kApplyTag) != 0) pending = sequence_ + 1;
  if ((fields & kApplyContent) != 0) content_pending_[pool.value()][page] = sequence_ + 1;
  JournalDelta& delta = Append(DeltaKind::kPage);
  delta.pool = pool.value();
  delta.index = page;
  delta.fields = fields;
  delta.record = record;
}

void Journal::Expect(RequestId req, PoolId pool, uint32_t at, const Expectation& expectation) {
  JournalDelta& delta = Append(DeltaKind::kExpect);
  delta.pool = pool.value();
  delta.request = req.word();
  delta.index = at;
  delta.expectation = expectation;
}

void Journal::Resize(RequestId req, PoolId pool, uint32_t count) {
  JournalDelta& delta = Append(DeltaKind::kResize);
  delta.pool = pool.value();
  delta.request = req.word();
  delta.index = count;
}

void Journal::End(RequestId req) { Append(DeltaKind::kEnd).request = req.word(); }

void Journal::Bind(Row row, RequestId req) {
  JournalDelta& delta = Append(DeltaKind::kBind);
  delta.request = req.word();
  delta.index = row.value();
}

void Journal::ScaleEpoch(PoolId pool, uint16_t epoch) {
  JournalDelta& delta = Append(DeltaKind::kScaleEpoch);
  delta.pool = pool.value();
  delta.index = epoch;
}

const JournalBatch& Journal::Seal(StepId step) {
  open_->sequence = ++sequence_;
  open_->step = step.value();
  open_->checksum = open_->ComputeChecksum();
  in_flight_.push_back(std::move(open_));
  if (free_.empty()) {
    open_ = std::make_unique<JournalBatch>();
  } else {
    open_ = std::move(free_.back());
    free_.pop_back();
    open_->deltas.clear();
    open_->snapshot = false;
  }
  return *in_flight_.back();
}

Result<const JournalBatch*> Journal::SealSnapshot(const Ledger& ledger, StepId step) {
  std::vector<JournalDelta> pending;
  pending.swap(open_->deltas);
  if (Status status = ledger.Snapshot(this); !status.ok()) {
    open_->deltas.swap(pending);
    return status;
  }
  open_->snapshot = true;
  return &Seal(step);
}

void Journal::Settled(StepId step) {
  while (!in_flight_.empty() && in_flight_.front()->step <= step.value()) {
    free_.push_back(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }
}

}  // namespace kvfence
