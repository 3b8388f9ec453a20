#include "kvfence/explore.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "small_world.h"

namespace kvfence {
namespace {

using Sequence = std::vector<Move>;

std::string Words(const Sequence& sequence) {
  std::string text;
  for (const Move move : sequence) {
    text += (text.empty() ? "" : ", ") + std::string(MoveName(move));
  }
  return text;
}

// What counts in each sequence, also in one that leads to a world seen before.
void CountSequence(const SmallWorld& world, const Sequence& sequence, Exploration* out) {
  ++out->sequences;
  out->finished = std::max(out->finished, world.finished());
  out->refusals += world.refusals();
  if (world.wrong_published() == 0) return;
  ++out->wrong_published;
  if (out->first_wrong.empty()) out->first_wrong = Words(sequence);
}

void CountWorld(const SmallWorld& world, const Sequence& sequence, Exploration* out) {
  ++out->states;
  out->faulted += world.faulted() ? 1 : 0;
  out->ended_by_fence += world.ended_by_fence() > 0 ? 1 : 0;
  if (world.violations().empty()) return;
  ++out->reported;
  for (const Violation& violation : world.violations()) {
    out->reasons = out->reasons + violation.reason;
  }
  if (out->first_report.empty()) out->first_report = Words(sequence);
}

}  // namespace

Exploration Explore(SmallFault fault, const ExploreOptions& options) {
  // With what may happen next, so that no world is built to ask.
  struct Node {
    Sequence sequence;
    std::vector<Move> moves;
  };
  Exploration out;
  std::vector<Node> frontier = {{{}, SmallWorld(fault, options.fence).Moves()}};
  std::unordered_set<std::string> seen;  // only looked up, never iterated
  for (uint64_t level = 0; level < options.depth && !frontier.empty(); ++level) {
    std::vector<Node> next;
    for (const Node& node : frontier) {
      if (options.on_progress && !options.on_progress(level, out.sequences)) return out;
      for (const Move move : node.moves) {
        SmallWorld world(fault, options.fence);
        for (const Move made : node.sequence) world.Make(made);
        world.Make(move);
        Sequence longer = node.sequence;
        longer.push_back(move);
        CountSequence(world, longer, &out);
        const bool fresh = seen.insert(world.Key()).second;
        if (fresh) CountWorld(world, longer, &out);
        if (!fresh && options.merge) continue;
        next.push_back({std::move(longer), world.Moves()});
      }
    }
    frontier = std::move(next);
  }
  out.ends = frontier.size();
  return out;
}

}  // namespace kvfence
