// Requests that the fence failed, and whether they came to a right end all the same.
//
// Idea: under policy `recompute` a failed request goes back and is computed again. Then the promise
// is more than silence: it ends with the right tokens, unless its client takes it back. Invariant:
// only the engine's feed is asked (which row failed, what was published, who ended how).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kvfence/outcome.h"

namespace kvfence {

class Comebacks {
 public:
  struct Counts {
    uint64_t failed = 0;     // requests with a failed row, each once
    uint64_t right = 0;      // of those, complete with nothing but right tokens
    uint64_t withdrawn = 0;  // of those, taken back by their client
    uint64_t lost() const { return failed - right - withdrawn; }
  };

  // A row of the request failed. Steps up to `launched` may know it as it was before.
  void Failed(RequestIndex request, uint64_t launched);
  void PublishedWrong(RequestIndex request);
  void Ended(RequestIndex request, EndKind kind);
  // Those that live on although they failed, now that all steps that may know them as they were are
  // among those up to `settled`; each time once.
  struct Back {
    RequestIndex request = kNoRequest;
    uint64_t launched = 0;  // as said when it failed
    friend bool operator==(const Back&, const Back&) = default;
  };
  std::vector<Back> BackBy(uint64_t settled);
  Counts counts() const;

 private:
  enum class State { kBack, kRight, kWithdrawn, kLost };
  struct Life {
    State state = State::kBack;
    bool wrong = false;
  };
  std::map<RequestIndex, Life> lives_;
  std::vector<Back> going_;
};

}  // namespace kvfence
