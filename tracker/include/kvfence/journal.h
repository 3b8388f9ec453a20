// The journal: the sequenced, checksummed stream of deltas from a ledger to its gate.
//
// One batch per launched step: it carries the step, a sequence number without gaps and a checksum,
// so that a gate that missed or misread one knows it and calls every row `unverified` (I-11).
// Batches lie in staging buffers that a copy engine may still read after the call: a buffer is used
// again only after the step it was sealed for has settled (I-14). Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "kvfence/device_types.h"
#include "kvfence/ledger.h"
#include "kvfence/status.h"
#include "kvfence/types.h"

namespace kvfence {

enum class DeltaKind : uint32_t { kPage, kExpect, kResize, kEnd, kBind, kScaleEpoch };

// One delta, 48 bytes, without padding that a checksum could trip over.
struct JournalDelta {
  DeltaKind kind;
  uint32_t pool;
  uint64_t request;  // RequestId word
  uint64_t index;    // page; logical page; new count; row; scale epoch
  uint32_t fields;   // kPage: ApplyItem fields
  uint32_t zero;
  union {
    PageRecord record;
    Expectation expectation;
    uint64_t words[2];
  };
};
static_assert(sizeof(JournalDelta) == 48);

struct JournalBatch {
  uint64_t sequence = 0;  // 1, 2, 3 ...
  uint64_t step = 0;
  uint64_t checksum = 0;  // over sequence, step, snapshot and all deltas
  bool snapshot = false;  // the deltas are the ledger's whole state, for a gate that begins anew
  std::vector<JournalDelta> deltas;

  uint64_t ComputeChecksum() const;
  bool Intact() const { return checksum == ComputeChecksum(); }
};

class Journal : public DeltaSink {
 public:
  // `pages[p]`: number of pages of pool p.
  explicit Journal(std::span<const uint64_t> pages);

  void Page(PoolId pool, uint32_t page, uint32_t fields, const PageRecord& record) override;
  void Expect(RequestId req, PoolId pool, uint32_t at, const Expectation& expectation) override;
  void Resize(RequestId req, PoolId pool, uint32_t count) override;
  void End(RequestId req) override;
  void Bind(Row row, RequestId req) override;
  void ScaleEpoch(PoolId pool, uint16_t epoch) override;

  // Movers outside the stream stamp device records themselves, at once. While `now` is set, content
  // deltas of pages whose tag isn't about to change go to `now` instead of into the batch; those of
  // a page issued since the last batch wait with its new tag.
  class Immediate {
   public:
    virtual ~Immediate() = default;
    virtual void Stamp(PoolId pool, uint32_t page, const PageRecord& record) = 0;
  };
  void SetImmediate(Immediate* now) { immediate_ = now; }

  // Closes the open batch for `step`. Valid until Settled(step) or a later one was called.
  const JournalBatch& Seal(StepId step);
  // As Seal, but the batch is the ledger's whole state, which makes a lost gate whole again; what
  // stood in the open batch is part of it. Refused, without any effect, where Ledger::Snapshot is.
  // `step`: any step whose end frees the buffer, usually the last one that was retired.
  Result<const JournalBatch*> SealSnapshot(const Ledger& ledger, StepId step);
  // The step has settled: its staging buffer may be used again.
  void Settled(StepId step);

  uint64_t sequence() const { return sequence_; }
  size_t pending() const { return open_->deltas.size(); }  // deltas of the open batch
  size_t staging_buffers() const { return in_flight_.size() + free_.size() + 1; }

 private:
  JournalDelta& Append(DeltaKind kind);

  uint64_t sequence_ = 0;
  std::unique_ptr<JournalBatch> open_;
  std::deque<std::unique_ptr<JournalBatch>> in_flight_;  // oldest first
  std::vector<std::unique_ptr<JournalBatch>> free_;
  Immediate* immediate_ = nullptr;
  // Per pool and page: the batch (its future sequence number) that changes the page's tag, and the
  // one that says its content.
  std::vector<std::vector<uint64_t>> tag_pending_;
  std::vector<std::vector<uint64_t>> content_pending_;
};

}  // namespace kvfence
