// A ring of frames between one writer and any number of readers that it never waits for.
//
// Idea: readers leave no trace in the ring, so a slow or dead one costs the writer nothing; a frame
// may be overwritten while it is read, and the reader knows it afterwards. Positions count 64-bit
// words since the ring was made and only grow; word p lies at p modulo the capacity.
//
// Invariant I-90: what Peek hands out is one whole frame of the present boot, as it was written.
// Why that holds, in the memory model's terms:
//  - `reserved` is stored before the words that it announces, and each word is stored with release
//    order. A reader that loads (acquire) one word of a later frame therefore sees `reserved` grown
//    when it loads it after its copy, and drops the copy. If it sees no growth past its frame, no
//    word of the copy was newer than the frame.
//  - `committed` is stored (release) after the frame's words: who loads it (acquire) finds no word
//    older than the frame either. A writer that dies in between has committed nothing.
//  - A new boot sets `boot` to 0, then `start`, then the new `boot`, then `committed`: who sees a
//    position of the new boot sees that its own boot has gone.
// All loads and stores are atomic; there are no fences, so that TSan sees what there is to see.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvfence/shared_journal.h"

namespace kvfence {

using SharedWord = std::atomic<uint64_t>;
static_assert(SharedWord::is_always_lock_free && sizeof(SharedWord) == 8);

struct RingHead {
  alignas(64) SharedWord boot;  // 0: none; a random number for each life of the writer
  SharedWord start;             // where this boot's frames begin
  SharedWord snapshot;          // 1 + position of its newest snapshot, 0: none
  alignas(64) SharedWord reserved;
  SharedWord committed;
};

// Thread-safe against readers only.
class RingWriter {
 public:
  // `words`: a power of two of them. The memory must outlive the writer.
  RingWriter(RingHead* head, std::span<SharedWord> words, std::function<void(WritePoint)> probe)
      : head_(head), words_(words), probe_(std::move(probe)) {}

  // Begins a boot behind all that was ever reserved: a frame that a killed writer left half
  // written is never looked at again.
  void Begin(uint64_t boot);
  bool Fits(uint64_t words) const { return words < words_.size(); }
  // Never waits. Only frames that fit.
  void Append(std::span<const uint64_t> frame, bool snapshot);

 private:
  void Put(uint64_t position, uint64_t word) {
    words_[position & (words_.size() - 1)].store(word, std::memory_order_release);
  }
  void Reached(WritePoint point) {
    if (probe_) probe_(point);
  }

  RingHead* head_;
  std::span<SharedWord> words_;
  std::function<void(WritePoint)> probe_;
};

// One reader's cursor. Not thread-safe by itself; others may read the same ring.
class RingReader {
 public:
  enum class Look { kNothing, kFrame, kOverrun, kDamaged, kOtherBoot };

  RingReader(const RingHead* head, std::span<const SharedWord> words, std::function<void()> probe)
      : head_(head), words_(words), probe_(std::move(probe)) {}

  // Goes to the beginning of the present boot, which is returned; 0: there is none.
  uint64_t Join();
  // Copies the frame at the cursor, without moving.
  Look Peek(std::vector<uint64_t>* frame);
  // Moves behind the frame that Peek gave.
  void Pass() { cursor_ += 1 + peeked_; }
  // Gives up what lies at the cursor, which is no frame, or not the one that was to come.
  void GiveUp() { ++cursor_; }
  // Moves on to the newest snapshot, unless it's older than the cursor.
  bool SkipToSnapshot();
  bool BootChanged() const { return head_->boot.load(std::memory_order_acquire) != boot_; }

 private:
  uint64_t Get(uint64_t position) const {
    return words_[position & (words_.size() - 1)].load(std::memory_order_acquire);
  }

  const RingHead* head_;
  std::span<const SharedWord> words_;
  std::function<void()> probe_;
  uint64_t boot_ = 0;
  uint64_t cursor_ = 0;
  uint64_t peeked_ = 0;  // words of the frame that Peek gave
};

}  // namespace kvfence
