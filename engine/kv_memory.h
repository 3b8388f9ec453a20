// The simulated device's cache: one 64-bit content per slot, and per page a digest of its slots.
//
// Invariant (I-41): digest(page) is the sum over the page's slots of SlotWeight(o) * content(o),
// whatever was written in whatever order; so reading a full page costs one load. Accesses beyond
// the pool touch nothing (a GPU would fault or worse) and are counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kvfence/engine.h"
#include "kvfence/ground_truth.h"
#include "kvfence/rng.h"

namespace kvfence {

// What stood in a slot before it was written, so that a trial can be taken back.
struct Overwritten {
  uint32_t part = 0;  // of the model
  int64_t slot = 0;
  uint64_t content = 0;
};
using UndoLog = std::vector<Overwritten>;

class KvMemory {
 public:
  KvMemory(uint64_t pages, const PositionWeights* weights)
      : weights_(weights),
        page_size_(weights->page_size()),
        pages_(pages),
        slots_(pages * page_size_),
        digests_(pages) {}
  // Kernels compute slots in so many bits; at least a page's, whose size is a power of two.
  void NarrowIndices(uint64_t bits) {
    if (bits < kWideIndex) page_mask_ = (uint64_t{1} << bits) / page_size_ - 1;
  }
  // Where a kernel finds a page that there is.
  uint64_t Indexed(int64_t page) const { return static_cast<uint64_t>(page) & page_mask_; }
  uint64_t IndexedPage(int64_t slot) const {
    return (static_cast<uint64_t>(slot) / page_size_) & page_mask_;
  }

  uint64_t pages() const { return pages_; }
  uint64_t page_size() const { return page_size_; }
  const PositionWeights& weights() const { return *weights_; }
  bool Contains(int64_t page) const { return page >= 0 && static_cast<uint64_t>(page) < pages_; }
  bool ContainsSlot(int64_t slot) const {
    return slot >= 0 && static_cast<uint64_t>(slot) < slots_.size();
  }

  // Page and offset of a valid slot are the caller's, who knows them from the slot before.
  void WriteAt(uint64_t page, uint64_t offset, uint64_t content) {
    uint64_t& slot = slots_[page * page_size_ + offset];
    digests_[page] += weights_->SlotWeight(offset) * (content - slot);
    slot = content;
  }
  uint64_t At(uint64_t page, uint64_t offset) const { return slots_[page * page_size_ + offset]; }
  uint64_t Digest(uint64_t page) const { return digests_[page]; }
  // The share of a page of which only the slots [first, end) are read.
  uint64_t PartDigest(uint64_t page, uint64_t first, uint64_t end) const {
    const uint64_t* slot = slots_.data() + page * page_size_;
    uint64_t sum = 0;
    for (uint64_t o = first; o < end; ++o) sum += weights_->SlotWeight(o) * slot[o];
    return sum;
  }
  void CopyPage(uint64_t from, uint64_t to) {
    std::copy_n(slots_.begin() + static_cast<std::ptrdiff_t>(from * page_size_), page_size_,
                slots_.begin() + static_cast<std::ptrdiff_t>(to * page_size_));
    digests_[to] = digests_[from];
  }
  std::vector<uint64_t> Content(uint64_t page) const {
    const auto first = slots_.begin() + static_cast<std::ptrdiff_t>(page * page_size_);
    return {first, first + static_cast<std::ptrdiff_t>(page_size_)};
  }
  // What a read beyond the pool brings: something that nobody wrote.
  static constexpr uint64_t WildContent(int64_t page) {
    return Mix64(static_cast<uint64_t>(page) ^ 0x57494C44u);
  }

 private:
  const PositionWeights* weights_;
  uint64_t page_size_;
  uint64_t pages_;
  uint64_t page_mask_ = ~uint64_t{0};
  std::vector<uint64_t> slots_;
  std::vector<uint64_t> digests_;
};

}  // namespace kvfence
