// The strong types of the domain: page, request incarnation, batch row, step, pool, rank.
//
// Idea: every index that crosses an interface has its own type, so that a batch row can't be passed
// where a page is wanted. Invariant: a StrongInt holds exactly what its maker said, also when that
// is nonsense (a negative page, a page beyond the pool): judging it is the checks' work, not ours.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace kvfence {

// An integer with a name. `Name` is an empty tag type; no arithmetic, since indices of different
// meaning don't add up.
template <class Name, class Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;

 private:
  Rep value_{};
};

// One physical block of a pool. 64-bit and signed: events may name pages that no pool has.
using PageId = StrongInt<struct PageIdName, int64_t>;
// Token position inside a pool: page * page_size + offset. Negative: skipped.
using SlotId = StrongInt<struct SlotIdName, int64_t>;
// Index of a pool in the header's order.
using PoolId = StrongInt<struct PoolIdName, uint32_t>;
// A line of the batch table.
using Row = StrongInt<struct RowName, uint32_t>;
// The number of a forward pass, growing per rank.
using StepId = StrongInt<struct StepIdName, uint64_t>;
// A tensor-parallel rank.
using RankId = StrongInt<struct RankIdName, uint32_t>;
// "All ranks", the default of ownership events.
inline constexpr RankId kAllRanks{0xFFFFFFFFu};
// An interned string (request id, transfer id, digest, sum); 0 is "none given".
using NameId = StrongInt<struct NameIdName, uint32_t>;
// A prefix-index key. Engines pass their own 64-bit block hash; logs intern strings.
using KeyId = StrongInt<struct KeyIdName, uint64_t>;
// An interned identity object (adapter, media, salt, weights ...); 0 is the empty identity.
using IdentityId = StrongInt<struct IdentityIdName, uint32_t>;

// An engine's request id (interned) and which use of that id this is. Incarnation 0 means "the
// latest"; real ones count from 1. Fits one 64-bit word: a handle for other languages.
class RequestId {
 public:
  constexpr RequestId() = default;
  constexpr RequestId(NameId name, uint32_t incarnation)
      : word_(uint64_t{name.value()} << 32 | incarnation) {}
  constexpr explicit RequestId(uint64_t word) : word_(word) {}
  static constexpr RequestId Latest(NameId name) { return RequestId(name, 0); }
  constexpr NameId name() const { return NameId(static_cast<uint32_t>(word_ >> 32)); }
  constexpr uint32_t incarnation() const { return static_cast<uint32_t>(word_); }
  constexpr uint64_t word() const { return word_; }
  constexpr explicit operator bool() const { return word_ != 0; }
  friend constexpr auto operator<=>(RequestId, RequestId) = default;

 private:
  uint64_t word_ = 0;
};

}  // namespace kvfence

template <class Name, class Rep>
struct std::hash<kvfence::StrongInt<Name, Rep>> {
  size_t operator()(kvfence::StrongInt<Name, Rep> v) const noexcept {
    return std::hash<Rep>()(v.value());
  }
};
template <>
struct std::hash<kvfence::RequestId> {
  size_t operator()(kvfence::RequestId v) const noexcept { return std::hash<uint64_t>()(v.word()); }
};
