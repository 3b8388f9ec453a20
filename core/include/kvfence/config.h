// What a fence is told at the start: the pools and the engine's habits. The header of a log.
//
// Invariant: the same config and the same events give the same findings (I-20).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvfence/reason.h"

namespace kvfence {

enum class PoolKind : uint8_t {
  kKv,
  kState,  // recurrent state: length, fill and write position aren't the request's
  kCross,  // cross attention: as kState
};

struct PoolConfig {
  std::string name;
  uint64_t pages = 0;      // the null page counted
  uint64_t page_size = 0;  // tokens
  uint64_t window = 0;     // tokens; 0: full attention
  uint64_t width = 0;      // table entries per row; 0: the header's
  uint64_t null_page = 0;
  bool scales = false;                 // pages carry their own scale entries
  std::optional<int64_t> skip_slot{};  // absent: any negative slot is skipped
  bool slot_entries = false;           // one table entry per token = page * page_size + offset
  PoolKind kind = PoolKind::kKv;
  std::string space{};  // pools of one space number the same physical pages; empty: its own
  uint64_t interleave_ranks = 0;
  uint64_t interleave_stride = 1;
  // For the start-up geometry check only.
  std::optional<uint64_t> base{};
  std::optional<uint64_t> page_bytes{};
  std::optional<uint64_t> index_bits{};
};

enum class Frees : uint8_t { kImplicit, kExplicit };
enum class Reuse : uint8_t { kRetired, kStream };
enum class Policy : uint8_t { kLog, kAbort, kRecompute, kStop };

struct FenceConfig {
  std::vector<PoolConfig> pools;
  uint64_t rows = 0;
  uint64_t width = 0;
  uint64_t ranks = 1;
  Frees frees = Frees::kImplicit;
  Reuse reuse = Reuse::kRetired;
  bool same_step_reads = false;
  Level level = Level::kFull;
  // Checks taken out of the level: how tests show that each one is needed.
  CheckSet disabled{};
  Policy policy = Policy::kAbort;
  // Judges each step's rows afresh, whatever failed before: how logs are checked. In a deployment a
  // failed row stays failed until its row is bound anew, and so does a request that hit content of
  // another identity until it lets that go.
  bool judge_afresh = false;
  std::string about;

  CheckSet checks() const { return ChecksOf(level) - disabled; }
};

}  // namespace kvfence
