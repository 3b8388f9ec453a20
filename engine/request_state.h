// A request inside the engine, from its arrival to its end, over all its incarnations.
//
// Invariant: computed <= tokens.size(); positions below `computed` are in the cache, in each
// group's pages[position / page_size], but for those that its window has left behind; while the
// request waits it has no pages and computed is 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kv_groups.h"
#include "kvfence/event.h"
#include "kvfence/fault_hooks.h"
#include "kvfence/ground_truth.h"
#include "kvfence/trace.h"

namespace kvfence {

inline constexpr uint32_t kNoRow = 0xFFFFFFFFu;

// When, in the life of a step, a client's abort comes in.
enum class AbortMoment : uint8_t { kBetweenSteps, kDuringAttention, kBeforeRetire };

// Its pages in one group.
struct PageList {
  std::vector<PageId> pages;  // by logical page; below `first` the null page
  uint64_t first = 0;         // the window has left the pages before
  std::vector<KeyId> keys;    // chained keys of full pages, as far as they were asked for
  uint64_t published = 0;     // pages that are in the index, or were offered to it
};

struct RequestState {
  RequestIndex index = kNoRequest;
  const TraceRequest* trace = nullptr;
  NameId name;
  IdentityId identity;
  uint64_t salt = 0;

  RequestId id;                             // the present incarnation; null while it waits
  std::vector<uint32_t> tokens;             // the prompt, then what was published
  uint64_t computed = 0;                    // tokens in the cache
  uint64_t planned = 0;                     // new tokens of the step in flight; 0: not in it
  std::array<PageList, kMostGroups> lists;  // by group
  uint32_t row = kNoRow;

  uint64_t arrival_step = 0;
  std::optional<uint64_t> first_token_step{};
  uint64_t recomputes = 0;
  bool gone = false;  // ended while its step was in flight

  bool will_abort = false;
  uint64_t abort_at = 0;  // tokens in the cache from which the client's abort comes
  AbortMoment abort_moment = AbortMoment::kBetweenSteps;

  std::optional<GoldenRun> golden{};  // begun when it is first needed

  uint64_t outputs() const { return tokens.size() - trace->input_length; }
  bool done() const { return outputs() >= trace->output_length; }
  bool samples_after(uint64_t new_tokens) const { return computed + new_tokens == tokens.size(); }
};

}  // namespace kvfence
