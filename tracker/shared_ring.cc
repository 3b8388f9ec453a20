#include "shared_ring.h"

#include "kvfence/check.h"

namespace kvfence {

void RingWriter::Begin(uint64_t boot) {
  const uint64_t start = head_->reserved.load(std::memory_order_relaxed);
  head_->boot.store(0, std::memory_order_relaxed);
  head_->start.store(start, std::memory_order_release);
  head_->snapshot.store(0, std::memory_order_release);
  head_->boot.store(boot, std::memory_order_release);
  head_->committed.store(start, std::memory_order_release);
}

void RingWriter::Append(std::span<const uint64_t> frame, bool snapshot) {
  KVF_CHECK(Fits(frame.size()), "I-90 a frame fits into the ring");
  const uint64_t begin = head_->committed.load(std::memory_order_relaxed);
  const uint64_t end = begin + 1 + frame.size();
  head_->reserved.store(end, std::memory_order_relaxed);  // ordered by the words' release stores
  Reached(WritePoint::kReserved);
  Put(begin, frame.size());
  for (size_t i = 0; i < frame.size(); ++i) {
    if (i == frame.size() / 2) Reached(WritePoint::kHalfWritten);
    Put(begin + 1 + i, frame[i]);
  }
  Reached(WritePoint::kWritten);
  head_->committed.store(end, std::memory_order_release);
  if (snapshot) head_->snapshot.store(begin + 1, std::memory_order_release);
  Reached(WritePoint::kCommitted);
}

uint64_t RingReader::Join() {
  for (;;) {
    boot_ = head_->boot.load(std::memory_order_acquire);
    cursor_ = head_->start.load(std::memory_order_acquire);
    // `boot` is 0 before `start` changes: the same boot twice means that `start` is its own.
    if (head_->boot.load(std::memory_order_acquire) == boot_) return boot_;
  }
}

RingReader::Look RingReader::Peek(std::vector<uint64_t>* frame) {
  const uint64_t end = head_->committed.load(std::memory_order_acquire);
  if (BootChanged()) return Look::kOtherBoot;
  if (end <= cursor_) return Look::kNothing;
  const uint64_t capacity = words_.size();
  if (end - cursor_ > capacity) return Look::kOverrun;
  if (probe_) probe_();
  const uint64_t size = Get(cursor_);
  const bool sound = size < end - cursor_;
  frame->clear();
  if (sound) {
    frame->reserve(size);
    for (uint64_t i = 0; i < size; ++i) frame->push_back(Get(cursor_ + 1 + i));
  }
  // After the copy: was any of it overwritten, or is it another writer's?
  const uint64_t reserved = head_->reserved.load(std::memory_order_acquire);
  if (reserved - cursor_ > capacity) return Look::kOverrun;
  if (BootChanged()) return Look::kOtherBoot;
  if (!sound) return Look::kDamaged;
  peeked_ = size;
  return Look::kFrame;
}

bool RingReader::SkipToSnapshot() {
  const uint64_t at = head_->snapshot.load(std::memory_order_acquire);
  if (at == 0 || at - 1 < cursor_) return false;
  cursor_ = at - 1;
  return true;
}

}  // namespace kvfence
