// The device's buffers of one step: exactly what append and attention kernels read.
//
// Dense int32 page table [rows][width], int32 lengths, int64 write slots with int32 query starts.
// Rows 0 .. live-1 are requests, live .. rows-1 padding. A replayed step has an attention plan too:
// over how many pages each row's work is split. Invariant: `new tokens` of a row are what `starts`
// says, and only the scheduler sets them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kvfence/event.h"

namespace kvfence {

// A row's input tokens and what its content is salted with: embeddings and adapter, not judged.
struct RowInput {
  const uint32_t* tokens = nullptr;  // the new ones; null for padding
  uint64_t salt = 0;
  uint32_t sample = 0;          // which of its siblings it is
  uint32_t guesses = 0;         // the last new tokens: what a draft model guesses, on the device
  uint64_t guess_seed = 0;      // decides which guesses are right
  uint32_t guess_per_cent = 0;  // of them
};

// An array of the batch of which only the rows from `lead` on are this engine's: indices count from
// there. The fence numbers the rows of all engines, and sees the whole array.
template <class T>
class RowArray {
 public:
  RowArray(uint64_t lead, uint64_t rows) : lead_(lead), all_(lead + rows) {}
  T& operator[](uint64_t row) { return all_[lead_ + row]; }
  const T& operator[](uint64_t row) const { return all_[lead_ + row]; }
  T* whole() { return all_.data(); }

 private:
  uint64_t lead_;
  std::vector<T> all_;
};

struct StepBuffers {
  StepBuffers(uint64_t max_rows, uint64_t row_width, uint64_t first_row = 0)
      : lead(first_row),
        width(row_width),
        table((first_row + max_rows) * row_width),
        lengths(first_row, max_rows),
        starts(first_row, max_rows + 1),
        filled(max_rows),
        reach(max_rows),
        inputs(max_rows),
        own_at(max_rows + 1),
        own_from(max_rows) {}

  uint64_t lead;  // rows of other engines before the first, as the fence counts
  uint64_t width;
  uint64_t rows = 0;
  uint64_t live = 0;
  std::vector<int32_t> table;
  RowArray<int32_t> lengths;
  std::vector<int64_t> slots;
  RowArray<int32_t> starts;      // row r writes slots[starts[r] .. starts[r+1])
  std::vector<uint32_t> filled;  // entries of the row that the last upload wrote
  std::vector<uint64_t> reach;   // entries that the kernel may touch
  std::vector<RowInput> inputs;
  // Read by all live rows in place of their first entries (cascade attention); empty: none.
  std::vector<int64_t> prefix;
  // Where a row may read what another row of the step writes: the order in which rows are computed
  // (layer by layer, a real pass has all writes of a layer before its reads). Else empty.
  std::span<const uint32_t> order{};
  // The row's own pages behind the covered ones, as far as it has such within reach: entries
  // own_from[r] .. of its table rightfully name own[own_at[r]] ..; for the truth, not for kernels.
  std::vector<int32_t> own;
  std::vector<uint32_t> own_at;
  std::vector<uint64_t> own_from;
  // The plan: pages of which each row's work consists, and the step it was made for. Empty: the
  // kernel takes them from the lengths. Beside it the one before.
  std::vector<uint32_t> planned;
  uint64_t planned_for = 0;
  std::vector<uint32_t> last_planned;
  uint64_t last_planned_for = 0;

  std::span<int32_t> TableRow(uint64_t row) {
    return {table.data() + (lead + row) * width, static_cast<size_t>(width)};
  }
  std::span<const int32_t> TableRow(uint64_t row) const {
    return {table.data() + (lead + row) * width, static_cast<size_t>(width)};
  }
  // What entry `k` of the row may be, beside the null page (then that).
  int32_t OwnEntry(uint64_t row, uint64_t k, int32_t null_page) const {
    const uint64_t n = own_at[row + 1] - own_at[row];
    if (k < own_from[row] || k - own_from[row] >= n) return null_page;
    return own[own_at[row] + (k - own_from[row])];
  }
  // Pages that the kernel reads at most.
  uint64_t PlannedPages(uint64_t row) const {
    return planned.empty() ? ~uint64_t{0} : row < planned.size() ? planned[row] : 0;
  }
  // A plan for these tables and lengths.
  void PlanAnew(uint64_t step, uint64_t page_size) {
    std::swap(planned, last_planned);
    last_planned_for = std::exchange(planned_for, step);
    planned.resize(rows);
    for (uint64_t row = 0; row < rows; ++row) {
      planned[row] =
          static_cast<uint32_t>((static_cast<uint64_t>(lengths[row]) + page_size - 1) / page_size);
    }
  }
  uint64_t NewTokens(uint64_t row) const {
    return static_cast<uint64_t>(starts[row + 1] - starts[row]);
  }

  // The arrays as the fence reads them.
  PoolBuffers View() {
    PoolBuffers view;
    const auto n = static_cast<uint32_t>(lead + rows);
    view.table.entries = {table.data(), 32};
    view.table.entries_size = n * width;
    view.table.stride = width;
    view.table.width = width;
    view.table.rows = n;
    view.slots = {.slots = {slots.data(), 64},
                  .slots_size = slots.size(),
                  .indptr = {starts.whole(), 32},
                  .rows = n};
    view.lengths = {.values = {lengths.whole(), 32}, .rows = n};
    return view;
  }
};

}  // namespace kvfence
