// FaultSurface over the engine's real structures.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine_state.h"

namespace kvfence {

template <class TrackerT>
class Surface final : public FaultSurface {
 public:
  explicit Surface(EngineState<TrackerT>* state) : s_(*state) {}

  StepId step() const override {
    return s_.flight->view.empty() ? StepId(s_.report.steps) : s_.flight->id;
  }
  uint64_t page_size() const override { return s_.config.page_size; }
  uint64_t pages() const override { return s_.config.pages; }
  uint64_t width() const override { return s_.batch.width(); }
  PageId null_page() const override { return PageId(0); }
  std::span<const StepRow> rows() const override { return s_.flight->view; }

  std::vector<RequestIndex> Running() const override {
    std::vector<RequestIndex> running;
    for (const RequestState* r : s_.running) running.push_back(r->index);
    return running;
  }
  RequestId IdOf(RequestIndex request) const override {
    const RequestState* r = Find(request);
    return r ? r->id : RequestId();
  }
  std::span<const PageId> PagesIn(size_t group, RequestIndex request) const override {
    const RequestState* r = Find(request);
    return r ? std::span<const PageId>(r->lists[group].pages) : std::span<const PageId>();
  }
  size_t groups() const override { return s_.groups.size(); }
  uint64_t page_size_of(size_t group) const override { return s_.groups[group].page_size; }
  uint64_t LengthOf(RequestIndex request) const override {
    const RequestState* r = Find(request);
    return r ? r->computed : 0;
  }
  IdentityId IdentityOf(RequestIndex request) const override {
    const RequestState* r = Find(request);
    return r ? r->identity : IdentityId();
  }
  std::optional<SharedPage> Published(RequestIndex request, uint64_t at) override {
    const RequestState* r = Find(request);
    if (r == nullptr || at >= r->lists[0].keys.size() || at >= r->lists[0].pages.size()) return {};
    const KeyId key = r->lists[0].keys[at];
    const PageId page = r->lists[0].pages[at];
    if (page == null_page() || s_.books[0]->Lookup(key) != page) return {};
    return SharedPage{key, page};
  }
  uint64_t FamilyOf(RequestIndex request) const override {
    const RequestState* r = Find(request);
    return r ? Mix64(r->trace->hash_ids.front() ^ r->salt) : 0;
  }
  std::vector<RequestIndex> HoldersOf(PageId page, size_t group) const override {
    std::vector<RequestIndex> holders;
    for (const std::vector<RequestState*>* requests : {&s_.running, &s_.moving}) {
      for (const RequestState* r : *requests) {
        const std::vector<PageId>& pages = r->lists[group].pages;
        if (std::find(pages.begin(), pages.end(), page) != pages.end()) holders.push_back(r->index);
      }
    }
    return holders;
  }
  PageState StateOf(PageId page, size_t group) const override {
    return s_.books[group]->StateOf(page);
  }
  SlotId SlotOf(RequestIndex request, uint64_t position) const override {
    const RequestState* r = Find(request);
    const uint64_t k = position / s_.config.page_size;
    if (r == nullptr || k >= r->lists[0].pages.size()) return SlotId(-1);
    return SlotId(r->lists[0].pages[k].value() * static_cast<int64_t>(s_.config.page_size) +
                  static_cast<int64_t>(position % s_.config.page_size));
  }

  int64_t HostEntry(Row row, uint64_t k) const override { return s_.batch.Row(At(row))[Entry(k)]; }
  void SetHostEntry(Row row, uint64_t k, int64_t page) override {
    s_.batch.Corrupt(At(row), Entry(k), static_cast<int32_t>(page));
  }

  int64_t DeviceEntry(Row row, uint64_t k) const override {
    return s_.flight->buffers[0].TableRow(At(row))[Entry(k)];
  }
  void SetDeviceEntry(Row row, uint64_t k, int64_t page) override {
    ForBuffers([&](StepBuffers& b) {
      b.TableRow(At(row))[Entry(k)] = static_cast<int32_t>(page);
      b.filled[At(row)] = static_cast<uint32_t>(b.width);  // the next upload cleans all of it
    });
  }
  int64_t PreviousDeviceEntry(Row row, uint64_t k) const override {
    const uint64_t other = (s_.flight->id.value() + 1) % 2;
    if (s_.flight->graph != nullptr) {
      return s_.flight->before[At(row) * s_.batch.width() + Entry(k)];
    }
    const std::span<StepBuffers> last = s_.flights[other].buffers;
    return (last.empty() ? s_.buffers[other][0] : last[0]).TableRow(At(row))[Entry(k)];
  }
  int64_t DeviceLength(Row row) const override { return s_.flight->buffers[0].lengths[At(row)]; }
  void SetDeviceLength(Row row, int64_t tokens) override {
    ForBuffers([&](StepBuffers& b) { b.lengths[At(row)] = static_cast<int32_t>(tokens); });
  }
  int64_t DeviceSlot(Row row, uint64_t i) const override {
    const StepBuffers& b = s_.flight->buffers[0];
    KVF_CHECK(i < b.NewTokens(At(row)), "a hook's slot is one of the row's");
    return b.slots[static_cast<uint64_t>(b.starts[At(row)]) + i];
  }
  void SetDeviceSlot(Row row, uint64_t i, int64_t slot) override {
    ForBuffers([&](StepBuffers& b) {
      KVF_CHECK(i < b.NewTokens(At(row)), "a hook's slot is one of the row's");
      b.slots[static_cast<uint64_t>(b.starts[At(row)]) + i] = slot;
    });
  }
  uint64_t ranks() const override { return s_.ranks(); }
  void SetDeviceEntryOf(RankId rank, Row row, uint64_t k, int64_t page) override {
    const size_t part = rank.value() * s_.groups.size();
    StepInFlight& f = *s_.flight;
    f.buffers[part].TableRow(At(row))[Entry(k)] = static_cast<int32_t>(page);
    f.buffers[part].filled[At(row)] = static_cast<uint32_t>(f.buffers[part].width);
    if (!f.raw.empty()) f.raw[part].TableRow(At(row))[Entry(k)] = static_cast<int32_t>(page);
  }
  void SetRowRequest(Row row, RequestId request) override {
    s_.flight->rows[At(row)].told = request;
  }
  void DropRowOn(RankId rank, Row row) override {
    StepInFlight& f = *s_.flight;
    KVF_CHECK(rank.value() > 0 && rank.value() < s_.ranks(), "a hook's rank isn't the first");
    f.dropped.emplace_back(rank, row);
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      StepBuffers& b = f.buffers[rank.value() * s_.groups.size() + g];
      std::ranges::fill(b.TableRow(At(row)), static_cast<int32_t>(kNullPage.value()));
      b.filled[At(row)] = static_cast<uint32_t>(b.width);
      b.lengths[At(row)] = 0;
      for (uint64_t i = 0; i < b.NewTokens(At(row)); ++i) {
        b.slots[static_cast<uint64_t>(b.starts[At(row)]) + i] = -1;
      }
    }
  }
  void SwapDeviceRows(Row a, Row b) override {
    ForBuffers([&](StepBuffers& buffers) {
      std::span<int32_t> row = buffers.TableRow(At(a));
      std::swap_ranges(row.begin(), row.end(), buffers.TableRow(At(b)).begin());
      buffers.filled[At(a)] = buffers.filled[At(b)] = static_cast<uint32_t>(buffers.width);
    });
  }

  uint64_t Replayed() const override {
    return s_.flight->graph != nullptr ? s_.flight->graph->bucket : 0;
  }
  std::vector<uint64_t> Graphs() const override { return s_.graphs.Captured(); }
  uint64_t PlannedPages(Row row) const override {
    return s_.flight->buffers[0].PlannedPages(At(row));
  }
  uint64_t LastPlannedPages(Row row) const override {
    const std::vector<uint32_t>& last = s_.flight->buffers[0].last_planned;
    return At(row) < last.size() ? last[At(row)] : 0;
  }
  void KeepLastPlan() override {
    KVF_CHECK(Replayed() != 0, "only a replayed step has a plan of its own");
    ForBuffers([](StepBuffers& b) {
      b.planned = b.last_planned;
      b.planned.resize(b.rows);
      b.planned_for = b.last_planned_for;
    });
  }
  void ReadGraph(uint64_t bucket) override {
    const CapturedGraph* graph = s_.graphs.Find(bucket);
    KVF_CHECK(Replayed() != 0 && graph != nullptr, "a replay, and a captured graph to read");
    if (graph == s_.flight->graph) return;
    ForBuffers([from = &graph->buffers[0]](StepBuffers& b) {
      for (uint64_t row = 0; row < b.rows; ++row) {
        std::ranges::copy(from->TableRow(row), b.TableRow(row).begin());
        b.filled[row] = static_cast<uint32_t>(b.width);
        b.lengths[row] = from->lengths[row];
        for (uint64_t i = 0; i < b.NewTokens(row); ++i) {
          const bool there = row < from->rows && i < from->NewTokens(row);
          b.slots[static_cast<uint64_t>(b.starts[row]) + i] =
              there ? from->slots[static_cast<uint64_t>(from->starts[row]) + i] : -1;
        }
      }
      b.planned = from->planned;
      b.planned.resize(b.rows);
      b.planned_for = from->planned_for;
    });
  }

  void FreePageNow(PageId page) override {
    const PageState state = s_.books[0]->StateOf(page);
    s_.books[0]->ListAgain(page, state == PageState::kLive || state == PageState::kCached);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Free({.pages = {&page, 1}});
  }
  void FreeAgain(PageId page) override {
    s_.books[0]->ListAgain(page, false);
    KVF_IF_HEARD (s_.tracker) s_.tracker.Free({.pages = {&page, 1}});
  }
  void CountAlone(PageId page) override { s_.books[0]->CountAlone(page); }
  bool EvictLeavingEntry(PageId page) override {
    const bool left = s_.books[0]->EvictLeavingEntry(page);
    if (left)
      KVF_IF_HEARD (s_.tracker) s_.tracker.Free({.pages = {&page, 1}});
    return left;
  }

  void Write(const LateWrite& write) override {
    const int64_t page = write.page.value();
    if (page < 0 || static_cast<uint64_t>(page) >= s_.config.pages) return;
    s_.model->Scribble(page, write.first, write.n, write.content);
    if (!write.announced) return;
    KVF_IF_HEARD (s_.tracker)
      s_.tracker.Write({.page = write.page,
                        .first = write.first,
                        .n = write.n,
                        .as = write.as,
                        .xfer = write.xfer,
                        .rank = s_.ranks() == 1 ? kAllRanks : RankId(0)});
  }
  void SwapSlots(PageId page, uint64_t a, uint64_t b) override {
    s_.model->SwapSlots(static_cast<uint64_t>(page.value()), a, b);
  }
  void EnqueueLateWrite(const LateWrite& write, StepId not_before) override {
    s_.device.Enqueue(
        kLateStream, [this, write] { Write(write); }, not_before.value());
  }
  void EnqueueAsync(StepId not_before, std::function<void(FaultSurface&)> work) override {
    s_.device.Enqueue(
        kLateStream, [this, work = std::move(work)] { work(*this); }, not_before.value());
  }

 private:
  static constexpr uint32_t kLateStream = 1;

  const RequestState* Find(RequestIndex request) const {
    const RequestState* r = request < s_.requests.size() ? s_.requests[request].get() : nullptr;
    const bool here = r != nullptr && r->at_prefill == (s_.seat.role == EngineRole::kPrefill);
    return here ? r : nullptr;
  }
  uint64_t At(Row row) const {
    KVF_CHECK(row.value() < s_.config.rows, "a hook's row is one of the batch's");
    return row.value();
  }
  uint64_t Entry(uint64_t k) const {
    KVF_CHECK(k < s_.batch.width(), "a hook's table entry is within the width");
    return k;
  }
  // The step's buffers, and their twin for judging what the fence didn't sanitise.
  template <class F>
  void ForBuffers(F change) {
    KVF_CHECK(!s_.flight->buffers.empty(), "device buffers exist from the first step on");
    change(s_.flight->buffers[0]);
    if (!s_.flight->raw.empty()) change(s_.flight->raw[0]);
  }

  EngineState<TrackerT>& s_;
};

}  // namespace kvfence
