// The reference engine: continuous batching over the paged allocator, on a simulated device.
//
// Idea: a scheduler in the manner of vLLM v1 (docs/engine.md) serves a trace; the device's cache
// holds real content, and what a request publishes is computed from what its step really read. The
// engine tells its tracker every change of its books and obeys what the tracker says at Retire; it
// is a template over the tracker, so with NoopTracker the hooks are gone. Same config, same trace
// and same seed: the same report (I-20).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/engine_features.h"
#include "kvfence/engine_report.h"
#include "kvfence/fault_hooks.h"
#include "kvfence/noop_tracker.h"
#include "kvfence/outcome.h"
#include "kvfence/page_pool.h"
#include "kvfence/status.h"
#include "kvfence/trace.h"
#include "kvfence/transformer_shape.h"

namespace kvfence {

inline constexpr uint64_t kWideIndex = 63;

struct EngineConfig {
  uint64_t seed = 1;
  uint64_t pages = 1024;  // the null page counted
  uint64_t page_size = 16;
  uint64_t rows = 16;             // requests in one batch
  uint64_t width = 0;             // table entries per row; 0: what the pool or the trace can need
  uint64_t token_budget = 512;    // new tokens of one step, over all rows
  EngineFeatures features{};      // which of them are on; their sizes follow
  uint64_t max_chunk = 0;         // new tokens of one row in one step; 0: the budget
  uint64_t samples = 4;           // parallel_sampling: a request gives 1 to this many
  uint64_t draft_tokens = 3;      // speculative: guesses per decode row
  uint64_t accept_per_cent = 70;  // ... how many of them are right
  uint64_t draft_page_size = 0;   // of the draft group; 0, and in one_space: page_size
  uint64_t draft_pages = 0;       // of that group, the null page counted; 0: as many as `pages`
  uint64_t host_pages = 4096;     // swap, host_offload: pages that the host has room for
  uint64_t copy_fail_per_mille = 0;  // copies that end badly, in the middle
  uint64_t ranks = 2;                // tensor_parallel: how many
  uint64_t window = 64;              // sliding_window: tokens that a token reads, itself included
  uint64_t window_pages = 0;    // pages of that group, the null page counted; 0: as many as `pages`
  uint64_t graph_rows = 0;      // replayed_graphs: the largest batch that is replayed; 0: any
  uint64_t graph_steps = 0;     // ... steps after which all is captured anew; 0: never
  uint64_t prefill_pages = 0;   // disaggregated: of the engine that prefills, as `pages`
  uint64_t handoff_lease = 12;  // ... steps that prefilled pages are held for a transfer
  uint64_t handoff_late_per_mille = 0;  // ... runs of pages that arrive some steps late
  ReuseOrder reuse = ReuseOrder::kLifo;
  uint64_t reach_tile = 4;          // the kernel touches table entries up to a multiple of this
  std::vector<uint64_t> buckets{};  // padded batch sizes; empty: powers of two up to rows
  uint64_t abort_per_mille = 0;     // requests that their client takes back, at a seeded moment
  uint64_t ms_per_step = 0;         // trace time that a step takes; 0: requests arrive at once
  uint64_t quarantine_steps = 64;   // a suspect page without holders rests this long
  uint64_t max_steps = 0;           // 0: until all requests have ended
  Policy policy = Policy::kAbort;   // kRecompute: back to the good prefix
  uint64_t most_recomputes = 3;     // ... so often without a token in between; then it ends
  // Bits in which the kernels compute slots (page * page_size + offset); what doesn't fit wraps.
  // Real ones are as wide as a signed word of 64. Not with `numeric`, whose kernels are real.
  uint64_t index_bits = kWideIndex;
  bool sums = false;          // swap and host tier give checksums of what they read and bring
  bool audit_faulty = false;  // asks the fence for an audit at the end even if there were faults
  bool ground_truth = true;   // compare each token with the request's golden run
  // The small transformer instead of the model of 64 bits: real numbers in the cache, and real
  // attention over it, at some 10^3 times the cost per token.
  std::optional<TransformerShape> numeric{};
  bool judge_raw = false;  // RowOutcome::raw_wrong before sanitising (campaigns; doubles
                           // the simulated kernel's work)
};

// What an identity number stands for: adapter, media and salt (those that aren't 0), as fields for
// the fence.
std::vector<std::pair<std::string, std::string>> IdentityFields(uint32_t identity);

// What the fence calls the engine's requests and identities. Where a function is empty, numbers
// from 1 are used (a recording needs the fence's interned names).
struct EngineNames {
  std::function<NameId(const std::string&)> name{};  // "r0", "r1" ... by place in the trace
  std::function<NameId(const std::string&)> copy{};  // "x1", "x2" ...: asynchronous copies
  std::function<NameId(const std::string&)> sum{};   // checksums, in hexadecimal
  std::function<IdentityId(uint32_t)> identity{};    // see IdentityFields
};

// Pools, rows and habits of this engine, as the fence wants to know them.
FenceConfig FenceConfigFor(const EngineConfig& config, const std::vector<TraceRequest>& trace);
// Draws the sizes of the features that are on, for requests of up to `longest` tokens. The sizes of
// the first pool, rows and budget are set already.
void DrawSizes(Rng& rng, uint64_t longest, EngineConfig* config);
// Which words of the config are off, or ok.
Status CheckEngineConfig(const EngineConfig& config);

template <class TrackerT>
class Engine {
 public:
  // `trace` must outlive the engine, as must `hooks` and `outcomes` (either may be null).
  static Result<std::unique_ptr<Engine>> Create(const EngineConfig& config,
                                                const std::vector<TraceRequest>* trace,
                                                TrackerT tracker, EngineNames names = {},
                                                FaultHooks* hooks = nullptr,
                                                OutcomeSink* outcomes = nullptr);
  ~Engine();

  // One pass of the loop: arrivals, schedule, launch, settle. False: all is done, the report is
  // final.
  bool Step();
  // Steps until done.
  const EngineReport& Run();
  const EngineReport& report() const;
  // Requests that have ended, for progress.
  uint64_t ended() const;
  FaultSurface& surface();

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SwitchedTracker;
extern template class Engine<NoopTracker>;
extern template class Engine<SwitchedTracker>;

}  // namespace kvfence
