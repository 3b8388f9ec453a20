// A request inside the engine, from its arrival to its end, over all its incarnations.
//
// Invariant: computed <= tokens.size(); positions below `computed` are in the cache, in each
// group's pages[position / page_size], but for those that its window has left behind; while the
// request waits it has no pages and computed is 0.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host_tier.h"
#include "kv_groups.h"
#include "kvfence/event.h"
#include "kvfence/fault_hooks.h"
#include "kvfence/trace.h"
#include "served_model.h"

namespace kvfence {

inline constexpr uint32_t kNoRow = 0xFFFFFFFFu;

// When, in the life of a step, a client's abort comes in.
enum class AbortMoment : uint8_t { kBetweenSteps, kDuringAttention, kBeforeRetire };

// Its pages in one group.
struct PageList {
  std::vector<PageId> pages;  // by logical page; below `first` the null page
  uint64_t first = 0;         // the window has left the pages before
  std::vector<KeyId> keys;    // chained keys of full pages, as far as they were asked for
  uint64_t stored = 0;        // pages that were offered to the host's tier
  uint64_t published = 0;     // pages that are in the index, or were offered to it
};

// The content of a request that was swapped out.
struct SwappedOut {
  uint64_t number = 0;  // of this swap among all
  uint64_t tokens = 0;
  bool there = false;  // all of it has been read
  std::array<uint64_t, kMostGroups> first{};
  std::array<std::vector<HostPage>, kMostGroups> pages{};
};

// What a request has in one step.
struct StepShare {
  uint64_t tokens = 0;   // new ones, guesses included; 0: it isn't in the step
  uint64_t guesses = 0;  // the last of them, to be verified
  uint64_t ahead = 0;    // slots of the draft group behind them, for the next guesses
  uint64_t known() const { return tokens - guesses; }
};

struct RequestState {
  RequestIndex index = kNoRequest;
  const TraceRequest* trace = nullptr;
  NameId name;
  IdentityId identity;
  uint64_t salt = 0;

  RequestIndex root = kNoRequest;  // whose prompt it is; siblings have the same
  uint32_t sample = 0;             // which of the root's samples it is
  bool forked = false;             // its siblings are there

  RequestId id;                  // the present incarnation; null while it waits
  std::vector<uint32_t> tokens;  // the prompt, then what was published
  uint64_t computed = 0;         // tokens in the cache
  StepShare plan;                // of the step that is being scheduled
  // Of launched steps that aren't settled (of the present incarnation, since it last went back):
  uint64_t launched = 0;  // new tokens, all guesses counted
  uint64_t sure = 0;      // of those, the ones that aren't guesses
  uint64_t pending = 0;   // steps that will bring a token
  uint32_t flights = 0;   // steps, of any incarnation
  uint64_t epoch = 0;     // grows when what is launched has become useless
  // What the device knows before the host does.
  uint64_t device_length = 0;
  uint32_t device_token = 0;
  std::array<PageList, kMostGroups> lists;  // by group
  uint32_t row = kNoRow;

  std::unique_ptr<SwappedOut> swap{};

  uint64_t arrival_step = 0;
  std::optional<uint64_t> first_token_step{};
  uint64_t recomputes = 0;   // since it last published
  bool load_failed = false;  // all of it: from now on it's computed, not loaded
  bool at_prefill = false;   // disaggregated: it's with the engine that prefills
  uint32_t lost = 0;         // ... hand-offs of which nothing of use arrived
  uint64_t offered_at = 0;   // the newest step launched when it was offered
  bool gone = false;         // ended while a step of it was in flight
  bool ends_early = false;   // by a stop token: the scheduler can't know which token is the last

  bool will_abort = false;
  uint64_t abort_at = 0;  // tokens in the cache from which the client's abort comes
  AbortMoment abort_moment = AbortMoment::kBetweenSteps;

  std::unique_ptr<SoloRun> golden{};  // begun when it is first needed
  bool other_line = false;            // a beam that went on from another one's tokens

  uint64_t outputs() const { return tokens.size() - trace->input_length; }
  // The length before a step launched now; all guesses counted.
  uint64_t base() const { return computed + launched; }
  bool done() const { return outputs() >= trace->output_length; }
  void ForgetLaunched() { launched = sure = pending = 0; }
  // Does a step with this share, launched now, end with a token?
  bool samples_after(const StepShare& share) const {
    return pending > 0 || base() + share.known() == tokens.size();
  }
};

}  // namespace kvfence
