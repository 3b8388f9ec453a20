// The closed set of reasons: why a row, a page or an event was found wrong.
//
// One name everywhere: logs, metrics, reports, C and Python all use ReasonName(). The order of the
// first eight is the order in which a place reports (docs/events.md, "Findings"); a place reports
// the first that applies. A CheckSet is a set of reasons held as a constexpr value: a level is a
// CheckSet, and switching one check off is subtracting it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence {

enum class Reason : uint8_t {
  kPageOutOfRange,
  kPageMismatch,
  kTagMismatch,
  kStampMismatch,
  kScaleMismatch,
  kNotCommitted,
  kWriteTarget,
  kWriteShared,
  kLengthMismatch,
  kRowTail,
  kRowEpoch,
  kPadRow,
  kTableEpoch,
  kChangedDuringStep,
  kUnverified,
  kStaleIndexEntry,
  kKeyMismatch,
  kFreedWhileHeld,
  kDoubleFree,
  kIssuedWhileHeld,
  kInFlight,
  kCopyRaced,
  kConservation,
  kContentMismatch,
  kRankDivergence,
  kIdentityReused,
  kGeometry,
};

inline constexpr int kReasonCount = 27;

inline constexpr std::array<std::string_view, kReasonCount> kReasonNames = {
    "page_out_of_range", "page_mismatch",       "tag_mismatch",
    "stamp_mismatch",    "scale_mismatch",      "not_committed",
    "write_target",      "write_shared",        "length_mismatch",
    "row_tail",          "row_epoch",           "pad_row",
    "table_epoch",       "changed_during_step", "unverified",
    "stale_index_entry", "key_mismatch",        "freed_while_held",
    "double_free",       "issued_while_held",   "in_flight",
    "copy_raced",        "conservation",        "content_mismatch",
    "rank_divergence",   "identity_reused",     "geometry",
};

constexpr std::string_view ReasonName(Reason reason) {
  return kReasonNames[static_cast<size_t>(reason)];
}

constexpr std::optional<Reason> ReasonFromName(std::string_view name) {
  for (int i = 0; i < kReasonCount; ++i) {
    if (kReasonNames[static_cast<size_t>(i)] == name) return static_cast<Reason>(i);
  }
  return std::nullopt;
}

// The bit of a reason in a verdict word and in a CheckSet's mask.
constexpr uint32_t ReasonBit(Reason reason) { return 1u << static_cast<unsigned>(reason); }

// A set of reasons, as a value: the checks of a level, or what a row failed for.
class CheckSet {
 public:
  constexpr CheckSet() = default;
  constexpr explicit CheckSet(uint32_t mask) : mask_(mask) {}
  constexpr CheckSet(Reason reason) : mask_(ReasonBit(reason)) {}  // NOLINT: a set of one

  constexpr bool Has(Reason reason) const { return (mask_ & ReasonBit(reason)) != 0; }
  constexpr bool empty() const { return mask_ == 0; }
  constexpr int size() const { return std::popcount(mask_); }
  constexpr uint32_t mask() const { return mask_; }

  friend constexpr CheckSet operator+(CheckSet a, CheckSet b) {
    return CheckSet(a.mask_ | b.mask_);
  }
  friend constexpr CheckSet operator-(CheckSet a, CheckSet b) {
    return CheckSet(a.mask_ & ~b.mask_);
  }
  friend constexpr bool operator==(CheckSet, CheckSet) = default;

 private:
  uint32_t mask_ = 0;
};

// The levels. kOff is the no-op tracker; each further level holds all of the one before (I-4).
enum class Level : uint8_t { kOff, kMap, kFull, kAudit };

// Mapping, lengths, writes and padding, judged on the device, and the fail-closed settle.
inline constexpr CheckSet kMapChecks =
    CheckSet(Reason::kPageOutOfRange) + Reason::kPageMismatch + Reason::kTagMismatch +
    Reason::kWriteTarget + Reason::kWriteShared + Reason::kLengthMismatch + Reason::kRowTail +
    Reason::kRowEpoch + Reason::kPadRow + Reason::kTableEpoch + Reason::kChangedDuringStep +
    Reason::kUnverified + Reason::kGeometry;

// Everything that costs time in the pages touched. Checksums are compared where a mover gives them.
inline constexpr CheckSet kFullChecks =
    kMapChecks + Reason::kStampMismatch + Reason::kScaleMismatch + Reason::kNotCommitted +
    Reason::kStaleIndexEntry + Reason::kKeyMismatch + Reason::kFreedWhileHeld +
    Reason::kDoubleFree + Reason::kIssuedWhileHeld + Reason::kInFlight + Reason::kCopyRaced +
    Reason::kRankDivergence + Reason::kIdentityReused + Reason::kContentMismatch;

// Audits over all pages each step.
inline constexpr CheckSet kAuditChecks = kFullChecks + Reason::kConservation;

constexpr CheckSet ChecksOf(Level level) {
  switch (level) {
    case Level::kOff:
      return CheckSet();
    case Level::kMap:
      return kMapChecks;
    case Level::kFull:
      return kFullChecks;
    case Level::kAudit:
      return kAuditChecks;
  }
  return CheckSet();
}

inline constexpr std::array<std::string_view, 4> kLevelNames = {"off", "map", "full", "audit"};

constexpr std::string_view LevelName(Level level) {
  return kLevelNames[static_cast<size_t>(level)];
}

constexpr std::optional<Level> LevelFromName(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<Level>(i);
  }
  return std::nullopt;
}

// Reasons that speak of the content of a page, not of who maps it: the page is suspect for all its
// holders (docs/ARCHITECTURE.md). All others end only the row.
inline constexpr CheckSet kContentReasons =
    CheckSet(Reason::kStampMismatch) + Reason::kScaleMismatch + Reason::kContentMismatch;

}  // namespace kvfence
