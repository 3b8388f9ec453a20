// The ledger's inside: the books, and what all verbs are made of.
//
// Idea: a verb resolves its request, judges each place, and then does what the engine did, through
// the few moves below (issue, give back, map, let go), which alone change tags, holders and flags
// and tell the device. The verbs stand in ledger_<theme>.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvfence/ledger.h"
#include "ledger_content.h"
#include "ledger_index.h"
#include "ledger_pages.h"
#include "ledger_pins.h"
#include "ledger_requests.h"
#include "ledger_steps.h"

namespace kvfence {

// Slots of one logical page.
struct SlotRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

class Ledger::Impl {
 public:
  Impl(const FenceConfig& config, RankId rank, DeltaSink* deltas,
       std::function<void(const Violation&)> report);

  // Ownership: ledger_ownership.cc.
  RequestId Admit(const AdmitEvent& event);
  Status Alloc(const AllocEvent& event);
  Status Fork(const ForkEvent& event);
  Status Cow(const CowEvent& event);
  Status Drop(const DropEvent& event);
  Status Release(const ReleaseEvent& event);
  Status Free(const FreeEvent& event);
  // What requests rely on, and how long they are: ledger_reliance.cc.
  Status Share(const ShareEvent& event);
  Status Ready(const ReadyEvent& event);
  Status Trim(const TrimEvent& event);
  // The prefix index and the pins: ledger_publish.cc, ledger_transfer.cc.
  Status Publish(const PublishEvent& event);
  Status Unpublish(const UnpublishEvent& event);
  Status Pin(const PinEvent& event);
  Status Unpin(const UnpinEvent& event);
  // Content outside steps: ledger_writes.cc.
  Status Write(const WriteEvent& event);
  Status Read(const ReadEvent& event);
  Status Scale(const ScaleEvent& event);
  Status Rescale(const RescaleEvent& event);
  Status Copy(const CopyEvent& event);
  // Rows and steps: ledger_launch.cc, ledger_settle.cc.
  Status BindRow(const BindRowEvent& event);
  Status Launch(const StepEvent& event, const StepPlan** plan);
  std::vector<uint32_t> Judge(StepId step, std::span<const uint32_t> reasons);
  Status Confirm(StepId step);
  Status Retire(StepId step, std::vector<LaunchedRow>* rows);
  void Fail(StepId step, Row row, Reason reason);
  // All of it once more, for a gate that begins anew: ledger_snapshot.cc.
  Status Snapshot(DeltaSink* to) const;
  // Audit and what people ask: ledger_audit.cc.
  Status Audit(const AuditEvent& event);
  Counts counts() const;
  std::vector<RequestId> HoldersOf(PoolId pool, PageId page) const;
  std::vector<KeyId> KeysOf(PoolId pool, PageId page) const;
  std::vector<std::pair<PoolId, PageId>> WrittenPages(StepId step, Row row) const;
  bool IsSuspect(PoolId pool, PageId page) const;
  bool IsCurrent(PoolId pool, PageId page, uint64_t tag) const;
  LedgerView View(RequestId req) const;
  LedgerPageView ViewPage(PoolId pool, PageId page) const;

  const ledger::RequestBook& requests() const { return requests_; }
  const ledger::StepBook& steps() const { return steps_; }

 private:
  using Page = ledger::Page;
  using Held = ledger::Held;
  using Incarnation = ledger::Incarnation;
  using StepRecord = ledger::StepRecord;
  static constexpr uint32_t kNone = ledger::kNone;

  // --- words of all verbs: ledger_impl.cc --------------------------------------------------------

  // A new event begins: places report once per event.
  void BeginEvent() {
    if (!thinned_.empty()) CutSpared();
    ++now_;
    reported_.clear();
  }
  // Reports, unless the check is off or this place (pool, page) has reported in this event.
  void Report(Reason reason, Violation v);
  void ReportPage(Reason reason, RequestId req, uint32_t pool, int64_t page, int64_t at = -1,
                  uint64_t expected = 0, uint64_t found = 0);
  // The slot of the living incarnation; kNone after reporting identity_reused.
  uint32_t Living(RequestId req);
  Status CheckPool(PoolId pool) const;
  const PoolConfig& pool(uint32_t p) const { return config_.pools[p]; }
  bool explicit_frees() const { return config_.frees == Frees::kExplicit; }
  bool stream() const { return config_.reuse == Reuse::kStream; }
  bool IsNull(uint32_t pool, PageId page) const {
    return static_cast<uint64_t>(page.value()) == config_.pools[pool].null_page;
  }
  PageRecord RecordOf(const Page& page) const;
  void Tell(uint32_t pool, uint32_t page, uint32_t fields);
  void TellContent(uint32_t pool, uint32_t page);

  // --- moves -------------------------------------------------------------------------------------

  // Judges taking `page` from the free list; false when there is no such page to take.
  bool JudgeIssue(RequestId req, uint32_t pool, PageId page, uint64_t at);
  // The page begins a new generation, all that named the old one is stale.
  void Issue(uint32_t pool, uint32_t page);
  void GiveBack(uint32_t pool, uint32_t page);
  // In implicit logs: a page that nobody holds and nothing pins goes back.
  void MaybeGiveBack(uint32_t pool, uint32_t page);
  // While it lives these pages aren't returned: they're let go of and taken in one event.
  class Keeping {
   public:
    Keeping(Impl* impl, uint32_t pool, Pages pages) : impl_(impl), pool_(pool), pages_(pages) {
      for (const PageId page : pages_) impl_->kept_.push_back(page);
    }
    ~Keeping() {
      impl_->kept_.clear();
      for (const PageId page : pages_) {
        if (!impl_->pages_.InRange(pool_, page)) continue;
        impl_->MaybeGiveBack(pool_, static_cast<uint32_t>(page.value()));
      }
    }
    Keeping(const Keeping&) = delete;

   private:
    Impl* impl_;
    uint32_t pool_;
    Pages pages_;
  };
  void Stale(uint32_t pool, uint32_t page);
  // The incarnation expects `page` at `at`; it holds it if the tag is the page's.
  void Take(uint32_t slot, uint32_t pool, uint32_t at, uint32_t page, Tag tag, Stamp stamp);
  void LetGo(uint32_t slot, uint32_t pool, uint32_t at);
  void Resize(uint32_t slot, uint32_t pool, uint64_t count);
  void UpdateFlags(uint32_t pool, uint32_t page);
  void SetExpected(uint32_t slot, uint32_t pool, uint32_t at, Stamp stamp);
  // Does what failed stay failed?
  bool keeps_failed() const { return !config_.judge_afresh && config_.policy != Policy::kLog; }
  // The content of the request's logical page is another's: its rows fail until it lets go of it.
  void Suspect(uint32_t slot, uint32_t pool, uint32_t at, Reason reason);
  // The page, for all that map it until it's issued anew.
  void SuspectPage(uint32_t pool, uint32_t page, Reason reason);
  // The table of its rows isn't that of the newest launched step any more.
  void Changed(Incarnation& inc) { inc.changed_step = steps_.launched(); }
  // How many entries `at` and `n` make a list have, or why not.
  Status CheckGrowth(const Incarnation& inc, uint32_t pool, uint64_t at, uint64_t n) const;
  Status CheckTokens(uint64_t tokens) const;
  const Held* HeldAt(const Incarnation& inc, uint32_t pool, uint64_t at) const;
  void LinkEntry(uint32_t entry);
  void UnlinkEntry(uint32_t entry);
  void UnpublishEntry(uint32_t entry);

  // --- reliance ----------------------------------------------------------------------------------

  struct Hit {
    Tag tag;
    Stamp stamp;
    bool other_identity = false;
  };
  Hit Find(const ShareEvent& event, const Incarnation& inc, size_t i, uint64_t at);
  Hit WithoutKey(uint32_t pool, uint32_t page) const;
  bool OtherDigest(uint32_t pool, uint32_t page, NameId digest) const;
  // May the slots of the page be relied on? `reader` is who would.
  bool Reliable(uint32_t pool, const Page& page, uint32_t reader, SlotRange slots) const;
  void JudgeFailedPages(const Incarnation& inc, uint32_t pool);
  void JudgeMissingPages(const Incarnation& inc, uint64_t tokens);
  void ShareOne(const ShareEvent& event, uint32_t slot, size_t i, uint64_t at);
  bool Alone(const Page& p) const;
  void CutContent(uint32_t slot);
  void CutPage(uint32_t slot, uint32_t pool, uint32_t at);
  bool HasSpared(const Page& p) const;
  void CutSpared();

  // --- pins and copies ---------------------------------------------------------------------------

  // The part of copy `id` that has pinned the page in its present generation: (pin, index).
  struct PinRef {
    uint32_t pin = ledger::kNone;
    uint32_t index = 0;
    explicit operator bool() const { return pin != ledger::kNone; }
  };
  PinRef PinOf(NameId id, uint32_t pool, uint32_t page) const;
  void NoteRead(NameId id, uint32_t pool, uint32_t page, NameId sum = {});
  void NoteExport(PinRef ref, uint32_t pool, uint32_t page);
  bool Pinned(uint32_t pool, uint32_t page) const;
  void JudgePinPage(const PinEvent& event, uint32_t slot, size_t i);
  void JudgePinKey(const PinEvent& event, const Incarnation* inc);
  void PinPage(const PinEvent& event, uint32_t pin, uint32_t slot, size_t i);
  void RememberOut(KeyId key, uint32_t pool, size_t i, Stamp stamp, IdentityId identity);
  void EndPin(uint32_t pin, bool ok);
  void LandCopy(const ledger::PinPage& part, uint32_t pool, bool ok, CopyDir dir, RequestId req);

  // Whose content it is that is `as`; empty after reporting why it can't be told.
  std::optional<ledger::KeyContent> OriginOf(const ContentOf& as, uint32_t pool, uint32_t number);
  uint16_t ScaleOf(const ContentOf& as, uint32_t pool, uint32_t page);
  SlotRange WithOthers(uint32_t pool, Stamp stamp, SlotRange slots) const;
  struct Summed {
    NameId sum;
    bool brought = false;   // content that comes from somewhere, maybe from another pool
    uint64_t slots = 0;     // how many slots from the page's start it covers
    uint32_t promised = 0;  // what a copy read of as many under the key that it's brought by
  };
  struct Sum {
    uint32_t sum = 0;
    uint64_t slots = 0;
    bool mixed = false;  // there may be other content of that birth
  };
  Sum& SumAt(Stamp stamp, uint32_t pool);
  void CheckSum(Stamp stamp, const Summed& summed, uint32_t pool, PageId page);
  // The sum that content of this birth must have there; 0: any.
  uint32_t SumOf(Stamp stamp, const Summed& summed, uint32_t pool) const;
  bool SayOutOfRange(uint32_t pool, PageId page, RequestId req = {});
  void JudgeSource(NameId xfer, uint32_t pool, uint32_t page);
  void CopyContent(uint32_t from_pool, uint32_t from_page, uint32_t to_pool, uint32_t to_page,
                   PinRef pinned);
  void CopyScale(uint32_t from_pool, const Page& from, uint32_t to_pool, Page* to) const;

  // --- whose the content of a page's slots is: ledger_births.cc ----------------------------------

  // Calls f(part) for each outstanding copy that has written into the page's present generation.
  template <class F>
  void ForLoads(const Page& page, F f) {
    if (page.pins == kNone) return;
    pins_.ForEach(page, [&](uint32_t pin, uint32_t index) {
      ledger::PinPage& part = pins_.at(pin).pages[index];
      if (part.tag == page.tag && !part.runs.empty()) f(part);
    });
  }
  // What copies have written there doesn't count when they end: it was written over.
  void CutRuns(const Page& page, SlotRange slots);
  // The slots hold nothing, whoever brought it.
  void EraseContent(Page& page, SlotRange slots);
  // Valid ones among the slots are void, and what lay under them is gone.
  void VoidSlots(Page& page, SlotRange slots);
  // The slots hold content of this birth now; brought by a copy, it counts at that one's end.
  // False: it was nobody's, in a page that is somebody's otherwise, over nothing that anybody
  // relies on, and the slots are void.
  bool PutContent(uint32_t pool, uint32_t page, SlotRange slots, Stamp birth, PinRef pinned);
  uint64_t ReliedEnd(const Page& page) const;
  void LayContent(Page& page, SlotRange slots, Stamp birth, PinRef pinned);
  // The page's stamp is what its slots are, counted or still to be. Told: to the device too.
  void Derive(uint32_t pool, uint32_t page);
  void ShowContent(uint32_t pool, uint32_t page);
  Stamp BirthOf(const Page& page, Stamp taken, Stamp as);
  bool MadeOwn(const Page& page, const ledger::SlotWrite& write) const;
  // What was expected of the page before the row made it its own is its own too, or not any more.
  void ExchangeBirths(uint32_t pool, uint32_t page, Stamp from, Stamp to);
  void CarryWrites(uint32_t from_pool, uint32_t from, uint32_t to_pool, uint32_t to, uint64_t size);

  // --- steps -------------------------------------------------------------------------------------

  struct User {
    StepRecord* record;
    uint32_t row;
    uint32_t at;
    uint32_t pool;
  };
  // Running rows of launched steps that use the page: of its holders, or let go since.
  void UsersOf(uint32_t pool, uint32_t page, bool unconfirmed_only, std::vector<User>* users);
  void NoteLetGo(const Incarnation& inc, uint32_t pool, uint32_t at, uint32_t page, uint64_t since);
  // Fails the launched clean rows that use the page; says whether there were any.
  bool RunningWrites(uint32_t pool, uint32_t page) const;
  bool FailUsers(uint32_t pool, uint32_t page, bool unconfirmed_only, NameId loading);
  // The row of this step that the incarnation is launched in, kNone if in none.
  uint32_t RowIn(const StepRecord& record, uint32_t inc) const;
  // Calls f(row) for each row of the step that the incarnation is launched in: two is illegal, and
  // then both count.
  template <class F>
  void ForRowsIn(const StepRecord& record, uint32_t inc, F f) const {
    const auto& launches = requests_.at(inc).launches;
    for (auto note = launches.rbegin(); note != launches.rend() && note->step >= record.step;
         ++note) {
      if (note->step == record.step) f(note->row);
    }
  }
  // One page that a row is to write: new tokens, and slots that only drafts use.
  struct PlannedWrite {
    uint32_t row;
    uint32_t pool;
    uint32_t at;
    SlotRange fresh;
    SlotRange draft;
    Stamp stamp;
    bool keep_scale;
  };
  // A row fails: its writes are void, and so are its same-step readers.
  void FailRow(StepRecord& record, uint32_t row, CheckSet reasons);
  void VoidWrite(const StepRecord& record, const ledger::SlotWrite& write);
  void NoteStateWrites(const StepRecord& record, const ledger::RowRecord& row);
  bool WrittenLater(const StepRecord& record, const ledger::SlotWrite& write, uint32_t slot) const;
  bool WrittenSince(const ledger::SlotWrite& write) const;
  void FailReaders(StepRecord& record, uint32_t row);
  void FailReadersOf(const ledger::SlotWrite& write, StepRecord& later);
  void FailReader(const ledger::SlotWrite& write, StepRecord& later, uint32_t row, uint32_t pool,
                  uint32_t at);
  void SettleRow(StepRecord& record, uint32_t row);
  uint64_t GoodPrefix(const StepRecord& record, uint32_t row) const;

  Status CheckLaunch(const StepEvent& event);
  // --- ledger_fetch.cc
  void FetchRows(const StepEvent& event);
  template <class F>
  void ForWritten(const StepEvent& event, F f);
  void FetchWritten(const StepRecord& record) const;
  Status CheckRows(const StepEvent& event);
  Status CheckRowPlan(const RowPlan& plan, uint32_t slot) const;
  void LaunchRow(const StepEvent& event, StepRecord& record, uint32_t index);
  void LaunchPool(const PoolBuffers& buffers, const RowPlan& plan, StepRecord& record,
                  uint32_t index, uint64_t length);
  void LaunchWrites(StepRecord& record, uint32_t index, const RowPlan& plan, uint64_t length,
                    PoolTask* task);
  void LaunchWrite(StepRecord& record, const PlannedWrite& write);
  void NoteOpen(const Page& page, uint64_t start, PoolTask* task) const;
  void LaunchPad(const StepEvent& event, Row row);
  void FindGroups(const StepEvent& event);
  void FindLoads(const StepEvent& event, StepRecord& record, uint32_t index);
  void FindSameStepReads(const StepEvent& event, StepRecord& record);
  void JudgeSameStepRead(StepRecord& record, const ledger::SlotWrite& write, const User& reader,
                         uint32_t task);
  void JudgeSharedWrite(StepRecord& record, const ledger::SlotWrite& write);
  void JudgeHoles(StepRecord& record, uint32_t index, const ledger::PoolUse& use);
  void JudgeLeases(StepId step);
  void FailAgain(StepRecord& record, uint32_t index);
  void FailLater(const StepRecord& record, uint32_t row);
  void SortLate();
  void SetDigests(StepRecord& record);
  Violation PlaceOf(const StepRecord& record, uint32_t row, uint32_t pool, uint64_t at,
                    int64_t page) const;

  void AuditBooks() const;
  void AuditPages(bool idle);

  const FenceConfig config_;
  const CheckSet checks_;
  const bool has_state_;  // a pool whose rows write pages whole, whatever their positions
  const RankId rank_;
  DeltaSink* const deltas_;
  const std::function<void(const Violation&)> report_;

  ledger::PageBook pages_;
  ledger::ContentBook content_;
  ledger::RequestBook requests_;
  ledger::IndexBook index_;
  ledger::PinBook pins_;
  std::deque<std::pair<NameId, uint32_t>> ended_sides_;  // further unpins that may be said
  ledger::StepBook steps_;
  std::vector<uint16_t> scale_epochs_;  // by pool
  struct BoundRow {
    RequestId req;
    uint64_t changed_step = 0;
    CheckSet failed;  // what rows of this binding have failed for
    // Was the step launched under this binding?
    bool Sees(uint64_t step) const { return step >= changed_step; }
  };
  std::vector<BoundRow> rows_;

  uint64_t now_ = 0;  // number of the event
  std::vector<PageId> kept_;
  std::vector<std::pair<uint32_t, uint32_t>> thinned_;  // pool and page: to be cut
  std::vector<std::pair<uint32_t, int64_t>> reported_;
  using SumKey = std::pair<Stamp, uint32_t>;  // of a birth, in a pool
  absl::flat_hash_map<SumKey, Sum> sums_;
  std::vector<SumKey> sums_order_;
  size_t sums_next_ = 0;

  uint64_t changes_ = 0;
  uint64_t live_entries_ = 0;
  uint64_t live_pages_ = 0;
  uint64_t cached_pages_ = 0;

  // Scratch of Launch, kept for its memory.
  StepPlan plan_;
  std::vector<uint32_t> task_of_row_;
  std::vector<uint32_t> slots_of_rows_;  // by row of the step in hand, its request's slot
  std::vector<std::pair<uint32_t, uint32_t>> late_;  // (pool task, late page)
  std::vector<User> users_;
  bool raced_ = false;  // the page just judged for issue may still be written by a running step
  std::vector<uint32_t> consequences_;
  StepRecord* launching_ = nullptr;
};

}  // namespace kvfence
