#include "batch_table.h"

#include <algorithm>
#include <utility>

#include "kvfence/check.h"

namespace kvfence {

BatchTable::BatchTable(uint64_t rows, const std::vector<uint64_t>& widths, int32_t null_page,
                       OnBind on_bind)
    : null_page_(null_page), on_bind_(std::move(on_bind)), tenants_(rows) {
  for (const uint64_t width : widths) {
    tables_.push_back({.width = width,
                       .filled = std::vector<uint32_t>(rows),
                       .touched = std::vector<uint32_t>(rows),
                       .entries = std::vector<int32_t>(rows * width, null_page)});
  }
}

void BatchTable::Bind(uint32_t row, RequestState* request) {
  Wipe(row);
  tenants_[row] = request;
  high_ = std::max(high_, row + 1);
  if (request != nullptr) request->row = row;
  on_bind_(row, request);
}

void BatchTable::Wipe(uint32_t row) {
  for (Table& t : tables_) {
    const std::span<int32_t> entries = t.Row(row);
    std::fill(entries.begin(), entries.begin() + t.touched[row], null_page_);
    t.filled[row] = t.touched[row] = 0;
  }
}

void BatchTable::Corrupt(uint64_t row, uint64_t k, int32_t page, size_t group) {
  Table& t = tables_[group];
  t.Row(row)[k] = page;
  t.touched[row] = std::max(t.touched[row], static_cast<uint32_t>(k) + 1);
}

void BatchTable::Clear(RequestState* request) {
  if (request->row == kNoRow) return;
  const uint32_t row = request->row;
  KVF_CHECK(tenants_[row] == request, "I-43 a row and its request name each other");
  request->row = kNoRow;
  tenants_[row] = nullptr;
  Wipe(row);
  while (high_ > 0 && tenants_[high_ - 1] == nullptr) --high_;
  on_bind_(row, nullptr);
}

void BatchTable::Move(uint32_t from, uint32_t to) {
  RequestState* request = tenants_[from];
  tenants_[from] = nullptr;
  on_bind_(from, nullptr);
  Bind(to, request);
  // Entries move as they are, wrong ones too.
  for (Table& t : tables_) {
    const std::span<int32_t> source = t.Row(from);
    std::copy(source.begin(), source.begin() + t.touched[from], t.Row(to).begin());
    t.filled[to] = t.filled[from];
    t.touched[to] = t.touched[from];
  }
  Wipe(from);
  ++moves_;
}

void BatchTable::Assign(std::span<RequestState* const> scheduled) {
  // `planned` tells the rows' requests of this step from the others.
  for (uint32_t row = 0; row < high_; ++row) {
    if (tenants_[row] != nullptr && tenants_[row]->planned == 0) Clear(tenants_[row]);
  }
  uint32_t hole = 0;
  for (RequestState* request : scheduled) {
    if (request->row != kNoRow) continue;
    while (tenants_[hole] != nullptr) ++hole;
    Bind(hole, request);
  }
  while (high_ > scheduled.size()) {
    if (tenants_[high_ - 1] != nullptr) {
      while (tenants_[hole] != nullptr) ++hole;
      Move(high_ - 1, hole);
    }
    --high_;
  }
}

void BatchTable::WriteNewPages(const RequestState& request) {
  for (size_t group = 0; group < tables_.size(); ++group) {
    Table& t = tables_[group];
    const std::vector<PageId>& pages = request.lists[group].pages;
    const std::span<int32_t> row = t.Row(request.row);
    uint32_t& filled = t.filled[request.row];
    KVF_CHECK(pages.size() <= row.size(), "I-44 a request fits into a row");
    for (; filled < pages.size(); ++filled) {
      row[filled] = static_cast<int32_t>(pages[filled].value());
    }
    t.touched[request.row] = std::max(t.touched[request.row], filled);
  }
}

void BatchTable::Rewrite(const RequestState& request, size_t group, uint64_t at) {
  if (request.row == kNoRow) return;
  uint32_t& filled = tables_[group].filled[request.row];
  filled = std::min(filled, static_cast<uint32_t>(at));
}

}  // namespace kvfence
