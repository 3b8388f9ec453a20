#include "attention.h"

#include <algorithm>

namespace kvfence {

// The sum over the first `length` positions of the row, as the table and the cache have them now.
uint64_t AttentionPass::Covered(const KvMemory& kv, const StepBuffers& buffers, uint64_t row,
                                int64_t length, uint64_t* wild) const {
  if (length <= 0) return 0;
  const std::span<const int32_t> table = buffers.TableRow(row);
  const uint64_t* weight = kv.weights().pages().data();
  uint64_t full = static_cast<uint64_t>(length) / kv.page_size();
  uint64_t rest = static_cast<uint64_t>(length) % kv.page_size();
  uint64_t sum = 0;
  const uint64_t shared = row < buffers.live ? buffers.prefix.size() : 0;
  const auto entry = [&](uint64_t k) -> int64_t {
    return k < shared ? buffers.prefix[k] : table[k];
  };
  // The rest of a plan that is too short for the length is nobody's work.
  if (const uint64_t planned = buffers.PlannedPages(row); full >= planned) {
    full = planned;
    rest = 0;
  }
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
    const int64_t page = entry(k);
    if (kv.Contains(page)) {
      sum += weight[k] * kv.Digest(kv.Indexed(page));
    } else {
      ++*wild;
      sum += weight[k] * KvMemory::WildContent(page);
    }
  }
  if (rest > 0) {
    const int64_t page = entry(full);
    if (kv.Contains(page)) {
      sum += weight[full] * kv.PartDigest(kv.Indexed(page), 0, rest);
    } else {
      ++*wild;
      sum += weight[full] * KvMemory::WildContent(page);
    }
  }
  return sum;
}

// The sum over positions [begin, end).
uint64_t AttentionPass::Between(const KvMemory& kv, const StepBuffers& buffers, uint64_t row,
                                int64_t begin, int64_t end, uint64_t* wild) const {
  const std::span<const int32_t> table = buffers.TableRow(row);
  const auto size = static_cast<int64_t>(kv.page_size());
  uint64_t sum = 0;
  for (int64_t p = std::max<int64_t>(begin, 0); p < end;) {
    const int64_t k = p / size;
    const int64_t stop = std::min(end, (k + 1) * size);
    if (static_cast<uint64_t>(k) >= buffers.PlannedPages(row)) return sum;
    if (k >= static_cast<int64_t>(table.size())) {
      ++*wild;
      return sum + KvMemory::WildContent(end);
    }
    const int64_t page = table[static_cast<size_t>(k)];
    const uint64_t weight = kv.weights().PageWeight(static_cast<uint64_t>(k));
    if (!kv.Contains(page)) {
      ++*wild;
      sum += weight * KvMemory::WildContent(page);
    } else if (stop - p == size) {
      sum += weight * kv.Digest(kv.Indexed(page));
    } else {
      sum += weight * kv.PartDigest(kv.Indexed(page), static_cast<uint64_t>(p - k * size),
                                    static_cast<uint64_t>(stop - k * size));
    }
    p = stop;
  }
  return sum;
}

uint64_t AttentionPass::Before(std::span<const StepBuffers> parts, uint64_t row, int64_t position,
                               uint64_t* wild) const {
  uint64_t sum = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    const auto window = static_cast<int64_t>(windows_[part]);
    sum += window == 0
               ? Covered(kv_[part], parts[part], row, position, wild)
               : Between(kv_[part], parts[part], row, position + 1 - window, position, wild);
  }
  return sum * dequantise_;
}

uint64_t AttentionPass::Result(std::span<const StepBuffers> parts, uint64_t row, int64_t length,
                               uint64_t* wild) const {
  uint64_t sum = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    const StepBuffers& b = parts[part];
    const auto window = static_cast<int64_t>(windows_[part]);
    sum += window == 0 ? Covered(kv_[part], b, row, length, wild)
                       : Between(kv_[part], b, row, length - window, length, wild);
    sum += Tail(kv_[part], b, row);
  }
  return ResultOf(sum * dequantise_, static_cast<uint64_t>(length), parts[0].inputs[row].salt);
}

// What lies under entries that the kernel's tile touches beyond the covered ones.
uint64_t AttentionPass::Tail(const KvMemory& kv, const StepBuffers& buffers, uint64_t row) const {
  const std::span<const int32_t> table = buffers.TableRow(row);
  const int64_t length = std::max<int64_t>(buffers.lengths[row], 0);
  const uint64_t covered = (static_cast<uint64_t>(length) + kv.page_size() - 1) / kv.page_size();
  const uint64_t end = std::min<uint64_t>(buffers.reach[row], table.size());
  uint64_t sum = 0;
  for (uint64_t k = covered; k < end; ++k) {
    if (table[k] == null_page_) continue;
    if (table[k] != buffers.OwnEntry(row, k, static_cast<int32_t>(null_page_)))
      sum += KvMemory::WildContent(table[k]) * (k + 1);
  }
  return sum;
}

void AttentionPass::Append(const StepBuffers& buffers, uint64_t row, uint64_t sum, PassResult* out,
                           UndoLog* undo) {
  KvMemory& kv = kv_[0];
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
      page = kv.IndexedPage(slot);
      offset = static_cast<uint64_t>(slot) % kv.page_size();
    } else {
      ++out->wild_accesses;
      last_slot = -2;
      continue;
    }
    last_slot = slot;
    if (undo != nullptr) undo->push_back({0, slot, kv.At(page, offset)});
    kv.WriteAt(page, offset, content * quantise_);
  }
}

void AttentionPass::Store(size_t part, int64_t slot, uint64_t content, PassResult* out,
                          UndoLog* undo) {
  if (slot < 0) return;
  KvMemory& kv = kv_[part];
  if (!kv.ContainsSlot(slot)) {
    ++out->wild_accesses;
    return;
  }
  const uint64_t page = kv.IndexedPage(slot);
  const uint64_t offset = static_cast<uint64_t>(slot) % kv.page_size();
  if (undo != nullptr) {
    undo->push_back({static_cast<uint32_t>(part), slot, kv.At(page, offset)});
  }
  kv.WriteAt(page, offset, content * quantise_);
}

// A draft model that is right now and then, as the seed has it.
uint32_t Guess(const RowInput& input, uint64_t position, uint64_t result, bool* right) {
  *right = Mix64(input.guess_seed + position) % 100 < input.guess_per_cent;
  return TokenOf(result, input.sample) ^ (*right ? 0 : 1);
}

// As Append, over several parts: what a token adds to one part, all parts' later tokens read. A
// window leaves a position behind with each token, which is read once more to be taken out.
void AttentionPass::AppendToAll(std::span<const StepBuffers> parts, uint64_t row, uint64_t sum,
                                PassResult* out, UndoLog* undo) {
  const RowInput& input = parts[0].inputs[row];
  const uint64_t n = parts[0].NewTokens(row);
  const int64_t base = std::max<int64_t>(parts[0].lengths[row] - static_cast<int64_t>(n), 0);
  const uint64_t known = n - std::min<uint64_t>(input.guesses, n);
  uint64_t read = sum;  // by the token before, itself included
  bool all_right = true;
  for (uint64_t i = 0; i < n; ++i) {
    const int64_t p = base + static_cast<int64_t>(i);
    const auto position = static_cast<uint64_t>(p);
    uint32_t token = i < known && input.tokens != nullptr ? input.tokens[i] : 0;
    if (i >= known) {
      bool right = false;
      token = Guess(input, position, ResultOf(read, position, input.salt), &right);
      all_right = all_right && right;
      right_[row] += all_right ? 1 : 0;
    }
    const uint64_t before = sum;
    uint64_t left = 0;  // behind by windows
    for (size_t part = 0; part < parts.size(); ++part) {
      const StepBuffers& b = parts[part];
      const PositionWeights& w = kv_[part].weights();
      const uint64_t content = ContentOfToken(before, position, token, PartSalt(input.salt, part));
      const uint64_t k = position / w.page_size();
      if (k < b.width) sum += w.PageWeight(k) * w.SlotWeight(position % w.page_size()) * content;
      Store(part, b.slots[static_cast<uint64_t>(b.starts[row]) + i], content, out, undo);
      const auto window = static_cast<int64_t>(windows_[part]);
      if (window == 0 || p + 1 < window) continue;
      left += dequantise_ *
              Between(kv_[part], b, row, p + 1 - window, p + 2 - window, &out->wild_accesses);
    }
    read = sum;
    sum -= left;
  }
  // The next guesses' KV, which nobody reads but the draft model itself.
  for (size_t part = 0; part < parts.size(); ++part) {
    const StepBuffers& b = parts[part];
    for (uint64_t i = n; i < b.NewTokens(row); ++i) {
      Store(part, b.slots[static_cast<uint64_t>(b.starts[row]) + i], Mix64(sum + i), out, undo);
    }
  }
}

// All rows' results, where some rows have several.
void AttentionPass::Verify(std::span<const StepBuffers> parts, PassResult* out) {
  const StepBuffers& first = parts[0];
  for (uint64_t row = 0; row < first.rows; ++row) {
    out->verified_at.push_back(static_cast<uint32_t>(out->verified.size()));
    const int64_t known = first.lengths[row] - static_cast<int64_t>(first.inputs[row].guesses);
    for (uint32_t i = 0; i <= right_[row]; ++i) {
      out->verified.push_back(Result(parts, row, known + i, &out->wild_accesses));
    }
    out->results[row] = out->verified.back();
  }
  out->verified_at.push_back(static_cast<uint32_t>(out->verified.size()));
}

void AttentionPass::AppendRow(std::span<const StepBuffers> parts, uint64_t row, PassResult* out,
                              UndoLog* undo) {
  if (simple()) {
    Append(parts[0], row, sums_[row], out, undo);
  } else {
    AppendToAll(parts, row, sums_[row], out, undo);
  }
}

void AttentionPass::Run(std::span<const StepBuffers> parts, PassResult* out, UndoLog* undo) {
  const StepBuffers& first = parts[0];
  const uint64_t rows = first.rows;
  sums_.resize(rows);
  right_.assign(rows, 0);
  out->verified.clear();
  out->verified_at.clear();
  out->results.resize(rows);
  out->wild_accesses = 0;
  const auto read = [&](uint64_t row) {
    const int64_t before = first.lengths[row] - static_cast<int64_t>(first.NewTokens(row));
    sums_[row] = Before(parts, row, before, &out->wild_accesses);
  };
  for (const uint32_t row : first.order) {
    read(row);
    AppendRow(parts, row, out, undo);
  }
  const uint64_t done = first.order.empty() ? 0 : first.live;  // the rest is padding
  for (uint64_t row = done; row < rows; ++row) read(row);
  for (uint64_t row = done; row < rows; ++row) AppendRow(parts, row, out, undo);
  const auto guesses = [](const RowInput& input) { return input.guesses > 0; };
  if (std::any_of(first.inputs.begin(), first.inputs.begin() + static_cast<std::ptrdiff_t>(rows),
                  guesses)) {
    return Verify(parts, out);
  }
  for (uint64_t row = 0; row < rows; ++row) {
    out->results[row] = Result(parts, row, first.lengths[row], &out->wild_accesses);
  }
}

void AttentionPass::Undo(const UndoLog& log) {
  for (auto it = log.rbegin(); it != log.rend(); ++it) {
    KvMemory& kv = kv_[it->part];
    const uint64_t offset = static_cast<uint64_t>(it->slot) % kv.page_size();
    kv.WriteAt(kv.IndexedPage(it->slot), offset, it->content);
  }
}

}  // namespace kvfence
