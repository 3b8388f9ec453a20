// One arm of step_overhead: an engine's arrays and books for decode steps, with a fence or without.
//
// Idea: what an engine would do, and no more: it takes pages, fills table, lengths and slots, tells
// the fence, attends, and settles. All arms read one cache through the same arrays and compute the
// same attention; they differ in the fence's calls alone. Times are of this thread's processor, so
// that a neighbour who takes it away counts for nothing. Invariant: the engine is honest, so a
// fence that reports anything, or keeps a row back, ends the program.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/check.h"
#include "kvfence/fence.h"
#include "kvfence/rng.h"
#include "resampling.h"
#include "step_options.h"

namespace kvfence {

// Time of this thread alone.
struct ThreadClock {
  using rep = int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<ThreadClock>;
  static constexpr bool is_steady = true;

  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

inline double MicrosecondsSince(ThreadClock::time_point start) {
  return std::chrono::duration<double, std::micro>(ThreadClock::now() - start).count();
}

// Microseconds between two readings of the clock with nothing in between: a call to the kernel,
// which isn't the fence's. The median of many.
inline double ClockCost() {
  static const double cost = [] {
    std::vector<double> empty(1001);
    for (double& took : empty) {
      const ThreadClock::time_point before = ThreadClock::now();
      took = MicrosecondsSince(before);
    }
    return MedianInPlace(empty);
  }();
  return cost;
}

// The cache that all arms read, and the pages of each row in the order of its tokens.
struct StepCache {
  StepCache(const StepOptions& options, uint64_t page_size)
      : size(page_size),
        width((options.context + options.rounds + 3) / page_size + 1),
        part((kPartTokens + page_size - 1) / page_size * page_size),
        parts(std::max<uint64_t>(1, options.context / part)) {
    Rng rng(options.seed);
    pages = options.rows * width + 1;
    std::vector<int32_t> order(pages - 1);
    std::iota(order.begin(), order.end(), 1);
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[rng.Below(i + 1)]);
    table = std::move(order);
    const uint64_t values = pages * size * options.kv_heads * options.head_dim;
    for (std::vector<uint8_t>* codes : {&k, &v}) {
      codes->resize(values);
      for (uint8_t& code : *codes) code = static_cast<uint8_t>(rng.Next() & 0xB7);  // small numbers
    }
  }
  int32_t Page(uint64_t row, uint64_t at) const { return table[row * width + at]; }

  uint64_t size, width, pages = 0;
  uint64_t part, parts;  // tokens of a part, parts of a row
  std::vector<int32_t> table;
  std::vector<uint8_t> k, v;
};

// What an engine uploads and attends with. One for all arms, which fill it alike in a round: where
// arrays lie in memory mustn't tell one arm's attention from another's.
struct StepArrays {
  std::vector<int32_t> entries, starts, lengths;
  std::vector<int64_t> slots;
  std::vector<float> q, o;
};

// One arm: an engine's bookkeeping, with a fence or without.
class StepArm {
 public:
  StepArm(const StepOptions& options, const StepCache* cache, StepArrays* arrays, Level level)
      : options_(options),
        cache_(*cache),
        length_(options.context),
        entries_(arrays->entries),
        starts_(arrays->starts),
        lengths_(arrays->lengths),
        slots_(arrays->slots),
        q_(arrays->q),
        o_(arrays->o) {
    entries_.resize(options.rows * cache_.width);
    starts_.resize(options.rows + 1);
    lengths_.resize(options.rows);
    q_.assign(options.rows * options.kv_heads * options.group * options.head_dim, 0.125f);
    o_.resize(q_.size());
    if (level != Level::kOff) StartFence(level);
    Prefill();
  }

  // Microseconds of a step but for attention, of the fence's calls in it, and of their launches.
  struct Times {
    double rest = 0, fence = 0, launches = 0;
  };

  // One decode step: Begin, Attend for each layer, row and part, End.
  void Begin() {
    times_ = {};
    launches_before_ = fence_ ? fence_->stats().launch_ns : 0;
    const ThreadClock::time_point start = ThreadClock::now();
    Fenced([&] { TakePages(length_ + 1); });
    Upload(1);
    Fenced([&] { Launch(1); });
    times_.rest += MicrosecondsSince(start);
  }
  // A part of a row in one layer; returns its microseconds. The last part has what is over.
  double Attend(uint64_t row, uint64_t part) {
    const ThreadClock::time_point start = ThreadClock::now();
    const uint64_t q_row = options_.kv_heads * options_.group * options_.head_dim;
    DecodeAttention attention;
    attention.rows = 1;
    attention.num_kv_heads = static_cast<uint32_t>(options_.kv_heads);
    attention.num_qo_heads = static_cast<uint32_t>(options_.kv_heads * options_.group);
    attention.head_dim = static_cast<uint32_t>(options_.head_dim);
    attention.page_size = static_cast<uint32_t>(cache_.size);
    attention.num_pages = cache_.pages;
    attention.q = {q_.data() + row * q_row, FloatType::kF32};
    attention.o = {o_.data() + row * q_row, FloatType::kF32};
    attention.k_cache = cache_.k.data();
    attention.v_cache = cache_.v.data();
    attention.table = buffers_.table;
    const uint64_t first = part * cache_.part;
    const uint64_t entry = row * cache_.width + first / cache_.size;
    attention.table.entries = {entries_.data() + entry, 32};
    attention.table.entries_size -= entry;
    attention.table.width -= first / cache_.size;
    attention.table.rows = attention.rows;
    const uint64_t over = static_cast<uint64_t>(lengths_[row]) - first;
    auto length = static_cast<int32_t>(part + 1 < cache_.parts ? cache_.part : over);
    attention.lengths = {.values = {&length, 32}, .rows = attention.rows};
    Must(DecodeAttentionCpu(attention));
    return MicrosecondsSince(start);
  }
  Times End() {
    const ThreadClock::time_point start = ThreadClock::now();
    Fenced([&] { Settle(); });
    ++length_;
    times_.rest += MicrosecondsSince(start);
    if (fence_) {
      times_.launches = static_cast<double>(fence_->stats().launch_ns - launches_before_) / 1000;
      KVF_CHECK(sink_.violations == 0, "an honest engine is never reported");
    }
    return times_;
  }
  // Host's microseconds of a step without attention, from `n` steps: of so many that each row takes
  // one page the mean, and of these the median, since one hiccup outweighs many steps.
  double WarmHost(uint64_t n) {
    Begin();  // pages are touched for the first time
    End();
    const uint64_t group = std::min(cache_.size, n);
    std::vector<double> means;
    for (uint64_t i = 0; i + group <= n; i += group) {
      double sum = 0;
      for (uint64_t k = 0; k < group; ++k) {
        Begin();
        const Times times = End();
        sum += times.fence - times.launches;
      }
      means.push_back(sum / static_cast<double>(group));
    }
    return MedianInPlace(means);
  }

 private:
  struct CountViolations : EventSink {
    void OnViolation(const Violation&) override { ++violations; }
    uint64_t violations = 0;
  };

  template <class F>
  void Fenced(F f) {
    if (!fence_) return;
    const ThreadClock::time_point before = ThreadClock::now();
    f();
    times_.fence += MicrosecondsSince(before) - ClockCost();
  }

  void StartFence(Level level) {
    FenceConfig config;
    config.pools = {PoolConfig{.name = "full", .pages = cache_.pages, .page_size = cache_.size}};
    config.rows = options_.rows;
    config.width = cache_.width;
    config.level = level;
    fence_ = Fence::Create(config, {&sink_}).value();
    for (uint64_t row = 0; row < options_.rows; ++row) {
      requests_.push_back(fence_->Admit({.name = fence_->Intern("r" + std::to_string(row))}));
      Must(fence_->BindRow({.row = Row(static_cast<uint32_t>(row)), .req = requests_[row]}));
    }
    plans_.resize(options_.rows);
  }

  static void Must(const Status& status) { KVF_CHECK(status.ok(), status.message().c_str()); }

  void Prefill() {
    if (fence_) TakePages(length_);
    const uint64_t tokens = std::exchange(length_, 0);
    Upload(tokens);
    if (fence_) {
      Launch(tokens);
      Settle();
    }
    length_ = tokens;
  }

  // The fence hears of the pages up to `tokens`.
  void TakePages(uint64_t tokens) {
    const uint64_t want = (tokens + cache_.size - 1) / cache_.size;
    for (uint64_t row = 0; row < options_.rows && taken_ < want; ++row) {
      fresh_.clear();
      for (uint64_t at = taken_; at < want; ++at) fresh_.push_back(PageId(cache_.Page(row, at)));
      Must(fence_->Alloc({.req = requests_[row], .pages = fresh_}));
    }
    taken_ = want;
  }

  // Table, lengths and write slots of a step with `n` new tokens in each row.
  void Upload(uint64_t n) {
    const uint64_t covered = (length_ + n + cache_.size - 1) / cache_.size;
    slots_.clear();
    for (uint64_t row = 0; row < options_.rows; ++row) {
      for (uint64_t at = uploaded_; at < covered; ++at) {
        entries_[row * cache_.width + at] = cache_.Page(row, at);
      }
      lengths_[row] = static_cast<int32_t>(length_ + n);
      for (uint64_t p = length_; p < length_ + n; ++p) {
        slots_.push_back(int64_t{cache_.Page(row, p / cache_.size)} *
                             static_cast<int64_t>(cache_.size) +
                         static_cast<int64_t>(p % cache_.size));
      }
      starts_[row + 1] = static_cast<int32_t>(slots_.size());
    }
    uploaded_ = covered;
    buffers_.table = {.entries = {entries_.data(), 32},
                      .entries_size = entries_.size(),
                      .stride = cache_.width,
                      .width = cache_.width,
                      .rows = static_cast<uint32_t>(options_.rows)};
    buffers_.slots = {.slots = {slots_.data(), 64},
                      .slots_size = slots_.size(),
                      .indptr = {starts_.data(), 32},
                      .rows = static_cast<uint32_t>(options_.rows)};
    buffers_.lengths = {.values = {lengths_.data(), 32},
                        .rows = static_cast<uint32_t>(options_.rows)};
  }

  void Launch(uint64_t n) {
    for (uint64_t row = 0; row < options_.rows; ++row) {
      plans_[row].row = Row(static_cast<uint32_t>(row));
      plans_[row].req = requests_[row];
      plans_[row].new_tokens = n;
    }
    step_ = StepId(step_.value() + 1);
    Must(fence_->Step({.step = step_, .rows = plans_, .pads = {}, .pools = {&buffers_, 1}}));
  }

  void Settle() {
    Must(fence_->Confirm({.step = step_}));
    const Settlement settled = fence_->Retire({.step = step_}).value();
    KVF_CHECK(settled.rows.size() == options_.rows, "every row is settled");
    for (const RowResult& row : settled.rows) KVF_CHECK(row.published, "an honest row is clean");
  }

  const StepOptions& options_;
  const StepCache& cache_;
  CountViolations sink_;
  std::unique_ptr<Fence> fence_;
  std::vector<RequestId> requests_;
  std::vector<RowPlan> plans_;
  std::vector<PageId> fresh_;
  uint64_t length_, taken_ = 0, uploaded_ = 0;  // tokens, pages, pages of each row
  StepId step_{0};
  std::vector<int32_t>&entries_, &starts_, &lengths_;
  std::vector<int64_t>& slots_;
  std::vector<float>&q_, &o_;
  PoolBuffers buffers_;
  Times times_;
  uint64_t launches_before_ = 0;
};

}  // namespace kvfence
