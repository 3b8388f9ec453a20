// Request traces: the Mooncake JSON Lines format, and a seeded generator of the same shape.
//
// One request a line: `timestamp` (ms), `input_length` and `output_length` (tokens), `hash_ids`,
// one id per prefix block of kTraceBlock tokens (the last one may be cut short). Equal ids at equal
// places stand for equal tokens, so requests that begin with the same ids share a prefix.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "kvfence/rng.h"
#include "kvfence/status.h"

namespace kvfence {

inline constexpr uint64_t kTraceBlock = 512;  // tokens

struct TraceRequest {
  uint64_t timestamp_ms = 0;
  uint32_t input_length = 0;       // >= 1
  uint32_t output_length = 0;      // >= 1
  std::vector<uint64_t> hash_ids;  // ceil(input_length / kTraceBlock)
  uint32_t identity = 0;           // index of the adapter, salt ... it runs with
  uint32_t block = kTraceBlock;    // tokens that an id stands for
};

// A refusal names file, line and what is wrong ("FILE:12: input_length is negative").
Result<std::vector<TraceRequest>> ReadTrace(const std::string& path);
// `name` stands for the file in messages.
Result<std::vector<TraceRequest>> ReadTrace(std::istream& in, const std::string& name);

// The shape of generated traffic: conversations whose turns repeat all that was said before, many
// of them beginning with one of a few system prompts. Half the drawn lengths lie below the median
// and the tail falls off as in chat traffic (log-normal, roughly, by integer arithmetic).
struct TraceShape {
  uint64_t requests = 300;
  uint64_t seed = 1;
  uint32_t median_message = 120;  // tokens that a turn adds to the prompt
  uint32_t largest_input = 4000;  // a conversation ends when its prompt would be longer
  uint32_t median_output = 24;
  uint32_t largest_output = 160;
  uint32_t conversations = 24;  // under way at one time
  uint32_t system_prompts = 3;  // of one or two blocks
  uint32_t identities = 1;      // adapters, drawn per conversation
  uint64_t mean_gap_ms = 300;
};
std::vector<TraceRequest> GenerateTrace(const TraceShape& shape);

// The same traffic with all lengths divided, rounded up: shorter prompts and answers that share
// prefixes as the long ones do. `divisor` must be a power of two, at most kTraceBlock.
std::vector<TraceRequest> ScaleTrace(std::vector<TraceRequest> trace, uint32_t divisor);

// Token `offset` of the block with this id.
constexpr uint32_t TraceToken(uint64_t hash_id, uint64_t offset) {
  return static_cast<uint32_t>(Mix64(hash_id * kTraceBlock + offset) >> 33);
}
// The request's prompt.
std::vector<uint32_t> PromptTokens(const TraceRequest& request);

}  // namespace kvfence
