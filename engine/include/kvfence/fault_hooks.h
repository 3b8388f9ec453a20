// Where faults enter the engine: named moments (FaultHooks) and what may be done there
// (FaultSurface). Faults are data and calls, never macros: an engine without hooks is the engine.
//
// Idea: the hooks hand out the real structures. What is set in a host table travels through the
// engine's own upload; what is set in a device buffer is what validate, attention and confirm read;
// a page freed early is issued again by the allocator's own order. Invariant: one injected fault
// stays one fault: what the engine's books must bend to live with it (see FreePageNow) is bent
// quietly, so that no second fault of the same kind follows from it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvfence/event.h"
#include "kvfence/page_pool.h"
#include "kvfence/types.h"

namespace kvfence {

// A request of the run, by its place in the trace; the same for all its incarnations.
using RequestIndex = uint32_t;
inline constexpr RequestIndex kNoRequest = 0xFFFFFFFFu;

// A row of the step in hand. Rows are numbered 0 .. rows().size()-1, live ones first, then padded.
struct StepRow {
  Row row;
  RequestIndex request = kNoRequest;  // kNoRequest: a padded row
  RequestId id{};                     // its incarnation
  uint64_t length_before = 0;         // tokens that earlier steps left in the cache
  uint64_t new_tokens = 0;            // tokens of this step (a padded row has one, never written)
  uint64_t covered = 0;               // table entries that length_before + new_tokens needs
  uint64_t reach = 0;                 // entries that the kernel may touch
  uint64_t shared = 0;                // first entries, read through a table made of the first row's
  bool publishes = false;             // the step ends with a token for it
};

// A write that arrives from outside the compute stream: a transfer that is late, a stray copy.
struct LateWrite {
  PageId page;
  uint64_t first = 0;    // offset in the page
  uint64_t n = 0;        // slots
  uint64_t content = 0;  // seed of what is written
  // What the mover says of the content it brings (event `write`): whose it is, and which copy
  // brings it. Neither a request nor a key: nobody's.
  ContentOf as{};
  NameId xfer{};
  // The fence is told by event `write` at the moment the bytes land, as the stamp protocol asks of
  // movers. false: a writer that ignores the protocol (outside the promise).
  bool announced = true;
};

// A page found in the prefix index, as the engine will map it.
struct SharedPage {
  KeyId key;
  PageId page;
};

// What hooks may see and do. With `disaggregated` that's the engine that decodes, and hooks are
// called for its steps alone: a request is there from the moment its hand-off has begun (OnAlloc,
// OnMove). All pages are physical indices; `k` is a table entry (logical page). Calls are made on
// the engine's thread from within a hook or an asynchronous operation.
class FaultSurface {
 public:
  virtual ~FaultSurface() = default;

  // --- where we are -----------------------------------------------------------------------------
  virtual StepId step() const = 0;
  virtual uint64_t page_size() const = 0;
  virtual uint64_t pages() const = 0;  // the null page counted
  virtual uint64_t width() const = 0;  // table entries per row
  virtual PageId null_page() const = 0;
  // The step in hand; empty before its plan is made (OnAlloc, OnShare, OnReturn while scheduling).
  virtual std::span<const StepRow> rows() const = 0;
  // Running requests, oldest first.
  virtual std::vector<RequestIndex> Running() const = 0;
  // The latest incarnation; null when the request isn't running.
  virtual RequestId IdOf(RequestIndex request) const = 0;
  // By logical page. Faults are of the first group of layers; who watches may ask for others.
  std::span<const PageId> PagesOf(RequestIndex request) const { return PagesIn(0, request); }
  virtual std::span<const PageId> PagesIn(size_t group, RequestIndex request) const = 0;
  virtual size_t groups() const = 0;
  virtual uint64_t page_size_of(size_t group) const = 0;
  virtual uint64_t LengthOf(RequestIndex request) const = 0;  // tokens in the cache
  virtual IdentityId IdentityOf(RequestIndex request) const = 0;
  // The request's page `at` of the first group, if it is in the prefix index under its own key.
  virtual std::optional<SharedPage> Published(RequestIndex request, uint64_t at) = 0;
  // Running requests of one family may rightly have the same content at the same logical page:
  // siblings, and those whose prompts begin with the same block under the same identity.
  virtual uint64_t FamilyOf(RequestIndex request) const = 0;
  // Requests that map the page: those that run, then those that wait for copies; oldest first.
  virtual std::vector<RequestIndex> HoldersOf(PageId page, size_t group = 0) const = 0;
  virtual PageState StateOf(PageId page, size_t group = 0) const = 0;
  // Where position `position` of a running request belongs: slot = page * page_size + offset.
  virtual SlotId SlotOf(RequestIndex request, uint64_t position) const = 0;

  // --- the host's table, until it is uploaded (AfterPlan, BeforeUpload) --------------------------
  // Changes last until the row is given to another request or the entry is written again.
  virtual int64_t HostEntry(Row row, uint64_t k) const = 0;
  virtual void SetHostEntry(Row row, uint64_t k, int64_t page) = 0;

  // --- the device's buffers of this step (BeforeValidate .. AfterAttention) ----------------------
  virtual int64_t DeviceEntry(Row row, uint64_t k) const = 0;
  virtual void SetDeviceEntry(Row row, uint64_t k, int64_t page) = 0;
  // What this entry was in the last step's buffer, whoever had the row then.
  virtual int64_t PreviousDeviceEntry(Row row, uint64_t k) const = 0;
  virtual int64_t DeviceLength(Row row) const = 0;
  virtual void SetDeviceLength(Row row, int64_t tokens) = 0;
  // `i` counts the row's new tokens. Negative slots are skipped by the append kernel.
  virtual int64_t DeviceSlot(Row row, uint64_t i) const = 0;
  virtual void SetDeviceSlot(Row row, uint64_t i, int64_t slot) = 0;
  // Exchanges the two rows' table entries (all of the width), leaving lengths and slots.
  virtual void SwapDeviceRows(Row a, Row b) = 0;
  virtual uint64_t ranks() const = 0;
  // Of one rank; all else here is of the first.
  virtual void SetDeviceEntryOf(RankId rank, Row row, uint64_t k, int64_t page) = 0;
  // Until validate: whose the fence is told that the row is.
  virtual void SetRowRequest(Row row, RequestId request) = 0;
  // BeforeValidate: that rank (not the first) hasn't been told of the row; it's padding there, to
  // the rank's kernels and to its part of the fence.
  virtual void DropRowOn(RankId /*rank*/, Row /*row*/) {}

  // --- captured graphs (the first group's part of them) ------------------------------------------
  // The bucket of the graph that the step in hand replays or captures; 0: it runs eagerly.
  virtual uint64_t Replayed() const { return 0; }
  // Buckets for which a graph is captured.
  virtual std::vector<uint64_t> Graphs() const { return {}; }
  // Of a replay: pages that the attention plan gives to the row, and that the plan before it (of
  // the same graph) gave to it. A plan for too few pages leaves the rest unread.
  virtual uint64_t PlannedPages(Row) const { return 0; }
  virtual uint64_t LastPlannedPages(Row) const { return 0; }
  // BeforeValidate, in a replay: the plan isn't made anew, it's the one before; with its step.
  virtual void KeepLastPlan() {}
  // ... the replay reads table, lengths, slots and plan where another graph has them, as they were
  // when that one was last replayed.
  virtual void ReadGraph(uint64_t /*bucket*/) {}

  // --- the allocator ----------------------------------------------------------------------------
  // A held page goes back to the free list while its holders go on: the fence is told `free`, and
  // the page is the next to be issued. When the holders end it isn't returned a second time.
  virtual void FreePageNow(PageId page) = 0;
  // A page that is free is returned once more: the fence is told `free`, and the free list names
  // the page twice, so that two requests will get it.
  virtual void FreeAgain(PageId page) = 0;
  // The books count the page as one request's, though several hold it, until it's free: who writes
  // into it does so in place, without a copy of its own.
  virtual void CountAlone(PageId page) = 0;
  // An index entry's page is freed and the entry stays: the fence is told `free` but not
  // `unpublish`, and the next request with that prefix hits the entry. Only for cached pages that
  // no request holds; false: there was no such entry.
  virtual bool EvictLeavingEntry(PageId page) = 0;

  // --- content, and work on other streams -------------------------------------------------------
  // Lands at once.
  virtual void Write(const LateWrite& write) = 0;
  // Lands on a copy stream, at a seeded moment not before the launch of step `not_before`: before
  // validate, between validate and attention, after attention or after confirm.
  virtual void EnqueueLateWrite(const LateWrite& write, StepId not_before) = 0;
  // The content of two slots of a page changes places, on all ranks; nobody is told.
  virtual void SwapSlots(PageId /*page*/, uint64_t /*a*/, uint64_t /*b*/) {}
  // Any other asynchronous work, in the same manner (say, a bit of the fence's page records, which
  // the engine knows nothing of).
  virtual void EnqueueAsync(StepId not_before, std::function<void(FaultSurface&)> work) = 0;
};

// What to do with a page that a request gives back.
enum class ReturnAction : uint8_t {
  kProceed,
  kSkip,   // it's forgotten: neither the allocator nor the fence hears of it (a leak)
  kTwice,  // it's given back a second time (FreeAgain, or FreePageNow if others hold it)
};

// Content that the engine moves, at the moment when the bytes move: from page to page, from a page
// to the host, or from there into a page. On the host it's known by key and number.
struct ContentMove {
  std::optional<PageId> from{};
  std::optional<PageId> to{};
  KeyId key{};
  uint64_t number = 0;
  size_t group = 0;
};

// Moments. The default does nothing. A hook must not keep the surface or spans beyond its call.
class FaultHooks {
 public:
  virtual ~FaultHooks() = default;

  // --- once per step, in this order --------------------------------------------------------------
  // The step is scheduled, its pages are issued and its rows bound; tables are not yet written.
  virtual void AfterPlan(FaultSurface&) {}
  // The host's table is complete and about to be copied.
  virtual void BeforeUpload(FaultSurface&) {}
  // The device's buffers are complete; validate is next.
  virtual void BeforeValidate(FaultSurface&) {}
  // Validate has run, attention is next.
  virtual void BetweenValidateAndAttention(FaultSurface&) {}
  // Attention has read and written; confirm is next.
  virtual void AfterAttention(FaultSurface&) {}
  // Confirm is about to be launched on that rank. False: it isn't, and nobody notices.
  virtual bool OnConfirm(FaultSurface&, RankId) { return true; }
  // The step is settled, its tokens are published, its pages are in the index.
  virtual void AfterRetire(FaultSurface&) {}

  // --- decisions of the bookkeeping, before they are carried out or told -------------------------
  // Freshly issued pages for `request`. A page exchanged for another here is what the request gets
  // (the page taken out goes back unseen): the allocator issuing what someone holds.
  virtual void OnAlloc(FaultSurface&, RequestIndex, std::vector<PageId>&) {}
  // Hits for `request`, by logical page. Exchanging a page, or adding entries, makes it map them.
  virtual void OnShare(FaultSurface&, RequestIndex, std::vector<SharedPage>&) {}
  virtual ReturnAction OnReturn(FaultSurface&, RequestIndex, PageId) {
    return ReturnAction::kProceed;
  }
  // The request holds the page from now on, otherwise than by OnAlloc and OnShare (a fork, a copy
  // for writing, an exchange); `issued`: from the free list.
  virtual void OnHold(FaultSurface&, RequestIndex, PageId, bool /*issued*/) {}
  virtual void OnMove(FaultSurface&, const ContentMove&) {}
  // A copy from the host has just put that many slots of a page in place, and the mover is about to
  // sum up what it brought. OnMove follows.
  virtual void OnArrive(FaultSurface&, const ContentMove&, uint64_t /*slots*/) {}
  // The request is about to give up its row and pages (end, abort or preemption).
  virtual void OnRelease(FaultSurface&, RequestIndex) {}
  // False: the fence isn't told that the row is now the request's (kNoRequest: let go).
  virtual bool OnBindRow(FaultSurface&, Row, RequestIndex) { return true; }
  // False: this full page of the request doesn't enter the index.
  virtual bool OnPublish(FaultSurface&, RequestIndex, uint64_t /*at*/) { return true; }
};

}  // namespace kvfence
