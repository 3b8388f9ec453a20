// What the fence adds to a decode step whose attention really reads an FP8 cache: off, map and
// full.
//
// Idea: 64 rows of 8,192 tokens decode side by side; heads are, by default, those of a model of 8
// billion parameters, a quarter of its layers: what the fence adds to a step weighs four times as
// much here. Each round runs one step of each arm, with the same arrays and the same attention (the
// kernels' own), and the arms take turns a few rows of a layer at a time, in an order drawn from
// the seed: so drift of the machine within a hundredth of a second meets all arms alike, and
// differences are taken within a round. Times are of this thread's processor, so that a neighbour
// who takes it away counts for nothing. Reported: medians, and 95 % intervals by resampling rounds.
// The fence's calls are timed by themselves too; what the launches took of them (apply, validate,
// confirm) is the device's work where there is one, the rest is the host's: once as it is here,
// where attention has just pushed the fence's books out of all caches, and once ("warm") over steps
// without attention, as for a host whose attention runs on a device. Each round also reads the
// cache straight through once, which is what attention is held against. One thread. Start it on a
// quiet machine: step_overhead --help has the flags.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/check.h"
#include "kvfence/fence.h"
#include "kvfence/rng.h"
#include "resampling.h"
#include "straight_read.h"

namespace kvfence {
namespace {

// Time of this thread alone.
struct Clock {
  using rep = int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;

  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

struct Options {
  uint64_t rows = 64, context = 8192, rounds = 20, layers = 8, kv_heads = 8, group = 4;
  uint64_t head_dim = 128, seed = 1;
  std::vector<uint64_t> page_sizes = {1, 16, 64};
  bool json = false;
};

constexpr uint64_t kRowsAtOnce = 4;
constexpr uint64_t kWarmSteps = 256;
constexpr std::array<Level, 3> kArms = {Level::kOff, Level::kMap, Level::kFull};

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// An honest engine is never reported.
class CountViolations : public EventSink {
 public:
  void OnViolation(const Violation&) override { ++violations; }

  uint64_t violations = 0;
};

// The cache that all arms read, and the pages of each row in the order of its tokens.
struct Cache {
  Cache(const Options& options, uint64_t page_size)
      : size(page_size), width((options.context + options.rounds + 3) / page_size + 1) {
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
  std::vector<int32_t> table;
  std::vector<uint8_t> k, v;
};

// One arm: an engine's arrays and bookkeeping, with a fence or without.
class Arm {
 public:
  Arm(const Options& options, const Cache* cache, Level level)
      : options_(options), cache_(*cache), length_(options.context) {
    entries_.resize(options.rows * cache_.width);
    starts_.resize(options.rows + 1);
    lengths_.resize(options.rows);
    q_.assign(options.rows * options.kv_heads * options.group * options.head_dim, 0.125f);
    o_.resize(q_.size());
    if (level != Level::kOff) StartFence(level);
    Prefill();
  }

  // One decode step: Begin, Attend for each layer and each kRowsAtOnce rows, End.
  void Begin() {
    times_ = {};
    launches_before_ = fence_ ? fence_->stats().launch_ns : 0;
    const Clock::time_point start = Clock::now();
    Fenced([&] { TakePages(length_ + 1); });
    Upload(1);
    Fenced([&] { Launch(1); });
    times_.step += Microseconds(Clock::now() - start);
  }
  void Attend(uint64_t first_row) {
    const Clock::time_point start = Clock::now();
    AttendTo(first_row);
    times_.step += Microseconds(Clock::now() - start);
  }
  // Microseconds of all of the step, of the fence's calls, and of the launches in them.
  struct Times {
    double step = 0, fence = 0, launches = 0;
  };
  Times End() {
    const Clock::time_point start = Clock::now();
    Fenced([&] { Settle(); });
    ++length_;
    times_.step += Microseconds(Clock::now() - start);
    if (fence_) {
      times_.launches = static_cast<double>(fence_->stats().launch_ns - launches_before_) / 1000;
    }
    return times_;
  }
  // Host's microseconds of one of `n` steps without attention, by their sum.
  double WarmHost(uint64_t n) {
    Begin();
    End();
    double sum = 0;
    for (uint64_t i = 0; i < n; ++i) {
      Begin();
      const Times times = End();
      sum += times.fence - times.launches;
    }
    return sum / static_cast<double>(n);
  }
  uint64_t violations() const { return sink_.violations; }

 private:
  template <class F>
  void Fenced(F f) {
    if (!fence_) return;
    const Clock::time_point before = Clock::now();
    f();
    times_.fence += Microseconds(Clock::now() - before);
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

  // The rows' part of one layer.
  void AttendTo(uint64_t first_row) {
    const uint64_t q_row = options_.kv_heads * options_.group * options_.head_dim;
    DecodeAttention attention;
    attention.rows = static_cast<uint32_t>(std::min(kRowsAtOnce, options_.rows - first_row));
    attention.num_kv_heads = static_cast<uint32_t>(options_.kv_heads);
    attention.num_qo_heads = static_cast<uint32_t>(options_.kv_heads * options_.group);
    attention.head_dim = static_cast<uint32_t>(options_.head_dim);
    attention.page_size = static_cast<uint32_t>(cache_.size);
    attention.num_pages = cache_.pages;
    attention.q = {q_.data() + first_row * q_row, FloatType::kF32};
    attention.o = {o_.data() + first_row * q_row, FloatType::kF32};
    attention.k_cache = cache_.k.data();
    attention.v_cache = cache_.v.data();
    attention.table = buffers_.table;
    attention.table.entries = {entries_.data() + first_row * cache_.width, 32};
    attention.table.entries_size -= first_row * cache_.width;
    attention.table.rows = attention.rows;
    attention.lengths = {.values = {lengths_.data() + first_row, 32}, .rows = attention.rows};
    Must(DecodeAttentionCpu(attention));
  }

  void Settle() {
    Must(fence_->Confirm({.step = step_}));
    const Settlement settled = fence_->Retire({.step = step_}).value();
    KVF_CHECK(settled.rows.size() == options_.rows, "every row is settled");
    for (const RowResult& row : settled.rows) KVF_CHECK(row.published, "an honest row is clean");
  }

  const Options& options_;
  const Cache& cache_;
  CountViolations sink_;
  std::unique_ptr<Fence> fence_;
  std::vector<RequestId> requests_;
  std::vector<RowPlan> plans_;
  std::vector<PageId> fresh_;
  uint64_t length_, taken_ = 0, uploaded_ = 0;  // tokens, pages, pages of each row
  StepId step_{0};
  std::vector<int32_t> entries_, starts_, lengths_;
  std::vector<int64_t> slots_;
  std::vector<float> q_, o_;
  PoolBuffers buffers_;
  Times times_;
  uint64_t launches_before_ = 0;
};

// --- figures -------------------------------------------------------------------------------------

// Per cent: throughput lost, as the median round has it, and how much later the 95th step ends.
double MedianLoss(const std::vector<double>& with, const std::vector<double>& without) {
  std::vector<double> losses(with.size());
  for (size_t i = 0; i < with.size(); ++i) losses[i] = 100 * (1 - without[i] / with[i]);
  return Quantile(losses, 0.5);
}
double P95Loss(const std::vector<double>& with, const std::vector<double>& without) {
  return 100 * (Quantile(with, 0.95) / Quantile(without, 0.95) - 1);
}

struct ArmRounds {
  std::vector<double> step, host, launches;  // microseconds of each round
  double warm_host = 0;                      // of a step without attention
};

// `read_rate`: bytes a microsecond of the straight read.
void Print(const Options& options, uint64_t page_size, const std::array<ArmRounds, 3>& arms,
           double read_rate, bool first) {
  const double off = Quantile(arms[0].step, 0.5);
  const double bytes = static_cast<double>(options.rows * options.context * options.kv_heads *
                                           options.head_dim * 2 * options.layers);
  for (size_t i = 0; i < kArms.size(); ++i) {
    const Interval median = Resampled(arms[i].step, arms[0].step, Rng(options.seed), MedianLoss);
    const Interval p95 = Resampled(arms[i].step, arms[0].step, Rng(options.seed), P95Loss);
    const std::string name(LevelName(kArms[i]));
    const double step = Quantile(arms[i].step, 0.5), host = Quantile(arms[i].host, 0.5);
    const double launches = Quantile(arms[i].launches, 0.5);
    if (options.json) {
      std::printf(
          "%s{\"page_size\":%llu,\"level\":\"%s\",\"step_us\":%.1f,\"host_us\":%.2f,"
          "\"warm_host_us\":%.2f,\"launches_us\":%.2f,\"throughput_loss_percent\":[%.4f,%.4f,%.4f],"
          "\"p95_loss_percent\":[%.4f,%.4f,%.4f],\"read_gb_per_s\":%.2f,\"of_read\":%.3f}",
          first && i == 0 ? "" : ",\n", static_cast<unsigned long long>(page_size), name.c_str(),
          step, host, arms[i].warm_host, launches, median.value, median.low, median.high, p95.value,
          p95.low, p95.high, bytes / off / 1000, bytes / off / read_rate);
      continue;
    }
    std::printf(
        "%9llu  %-5s %11.1f %9.2f %9.2f %11.2f   %+.3f (%+.3f..%+.3f)   %+.3f (%+.3f..%+.3f)\n",
        static_cast<unsigned long long>(page_size), name.c_str(), step, host, arms[i].warm_host,
        launches, median.value, median.low, median.high, p95.value, p95.low, p95.high);
  }
  if (!options.json) {
    std::printf("           attention reads %.2f GB/s, %.2f of a straight read\n",
                bytes / off / 1000, bytes / off / read_rate);
  }
}

// Where launches run on a device, nothing of them goes through the host's caches, nor does
// attention: rows are short here and nobody attends, so that all the host has to touch stays there.
double WarmHost(Options options, uint64_t page_size, Level level) {
  options.context = 256;
  options.kv_heads = options.head_dim = options.group = 1;
  options.rounds = kWarmSteps;
  const Cache cache(options, page_size);
  return Arm(options, &cache, level).WarmHost(kWarmSteps);
}

void Measure(const Options& options, uint64_t page_size, bool first) {
  const Cache cache(options, page_size);
  std::array<std::unique_ptr<Arm>, 3> arms;
  for (size_t i = 0; i < arms.size(); ++i) {
    arms[i] = std::make_unique<Arm>(options, &cache, kArms[i]);
  }
  Rng rng(options.seed ^ page_size);
  std::array<ArmRounds, 3> times;
  for (size_t i = 0; i < kArms.size(); ++i) {
    times[i].warm_host = WarmHost(options, page_size, kArms[i]);
  }
  std::vector<double> read_rates;
  uint64_t read = 0;
  for (uint64_t round = 0; round <= options.rounds; ++round) {
    const Clock::time_point start = Clock::now();
    read ^= StraightRead(cache.k.data(), cache.k.size());
    read ^= StraightRead(cache.v.data(), cache.v.size());
    read_rates.push_back(static_cast<double>(cache.k.size() + cache.v.size()) /
                         Microseconds(Clock::now() - start));
    std::array<size_t, 3> order = {0, 1, 2};
    const auto in_turn = [&](auto f) {
      for (size_t i = 2; i > 0; --i) std::swap(order[i], order[rng.Below(i + 1)]);
      for (const size_t i : order) f(i);
    };
    in_turn([&](size_t i) { arms[i]->Begin(); });
    for (uint64_t layer = 0; layer < options.layers; ++layer) {
      for (uint64_t row = 0; row < options.rows; row += kRowsAtOnce) {
        in_turn([&](size_t i) { arms[i]->Attend(row); });
      }
    }
    in_turn([&](size_t i) {
      const Arm::Times took = arms[i]->End();
      if (round == 0) return;  // pages are touched for the first time
      times[i].step.push_back(took.step);
      times[i].host.push_back(took.fence - took.launches);
      times[i].launches.push_back(took.launches);
    });
  }
  for (const auto& arm : arms) {
    KVF_CHECK(arm->violations() == 0, "an honest engine is never reported");
  }
  [[maybe_unused]] const volatile uint64_t kept = read;
  Print(options, page_size, times, Quantile(read_rates, 0.5), first);
}

constexpr const char* kHelp =
    "usage: step_overhead [flags]    what the fence adds to a decode step over FP8 attention\n"
    "  --rows=64              requests that decode side by side\n"
    "  --context=8192         tokens of each in the cache\n"
    "  --rounds=20            steps of each arm\n"
    "  --layers=8             passes of attention a step\n"
    "  --kv_heads=8  --group=4  --head_dim=128    shape of attention; group: query heads per KV "
    "head\n"
    "  --page_sizes=1,16,64   tokens per page, one table part each\n"
    "  --seed=1               order of pages and turns\n"
    "  --json                 one JSON object instead of a table\n"
    "example: step_overhead --page_sizes=16 --rounds=5\n";

struct Flag {
  std::string_view name;
  uint64_t Options::*value;
  uint64_t most;
};
constexpr std::array kFlags = {
    Flag{"--rows", &Options::rows, 4096},        Flag{"--context", &Options::context, 1 << 20},
    Flag{"--rounds", &Options::rounds, 100000},  Flag{"--layers", &Options::layers, 1000},
    Flag{"--kv_heads", &Options::kv_heads, 64},  Flag{"--group", &Options::group, 64},
    Flag{"--head_dim", &Options::head_dim, 256}, Flag{"--seed", &Options::seed, ~uint32_t{0}},
};
constexpr uint64_t kMostPageSize = 4096;
constexpr uint64_t kMostCacheBytes = uint64_t{1} << 36;

// A whole number of 1 to `most`, or what's wrong with it.
Status ReadNumber(std::string_view name, std::string_view text, uint64_t most, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error == std::errc() && end == text.data() + text.size() && *out >= 1 && *out <= most) {
    return {};
  }
  return Status::Invalid(std::string(name) + " must be 1 to " + std::to_string(most) + ", got '" +
                         std::string(text) + "'");
}

Status ReadPageSizes(std::string_view text, std::vector<uint64_t>* out) {
  out->clear();
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    if (Status s = ReadNumber("--page_sizes: each", text.substr(0, comma), kMostPageSize,
                              &out->emplace_back());
        !s.ok()) {
      return s;
    }
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return {};
}

Status ReadOption(std::string_view argument, Options* options) {
  if (argument == "--json") {
    options->json = true;
    return {};
  }
  const size_t equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  const std::string_view text =
      equals == std::string_view::npos ? std::string_view() : argument.substr(equals + 1);
  if (name == "--page_sizes") return ReadPageSizes(text, &options->page_sizes);
  for (const Flag& flag : kFlags) {
    if (name == flag.name) return ReadNumber(name, text, flag.most, &(options->*flag.value));
  }
  return Status::Invalid("there is no flag " + std::string(name));
}

// What the numbers are together.
Status CheckOptions(const Options& o) {
  if (o.head_dim != 32 && o.head_dim != 64 && o.head_dim != 128 && o.head_dim != 256) {
    return Status::Invalid("--head_dim must be 32, 64, 128 or 256, got " +
                           std::to_string(o.head_dim));
  }
  const uint64_t bytes =
      2 * o.rows * (o.context + o.rounds + kMostPageSize) * o.kv_heads * o.head_dim;
  if (bytes <= kMostCacheBytes) return {};
  return Status::Invalid("these rows would take a cache of " + std::to_string(bytes >> 30) +
                         " GiB; at most " + std::to_string(kMostCacheBytes >> 30) + " are tried");
}

int Refuse(const Status& status) {
  std::fprintf(stderr, "step_overhead: %s\n%s", status.message().c_str(), kHelp);
  return 2;
}

int Main(const std::vector<std::string_view>& arguments) {
  Options options;
  for (const std::string_view argument : arguments) {
    if (argument == "--help") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (Status status = ReadOption(argument, &options); !status.ok()) return Refuse(status);
  }
  if (Status status = CheckOptions(options); !status.ok()) return Refuse(status);
  if (options.json) {
    std::printf("{\"rows\":[\n");
  } else {
    std::printf("%llu rows of %llu tokens, %llu layers, %llu KV heads of %llu, %llu rounds\n",
                static_cast<unsigned long long>(options.rows),
                static_cast<unsigned long long>(options.context),
                static_cast<unsigned long long>(options.layers),
                static_cast<unsigned long long>(options.kv_heads),
                static_cast<unsigned long long>(options.head_dim),
                static_cast<unsigned long long>(options.rounds));
    std::printf(
        "page size  level    step (us) host (us)  warm (us)   launches     throughput lost, %%     "
        "      "
        "95th step later, %%\n");
  }
  for (size_t i = 0; i < options.page_sizes.size(); ++i) {
    Measure(options, options.page_sizes[i], i == 0);
  }
  if (options.json) std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  return kvfence::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
