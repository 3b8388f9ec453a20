// Captured graphs: a batch of a bucket's size is replayed from buffers that are that bucket's.
//
// Idea: what a captured launch names is fixed: which arrays, how many rows. So each bucket has
// buffers of its own, a pass without requests captures what the launch names, and a step that is
// replayed copies its tables, lengths and slots into them and makes the attention plan (how many
// pages each row's work is split over) anew. A bucket that was wanted and isn't captured runs
// eagerly once, and is captured in the next pass; now and then all is captured anew, as after a
// reload of weights. Invariant I-118: a replay is told of and reads the very arrays that were
// captured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kv_groups.h"
#include "step_buffers.h"

namespace kvfence {

struct CapturedGraph {
  uint64_t bucket = 0;               // rows, padded ones included
  std::vector<StepBuffers> buffers;  // by part of the model
  std::vector<PoolBuffers> launch;   // what the captured launch names, by part; empty: not captured
};

class GraphPool {
 public:
  // `rows`: of the largest batch; the largest that is replayed is the config's. With the feature
  // off there are no graphs.
  GraphPool(const EngineConfig& config, const EngineSeat& seat, const std::vector<KvGroup>& groups);

  bool on() const { return largest_ > 0; }
  // New tokens that each row of a replayed batch has.
  uint64_t tokens() const { return tokens_; }
  // The graph for a batch padded to `bucket` rows. Null: it runs eagerly, and if a graph could be
  // had it's captured in the next pass.
  CapturedGraph* ForBatch(uint64_t bucket, uint64_t step);
  // Null: there's nothing to capture. Else the graph is to be captured in step `step`, by a pass of
  // padded rows.
  CapturedGraph* TakeWanted(uint64_t step);
  // Its buffers are complete for a pass of the bucket's rows: they're what the launch names.
  void Capture(CapturedGraph* graph);
  // All slots are there, so that the arrays never move.
  void Fix(CapturedGraph* graph) const;

  const CapturedGraph* Find(uint64_t bucket) const;
  std::vector<uint64_t> Captured() const;

 private:
  uint64_t largest_ = 0;
  uint64_t tokens_ = 1;
  uint64_t life_ = 0;  // steps, from capture to capture
  uint64_t born_ = 0;
  uint64_t rows_ = 0;
  EngineSeat seat_;
  uint64_t ranks_ = 1;
  std::vector<KvGroup> groups_;
  std::vector<uint64_t> slots_;            // of one row, by group
  std::map<uint64_t, CapturedGraph> all_;  // by bucket; they never move
  std::optional<uint64_t> wanted_{};
};

}  // namespace kvfence
