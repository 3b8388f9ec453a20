#include "kvfence/trace.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

namespace kvfence {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLongest = uint64_t{1} << 24;  // tokens of a request, in or out

// Reads one line's fields; the first thing wrong with them is kept.
class LineReader {
 public:
  LineReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  uint64_t Unsigned(const char* field, uint64_t least, uint64_t most) {
    const auto it = object_.find(field);
    if (it == object_.end()) return Fail(std::string("field '") + field + "' is missing");
    return Number(*it, field, least, most);
  }

  std::vector<uint64_t> Ids(const char* field, uint64_t count) {
    std::vector<uint64_t> ids;
    const auto it = object_.find(field);
    if (it == object_.end()) {
      Fail(std::string("field '") + field + "' is missing");
    } else if (!it->is_array()) {
      Fail(std::string(field) + " must be an array of integers");
    } else if (it->size() != count) {
      Fail(std::string(field) + " has " + std::to_string(it->size()) +
           " ids, but input_length needs " + std::to_string(count) + " (one per " +
           std::to_string(kTraceBlock) + " tokens)");
    } else {
      ids.reserve(count);
      for (const Json& id : *it) ids.push_back(Number(id, field, 0, ~uint64_t{0}));
    }
    return ids;
  }

  bool ok() const { return problem_.empty(); }
  Status status() const { return Status::Invalid(where_ + problem_); }
  uint64_t Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return 0;
  }

 private:
  uint64_t Number(const Json& value, const char* field, uint64_t least, uint64_t most) {
    if (!value.is_number_integer()) {
      return Fail(std::string(field) + " must be an integer, not " + value.type_name());
    }
    if (!value.is_number_unsigned()) return Fail(std::string(field) + " is negative");
    const auto number = value.get<uint64_t>();
    if (number < least || number > most) {
      return Fail(std::string(field) + " must be " + std::to_string(least) + " to " +
                  std::to_string(most) + ", not " + std::to_string(number));
    }
    return number;
  }

  const Json& object_;
  std::string where_;
  std::string problem_;
};

// About median * 2^x with x roughly normal (sum of uniform draws), deviation about 1.15 octaves.
uint32_t DrawLength(Rng& rng, uint32_t median, uint32_t largest) {
  int64_t octaves = 0;  // in 1/256
  for (int i = 0; i < 4; ++i) octaves += static_cast<int64_t>(rng.Below(513)) - 256;
  const int64_t whole = octaves >> 8;
  const int64_t part = octaves & 255;
  uint64_t length =
      uint64_t{median} * static_cast<uint64_t>(256 + part);  // linear within an octave
  length = whole >= 0 ? length << whole : length >> -whole;
  return static_cast<uint32_t>(std::clamp<uint64_t>(length >> 8, 1, largest));
}

struct Conversation {
  std::vector<uint64_t> ids;
  uint64_t length = 0;  // tokens said so far
  uint32_t identity = 0;
};

uint64_t BlocksOf(uint64_t tokens) { return (tokens + kTraceBlock - 1) / kTraceBlock; }

}  // namespace

Result<std::vector<TraceRequest>> ReadTrace(std::istream& in, const std::string& name) {
  std::vector<TraceRequest> trace;
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    const std::string where = name + ":" + std::to_string(number) + ": ";
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_discarded()) {
      return Status::Invalid(where + (in.eof() ? "the last line is cut off or not JSON"
                                               : "not a JSON object: expected one request a line"));
    }
    if (!object.is_object())
      return Status::Invalid(where + "expected an object, one request a line");
    LineReader reader(object, where);
    TraceRequest request;
    request.timestamp_ms = reader.Unsigned("timestamp", 0, uint64_t{1} << 53);
    request.input_length = static_cast<uint32_t>(reader.Unsigned("input_length", 1, kLongest));
    request.output_length = static_cast<uint32_t>(reader.Unsigned("output_length", 1, kLongest));
    if (reader.ok()) request.hash_ids = reader.Ids("hash_ids", BlocksOf(request.input_length));
    if (!reader.ok()) return reader.status();
    trace.push_back(std::move(request));
  }
  if (in.bad()) return Status(StatusCode::kUnavailable, name + ": cannot be read to its end");
  if (trace.empty()) return Status::Invalid(name + ": holds no request");
  return trace;
}

Result<std::vector<TraceRequest>> ReadTrace(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status(StatusCode::kUnavailable, path + ": cannot be opened");
  return ReadTrace(in, path);
}

std::vector<TraceRequest> GenerateTrace(const TraceShape& shape) {
  Rng rng(shape.seed);
  uint64_t next_id = shape.system_prompts * 2;
  uint64_t now = 0;
  std::vector<Conversation> open(std::max<uint32_t>(shape.conversations, 1));
  std::vector<TraceRequest> trace;
  trace.reserve(shape.requests);
  for (uint64_t i = 0; i < shape.requests; ++i) {
    Conversation& talk = open[rng.Below(open.size())];
    const uint64_t message = DrawLength(rng, shape.median_message, shape.largest_input);
    if (talk.length + message > shape.largest_input || rng.Chance(1, 8)) talk = {};
    if (talk.length == 0) {
      talk.identity = static_cast<uint32_t>(rng.Below(std::max<uint32_t>(shape.identities, 1)));
      const bool system = shape.system_prompts > 0 && rng.Chance(3, 4);
      const uint64_t prompt = system ? rng.Below(shape.system_prompts) : 0;
      for (uint64_t b = 0; system && b <= prompt % 2; ++b) talk.ids.push_back(prompt * 2 + b);
      talk.length = talk.ids.size() * kTraceBlock;
      if (talk.length + message > shape.largest_input) talk.length = 0, talk.ids.clear();
    }
    talk.length += message;
    while (talk.ids.size() < BlocksOf(talk.length)) talk.ids.push_back(next_id++);
    const uint32_t output = DrawLength(rng, shape.median_output, shape.largest_output);
    trace.push_back({.timestamp_ms = now,
                     .input_length = static_cast<uint32_t>(talk.length),
                     .output_length = output,
                     .hash_ids = talk.ids,
                     .identity = talk.identity});
    talk.length += output;  // the answer is part of the next turn's prompt
    now += rng.Below(2 * shape.mean_gap_ms + 1);
  }
  return trace;
}

std::vector<TraceRequest> ScaleTrace(std::vector<TraceRequest> trace, uint32_t divisor) {
  const auto shorter = [&](uint32_t tokens) { return (tokens + divisor - 1) / divisor; };
  for (TraceRequest& request : trace) {
    request.input_length = shorter(request.input_length);
    request.output_length = shorter(request.output_length);
    request.block = shorter(request.block);
  }
  return trace;
}

std::vector<uint32_t> PromptTokens(const TraceRequest& request) {
  std::vector<uint32_t> tokens;
  tokens.reserve(uint64_t{request.input_length} + request.output_length);
  for (uint64_t b = 0; tokens.size() < request.input_length; ++b) {
    const uint64_t n = std::min<uint64_t>(request.block, request.input_length - tokens.size());
    for (uint64_t o = 0; o < n; ++o) tokens.push_back(TraceToken(request.hash_ids[b], o));
  }
  return tokens;
}

}  // namespace kvfence
