// What is known of one injected fault, and what became of it.
//
// Idea: evidence is only collected while the episode runs and judged when it's over, so that late
// effects of a fault count for it. Invariant: the judgement asks the ground truth (what was read,
// what was published) and the fence's reports, never the ledger.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/campaign.h"
#include "kvfence/fault_hooks.h"
#include "kvfence/finding.h"

namespace kvfence {

// What a fault touches, as its injector says.
struct FaultMark {
  std::string text;                      // one line for people
  std::vector<PageId> pages{};           // faulted: whoever holds them from now on is affected
  std::vector<RequestIndex> requests{};  // affected by name
};

// A page of a group of layers; faults are put into the first one's, and may spread to others.
struct GroupPage {
  PageId page;
  size_t group = 0;
  friend bool operator==(const GroupPage&, const GroupPage&) = default;
};

struct Evidence {
  bool crashed = false;          // the engine threw
  bool wrong_published = false;  // a row with a wrong result passed as clean
  bool wrong_read = false;       // the raw read of a row was wrong
  bool reported = false;         // by any reason
  bool answered = false;         // by a declared one
  bool collateral = false;       // a request ended (or went back) that held no faulted object
};

// What became of an activated fault. A wrong read that nobody reported counts as missed even where
// its request was withdrawn before its token could leave.
constexpr Outcome JudgeOutcome(const Evidence& e) {
  if (e.crashed) return Outcome::kCrashed;
  if (e.wrong_published) return e.reported ? Outcome::kLate : Outcome::kMissed;
  if (e.collateral || (e.reported && !e.answered)) return Outcome::kCollateral;
  if (e.answered) return e.wrong_read ? Outcome::kPrevented : Outcome::kEarly;
  return e.wrong_read ? Outcome::kMissed : Outcome::kBenign;
}

// One activated fault.
struct FaultRecord {
  FaultMark mark;
  size_t kind = 0;                         // of those that the run puts in
  bool open = true;                        // more of it is to be expected
  int64_t step = -1;                       // activated
  std::vector<RequestIndex> affected{};    // so far; sorted
  std::vector<RequestIndex> bystanders{};  // ended though not affected
  std::vector<RequestIndex> recovered{};   // were affected, went back, and no longer are
  Evidence evidence{};
  std::set<size_t> beside{};  // numbers of faults that may have made the same read wrong
  CheckSet reasons{};         // all that were reported of it
  std::optional<int64_t> first_report{};
  std::vector<GroupPage> sick{};  // faulted pages that haven't been free since
  std::set<std::pair<KeyId, uint64_t>> sick_on_host{};  // faulted content, by key and number
  uint64_t changes = 0;      // of hands that faulted pages went through since
  int64_t last_effect = -1;  // the last step at which anything was seen of it
  std::optional<Violation> first_violation{};
  std::string record{};  // its incident record

  bool Affects(RequestIndex request) const {
    return std::binary_search(affected.begin(), affected.end(), request);
  }
  void Affect(RequestIndex request) {
    const auto at = std::lower_bound(affected.begin(), affected.end(), request);
    if (at == affected.end() || *at != request) affected.insert(at, request);
  }
  void Release(RequestIndex request) {
    const auto at = std::lower_bound(affected.begin(), affected.end(), request);
    if (at == affected.end() || *at != request) return;
    affected.erase(at);
    recovered.push_back(request);
  }
  bool Sick(GroupPage page) const {
    return std::find(sick.begin(), sick.end(), page) != sick.end();
  }
  // True: it wasn't before.
  bool Infect(GroupPage page) {
    if (Sick(page)) return false;
    sick.push_back(page);
    return true;
  }
  bool Names(PageId page) const {
    return std::find(mark.pages.begin(), mark.pages.end(), page) != mark.pages.end();
  }
};

}  // namespace kvfence
