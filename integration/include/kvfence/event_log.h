// The records of an event log (.kvlog): what one line says, as a value.
//
// Most lines are the event structs of core themselves. Steps are richer in a log than in a call: a
// call points at the arrays that kernels read, a log carries their words, row by row. Invariant: a
// record holds what the line says, also when that is nonsense; judging it is the fence's work. The
// views of a record live until the reader's next record.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "kvfence/event.h"
#include "kvfence/reason.h"
#include "kvfence/types.h"

namespace kvfence {

// n slots from `first`, ascending; a negative `first`: n slots that are skipped.
struct SlotRun {
  int64_t first = 0;
  uint64_t n = 1;
  friend bool operator==(const SlotRun&, const SlotRun&) = default;
};
// One changed entry of a row's table.
struct TableEdit {
  uint64_t index = 0;
  int64_t page = 0;
  friend bool operator==(const TableEdit&, const TableEdit&) = default;
};
// A row's table in one pool: all of it (what is missing up to the width is null), or edits of the
// last table that this row had there.
struct LogTable {
  PoolId pool{};
  bool is_patch = false;
  std::span<const int64_t> entries{};
  std::span<const TableEdit> edits{};
};
struct LogWrites {
  PoolId pool{};
  std::span<const SlotRun> runs{};
};

struct LogRow {
  RowPlan plan;
  int64_t len = 0;  // the device length that attention uses
  std::span<const LogTable> tables{};
  std::span<const LogWrites> writes{};
  // Where `draft` lists its slots: they follow those of `writes`, and plan.draft counts them.
  std::span<const LogWrites> drafts{};
};
struct LogPad {
  Row row;
  int64_t len = 0;
  std::span<const LogTable> tables{};
  std::span<const LogWrites> writes{};
};
struct LogStep {
  StepId step;
  RankId rank{0};
  std::span<const LogRow> rows{};
  std::span<const LogPad> pads{};
  std::span<const PrefixPlan> prefix{};
};
// A row whose table, as the kernels read it, is another one by the time of confirm.
struct LogConfirmRow {
  Row row;
  std::span<const LogTable> tables{};
};
struct LogConfirm {
  StepId step;
  RankId rank{0};
  std::span<const LogConfirmRow> rows{};
};

// A test's demand. Either `clean`, or a reason with the keys that a violation must agree with.
struct LogExpect {
  bool clean = false;
  bool has_reason = false;
  Reason reason{};
  RequestId req{};  // null: any; incarnation 0: any of that name
  std::optional<PageId> page{};
  std::optional<PoolId> pool{};
  std::optional<uint64_t> at{};
  std::optional<StepId> step{};
  std::optional<Row> row{};
  std::optional<RankId> rank{};
};

using LogEvent =
    std::variant<AllocEvent, ShareEvent, ReleaseEvent, AdmitEvent, FreeEvent, DropEvent, TrimEvent,
                 CowEvent, ForkEvent, PublishEvent, UnpublishEvent, BindRowEvent, PinEvent,
                 UnpinEvent, ReadyEvent, WriteEvent, ReadEvent, ScaleEvent, RescaleEvent, CopyEvent,
                 AuditEvent, LogStep, LogConfirm, RetireEvent, LogExpect>;

struct LogRecord {
  uint64_t line = 0;  // counted from 1; the header is line 1
  LogEvent event;
};

// Limits of a header and of a line: beyond them a log is refused, so that no line of text can ask
// for more memory than it is worth. kMaxLogWidth is what a stamp's logical page can say.
inline constexpr uint64_t kMaxLogLine = uint64_t{64} << 20;  // bytes
inline constexpr uint64_t kMaxLogPools = 64;
inline constexpr uint64_t kMaxLogPages = (uint64_t{1} << 31) - 1;
inline constexpr uint64_t kMaxLogPageSize = (uint64_t{1} << 31) - 1;
inline constexpr uint64_t kMaxLogRows = uint64_t{1} << 20;
inline constexpr uint64_t kMaxLogWidth = uint64_t{1} << 24;
inline constexpr uint64_t kMaxLogRanks = 4096;

}  // namespace kvfence
