#include "graph_pool.h"

#include "kvfence/check.h"
#include "model_parts.h"

namespace kvfence {

GraphPool::GraphPool(const EngineConfig& config, const EngineSeat& seat,
                     const std::vector<KvGroup>& groups)
    : rows_(config.rows), seat_(seat), ranks_(RanksOf(config)) {
  if (!config.features.replayed_graphs) return;
  largest_ = config.graph_rows == 0 ? config.rows : config.graph_rows;
  life_ = config.graph_steps;
  groups_ = groups;
  const uint64_t drafts = config.features.speculative ? config.draft_tokens : 0;
  tokens_ += drafts;
  for (const KvGroup& group : groups) slots_.push_back(tokens_ + (group.draft ? drafts : 0));
}

CapturedGraph* GraphPool::ForBatch(uint64_t bucket, uint64_t step) {
  if (bucket > largest_) return nullptr;
  if (life_ > 0 && step >= born_ + life_) {
    for (auto& [rows, graph] : all_) graph.launch.clear();
    born_ = step;
  }
  const auto found = all_.find(bucket);
  if (found != all_.end() && !found->second.launch.empty()) return &found->second;
  wanted_ = bucket;
  return nullptr;
}

CapturedGraph* GraphPool::TakeWanted(uint64_t step) {
  if (!wanted_) return nullptr;
  if (all_.empty()) born_ = step;
  const auto [at, fresh] = all_.try_emplace(*wanted_);
  wanted_.reset();
  CapturedGraph& graph = at->second;
  if (fresh) {
    graph.bucket = at->first;
    graph.buffers = BuffersOf(groups_, rows_, ranks_, seat_.first_row);
    for (size_t part = 0; part < graph.buffers.size(); ++part) {
      graph.buffers[part].slots.reserve(rows_ * slots_[part % groups_.size()]);
    }
  }
  return &graph;
}

void GraphPool::Capture(CapturedGraph* graph) {
  graph->launch.clear();
  for (size_t part = 0; part < graph->buffers.size(); ++part) {
    graph->launch.push_back(graph->buffers[part].View());
    graph->launch.back().pool =
        PoolId(static_cast<uint32_t>(seat_.first_pool + part % groups_.size()));
  }
}

void GraphPool::Fix(CapturedGraph* graph) const {
  for (size_t part = 0; part < graph->buffers.size(); ++part) {
    StepBuffers& b = graph->buffers[part];
    const uint64_t most = rows_ * slots_[part % groups_.size()];
    KVF_CHECK(b.slots.size() <= most, "a replayed batch has as many new tokens as were captured");
    b.slots.resize(most, -1);
    KVF_CHECK(graph->launch.empty() || (graph->launch[part].slots.slots.data == b.slots.data() &&
                                        graph->launch[part].table.entries.data == b.table.data() &&
                                        b.rows == graph->bucket),
              "I-118 a replay reads the arrays that were captured");
  }
}

const CapturedGraph* GraphPool::Find(uint64_t bucket) const {
  const auto found = all_.find(bucket);
  return found == all_.end() || found->second.launch.empty() ? nullptr : &found->second;
}

std::vector<uint64_t> GraphPool::Captured() const {
  std::vector<uint64_t> buckets;
  for (const auto& [bucket, graph] : all_) {
    if (!graph.launch.empty()) buckets.push_back(bucket);
  }
  return buckets;
}

}  // namespace kvfence
