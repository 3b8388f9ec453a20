// A scheduler and a worker that share nothing but memory: in two processes, or in one for tests
// that need no kill.
//
// The scheduler keeps ledger, journal and the writing ends; the worker has a gate, the reading ends
// and the engine's own tables, which it fills from the step message as an engine would (I-8).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvfence/gate.h"
#include "kvfence/journal.h"
#include "kvfence/ledger.h"
#include "kvfence/shared_journal.h"
#include "kvfence/verdict_board.h"

namespace kvfence::testing {

inline constexpr uint32_t kSceneRows = 4;
inline constexpr uint32_t kSceneWidth = 8;
inline constexpr uint32_t kSceneSlots = 32;  // new tokens a row, at most

// One pool of 64 pages of 16 tokens.
FenceConfig SceneConfig(uint64_t ranks = 1);

// Names in shared memory that no other test has; taken away with the object.
class SharedNames {
 public:
  SharedNames();
  SharedNames(const SharedNames&) = delete;
  SharedNames& operator=(const SharedNames&) = delete;
  ~SharedNames();

  const std::string journal;
  const std::string board;

 private:
  const pid_t owner_;  // a forked child's copy leaves the names alone
};

// What the engine tells its workers anyway.
struct StepMessage {
  struct Row {
    uint32_t row;
    uint32_t new_tokens;
    int64_t length;  // new tokens included
    int32_t table[kSceneWidth];
  };
  JournalPosition at;
  uint64_t step;
  uint32_t rows;
  Row row[kSceneRows];
};

// What a worker says of a step beside what it posts.
struct Answer {
  uint64_t step;
  JournalState state;
  uint32_t reasons[kSceneRows];     // by row of the message
  int32_t first_entry[kSceneRows];  // of its table line, after validate
  int64_t first_slot[kSceneRows];
};

class Scheduler {
 public:
  Scheduler(const SharedNames& names, const FenceConfig& config, SharedJournalOptions options = {},
            VerdictBoardOptions board_options = {});

  void Begin(uint32_t name, uint32_t row, std::vector<int64_t> pages);
  void End(uint32_t name);

  struct Work {
    uint32_t name;
    uint32_t new_tokens;
  };
  // Launches a step and seals its batch; Append puts it into the ring.
  StepMessage Launch(uint64_t step, const std::vector<Work>& work);
  void Append();
  StepMessage Run(uint64_t step, const std::vector<Work>& work) {
    const StepMessage message = Launch(step, work);
    Append();
    return message;
  }
  // Decides by what is on the board now.
  std::vector<LaunchedRow> Settle(uint64_t step);
  // The same, and says whether each row of the step may be published.
  bool Published(uint64_t step);
  // The ledger's whole state into the ring. False: refused.
  bool Snapshot(uint64_t step);

  VerdictBoard& board() { return *board_; }
  uint64_t boot() const { return shared_->boot(); }
  SharedJournal& shared() { return *shared_; }
  Journal& journal() { return journal_; }

 private:
  struct Request {
    uint32_t name = 0;
    uint32_t row = 0;
    std::vector<int64_t> pages;
    uint64_t length = 0;
  };
  Request& Find(uint32_t name);

  std::unique_ptr<SharedJournal> shared_;
  std::unique_ptr<VerdictBoard> board_;
  Journal journal_;
  Ledger ledger_;
  std::vector<Request> requests_;
  const JournalBatch* batch_ = nullptr;
  const StepPlan* plan_ = nullptr;
};

class Worker {
 public:
  Worker(const SharedNames& names, const FenceConfig& config, uint32_t rank,
         SharedJournalReaderOptions options = {}, VerdictBoardOptions board_options = {});

  Answer Step(const StepMessage& message);
  Gate& gate() { return gate_; }
  SharedJournalReader& reader() { return *reader_; }

 private:
  void Fill(const StepMessage& message);

  const RankId rank_;
  std::unique_ptr<SharedJournalReader> reader_;
  std::unique_ptr<VerdictBoard> board_;
  Gate gate_;
  std::vector<int32_t> table_;
  std::vector<int64_t> slots_;
  int32_t slot_indptr_[kSceneRows + 1] = {};
  int64_t lengths_[kSceneRows] = {};
};

}  // namespace kvfence::testing
