#include "attention.h"

#include <algorithm>

namespace kvfence {

// The sum over the first `length` positions of the row, as the table and the cache have them now.
uint64_t AttentionPass::Covered(const StepBuffers& buffers, uint64_t row, int64_t length,
                                uint64_t* wild) const {
  if (length <= 0) return 0;
  const KvMemory& kv = *kv_;
  const std::span<const int32_t> table = buffers.TableRow(row);
  const uint64_t* weight = kv.weights().pages().data();
  uint64_t full = static_cast<uint64_t>(length) / kv.page_size();
  uint64_t rest = static_cast<uint64_t>(length) % kv.page_size();
  uint64_t sum = 0;
  if (full >= table.size()) {
    // A kernel would run into the next row's entries or past the table.
    if (full > table.size() || rest > 0) {
      ++*wild;
      sum = KvMemory::WildContent(length);
    }
    full = table.size();
    rest = 0;
  }
  for (uint64_t k = 0; k < full; ++k) {
    const int64_t page = table[k];
    if (kv.Contains(page)) {
      sum += weight[k] * kv.Digest(static_cast<uint64_t>(page));
    } else {
      ++*wild;
      sum += weight[k] * KvMemory::WildContent(page);
    }
  }
  if (rest > 0) {
    const int64_t page = table[full];
    if (kv.Contains(page)) {
      sum += weight[full] * kv.PartDigest(static_cast<uint64_t>(page), rest);
    } else {
      ++*wild;
      sum += weight[full] * KvMemory::WildContent(page);
    }
  }
  return sum;
}

// What lies under entries that the kernel's tile touches beyond the covered ones.
uint64_t AttentionPass::Tail(const StepBuffers& buffers, uint64_t row) const {
  const std::span<const int32_t> table = buffers.TableRow(row);
  const int64_t length = std::max<int64_t>(buffers.lengths[row], 0);
  const uint64_t covered =
      (static_cast<uint64_t>(length) + kv_->page_size() - 1) / kv_->page_size();
  const uint64_t end = std::min<uint64_t>(buffers.reach[row], table.size());
  uint64_t sum = 0;
  for (uint64_t k = covered; k < end; ++k) {
    if (table[k] != null_page_) sum += KvMemory::WildContent(table[k]) * (k + 1);
  }
  return sum;
}

void AttentionPass::Append(const StepBuffers& buffers, uint64_t row, uint64_t sum, PassResult* out,
                           UndoLog* undo) {
  KvMemory& kv = *kv_;
  const PositionWeights& weights = kv.weights();
  const RowInput& input = buffers.inputs[row];
  const uint64_t n = buffers.NewTokens(row);
  const int64_t* slots = buffers.slots.data() + buffers.starts[row];
  // Where attention believes the new tokens to be, which is what their content depends on.
  const uint64_t base =
      static_cast<uint64_t>(std::max<int64_t>(buffers.lengths[row] - static_cast<int64_t>(n), 0));
  uint64_t k = base / kv.page_size();
  uint64_t o = base % kv.page_size();
  int64_t last_slot = -2;
  uint64_t page = 0;
  uint64_t offset = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint32_t token = input.tokens != nullptr ? input.tokens[i] : 0;
    const uint64_t content = ContentOfToken(sum, base + i, token, input.salt);
    if (k < buffers.width) sum += weights.PageWeight(k) * weights.SlotWeight(o) * content;
    if (++o == kv.page_size()) {
      o = 0;
      ++k;
    }
    const int64_t slot = slots[i];
    if (slot < 0) continue;
    if (slot == last_slot + 1 && offset + 1 < kv.page_size()) {
      ++offset;
    } else if (kv.ContainsSlot(slot)) {
      page = static_cast<uint64_t>(slot) / kv.page_size();
      offset = static_cast<uint64_t>(slot) % kv.page_size();
    } else {
      ++out->wild_accesses;
      last_slot = -2;
      continue;
    }
    last_slot = slot;
    if (undo != nullptr) undo->emplace_back(slot, kv.At(page, offset));
    kv.WriteAt(page, offset, content);
  }
}

void AttentionPass::Run(const StepBuffers& buffers, PassResult* out, UndoLog* undo) {
  const uint64_t rows = buffers.rows;
  sums_.resize(rows);
  out->results.resize(rows);
  out->wild_accesses = 0;
  for (uint64_t row = 0; row < rows; ++row) {
    const int64_t before = buffers.lengths[row] - static_cast<int64_t>(buffers.NewTokens(row));
    sums_[row] = Covered(buffers, row, before, &out->wild_accesses);
  }
  for (uint64_t row = 0; row < rows; ++row) Append(buffers, row, sums_[row], out, undo);
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t sum =
        Covered(buffers, row, buffers.lengths[row], &out->wild_accesses) + Tail(buffers, row);
    out->results[row] =
        ResultOf(sum, static_cast<uint64_t>(buffers.lengths[row]), buffers.inputs[row].salt);
  }
}

}  // namespace kvfence
