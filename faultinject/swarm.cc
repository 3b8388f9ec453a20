#include "swarm.h"

#include <algorithm>

#include "kvfence/engine_features.h"

namespace kvfence {
namespace {

std::string Of8(uint64_t n) { return std::to_string(n) + "/8"; }
std::string Text(const Swarm::Range& range) {
  return std::to_string(range.low) + ".." + std::to_string(range.high);
}
std::string Tenths(uint64_t n) { return std::to_string(n / 10) + "." + std::to_string(n % 10); }

}  // namespace

Swarm Swarm::Draw(uint64_t seed) {
  Rng rng(Mix64(seed ^ 0x5377'6172'6Du));
  Swarm s;
  constexpr uint64_t kSizes[] = {1, 4, 8, 16, 32};
  for (const uint64_t size : kSizes) {
    const uint64_t weight = size == 1 ? 1 : rng.Between(1, 3);
    s.page_sizes.insert(s.page_sizes.end(), weight, size);
  }
  s.rows.low = rng.Between(2, 5);
  s.rows.high = s.rows.low + rng.Between(3, 8);
  s.pressure.low = rng.Between(5, 12);
  s.pressure.high = rng.Between(20, 40);
  s.budget.low = rng.Between(32, 128);
  s.budget.high = s.budget.low + rng.Between(100, 400);
  for (size_t i = 0; i < kEngineFeatures.size(); ++i) s.features.push_back(rng.Between(2, 6));
  s.lifo = rng.Between(4, 7);
  s.withdrawing = rng.Between(2, 6);
  s.withdrawn_most = rng.Between(30, 200);
  s.tile_doublings = rng.Between(2, 4);
  s.message.low = rng.Between(20, 50);
  s.message.high = s.message.low + rng.Between(10, 80);
  s.output.low = rng.Between(4, 12);
  s.output.high = s.output.low + rng.Between(4, 16);
  s.conversations.low = rng.Between(2, 4);
  s.conversations.high = s.conversations.low + rng.Between(1, 6);
  s.system_prompts = {1, rng.Between(1, 3)};
  s.identities = {1, rng.Between(2, 4)};
  s.fault_gap = rng.Between(1, 8);
  s.fault_one_in = rng.Between(1, 3);
  return s;
}

TraceShape Swarm::Shape(Rng& rng, uint64_t requests) const {
  TraceShape shape;
  shape.seed = rng.Next();
  shape.requests = requests;
  shape.median_message = static_cast<uint32_t>(message.Draw(rng));
  shape.largest_input = 900;
  shape.median_output = static_cast<uint32_t>(output.Draw(rng));
  shape.largest_output = 48;
  shape.conversations = static_cast<uint32_t>(conversations.Draw(rng));
  shape.system_prompts = static_cast<uint32_t>(system_prompts.Draw(rng));
  shape.identities = static_cast<uint32_t>(identities.Draw(rng));
  return shape;
}

std::vector<std::string> Swarm::Lines(bool generated) const {
  std::vector<std::string> lines = {
      "pressure=" + Tenths(pressure.low) + ".." + Tenths(pressure.high), "lifo=" + Of8(lifo),
      "reach_tile=1.." + std::to_string(uint64_t{1} << tile_doublings),
      "fault_gap=" + std::to_string(fault_gap), "fault_one_in=" + std::to_string(fault_one_in)};
  if (!generated) return lines;
  std::string sizes;
  for (size_t i = 0; i < page_sizes.size(); ++i) {
    if (i > 0 && page_sizes[i] == page_sizes[i - 1]) continue;
    const auto n = std::count(page_sizes.begin(), page_sizes.end(), page_sizes[i]);
    sizes += (i == 0 ? "" : ",") + std::to_string(page_sizes[i]) + "x" + std::to_string(n);
  }
  const std::vector<std::string> more = {
      "page_sizes=" + sizes,
      "rows=" + Text(rows),
      "token_budget=" + Text(budget),
      "withdrawing=" + Of8(withdrawing) + " up to " + std::to_string(withdrawn_most) + "/1000",
      "median_message=" + Text(message),
      "median_output=" + Text(output),
      "conversations=" + Text(conversations),
      "system_prompts=" + Text(system_prompts),
      "identities=" + Text(identities)};
  lines.insert(lines.end(), more.begin(), more.end());
  for (size_t i = 0; i < features.size(); ++i) {
    lines.push_back(std::string(kEngineFeatures[i].name) + "=" + Of8(features[i]));
  }
  return lines;
}

}  // namespace kvfence
