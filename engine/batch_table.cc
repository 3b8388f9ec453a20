#include "batch_table.h"

#include <algorithm>
#include <utility>

#include "kvfence/check.h"

namespace kvfence {

BatchTable::BatchTable(uint64_t rows, uint64_t width, int32_t null_page, OnBind on_bind)
    : width_(width),
      null_page_(null_page),
      on_bind_(std::move(on_bind)),
      tenants_(rows),
      filled_(rows),
      touched_(rows),
      entries_(rows * width, null_page) {}

void BatchTable::Bind(uint32_t row, RequestState* request) {
  Wipe(row);
  tenants_[row] = request;
  high_ = std::max(high_, row + 1);
  if (request != nullptr) request->row = row;
  on_bind_(row, request);
}

void BatchTable::Wipe(uint32_t row) {
  std::span<int32_t> entries = Mutable(row);
  std::fill(entries.begin(), entries.begin() + touched_[row], null_page_);
  filled_[row] = touched_[row] = 0;
}

void BatchTable::Corrupt(uint64_t row, uint64_t k, int32_t page) {
  Mutable(row)[k] = page;
  touched_[row] = std::max(touched_[row], static_cast<uint32_t>(k) + 1);
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
  const std::span<int32_t> source = Mutable(from);
  std::copy(source.begin(), source.begin() + touched_[from], Mutable(to).begin());
  filled_[to] = filled_[from];
  touched_[to] = touched_[from];
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
  std::span<int32_t> row = Mutable(request.row);
  uint32_t& filled = filled_[request.row];
  KVF_CHECK(request.pages.size() <= row.size(), "I-44 a request fits into a row");
  for (; filled < request.pages.size(); ++filled) {
    row[filled] = static_cast<int32_t>(request.pages[filled].value());
  }
  touched_[request.row] = std::max(touched_[request.row], filled);
}

}  // namespace kvfence
