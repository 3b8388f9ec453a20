// What lies where: one page that only the writer writes, one of seats that readers write, the ring.
#include "kvfence/shared_journal.h"

#include <sys/random.h>

#include <bit>
#include <utility>
#include <vector>

#include "journal_wire.h"
#include "kvfence/check.h"
#include "shared_region.h"
#include "shared_ring.h"

namespace kvfence {
namespace {

constexpr uint64_t kMagic = 0x6b76666a726e6c31;  // "kvfjrnl1"
constexpr uint64_t kHeadBytes = 4096;
constexpr uint64_t kSeatBytes = 4096;
constexpr uint64_t kMaxSeats = kSeatBytes / sizeof(SharedWord);
constexpr uint64_t kMinRingBytes = 4096;

struct JournalHead {
  SharedWord magic;  // stored last when the memory is made: all else is there by then
  SharedWord fingerprint;
  SharedWord ring_bytes;
  RingHead ring;
};
static_assert(sizeof(JournalHead) <= kHeadBytes);

JournalHead* HeadOf(const SharedRegion& region) { return static_cast<JournalHead*>(region.data()); }

std::span<SharedWord> RingWords(const SharedRegion& region, uint64_t ring_bytes) {
  char* base = static_cast<char*>(region.data()) + kHeadBytes + kSeatBytes;
  return {reinterpret_cast<SharedWord*>(base), ring_bytes / sizeof(SharedWord)};
}

std::span<SharedWord> SeatWords(const SharedRegion& region) {
  char* base = static_cast<char*>(region.data()) + kHeadBytes;
  return {reinterpret_cast<SharedWord*>(base), kMaxSeats};
}

uint64_t RandomBoot() {
  uint64_t boot = 0;
  while (boot == 0) {
    if (::getrandom(&boot, sizeof(boot), 0) != sizeof(boot)) boot = 0;  // a signal came
  }
  return boot;
}

// Is the memory that lies there this journal's?
Status CheckHead(const std::string& name, const JournalHead& head, uint64_t fingerprint) {
  if (head.magic.load(std::memory_order_acquire) != kMagic) {
    return Status::Invalid("shared memory " + name + " is no journal of this version");
  }
  if (head.fingerprint.load(std::memory_order_relaxed) != fingerprint) {
    return Status::Invalid("journal " + name + " was made for another configuration or build");
  }
  return {};
}

}  // namespace

// --- the writing end -----------------------------------------------------------------------------

class SharedJournal::Impl {
 public:
  Impl(SharedRegion region, uint64_t ring_bytes, SharedJournalOptions options)
      : region_(std::move(region)),
        boot_(options.boot != 0 ? options.boot : RandomBoot()),
        ring_(&HeadOf(region_)->ring, RingWords(region_, ring_bytes), std::move(options.probe)) {
    // No boot while the seats are emptied: who joins the next one finds its own empty.
    HeadOf(region_)->ring.boot.store(0);
    for (SharedWord& seat : SeatWords(region_)) seat.store(0);
    ring_.Begin(boot_);
  }

  Result<JournalPosition> Append(const JournalBatch& batch, const StepPlan* plan) {
    EncodeFrame(boot_, batch, plan, &words_);
    if (!ring_.Fits(words_.size())) {
      return Status(StatusCode::kResourceExhausted, "a batch of " +
                                                        std::to_string(words_.size() * 8) +
                                                        " bytes is larger than the journal's ring");
    }
    ring_.Append(words_, batch.snapshot);
    return JournalPosition{boot_, batch.sequence};
  }

  uint64_t boot() const { return boot_; }

 private:
  SharedRegion region_;
  uint64_t boot_;
  RingWriter ring_;
  std::vector<uint64_t> words_;
};

Result<std::unique_ptr<SharedJournal>> SharedJournal::Create(const std::string& name,
                                                             const FenceConfig& config,
                                                             SharedJournalOptions options) {
  const uint64_t ring_bytes = options.ring_bytes;
  if (!std::has_single_bit(ring_bytes) || ring_bytes < kMinRingBytes) {
    return Status::Invalid("a journal's ring has a power of two bytes, at least " +
                           std::to_string(kMinRingBytes));
  }
  if (config.ranks == 0 || config.ranks > kMaxSeats) {
    return Status::Invalid("a journal has 1 to " + std::to_string(kMaxSeats) + " ranks");
  }
  Result<SharedRegion> region = SharedRegion::Claim(name, kHeadBytes + kSeatBytes + ring_bytes);
  if (!region.ok()) return Status(region.status().code(), region.status().message());
  JournalHead* head = HeadOf(*region);
  const uint64_t fingerprint = WireFingerprint(config);
  if (head->magic.load(std::memory_order_acquire) == 0) {  // new, or its maker died over it
    head->fingerprint.store(fingerprint, std::memory_order_relaxed);
    head->ring_bytes.store(ring_bytes, std::memory_order_relaxed);
    head->magic.store(kMagic, std::memory_order_release);
  } else if (Status status = CheckHead(name, *head, fingerprint); !status.ok()) {
    return status;
  }
  auto impl = std::make_unique<Impl>(std::move(*region), ring_bytes, std::move(options));
  return std::unique_ptr<SharedJournal>(new SharedJournal(std::move(impl)));
}

Status SharedJournal::Remove(const std::string& name) { return SharedRegion::Remove(name); }
SharedJournal::SharedJournal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedJournal::~SharedJournal() = default;
Result<JournalPosition> SharedJournal::Append(const JournalBatch& batch, const StepPlan* plan) {
  return impl_->Append(batch, plan);
}
uint64_t SharedJournal::boot() const { return impl_->boot(); }

// --- the reading end -----------------------------------------------------------------------------

class SharedJournalReader::Impl {
 public:
  Impl(SharedRegion region, SharedRegion seats, uint64_t ring_bytes, RankId seat,
       SharedJournalReaderOptions options)
      : region_(std::move(region)),
        seats_(std::move(seats)),
        seat_(static_cast<SharedWord*>(seats_.data()) + seat.value()),
        ring_(&HeadOf(region_)->ring, RingWords(region_, ring_bytes), std::move(options.probe)) {}

  const StepPlan* Follow(JournalPosition to, StepId step, Gate* gate) {
    if (boot_ == 0 || ring_.BootChanged()) Join(gate);
    if (boot_ == 0 || to.boot != boot_) return Nothing(JournalState::kNoBoot);
    while (applied_ < to.sequence) {
      if (!Advance(to.sequence, gate)) return nullptr;
    }
    if (gate->lost()) return Lose(JournalState::kGap, gate);
    const JournalBatch& batch = frame_.batch;
    if (lost_ || batch.sequence != to.sequence || batch.sequence != applied_) {
      return Nothing(JournalState::kBehind);
    }
    if (batch.step != step.value() || !frame_.has_plan) return Nothing(JournalState::kBehind);
    state_ = JournalState::kFollowing;
    return &frame_.plan;
  }

  JournalState state() const { return state_; }
  uint64_t boot() const { return boot_; }

 private:
  // A loss stays what it is until it's made good; anything else is this step's news.
  const StepPlan* Nothing(JournalState why) {
    if (!lost_) state_ = why;
    return nullptr;
  }
  const StepPlan* Lose(JournalState why, Gate* gate) {
    if (!lost_) state_ = why;
    lost_ = true;
    gate->Lose();
    return nullptr;
  }

  // Begins with the present boot: nothing that was known counts any more.
  void Join(Gate* gate) {
    boot_ = ring_.Join();
    applied_ = 0;
    lost_ = false;
    seated_ = false;
    state_ = JournalState::kNoBoot;
    gate->Restart();
    if (boot_ == 0) {
      gate->Lose();
      return;
    }
    // I-92: who takes the seat second in a boot has other device memory than the ledger knows of.
    // Only the writer empties seats: a reader that comes late from another boot can but fill one.
    uint64_t empty = 0;
    seated_ = seat_->compare_exchange_strong(empty, boot_);
    if (!seated_) Lose(JournalState::kSeatTaken, gate);
  }

  // One frame, if it isn't later than `limit`. False: no further.
  bool Advance(uint64_t limit, Gate* gate) {
    if (lost_ && (!seated_ || !ring_.SkipToSnapshot())) return false;
    switch (ring_.Peek(&words_)) {
      case RingReader::Look::kNothing:
        return Nothing(JournalState::kBehind) != nullptr;
      case RingReader::Look::kOtherBoot:
        return Nothing(JournalState::kNoBoot) != nullptr;
      case RingReader::Look::kOverrun:
        return Lose(JournalState::kOverrun, gate) != nullptr;
      case RingReader::Look::kDamaged:
        return GiveUp(JournalState::kDamaged, gate);
      case RingReader::Look::kFrame:
        break;
    }
    if (!DecodeFrame(words_, &frame_) || frame_.boot != boot_) {
      return GiveUp(JournalState::kDamaged, gate);
    }
    const JournalBatch& batch = frame_.batch;
    if (batch.sequence > limit) return Nothing(JournalState::kBehind) != nullptr;
    gate->Apply(batch);
    if (gate->lost()) {
      return GiveUp(batch.Intact() ? JournalState::kGap : JournalState::kDamaged, gate);
    }
    ring_.Pass();
    lost_ = false;
    applied_ = batch.sequence;
    return true;
  }

  bool GiveUp(JournalState why, Gate* gate) {
    ring_.GiveUp();
    Lose(why, gate);
    return false;
  }

  SharedRegion region_;  // read-only
  SharedRegion seats_;
  SharedWord* seat_;
  RingReader ring_;
  uint64_t boot_ = 0;
  uint64_t applied_ = 0;  // sequence
  bool lost_ = false;
  bool seated_ = false;
  JournalState state_ = JournalState::kNoBoot;
  JournalFrame frame_;  // the last that was looked at
  std::vector<uint64_t> words_;
};

Result<std::unique_ptr<SharedJournalReader>> SharedJournalReader::Open(
    const std::string& name, const FenceConfig& config, RankId seat,
    SharedJournalReaderOptions options) {
  if (seat.value() >= config.ranks || seat.value() >= kMaxSeats) {
    return Status::Invalid("there is no rank " + std::to_string(seat.value()));
  }
  Result<SharedRegion> region = SharedRegion::Map(name, false);
  if (!region.ok()) return Status(region.status().code(), region.status().message());
  const bool headed = region->bytes() >= kHeadBytes + kSeatBytes + kMinRingBytes;
  if (headed && HeadOf(*region)->magic.load(std::memory_order_acquire) == 0) {
    return Status(StatusCode::kUnavailable, "journal " + name + " isn't made yet");
  }
  if (!headed) return Status::Invalid("shared memory " + name + " is too small for a journal");
  const JournalHead& head = *HeadOf(*region);
  if (Status status = CheckHead(name, head, WireFingerprint(config)); !status.ok()) return status;
  const uint64_t ring_bytes = head.ring_bytes.load(std::memory_order_relaxed);
  if (region->bytes() != kHeadBytes + kSeatBytes + ring_bytes) {
    return Status::Invalid("journal " + name + " hasn't the size that it says");
  }
  Result<SharedRegion> seats = SharedRegion::Map(name, true, kHeadBytes, kSeatBytes);
  if (!seats.ok()) return Status(seats.status().code(), seats.status().message());
  auto impl = std::make_unique<Impl>(std::move(*region), std::move(*seats), ring_bytes, seat,
                                     std::move(options));
  return std::unique_ptr<SharedJournalReader>(new SharedJournalReader(std::move(impl)));
}

SharedJournalReader::SharedJournalReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedJournalReader::~SharedJournalReader() = default;
const StepPlan* SharedJournalReader::Follow(JournalPosition to, StepId step, Gate* gate) {
  return impl_->Follow(to, step, gate);
}
JournalState SharedJournalReader::state() const { return impl_->state(); }
uint64_t SharedJournalReader::boot() const { return impl_->boot(); }

}  // namespace kvfence
