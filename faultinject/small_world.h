// A world small enough to be gone through completely: two requests, four pages, a compute stream
// and a copy stream with one transfer.
//
// Idea: what can happen next is a list of moves, each one event of one actor: a request begins,
// grows, ends, is taken back; a step is launched, attends, is confirmed, is retired; the transfer
// writes, ends. Pages have two slots, and each slot says whose token it holds, so whether a
// published token was computed from the right content is seen by looking. One page is the null
// page, so three are left for two requests that want two each. Request B's first page is brought by
// the transfer. One fault may be put in, as a move like the others.
//
// Invariant: the books here are right unless a fault bent them: a page or a row that a launched
// step or the transfer uses isn't given to another before that is over. The fence is asked for its
// word at retire and for nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/explore.h"
#include "kvfence/fence.h"

namespace kvfence {

enum class Move : uint8_t {
  kStartA,
  kStartB,
  kGrowA,
  kGrowB,
  kEndA,
  kEndB,
  kWithdrawA,
  kWithdrawB,
  kLaunch,
  kAttend,
  kConfirm,
  kRetire,
  kTransferWrites,
  kTransferEnds,
  kFaultA,
  kFaultB,  // the world's fault, at request A, B
};
std::string_view MoveName(Move move);

class SmallWorld final : public EventSink {
 public:
  // `fence` false: nobody looks, all is published.
  SmallWorld(SmallFault fault, bool fence);

  std::vector<Move> Moves() const;
  void Make(Move move);

  // Equal keys: equal worlds, as far as anything that may happen next depends on them.
  std::string Key() const;
  uint64_t published() const { return published_; }
  uint64_t wrong_published() const { return wrong_published_; }
  uint64_t ended_by_fence() const { return ended_by_fence_; }
  uint64_t finished() const { return finished_; }
  uint64_t refusals() const { return refusals_; }
  bool faulted() const { return faulted_; }
  const std::vector<Violation>& violations() const { return violations_; }
  void OnViolation(const Violation& violation) override { violations_.push_back(violation); }

 private:
  static constexpr int64_t kPages = 4, kPageSize = 2, kMostPages = 2;
  static constexpr size_t kRequests = 2, kA = 0, kB = 1;
  static constexpr int64_t kPrompt = 2, kOutputs = 2;

  // What a slot holds: whose token of which position; 0: nothing.
  static constexpr uint32_t Content(size_t r, uint32_t incarnation, int64_t position) {
    return static_cast<uint32_t>(1 + r) << 16 | incarnation << 8 | static_cast<uint32_t>(position);
  }

  struct Request {
    bool running = false;
    uint32_t incarnation = 0;
    RequestId id{};
    std::vector<int64_t> pages{};
    int64_t computed = 0, outputs = 0;
    bool loading = false;  // its first page isn't ready
  };
  enum class Stage : uint8_t { kNone, kLaunched, kAttended, kConfirmed };
  struct Step {
    Stage stage = Stage::kNone;
    std::array<int64_t, kRequests> fresh{};   // new tokens; 0: not in it
    std::array<int64_t, kRequests> before{};  // tokens of earlier steps
    std::array<uint32_t, kRequests> incarnation{};
    std::array<bool, kRequests> right{};
    std::vector<int64_t> uses{};  // pages
  };
  enum class Transfer : uint8_t { kIdle, kPinned, kWritten };

  int64_t NewTokens(const Request& r) const;
  bool InStep(size_t r) const { return step_.stage != Stage::kNone && step_.fresh[r] > 0; }
  bool MayTake() const { return FreeAt().has_value(); }
  std::optional<size_t> FreeAt() const;  // in the free list, of the page issued next
  std::optional<int64_t> PageOfOther(size_t r) const;
  bool MayFault(size_t r) const;

  int64_t Take(size_t r);
  void Hold(size_t r, int64_t page);
  void Start(size_t r);
  void End(size_t r);
  void GoesBack(int64_t page);
  void Launch();
  void BendStep();
  void Attend();
  void Retire();
  // Its bytes land: while its pin is out, or once more when that is over.
  void TransferWrites(bool pinned);
  void EndTransfer();
  void Fault(size_t r);
  void Ask(const Status& status);

  const SmallFault fault_;
  std::unique_ptr<Fence> fence_;
  std::array<Request, kRequests> requests_{};
  std::vector<int64_t> free_{3, 2, 1};
  std::array<int, kPages> holds_{};
  std::array<uint32_t, kPages> issues_{};
  std::array<bool, kPages> apart_{};             // in quarantine, for good
  std::array<int64_t, kRequests> lost_{-1, -1};  // freed early: not to be returned again
  std::array<std::array<uint32_t, kPageSize>, kPages> slots_{};
  Step step_;
  uint64_t steps_ = 0;
  Transfer transfer_ = Transfer::kIdle;
  int64_t transfer_page_ = 0;
  RequestId transfer_for_{};
  uint32_t transfer_incarnation_ = 0;
  bool faulted_ = false;
  std::optional<size_t> victim_{};  // of a fault that waits for the next launch or issue
  // The device's buffers.
  std::array<int32_t, kRequests * kMostPages> table_{};
  std::array<int64_t, kRequests> lengths_{};
  std::vector<int64_t> slot_list_;
  std::array<int32_t, kRequests + 1> starts_{};

  std::vector<Violation> violations_;
  uint64_t published_ = 0, wrong_published_ = 0, ended_by_fence_ = 0, finished_ = 0;
  uint64_t refusals_ = 0;
};

}  // namespace kvfence
