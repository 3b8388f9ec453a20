// Metrics: what the fence did, counted, and shown to Prometheus.
//
// Idea: the step's thread only adds to relaxed atomics; everything Prometheus-shaped (names,
// labels, cumulative buckets) is made on the thread that asks for it. So a scrape can't slow a
// step, and a step pays per batch, never per page. README.md beside this folder lists every family.
// Invariants: I-13, sinks never block, and here allocate nothing either. I-70, every label value of
// a closed set is exported from the start at 0: increase() over a series that is born with value 1
// sees nothing, and the first violation would raise no alert.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/finding.h"
#include "kvfence/reason.h"
#include "kvfence/status.h"

namespace kvfence {

class MetricsState;

// Pages by state, summed over pools. Retired pages are in none of the four.
struct PageCounts {
  uint64_t free = 0;
  uint64_t active = 0;       // held by at least one request
  uint64_t cached = 0;       // held by the prefix index alone
  uint64_t quarantined = 0;  // kept from reuse after a content finding
};

// Thread-safe: any call may run beside any other. One Metrics per fence; two in one process must
// differ in `engine` (or be exposed apart), since a series may be exported once only.
class Metrics final : public EventSink {
 public:
  // Where validate runs: label `backend`.
  enum class Backend : uint8_t { kCpu, kCuda };
  static constexpr std::array<std::string_view, 2> kBackendNames = {"cpu", "cuda"};

  // What the deployment does on a finding: label `mode`. kOff: the no-op tracker.
  enum class Mode : uint8_t { kOff, kLog, kAbort, kRecompute, kStop };
  static constexpr std::array<std::string_view, 5> kModeNames = {"off", "log", "abort", "recompute",
                                                                 "stop"};

  // Values by name, as a flag or a foreign language gives them; nothing for an unknown one.
  static constexpr std::optional<Backend> BackendFromName(std::string_view name) {
    return FromName<Backend>(kBackendNames, name);
  }
  static constexpr std::optional<Mode> ModeFromName(std::string_view name) {
    return FromName<Mode>(kModeNames, name);
  }

  // What became of an activated fault: label `outcome`.
  static constexpr std::array<std::string_view, 7> kOutcomeNames = {
      "prevented", "early", "benign", "late", "missed", "collateral", "crashed"};

  struct Options {
    std::string model_name;  // constant label `model_name`, left out when empty
    std::string engine;      // constant label `engine` (data-parallel index), left out when empty
    Backend backend = Backend::kCpu;
    Mode mode = Mode::kAbort;
    // Harness only: the fault kinds. Empty, as in production: no fault families are exported.
    std::vector<std::string> fault_kinds;
    // Unix time in nanoseconds, asked once per violation on the thread that found it; must be
    // thread-safe and must not block. Empty: the system clock.
    std::function<int64_t()> clock;
  };

  // Refuses label values that are not UTF-8 (they would spoil the whole scrape), and fault kinds
  // that are empty or given twice.
  static Result<std::unique_ptr<Metrics>> Create(Options options);

  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // --- the step's thread: wait-free, no allocation ---

  void OnViolation(const Violation& violation) override;
  // One validation. Its result is `unverified` if any row was, else `violation` if any row failed,
  // else `clean`: a pass that was judged in part vouches for nothing.
  void OnStep(const StepStats& stats) override;
  void OnAbort(RequestId request, Reason reason) override;

  // Gauges. The four counts are stored one by one: a scrape in between may see some old, some new.
  void SetPages(const PageCounts& pages);
  void SetMode(Mode mode);
  void AddTagRollovers(uint64_t pages);
  void AddViolationLogDropped(uint64_t records);

  // --- the harness ---

  // Refuse a kind or outcome that is not in the list. Wait-free too, but linear in the list.
  Status CountFault(std::string_view kind, uint64_t count = 1);
  Status CountOutcome(std::string_view kind, std::string_view outcome, uint64_t count = 1);

  // --- the scrape's thread ---

  // Prometheus text format 0.0.4, all families. Serve as "text/plain; version=0.0.4".
  std::string RenderText() const;
  // The same snapshot as one JSON object, for a foreign language's own collectors:
  //   {"families": [{"name", "type", "unit", "help", "samples": [{"labels": {}, "value": 1.0}]}]}
  // A histogram's sample holds, instead of "value": "buckets": [["5e-06", 0], ..., ["+Inf", n]]
  // (cumulative), "count" and "sum".
  std::string RenderJson() const;

 private:
  friend class MetricsExposer;

  template <class Value, size_t kSize>
  static constexpr std::optional<Value> FromName(const std::array<std::string_view, kSize>& names,
                                                 std::string_view name) {
    for (size_t i = 0; i < kSize; ++i) {
      if (names[i] == name) return static_cast<Value>(i);
    }
    return std::nullopt;
  }

  explicit Metrics(std::shared_ptr<MetricsState> state);

  std::shared_ptr<MetricsState> state_;  // shared with an exposer, which may outlive us
};

}  // namespace kvfence
