// The journal between processes: a ledger's batches and plans through a ring in shared memory.
//
//   scheduler                                       worker, one per rank
//   ledger -> Journal::Seal -> SharedJournal  ~~~>  SharedJournalReader -> Gate
//                                   |                      ^
//                                   +-- JournalPosition ---+  in the step message, which travels
//                                                             beside it anyway
//
// Idea: one writer that never waits, readers that leave no trace. Whatever goes wrong on the way (a
// reader that was overrun, a writer killed in the middle of a batch, a damaged byte, a restart on
// either side) costs the reader its knowledge and nothing else: it has no plan for the step, so
// each of its rows is unverified (I-11, I-90). It becomes whole again in two ways only:
//  - a snapshot of the ledger (Journal::SealSnapshot), for a gate that lost the thread while its
//    device memory lived on;
//  - a new boot, that is a new ledger that knows of no content. A worker that was restarted has new
//    device memory, while the ledger's books tell of the old: within a boot each rank's seat is
//    therefore taken once, and who comes second stays unverified until the next boot (I-92).
// What a frame holds, and its checksums: one place for both sides, journal_wire.h; the deltas are
// the batches of journal.h, judged by Gate::Apply as in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kvfence/config.h"
#include "kvfence/gate.h"
#include "kvfence/journal.h"
#include "kvfence/status.h"
#include "kvfence/types.h"

namespace kvfence {

// What a step message carries: which batch its step needs, of which life of the writer.
struct JournalPosition {
  uint64_t boot = 0;
  uint64_t sequence = 0;
};

// Points inside an append, for tests that stop or kill the writer there.
enum class WritePoint : uint8_t { kReserved, kHalfWritten, kWritten, kCommitted };

struct SharedJournalOptions {
  // Bytes for frames, a power of two from 4 KiB up. It's how far a reader may lag, and must hold a
  // snapshot: 48 bytes for each page ever issued and each live expectation, and as much to spare.
  uint64_t ring_bytes = uint64_t{8} << 20;
  uint64_t boot = 0;                           // 0: a random one
  std::function<void(WritePoint)> probe = {};  // called at each point of an append; may be empty
};

// The writing end, in the ledger's process. Not thread-safe.
class SharedJournal {
 public:
  // Makes the memory `name` ("/word"), or takes over that of a writer that has gone, and begins a
  // new boot in it. kFailedPrecondition: another process writes it; kInvalidArgument: a bad name or
  // size, or what is there was made for another configuration, version or size (Remove it first);
  // kResourceExhausted: no room in shared memory; kUnavailable: no shared memory here.
  static Result<std::unique_ptr<SharedJournal>> Create(const std::string& name,
                                                       const FenceConfig& config,
                                                       SharedJournalOptions options = {});
  // Takes the name away, for good. Destroying a SharedJournal doesn't: readers would wait at memory
  // that nobody writes any more, and never hear of a new boot.
  static Status Remove(const std::string& name);
  ~SharedJournal();

  // Puts a sealed batch, and the plan of the step it was sealed for, where readers find it; never
  // waits. `plan` null: a snapshot, or deltas between steps. Returns what the step message is to
  // carry. The plan's same_step_reads stay here: only the ledger asks for them. Call it for each
  // batch in order; one that is left out, or refused because it's larger than the ring
  // (kResourceExhausted), is a gap.
  Result<JournalPosition> Append(const JournalBatch& batch, const StepPlan* plan);

  uint64_t boot() const;

 private:
  class Impl;
  explicit SharedJournal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Where a reader stands. All but kFollowing leave every row unverified.
enum class JournalState : uint8_t {
  kFollowing,  // the gate has what the step needs
  kBehind,     // the batch isn't there (yet), or isn't this step's; the next may well be
  kNoBoot,     // nobody writes, or the position is of another boot
  kSeatTaken,  // this rank had a reader in this boot before; until the next boot
  kOverrun,    // batches were overwritten unread; until a snapshot or a new boot
  kDamaged,    // a frame or batch whose checksum isn't right; until the same
  kGap,        // a batch was never written, or came twice; until the same
};

struct SharedJournalReaderOptions {
  std::function<void()> probe = {};  // called before a frame is copied; may be empty
};

// The reading end, in a worker. Not thread-safe; one per gate. Killing it hurts nobody.
class SharedJournalReader {
 public:
  // Maps what SharedJournal::Create made for the same config. `seat`: the gate's rank, below
  // config.ranks; taken at the first Follow of each boot. kUnavailable: it isn't there (yet);
  // kInvalidArgument: it's of another version or configuration, or there's no such seat.
  static Result<std::unique_ptr<SharedJournalReader>> Open(const std::string& name,
                                                           const FenceConfig& config, RankId seat,
                                                           SharedJournalReaderOptions options = {});
  ~SharedJournalReader();

  // Brings `gate` up to the position of a step message, no further. Returns that step's plan, valid
  // until the next call, for Gate::Validate; null where the step can't be judged: then
  // Gate::Condemn, and post what it says. At a new boot the gate restarts. Never waits: the writer
  // appends before the step message is sent, so what isn't there is missing. Give it the same gate,
  // with steps in the stream's order, after the confirm of the step before.
  const StepPlan* Follow(JournalPosition to, StepId step, Gate* gate);

  JournalState state() const;
  // The boot that it follows: verdicts are posted under it. 0: none.
  uint64_t boot() const;

 private:
  class Impl;
  explicit SharedJournalReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvfence
