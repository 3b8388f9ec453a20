// What the fence adds to a decode step whose attention really reads an FP8 cache: off, map and
// full.
//
// Idea: 64 rows of 8,192 tokens decode side by side; heads are, by default, those of a model of 9
// billion parameters (Gemma 2: two query heads of 256 to each of 8 KV heads), a fifth of its
// layers: what the fence adds to a step weighs five times as much here. With so few heads to a byte
// attention waits for the memory and for little else, as it does on a GPU. Each round runs one step
// of each arm, with the same arrays and attention (the kernels' own), and the arms take turns 512
// tokens of a row and layer at a time (half of a millisecond), in an order drawn from the
// seed: so drift of the machine within a thousandth of a second meets all arms alike, and what
// interrupts a turn is rare. In a turn each arm has another row, a third of all apart: what one arm
// has just read would lie in the last cache for the next. An arm's launches come right before its
// first turn, its retirement right after its last, so what they leave in the caches meets its own
// attention. How times become losses: paired_steps.h.
//
// The fence's calls are timed by themselves too; what the launches took of them (apply, validate,
// confirm) is the device's work where there is one, the rest is the host's: once as it is here,
// where attention has just pushed the fence's books out of all caches, and once ("warm") over steps
// without attention, as for a host whose attention runs on a device. Each round also reads the
// cache straight through once, which is what attention is held against. One thread. Invariant: all
// arms do the same work in a round but for the fence. Start it on a quiet machine: step_overhead
// --help has the flags.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli.h"
#include "kvfence/rng.h"
#include "paired_steps.h"
#include "progress.h"
#include "resampling.h"
#include "step_arm.h"
#include "step_options.h"
#include "straight_read.h"

namespace kvfence {
namespace {

constexpr uint64_t kWarmSteps = 256;
// Many times what the caches of a core hold, of all of a machine about as much: attention that has
// read so much finds nothing of the fence's in them.
constexpr uint64_t kNearBytes = uint64_t{128} << 20;
constexpr size_t kArms = 3;
constexpr std::array<Level, kArms> kLevels = {Level::kOff, Level::kMap, Level::kFull};

// What was measured with pages of one size.
struct Measured {
  struct OfArm {
    StepRounds steps;
    std::vector<double> host, launches;  // microseconds of each round
    double warm_host = 0;                // of a step without attention; off makes no call
  };

  std::array<OfArm, kArms> arms;
  std::vector<double> read_rates;  // bytes a microsecond of each round's straight read
  size_t near_turns = 0;           // in which attention reads kNearBytes
};

// Where launches run on a device, nothing of them goes through the host's caches, nor does
// attention: rows are short here and nobody attends, so that all the host has to touch stays there.
double WarmHost(StepOptions options, uint64_t page_size, Level level) {
  options.context = 256;
  options.kv_heads = options.head_dim = options.group = 1;
  options.rounds = kWarmSteps;
  const StepCache cache(options, page_size);
  StepArrays arrays;
  return StepArm(options, &cache, &arrays, level).WarmHost(kWarmSteps);
}

double ReadRate(const StepCache& cache) {
  const ThreadClock::time_point start = ThreadClock::now();
  const uint64_t read =
      StraightRead(cache.k.data(), cache.k.size()) ^ StraightRead(cache.v.data(), cache.v.size());
  [[maybe_unused]] const volatile uint64_t kept = read;
  return static_cast<double>(cache.k.size() + cache.v.size()) / MicrosecondsSince(start);
}

// All arms' steps of one round.
class Round {
 public:
  Round(const StepOptions& options, uint64_t parts,
        std::array<std::unique_ptr<StepArm>, kArms>* arms, Rng* rng)
      : options_(options), parts_(parts), arms_(*arms), rng_(*rng) {}

  // Appends to what was measured, or to nothing, where that is null.
  void Run(Measured* measured) {
    const uint64_t of_layer = options_.rows * parts_, last = options_.layers * of_layer - 1;
    for (uint64_t turn = 0; turn <= last; ++turn) {
      if (turn % of_layer == 0) Shuffle(&places_);
      Shuffle(&order_);
      for (const size_t i : order_) {
        StepArm& arm = *arms_[i];
        if (turn == 0) arm.Begin();
        const uint64_t row = (turn / parts_ + places_[i] * options_.rows / kArms) % options_.rows;
        const double took = arm.Attend(row, turn % parts_);
        if (measured) measured->arms[i].steps.turns[turn].push_back(took);
        if (turn == last) End(i, measured);
      }
    }
  }

 private:
  void Shuffle(std::array<size_t, kArms>* all) {
    for (size_t i = kArms - 1; i > 0; --i) std::swap((*all)[i], (*all)[rng_.Below(i + 1)]);
  }

  void End(size_t i, Measured* measured) {
    const StepArm::Times took = arms_[i]->End();
    if (!measured) return;
    Measured::OfArm& arm = measured->arms[i];
    arm.steps.rest.push_back(took.rest);
    arm.host.push_back(took.fence - took.launches);
    arm.launches.push_back(took.launches);
  }

  const StepOptions& options_;
  const uint64_t parts_;  // of a row
  std::array<std::unique_ptr<StepArm>, kArms>& arms_;
  Rng& rng_;
  std::array<size_t, kArms> order_ = {0, 1, 2};   // who is when in a turn
  std::array<size_t, kArms> places_ = {0, 1, 2};  // thirds of the rows: who is where in a layer
};

// `part`: "page size 16 (2 of 3)".
Measured Measure(const StepOptions& options, uint64_t page_size, const std::string& part) {
  tools::ProgressLine line(tools::IsFancy(STDERR_FILENO));
  const StepCache cache(options, page_size);
  Measured measured;
  measured.near_turns = kNearBytes / (cache.part * options.kv_heads * options.head_dim * 2) + 1;
  StepArrays arrays;
  std::array<std::unique_ptr<StepArm>, kArms> arms;
  for (size_t i = 0; i < kArms; ++i) {
    measured.arms[i].steps.turns.resize(options.layers * options.rows * cache.parts);
    if (kLevels[i] != Level::kOff) {
      measured.arms[i].warm_host = WarmHost(options, page_size, kLevels[i]);
    }
    arms[i] = std::make_unique<StepArm>(options, &cache, &arrays, kLevels[i]);
  }
  Rng rng(options.seed ^ page_size);
  Round round(options, cache.parts, &arms, &rng);
  for (uint64_t r = 0; r <= options.rounds; ++r) {
    if (line.Due()) {
      line.Show("step_overhead: " + part + ", round " + std::to_string(r) + " of " +
                std::to_string(options.rounds));
    }
    measured.read_rates.push_back(ReadRate(cache));
    round.Run(r == 0 ? nullptr : &measured);  // round 0 touches pages for the first time
  }
  return measured;
}

// --- output --------------------------------------------------------------------------------------

unsigned long long Wide(uint64_t number) { return number; }

// With its interval: "+0.034 (+0.030..+0.040)", and as JSON.
std::string Shown(const Interval& i, int digits) {
  char text[96];
  std::snprintf(text, sizeof(text), "%+.*f (%+.*f..%+.*f)", digits, i.value, digits, i.low, digits,
                i.high);
  return text;
}
std::string Json(const Interval& i, int digits) {
  char text[96];
  std::snprintf(text, sizeof(text), "[%.*f,%.*f,%.*f]", digits, i.value, digits, i.low, digits,
                i.high);
  return text;
}

// An arm by itself, as the clock had it: a step is what lies between two tokens of a request.
struct Latency {
  double p50, p95, p99;  // microseconds
  double tokens_per_second;
};
Latency LatencyOf(const Measured::OfArm& arm, uint64_t rows) {
  const std::vector<double> steps = arm.steps.Steps();
  const double sum = std::accumulate(steps.begin(), steps.end(), 0.0);
  return {Quantile(steps, 0.5), Quantile(steps, 0.95), Quantile(steps, 0.99),
          1e6 * static_cast<double>(rows * steps.size()) / sum};
}

// One table line, or one row of JSON.
void PrintArm(const Measured::OfArm& arm, const StepLosses& losses, const std::string& begin) {
  std::printf("%s %11.1f %9.2f %9.2f %11.2f   %s   %s\n", begin.c_str(), Median(arm.steps.Steps()),
              Median(arm.host), arm.warm_host, Median(arm.launches),
              Shown(losses.throughput, 3).c_str(), Shown(losses.p95, 3).c_str());
}
void PrintArmJson(const Measured::OfArm& arm, const StepLosses& losses, const std::string& begin,
                  const Latency& latency) {
  std::printf("%s,\"p50_us\":%.1f,\"p95_us\":%.1f,\"p99_us\":%.1f,\"tokens_per_s\":%.3f",
              begin.c_str(), latency.p50, latency.p95, latency.p99, latency.tokens_per_second);
  std::printf(
      ",\"host_us\":%.2f,\"warm_host_us\":%.2f,\"launches_us\":%.2f,"
      "\"throughput_loss_percent\":%s,\"p95_loss_percent\":%s,\"own_us\":%s,"
      "\"attention_shift_us\":%s,\"attention_later_us\":%s,"
      "\"raw_throughput_loss_percent\":%s,\"raw_p95_loss_percent\":%s",
      Median(arm.host), arm.warm_host, Median(arm.launches), Json(losses.throughput, 4).c_str(),
      Json(losses.p95, 4).c_str(), Json(losses.own, 1).c_str(), Json(losses.shift, 1).c_str(),
      Json(losses.later, 1).c_str(), Json(losses.raw_throughput, 4).c_str(),
      Json(losses.raw_p95, 4).c_str());
}

void PrintLatency(const char* level, const Latency& latency) {
  std::printf("           %s: p50 %.1f, p95 %.1f, p99 %.1f ms a token, %.2f tokens/s\n", level,
              latency.p50 / 1e3, latency.p95 / 1e3, latency.p99 / 1e3, latency.tokens_per_second);
}

// What the table's losses are made of, and what the clock says without any pairing.
void PrintSmall(const char* level, const StepLosses& losses, const Latency& latency) {
  std::printf("           %s: own time %s us, attention near it %s us, later %s us\n", level,
              Shown(losses.own, 1).c_str(), Shown(losses.shift, 1).c_str(),
              Shown(losses.later, 1).c_str());
  std::printf("           %s, raw sums of each arm: throughput %s, 95th step %s\n", level,
              Shown(losses.raw_throughput, 3).c_str(), Shown(losses.raw_p95, 3).c_str());
  PrintLatency(level, latency);
}

void Print(const StepOptions& options, uint64_t page_size, const Measured& measured, bool first) {
  const Measured::OfArm& off = measured.arms[0];
  const double bytes = static_cast<double>(options.rows * options.context * options.kv_heads *
                                           options.head_dim * 2 * options.layers);
  const double rate = bytes / Median(off.steps.Steps());
  const double of_read = rate / Median(measured.read_rates);
  std::array<StepLosses, kArms> losses;
  for (size_t i = 0; i < kArms; ++i) {
    losses[i] =
        CompareSteps(measured.arms[i].steps, off.steps, measured.near_turns, Rng(options.seed));
    const std::string level(LevelName(kLevels[i]));
    char begin[64];
    if (options.json) {
      std::snprintf(begin, sizeof(begin), "%s{\"page_size\":%llu,\"level\":\"%s\"",
                    first && i == 0 ? "" : ",\n", Wide(page_size), level.c_str());
      PrintArmJson(measured.arms[i], losses[i], begin, LatencyOf(measured.arms[i], options.rows));
      std::printf(",\"read_gb_per_s\":%.2f,\"of_read\":%.3f}", rate / 1000, of_read);
    } else {
      std::snprintf(begin, sizeof(begin), "%9llu  %-5s", Wide(page_size), level.c_str());
      PrintArm(measured.arms[i], losses[i], begin);
    }
  }
  if (options.json) return;
  std::printf("           attention reads %.2f GB/s, %.2f of a straight read\n", rate / 1000,
              of_read);
  PrintLatency("off", LatencyOf(off, options.rows));
  for (size_t i = 1; i < kArms; ++i) {
    PrintSmall(std::string(LevelName(kLevels[i])).c_str(), losses[i],
               LatencyOf(measured.arms[i], options.rows));
  }
}

void PrintHead(const StepOptions& options) {
  if (options.json) {
    std::printf(
        "{\"requests\":%llu,\"context\":%llu,\"layers\":%llu,\"kv_heads\":%llu,\"group\":%llu,"
        "\"head_dim\":%llu,\"rounds\":%llu,\"rows\":[\n",
        Wide(options.rows), Wide(options.context), Wide(options.layers), Wide(options.kv_heads),
        Wide(options.group), Wide(options.head_dim), Wide(options.rounds));
    return;
  }
  std::printf(
      "%llu rows of %llu tokens, %llu layers, %llu KV heads of %llu, %llu rounds\n"
      "page size  level    step (us) host (us)  warm (us)   launches   %-25s   %s\n",
      Wide(options.rows), Wide(options.context), Wide(options.layers), Wide(options.kv_heads),
      Wide(options.head_dim), Wide(options.rounds), "throughput lost, %", "95th step later, %");
}

int Refuse(const Status& status) {
  std::fprintf(stderr, "step_overhead: %s\n%s", status.message().c_str(), kStepHelp);
  return 2;
}

int Main(const std::vector<std::string_view>& arguments) {
  StepOptions options;
  for (const std::string_view argument : arguments) {
    if (argument == "--help") {
      std::fputs(kStepHelp, stdout);
      return 0;
    }
    if (Status status = ReadStepOption(argument, &options); !status.ok()) return Refuse(status);
  }
  if (Status status = CheckStepOptions(options); !status.ok()) return Refuse(status);
  PrintHead(options);
  const size_t parts = options.page_sizes.size();
  for (size_t i = 0; i < parts; ++i) {
    const uint64_t size = options.page_sizes[i];
    const std::string part = "page size " + std::to_string(size) + " (" + std::to_string(i + 1) +
                             " of " + std::to_string(parts) + ")";
    Print(options, size, Measure(options, size, part), i == 0);
    std::fflush(stdout);
  }
  if (options.json) std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  return kvfence::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
