// The ledger told naively: sets, maps and full scans, as slow as it is obvious.
//
// It includes nothing of the ledger's inside. Differences that matter as an oracle: holders are
// found by looking at every entry of every request, each launched row keeps a full copy of the
// pages it had, each slot knows which launched row wrote it. Not told here: same-step reads,
// scales, checksums, layer-wise loads, leases (these have tests of their own).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/event.h"
#include "kvfence/finding.h"

namespace kvfence::testing {

class LedgerModel {
 public:
  // Stands for "the stamp of some holder, entry or last holder of the page".
  static constexpr Stamp kAnyHolders = kNobodyStamp - 8;

  struct Slot {
    bool valid = false;
    bool committed = false;
    std::pair<uint64_t, uint32_t> by{0, 0};  // (step + 1, row index) of a launched row, or (0, 0)
    Stamp birth = kNoStamp;
    // What a copy has put there since: its number, 0 for none. It shows where the slot isn't valid.
    uint64_t copy = 0;
    Stamp brought = kNoStamp;
  };
  struct Page {
    Tag tag = 0;
    Stamp last_expected = kNoStamp;
    uint64_t changes = 0;  // of content, for raced copies
    std::vector<Slot> slots;
  };
  struct Entry {
    int64_t page = -1;  // -1: holds nothing there
    Tag tag = 0;
    Stamp stamp = kNoStamp;
    bool operator==(const Entry&) const = default;
  };
  struct Request {
    uint64_t serial = 0;
    uint64_t length = 0;
    IdentityId identity;
    std::vector<std::vector<Entry>> lists;
    std::vector<std::pair<uint64_t, uint64_t>> launches;  // (step, new)
    std::vector<std::array<uint64_t, 3>> bases;           // (tokens, step, is it news)
  };
  struct Key {
    bool published = false;
    uint32_t pool = 0;
    int64_t page = -1;
    Tag tag = 0;
    Stamp stamp = kNoStamp;
    Stamp read = kNoStamp;
    IdentityId identity;
  };
  struct Pinned {
    int64_t page = -1;
    Tag tag = 0;
    uint64_t changes = 0;
    uint64_t need = 0;
  };
  struct Copying {
    uint64_t number = 0;
    NameId id;
    CopyDir dir{};
    uint32_t pool = 0;
    RequestId req;
    std::optional<KeyId> key;
    std::vector<Pinned> pages;
  };
  struct Written {
    uint32_t pool = 0;
    int64_t page = -1;
    Tag tag = 0;
    uint64_t at = 0;
    std::set<uint64_t> slots;
    Stamp old_stamp = kNoStamp, new_stamp = kNoStamp, old_expected = kNoStamp;
    bool copied = false;
    uint64_t changes = 0;  // of the page, when it was launched
    Page before;           // as it was
  };
  struct Had {  // a page that a launched row uses
    uint32_t pool = 0;
    uint64_t at = 0;
    int64_t page = -1;
    Tag tag = 0;
  };
  struct LaunchedRow {
    Row row;
    RequestId req;
    CheckSet reasons;
    uint64_t serial = 0;
    uint64_t length = 0;
    std::vector<uint64_t> begin;  // by pool: positions below aren't read
    std::vector<Had> had;
    std::vector<Written> written;
    std::vector<std::tuple<uint32_t, int64_t, RequestId>> exported;  // read by a copy since
    uint64_t voided = 0;
    bool runs = true;  // clean, or failed when its kernels ran already
  };
  struct LaunchedStep {
    uint64_t step = 0;
    uint64_t when = 0;
    bool confirmed = false;
    bool judged = false;
    std::vector<LaunchedRow> rows;
  };

  explicit LedgerModel(const FenceConfig& config);

  void On(const AdmitEvent& event);
  void On(const AllocEvent& event);
  void On(const ShareEvent& event);
  void On(const ForkEvent& event);
  void On(const CowEvent& event);
  void On(const TrimEvent& event);
  void On(const DropEvent& event);
  void On(const ReleaseEvent& event);
  void On(const FreeEvent& event);
  void On(const PublishEvent& event);
  void On(const UnpublishEvent& event);
  void On(const PinEvent& event);
  void On(const UnpinEvent& event);
  void On(const ReadyEvent& event);
  void On(const BindRowEvent& event);
  void On(const AuditEvent& event);
  void On(const WriteEvent& event);
  void On(const ReadEvent& event);
  void On(const CopyEvent& event);
  void On(const StepEvent& event);
  void Judge(StepId step, const std::vector<uint32_t>& reasons);
  void On(const ConfirmEvent& event);
  void On(const RetireEvent& event);

  // Who maps the page in its present generation: (request, pool, logical page).
  using Holder = std::tuple<RequestId, uint32_t, uint64_t>;
  std::vector<Holder> Holders(uint32_t pool, int64_t page) const;
  std::set<RequestId> Requests(uint32_t pool, int64_t page) const;
  uint32_t Entries(uint32_t pool, int64_t page) const;
  uint32_t Pins(uint32_t pool, int64_t page) const;
  uint32_t OutPins(uint32_t pool, int64_t page) const;

  // Findings of the last event, as text.
  std::multiset<std::string> findings;
  std::map<RequestId, Request> requests;  // the living ones
  std::map<RequestId, Request> ended;
  std::map<NameId, uint32_t> latest;
  std::map<std::pair<KeyId, uint32_t>, Key> keys;  // by key and pool
  // The key's entry in this pool, else in another one that it's published in, else what was one.
  Key* Lookup(KeyId key, uint32_t pool);
  std::vector<Copying> copying;
  std::map<NameId, size_t> sides_ended;  // copies of two sides: further unpins that may be said
  std::vector<LaunchedStep> steps;
  std::vector<std::vector<Page>> pages;  // by pool

  static std::string Text(const Violation& v);

  // The page's one stamp: that of all its slots, kMixedStamp if they differ.
  Stamp Shown(uint32_t pool, int64_t page) const;

 private:
  void Begin();
  // What trims spared for others goes with the last of them; between events.
  void Tidy();
  void Say(Reason reason, RequestId req, uint32_t pool, int64_t page, int64_t at = -1);
  std::optional<RequestId> Alive(RequestId req, bool say = true);
  RequestId Named(RequestId req) const;
  bool Exists(uint32_t pool, PageId page) const;
  bool Null(uint32_t pool, PageId page) const;
  bool MayIssue(RequestId req, uint32_t pool, PageId page, uint64_t at);
  void Issue(uint32_t pool, int64_t page);
  void GiveBack(uint32_t pool, int64_t page);
  void MaybeGiveBack(uint32_t pool, int64_t page);
  void LetGo(RequestId req, uint32_t pool, uint64_t at);
  void Put(RequestId req, uint32_t pool, uint64_t at, Entry entry);
  bool Complete(uint32_t pool, int64_t page, uint64_t first, uint64_t last) const;
  bool Any(const Page& page) const;
  void Void(Page& page, uint64_t slot);
  void Erase(Page& page, uint64_t slot);
  bool ReliedOn(uint32_t pool, int64_t page, uint64_t slot) const;
  // As Shown; what is of birth `taken` counts as of birth `as`.
  Stamp Births(const Page& page, Stamp taken, Stamp as) const;
  static bool MadeOwn(const Page& page, const Written& w);
  void Cut(RequestId req);
  void CutPage(RequestId req, uint32_t pool, uint64_t at);
  void Unpublish(Key& key);
  void CopyContent(uint32_t from_pool, int64_t from, uint32_t to_pool, int64_t to);
  void JudgePinKey(const PinEvent& event, RequestId req);
  Copying* CopyOf(NameId id, uint32_t pool, int64_t page, Pinned** part);
  bool FailUsers(uint32_t pool, int64_t page, bool unconfirmed);
  void FailRow(LaunchedStep& step, uint32_t row, CheckSet reasons);
  void FailReaders(const LaunchedStep& failed, const LaunchedRow& row);
  bool WrittenByOther(const Written& w) const;
  Stamp StampOf(RequestId req, uint32_t pool, uint64_t at) const;
  void LaunchRow(const StepEvent& event, LaunchedStep& step, const RowPlan& plan);
  void LaunchPool(LaunchedStep& step, uint32_t index, uint32_t pool, const RowPlan& plan);
  void JudgeHole(LaunchedStep& step, uint32_t index, uint32_t pool, uint64_t at);
  void LaunchPage(LaunchedStep& step, uint32_t index, uint32_t pool, const RowPlan& plan,
                  uint64_t at);

  FenceConfig config_;
  uint64_t now_ = 0;
  uint64_t serials_ = 0;
  uint64_t copies_ = 0;
  // Slots from here on were trimmed, but spared, at a request's logical page of a pool.
  std::map<std::tuple<RequestId, uint32_t, uint64_t>, uint64_t> spared_;
  bool holes_ = false;
  uint64_t last_step_ = 0;  // 1 + newest launched
  std::set<std::pair<uint32_t, int64_t>> said_;
  std::set<std::pair<uint32_t, int64_t>> kept_;  // (pool, page) let go of and taken in one event
};

}  // namespace kvfence::testing
