// The host's batch table: which request has which row, and its pages as dense int32 entries, in one
// table per group.
//
// Rows are kept as engines keep them: a new request takes the lowest hole, and the last rows move
// into holes that stay, so that the live rows of a step are 0 .. size-1. Invariant: entries at and
// beyond `filled` are the null page (unless a fault was put there); what a window has left
// behind stays, as nobody reads it.
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

  // `widths`: table entries per row, by group.
  BatchTable(uint64_t rows, const std::vector<uint64_t>& widths, int32_t null_page, OnBind on_bind);

  uint64_t width(size_t group = 0) const { return tables_[group].width; }
  RequestState* At(uint64_t row) const { return tenants_[row]; }
  uint64_t moves() const { return moves_; }
  std::span<const int32_t> Row(uint64_t row, size_t group = 0) const {
    const Table& t = tables_[group];
    return {t.entries.data() + row * t.width, static_cast<size_t>(t.width)};
  }
  // A fault: the entry is this page until the row has another tenant or the entry is written.
  void Corrupt(uint64_t row, uint64_t k, int32_t page, size_t group = 0);

  // Takes the request's row from it.
  void Clear(RequestState* request);
  // Makes rows 0 .. n-1 those of the n `scheduled` requests: others lose their rows, new ones get
  // holes, the last rows move down.
  void Assign(std::span<RequestState* const> scheduled);
  // Appends the pages that the request got since its row was last written.
  void WriteNewPages(const RequestState& request);
  // The request's pages from the logical page `at` on are to be written again.
  void Rewrite(const RequestState& request, size_t group, uint64_t at);

 private:
  struct Table {
    uint64_t width;
    std::vector<uint32_t> filled;
    std::vector<uint32_t> touched;  // entries at and beyond are the null page, faults included
    std::vector<int32_t> entries;

    std::span<int32_t> Row(uint64_t row) {
      return {entries.data() + row * width, static_cast<size_t>(width)};
    }
  };

  void Bind(uint32_t row, RequestState* request);
  void Move(uint32_t from, uint32_t to);
  // Makes the row the null page throughout.
  void Wipe(uint32_t row);

  int32_t null_page_;
  OnBind on_bind_;
  std::vector<RequestState*> tenants_;
  std::vector<Table> tables_;  // by group
  uint32_t high_ = 0;          // rows at and above are empty
  uint64_t moves_ = 0;
};

}  // namespace kvfence
