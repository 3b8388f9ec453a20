// The flags of step_overhead, and what they may be.
//
// Idea: a wrong flag is answered before minutes of work, with what was expected. Invariant: options
// that pass CheckStepOptions fit into memory and are a shape that attention computes.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/status.h"

namespace kvfence {

// Tokens that are attended at a time, rounded up to pages. The shorter, the fewer such parts does a
// hiccup of the machine meet; much shorter ones would cost attention more than they do in a row.
inline constexpr uint64_t kPartTokens = 512;

struct StepOptions {
  uint64_t rows = 64, context = 8192, rounds = 20, layers = 8, kv_heads = 8, group = 2;
  uint64_t head_dim = 256, seed = 1;
  std::vector<uint64_t> page_sizes = {1, 16, 64};
  bool json = false;
};

inline constexpr const char* kStepHelp =
    "usage: step_overhead [flags]    what the fence adds to a decode step over FP8 attention\n"
    "  --rows=64              requests that decode side by side\n"
    "  --context=8192         tokens of each in the cache\n"
    "  --rounds=20            steps of each arm; the medians of much fewer keep the machine's "
    "hiccups\n"
    "  --layers=8             passes of attention a step\n"
    "  --kv_heads=8  --group=2  --head_dim=256    shape of attention; group: query heads per KV "
    "head\n"
    "  --page_sizes=1,16,64   tokens per page, one table part each\n"
    "  --seed=1               order of pages and turns\n"
    "  --json                 one JSON object instead of a table\n"
    "example: step_overhead --page_sizes=16 --rounds=5\n";

struct StepFlag {
  std::string_view name;
  uint64_t StepOptions::*value;
  uint64_t most;
};
inline constexpr std::array kStepFlags = {
    StepFlag{"--rows", &StepOptions::rows, 4096},
    StepFlag{"--context", &StepOptions::context, 1 << 20},
    StepFlag{"--rounds", &StepOptions::rounds, 100000},
    StepFlag{"--layers", &StepOptions::layers, 1000},
    StepFlag{"--kv_heads", &StepOptions::kv_heads, 64},
    StepFlag{"--group", &StepOptions::group, 64},
    StepFlag{"--head_dim", &StepOptions::head_dim, 256},
    StepFlag{"--seed", &StepOptions::seed, ~uint32_t{0}},
};
inline constexpr uint64_t kMostPageSize = 4096;
inline constexpr uint64_t kMostCacheBytes = uint64_t{1} << 36;
inline constexpr uint64_t kMostTimes = uint64_t{1} << 26;

// A whole number of 1 to `most`, or what's wrong with it.
inline Status ReadNumber(std::string_view name, std::string_view text, uint64_t most,
                         uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error == std::errc() && end == text.data() + text.size() && *out >= 1 && *out <= most) {
    return {};
  }
  return Status::Invalid(std::string(name) + " must be 1 to " + std::to_string(most) + ", got '" +
                         std::string(text) + "'");
}

inline Status ReadPageSizes(std::string_view text, std::vector<uint64_t>* out) {
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

inline Status ReadStepOption(std::string_view argument, StepOptions* options) {
  if (argument == "--json") {
    options->json = true;
    return {};
  }
  const size_t equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  const std::string_view text =
      equals == std::string_view::npos ? std::string_view() : argument.substr(equals + 1);
  if (name == "--page_sizes") return ReadPageSizes(text, &options->page_sizes);
  for (const StepFlag& flag : kStepFlags) {
    if (name == flag.name) return ReadNumber(name, text, flag.most, &(options->*flag.value));
  }
  return Status::Invalid("there is no flag " + std::string(name));
}

// What the numbers are together.
inline Status CheckStepOptions(const StepOptions& o) {
  if (o.head_dim != 32 && o.head_dim != 64 && o.head_dim != 128 && o.head_dim != 256) {
    return Status::Invalid("--head_dim must be 32, 64, 128 or 256, got " +
                           std::to_string(o.head_dim));
  }
  if (o.rows * o.layers * o.rounds > kMostTimes / (o.context / kPartTokens + 1)) {
    return Status::Invalid("rows x layers x rounds x (context / 512 + 1) must be at most " +
                           std::to_string(kMostTimes) + ": each has its time");
  }
  const uint64_t bytes =
      2 * o.rows * (o.context + o.rounds + kMostPageSize) * o.kv_heads * o.head_dim;
  if (bytes <= kMostCacheBytes) return {};
  return Status::Invalid("these rows would take a cache of " + std::to_string(bytes >> 30) +
                         " GiB; at most " + std::to_string(kMostCacheBytes >> 30) + " are tried");
}

}  // namespace kvfence
