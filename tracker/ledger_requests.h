// The request book: every living incarnation, what it expects at each logical page, its length.
//
// Idea: an incarnation is a slot that is used again after its end, so steady state allocates
// nothing. What has ended is forgotten but for a bounded memory of whose content it wrote, which a
// late write may still name. Invariant I-31: at most one living incarnation is the latest of a
// name.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvfence/event.h"
#include "kvfence/tag.h"
#include "kvfence/types.h"
#include "ledger_pages.h"

namespace kvfence::ledger {

// What an incarnation expects of one logical page. `node` is its mapping on the page's list, kNone
// where it maps nothing or the page has gone to another generation since (I-5).
struct Held {
  uint32_t page = kNoPage;
  Tag tag = 0;
  uint32_t node = kNone;
  uint32_t suspect = 0;  // 1 + Reason for which its content may not be read (deployments only)
  uint32_t void_from = kNone;  // slots from here on were trimmed, but spared: others may read them
  Stamp stamp = kNoStamp;
};

// One launched row of it.
struct LaunchNote {
  uint64_t step = 0;
  uint64_t new_tokens = 0;
  uint32_t row = 0;  // index in the step's record
};

// A length that only the device knew when a step was built on it, which a trim must confirm. Where
// it is what the ledger had (nothing was rejected), the engine may leave that trim out.
struct PendingBase {
  uint64_t tokens = 0;
  uint64_t step = 0;
  bool news = false;  // not what the ledger had
};

struct Incarnation {
  RequestId id;
  uint64_t serial = 0;
  IdentityId identity;
  uint64_t length = 0;
  std::vector<std::vector<Held>> lists;  // by pool, then logical page
  std::vector<LaunchNote> launches;      // oldest first, a bounded memory
  std::vector<PendingBase> bases;        // oldest first
  uint64_t changed_step = 0;             // the first step that may see its table as it is
  uint64_t digest = 0;                   // sum over entries of a mix of (pool, at, page, tag)
  uint32_t suspects = 0;                 // entries that are suspect
  bool live = false;
};

class RequestBook {
 public:
  explicit RequestBook(uint32_t pools) : pools_(pools) {}

  // Is the latest incarnation of the name alive?
  bool LatestLives(NameId name) const;
  RequestId Latest(NameId name) const;
  uint32_t Admit(NameId name, IdentityId identity);
  // The slot of a living incarnation, else kNone. Incarnation 0 is the latest.
  uint32_t Find(RequestId req) const;
  // The full id of what `req` names, as far as it is known.
  RequestId Resolve(RequestId req) const;
  Incarnation& at(uint32_t slot) { return slots_[slot]; }
  const Incarnation& at(uint32_t slot) const { return slots_[slot]; }
  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  // Forgets the incarnation, but for its stamps.
  void End(uint32_t slot);

  // Whose content it is that `req` calls its page `at`: what it expects there (or expected when it
  // ended), else its own lineage. Empty: there never was such an incarnation.
  std::optional<Stamp> StampOf(RequestId req, uint32_t pool, uint64_t at) const;

 private:
  struct Name {
    uint32_t latest = 0;
    uint32_t slot = kNone;  // of the latest, while it lives
  };
  struct Foreign {  // an expectation of an ended incarnation that wasn't of its own lineage
    uint32_t pool;
    uint32_t at;
    Stamp stamp;
  };
  struct Ended {
    RequestId id;
    uint64_t serial = 0;
    std::vector<Foreign> foreign;
  };
  void Remember(const Incarnation& inc);

  uint32_t pools_;
  uint64_t serials_ = 0;
  std::vector<Incarnation> slots_;
  std::vector<uint32_t> unused_;
  absl::flat_hash_map<uint32_t, Name> names_;
  absl::flat_hash_map<uint64_t, uint32_t> older_;  // living incarnations that aren't the latest
  std::deque<Ended> ended_;
  uint64_t ended_begin_ = 0;  // number of the first one in ended_
  uint64_t ended_foreign_ = 0;
  absl::flat_hash_map<uint64_t, uint64_t> ended_at_;  // request word -> number
};

}  // namespace kvfence::ledger
