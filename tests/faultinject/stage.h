// A FaultSurface without an engine: requests hold the pages that a test gives them.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "kvfence/fault_hooks.h"

namespace kvfence::testing {

class Stage final : public FaultSurface {
 public:
  std::map<RequestIndex, std::vector<PageId>> held;
  std::map<RequestIndex, uint64_t> families;
  std::vector<PageId> free;
  std::vector<StepRow> step_rows;
  StepId at_step{0};
  std::map<uint32_t, std::vector<int64_t>> tables;  // by row; null where nothing is said

  StepId step() const override { return at_step; }
  uint64_t page_size() const override { return 4; }
  uint64_t pages() const override { return 16; }
  uint64_t width() const override { return 8; }
  PageId null_page() const override { return PageId(0); }
  std::span<const StepRow> rows() const override { return step_rows; }
  std::vector<RequestIndex> Running() const override {
    std::vector<RequestIndex> running;
    for (const auto& [request, pages] : held) running.push_back(request);
    return running;
  }
  RequestId IdOf(RequestIndex request) const override { return RequestId(NameId(request + 1), 1); }
  std::span<const PageId> PagesIn(size_t, RequestIndex request) const override {
    const auto it = held.find(request);
    return it == held.end() ? std::span<const PageId>() : std::span<const PageId>(it->second);
  }
  size_t groups() const override { return 1; }
  uint64_t page_size_of(size_t) const override { return 4; }
  uint64_t LengthOf(RequestIndex request) const override { return PagesOf(request).size() * 4; }
  uint64_t FamilyOf(RequestIndex request) const override {
    const auto it = families.find(request);
    return it == families.end() ? request + 1 : it->second;
  }
  std::vector<RequestIndex> HoldersOf(PageId page, size_t) const override {
    std::vector<RequestIndex> holders;
    for (const auto& [request, pages] : held) {
      if (std::find(pages.begin(), pages.end(), page) != pages.end()) holders.push_back(request);
    }
    return holders;
  }
  PageState StateOf(PageId page, size_t) const override {
    const bool is_free = std::find(free.begin(), free.end(), page) != free.end();
    return is_free ? PageState::kFree : PageState::kLive;
  }
  SlotId SlotOf(RequestIndex, uint64_t) const override { return SlotId(-1); }
  int64_t HostEntry(Row, uint64_t) const override { return 0; }
  void SetHostEntry(Row, uint64_t, int64_t) override {}
  int64_t DeviceEntry(Row row, uint64_t k) const override {
    const auto it = tables.find(row.value());
    return it == tables.end() || k >= it->second.size() ? 0 : it->second[k];
  }
  void SetDeviceEntry(Row, uint64_t, int64_t) override {}
  int64_t PreviousDeviceEntry(Row, uint64_t) const override { return 0; }
  int64_t DeviceLength(Row) const override { return 0; }
  void SetDeviceLength(Row, int64_t) override {}
  int64_t DeviceSlot(Row, uint64_t) const override { return -1; }
  void SetDeviceSlot(Row, uint64_t, int64_t) override {}
  uint64_t ranks() const override { return 1; }
  void SetDeviceEntryOf(RankId, Row, uint64_t, int64_t) override {}
  void SetRowRequest(Row, RequestId) override {}
  IdentityId IdentityOf(RequestIndex) const override { return IdentityId(); }
  std::optional<SharedPage> Published(RequestIndex, uint64_t) override { return std::nullopt; }
  void SwapDeviceRows(Row, Row) override {}
  void FreePageNow(PageId) override {}
  void FreeAgain(PageId) override {}
  void CountAlone(PageId) override {}
  bool EvictLeavingEntry(PageId) override { return false; }
  void Write(const LateWrite&) override {}
  void EnqueueLateWrite(const LateWrite&, StepId) override {}
  void EnqueueAsync(StepId, std::function<void(FaultSurface&)>) override {}
};

}  // namespace kvfence::testing
