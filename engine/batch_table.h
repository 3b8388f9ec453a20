// The host's batch table: which request has which row, and its pages as dense int32 entries.
//
// Rows are kept as engines keep them: a new request takes the lowest hole, and the last rows move
// into holes that stay, so that the live rows of a step are 0 .. size-1. Invariant: entries at and
// beyond `filled(row)` are the null page (unless a fault was put there).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "request_state.h"

namespace kvfence {

class BatchTable {
 public:
  // Hears each change of a binding (null: let go), in order.
  using OnBind = std::function<void(uint32_t row, RequestState*)>;

  BatchTable(uint64_t rows, uint64_t width, int32_t null_page, OnBind on_bind);

  uint64_t width() const { return width_; }
  RequestState* At(uint64_t row) const { return tenants_[row]; }
  uint64_t moves() const { return moves_; }
  uint32_t filled(uint64_t row) const { return filled_[row]; }
  std::span<const int32_t> Row(uint64_t row) const {
    return {entries_.data() + row * width_, static_cast<size_t>(width_)};
  }
  // A fault: the entry is this page until the row has another tenant or the entry is written.
  void Corrupt(uint64_t row, uint64_t k, int32_t page);

  // Takes the request's row from it.
  void Clear(RequestState* request);
  // Makes rows 0 .. n-1 those of the n `scheduled` requests: others lose their rows, new ones get
  // holes, the last rows move down.
  void Assign(std::span<RequestState* const> scheduled);
  // Appends the pages that the request got since its row was last written.
  void WriteNewPages(const RequestState& request);

 private:
  void Bind(uint32_t row, RequestState* request);
  void Move(uint32_t from, uint32_t to);
  std::span<int32_t> Mutable(uint64_t row) {
    return {entries_.data() + row * width_, static_cast<size_t>(width_)};
  }
  // Makes the row the null page throughout.
  void Wipe(uint32_t row);

  uint64_t width_;
  int32_t null_page_;
  OnBind on_bind_;
  std::vector<RequestState*> tenants_;
  std::vector<uint32_t> filled_;
  std::vector<uint32_t> touched_;  // entries at and beyond are the null page, faults included
  std::vector<int32_t> entries_;
  uint32_t high_ = 0;  // rows at and above are empty
  uint64_t moves_ = 0;
};

}  // namespace kvfence
