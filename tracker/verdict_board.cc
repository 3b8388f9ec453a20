#include "kvfence/verdict_board.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "kvfence/reason.h"
#include "shared_region.h"

namespace kvfence {
namespace {

using Word = std::atomic<uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

constexpr uint64_t kMagic = 0x6b7666626f617264;  // "kvfboard"
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMaxCells = uint64_t{1} << 32;  // keeps the size far from overflow

struct BoardHead {
  Word magic;  // stored last
  Word version;
  Word ranks;
  Word rows;
  Word slots;
};
constexpr uint64_t kHeadWords = 8;
static_assert(sizeof(BoardHead) <= kHeadWords * 8);

// In front of a line's words.
struct LineHead {
  Word version;  // odd: being written
  Word boot;
  Word step;
  Word count;
};
constexpr uint64_t kLineHeadWords = sizeof(LineHead) / 8;

struct Shape {
  uint64_t ranks;
  uint64_t rows;
  uint64_t slots;

  // Whole cache lines, so that ranks don't share one.
  uint64_t line_words() const { return (kLineHeadWords + rows + 7) / 8 * 8; }
  uint64_t bytes() const { return (kHeadWords + ranks * slots * line_words()) * 8; }
};

Result<Shape> ShapeOf(const FenceConfig& config, const VerdictBoardOptions& options) {
  const Shape shape{config.ranks, config.rows, options.slots};
  constexpr uint64_t kMost = uint64_t{1} << 20;
  if (shape.ranks == 0 || shape.slots == 0 || shape.ranks > kMost || shape.rows > kMost ||
      shape.slots > kMost || shape.ranks * shape.slots > kMaxCells / shape.line_words()) {
    return Status::Invalid("a board needs ranks and slots, and fewer than it can hold");
  }
  return shape;
}

Status CheckHead(const std::string& name, const BoardHead& head, const Shape& shape) {
  if (head.magic.load(std::memory_order_acquire) == kMagic && head.version.load() == kVersion &&
      head.ranks.load() == shape.ranks && head.rows.load() == shape.rows &&
      head.slots.load() == shape.slots) {
    return {};
  }
  return Status::Invalid("shared memory " + name + " is no board for these ranks, rows and slots");
}

}  // namespace

class VerdictBoard::Impl {
 public:
  Impl(SharedRegion region, const Shape& shape, VerdictBoardOptions options)
      : region_(std::move(region)), shape_(shape), probe_(std::move(options.probe)) {}

  Status Post(uint64_t boot, RankId rank, StepId step, std::span<const VerdictWord> words) {
    if (rank.value() >= shape_.ranks) {
      return Status::Invalid("the board has no rank " + std::to_string(rank.value()));
    }
    if (words.size() > shape_.rows) {
      return Status::Invalid("the board has " + std::to_string(shape_.rows) + " rows a step");
    }
    const Line line = At(rank.value(), step);
    // An odd version is what a rank left that was killed here: its line is opened anew.
    const uint64_t open = (line.head->version.load(std::memory_order_relaxed) + 1) | 1;
    line.head->version.store(open, std::memory_order_relaxed);  // ordered by the stores below
    Reached(BoardPoint::kOpened);
    line.head->boot.store(boot, std::memory_order_release);
    line.head->step.store(step.value(), std::memory_order_release);
    line.head->count.store(words.size(), std::memory_order_release);
    for (size_t i = 0; i < words.size(); ++i) {
      if (i == words.size() / 2) Reached(BoardPoint::kHalfWritten);
      line.words[i].store(words[i], std::memory_order_release);
    }
    Reached(BoardPoint::kWritten);
    line.head->version.store(open + 1, std::memory_order_release);
    return {};
  }

  BoardReading Read(uint64_t boot, StepId step, uint32_t rows) const {
    BoardReading reading;
    reading.reasons.assign(rows, 0);
    std::vector<uint32_t> masks(rows);
    for (uint32_t rank = 0; rank < shape_.ranks; ++rank) {
      if (!ReadLine(At(rank, step), boot, step, &masks)) {
        reading.silent.push_back(RankId(rank));
        std::fill(masks.begin(), masks.end(), ReasonBit(Reason::kUnverified));
      }
      for (uint32_t i = 0; i < rows; ++i) reading.reasons[i] |= masks[i];
    }
    return reading;
  }

 private:
  struct Line {
    LineHead* head;
    Word* words;
  };

  Line At(uint64_t rank, StepId step) const {
    const uint64_t line = rank * shape_.slots + step.value() % shape_.slots;
    Word* at = static_cast<Word*>(region_.data()) + kHeadWords + line * shape_.line_words();
    return {reinterpret_cast<LineHead*>(at), at + kLineHeadWords};
  }

  bool ReadLine(const Line& line, uint64_t boot, StepId step, std::vector<uint32_t>* masks) const {
    const uint64_t version = line.head->version.load(std::memory_order_acquire);
    if ((version & 1) != 0) return false;
    if (line.head->boot.load(std::memory_order_acquire) != boot) return false;
    if (line.head->step.load(std::memory_order_acquire) != step.value()) return false;
    if (line.head->count.load(std::memory_order_acquire) != masks->size()) return false;
    Reached(BoardPoint::kReading);
    for (size_t i = 0; i < masks->size(); ++i) {
      const VerdictWord word = line.words[i].load(std::memory_order_acquire);
      (*masks)[i] =
          VerdictIsOf(word, step.value()) ? VerdictReasons(word) : ReasonBit(Reason::kUnverified);
    }
    return line.head->version.load(std::memory_order_acquire) == version;
  }

  void Reached(BoardPoint point) const {
    if (probe_) probe_(point);
  }

  SharedRegion region_;
  const Shape shape_;
  const std::function<void(BoardPoint)> probe_;
};

Result<std::unique_ptr<VerdictBoard>> VerdictBoard::Create(const std::string& name,
                                                           const FenceConfig& config,
                                                           VerdictBoardOptions options) {
  Result<Shape> shape = ShapeOf(config, options);
  if (!shape.ok()) return Status(shape.status().code(), shape.status().message());
  Result<SharedRegion> region = SharedRegion::Claim(name, shape->bytes());
  if (!region.ok()) return Status(region.status().code(), region.status().message());
  auto* head = static_cast<BoardHead*>(region->data());
  if (head->magic.load(std::memory_order_acquire) == 0) {  // new, or its maker died over it
    head->version.store(kVersion);
    head->ranks.store(shape->ranks);
    head->rows.store(shape->rows);
    head->slots.store(shape->slots);
    head->magic.store(kMagic, std::memory_order_release);
  } else if (Status status = CheckHead(name, *head, *shape); !status.ok()) {
    return status;
  }
  auto impl = std::make_unique<Impl>(std::move(*region), *shape, std::move(options));
  return std::unique_ptr<VerdictBoard>(new VerdictBoard(std::move(impl)));
}

Result<std::unique_ptr<VerdictBoard>> VerdictBoard::Open(const std::string& name,
                                                         const FenceConfig& config,
                                                         VerdictBoardOptions options) {
  Result<Shape> shape = ShapeOf(config, options);
  if (!shape.ok()) return Status(shape.status().code(), shape.status().message());
  Result<SharedRegion> region = SharedRegion::Map(name, true);
  if (!region.ok()) return Status(region.status().code(), region.status().message());
  const auto* head = static_cast<const BoardHead*>(region->data());
  if (region->bytes() != shape->bytes()) {
    return Status::Invalid("shared memory " + name + " has not the size of this board");
  }
  if (head->magic.load(std::memory_order_acquire) == 0) {
    return Status(StatusCode::kUnavailable, "board " + name + " isn't made yet");
  }
  if (Status status = CheckHead(name, *head, *shape); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(std::move(*region), *shape, std::move(options));
  return std::unique_ptr<VerdictBoard>(new VerdictBoard(std::move(impl)));
}

Status VerdictBoard::Remove(const std::string& name) { return SharedRegion::Remove(name); }
VerdictBoard::VerdictBoard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
VerdictBoard::~VerdictBoard() = default;

Status VerdictBoard::Post(uint64_t boot, RankId rank, StepId step,
                          std::span<const VerdictWord> words) {
  return impl_->Post(boot, rank, step, words);
}

BoardReading VerdictBoard::Read(uint64_t boot, StepId step, uint32_t rows) const {
  return impl_->Read(boot, step, rows);
}

BoardReading VerdictBoard::Await(uint64_t boot, StepId step, uint32_t rows,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::chrono::microseconds poll) const {
  for (;;) {
    BoardReading reading = Read(boot, step, rows);
    if (reading.complete() || std::chrono::steady_clock::now() >= deadline) return reading;
    std::this_thread::sleep_for(poll);
  }
}

}  // namespace kvfence
