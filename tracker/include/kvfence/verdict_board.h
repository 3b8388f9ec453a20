// The board on which ranks in processes of their own leave their verdicts, in shared memory.
//
// Idea: a line for each (rank, step modulo slots), with one verdict word for each row task of the
// step; ranks write theirs after confirm, and one decider reads the complete board and decides for
// all. No collective, no waiting of ranks for anybody: a rank that runs ahead overwrites old lines,
// and what the decider doesn't find is unverified. Invariant I-93: a word counts only if it stands
// in a finished line of this boot, this step and this number of rows, and is a verdict of this step
// (I-9). The boot is the ledger's (JournalPosition::boot): steps of another life of the scheduler
// have the same numbers.
//
// A line is guarded by a version, odd while it's written: words are stored with release order after
// the version was made odd, so a decider that read one word of a later post finds the version
// changed when it reads it again (acquire), and takes nothing from the line.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/device_types.h"
#include "kvfence/status.h"
#include "kvfence/types.h"

namespace kvfence {

// What stands on the board of one step.
struct BoardReading {
  // One mask per row task: the union over all ranks; `unverified` where a rank is silent or its
  // word isn't of this step.
  std::vector<uint32_t> reasons;
  std::vector<RankId> silent;  // ranks without a finished line of this step, ascending

  bool complete() const { return silent.empty(); }
};

// Points inside a post, and one inside the reading of a line, for tests that stop somebody there.
enum class BoardPoint : uint8_t { kOpened, kHalfWritten, kWritten, kReading };

struct VerdictBoardOptions {
  uint64_t slots = 16;                         // more than the steps that may be under way at once
  std::function<void(BoardPoint)> probe = {};  // called at each point; may be empty
};

// One process creates it and decides; the ranks open it and post. Read and Post may be called by
// any threads at once, but each rank's posts by one thread at a time.
class VerdictBoard {
 public:
  // Makes the memory `name` ("/word") for config.ranks and config.rows, or takes over what an
  // earlier decider left; old lines are of another boot and count for nothing. Errors as
  // SharedJournal::Create.
  static Result<std::unique_ptr<VerdictBoard>> Create(const std::string& name,
                                                      const FenceConfig& config,
                                                      VerdictBoardOptions options = {});
  // Maps what Create made. kUnavailable: it isn't there (yet); kInvalidArgument: made for others.
  static Result<std::unique_ptr<VerdictBoard>> Open(const std::string& name,
                                                    const FenceConfig& config,
                                                    VerdictBoardOptions options = {});
  static Status Remove(const std::string& name);
  ~VerdictBoard();

  // A rank's words for a step, one per row task (Gate::Verdicts after confirm, or what came back
  // from the device), under the boot that its reader follows. Never waits. kInvalidArgument: no
  // such rank, or more words than rows.
  Status Post(uint64_t boot, RankId rank, StepId step, std::span<const VerdictWord> words);

  // What is there now, for a step of `rows` row tasks of the decider's boot. Never waits.
  BoardReading Read(uint64_t boot, StepId step, uint32_t rows) const;
  // Reads again, every `poll`, until the board is complete or `deadline` has passed; reads at least
  // once.
  BoardReading Await(uint64_t boot, StepId step, uint32_t rows,
                     std::chrono::steady_clock::time_point deadline,
                     std::chrono::microseconds poll = std::chrono::microseconds(20)) const;

 private:
  class Impl;
  explicit VerdictBoard(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvfence
