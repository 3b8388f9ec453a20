// The event language as C++ values: each struct is one verb, one API call, one record of a log.
//
// Idea: the ledger, the recorder, the log player, the property tests and the reference engine all
// speak these structs, so whatever happens can be recorded and replayed. docs/events.md gives the
// meaning of each verb; field names are the log's keys. Arrays are views: the caller owns them and
// they need only live until the call returns. Ranks: kAllRanks where a verb holds for all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "kvfence/table_view.h"
#include "kvfence/types.h"

namespace kvfence {

using Pages = std::span<const PageId>;

// --- ownership -----------------------------------------------------------------------------------

struct AdmitEvent {
  NameId name;            // the engine's id; the new incarnation is what Admit returns
  IdentityId identity{};  // what its cached content depends on beside the tokens
  RankId rank = kAllRanks;
};
struct AllocEvent {
  RequestId req;
  Pages pages;
  std::optional<uint64_t> at{};  // default: append
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct ShareEvent {
  RequestId req;
  Pages pages;
  uint64_t tokens = 0;
  std::optional<uint64_t> at{};
  std::span<const KeyId> keys{};      // empty: without keys
  std::span<const NameId> digests{};  // empty: none given
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct ForkEvent {
  RequestId from;
  RequestId to;
  RankId rank = kAllRanks;
};
struct CowEvent {
  RequestId req;
  uint64_t at = 0;
  PageId page;
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct TrimEvent {
  RequestId req;
  uint64_t tokens = 0;
  std::optional<StepId> step{};
  RankId rank = kAllRanks;
};
struct DropEvent {
  RequestId req;
  uint64_t at = 0;
  uint64_t n = 0;
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct ReleaseEvent {
  RequestId req;
  RankId rank = kAllRanks;
};
struct FreeEvent {
  Pages pages;
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct PublishEvent {
  KeyId key;
  RequestId req{};  // with `at`: this page of req enters the index ...
  uint64_t at = 0;
  std::optional<IdentityId> identity{};
  NameId digest{};
  std::optional<PageId> page{};  // ... or: the entry of `from_key` moves to this page
  std::optional<KeyId> from_key{};
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct UnpublishEvent {
  KeyId key;
  PoolId pool{};  // where the first pool has no such entry, whichever has
  RankId rank = kAllRanks;
};
enum class CopyDir : uint8_t { kIn, kOut };
struct PinEvent {
  NameId id;
  CopyDir dir = CopyDir::kIn;
  Pages pages;
  RequestId req{};
  std::optional<uint64_t> at{};
  std::optional<KeyId> key{};
  std::optional<uint64_t> lease{};  // steps
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct UnpinEvent {
  NameId id;
  bool ok = true;
  RankId rank = kAllRanks;
};
struct ReadyEvent {
  RequestId req;
  uint64_t tokens = 0;
  RankId rank = kAllRanks;
};
struct BindRowEvent {
  Row row;
  RequestId req{};  // null: let go
  RankId rank = kAllRanks;
};
struct AuditEvent {
  bool idle = false;
  RankId rank = kAllRanks;
};

// --- content -------------------------------------------------------------------------------------

// Whose content it is: a request's at a logical page, a key's, or (neither) nobody's.
struct ContentOf {
  RequestId req{};
  std::optional<uint64_t> at{};
  std::optional<KeyId> key{};
};
struct WriteEvent {
  PageId page;
  uint64_t first = 0;
  uint64_t n = 0;
  ContentOf as{};
  NameId xfer{};
  NameId sum{};
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct ReadEvent {
  PageId page;
  NameId xfer;
  NameId sum{};
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct ScaleEvent {
  PageId page;
  std::optional<ContentOf> as{};  // default: the page's present generation
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct RescaleEvent {
  PoolId pool{};
  RankId rank = kAllRanks;
};
struct CopyEvent {
  PageId from;
  PageId to;
  PoolId from_pool{};
  PoolId to_pool{};
  NameId xfer{};
  RankId rank = kAllRanks;
};

// --- steps ---------------------------------------------------------------------------------------

// What the scheduler planned for one row. Never taken from the arrays that are judged (I-8).
struct RowPlan {
  Row row;
  RequestId req;
  uint64_t new_tokens = 0;
  uint64_t draft = 0;                   // slots beyond new that draft passes may write
  std::optional<uint64_t> base{};       // length before the step, where only the device knows it
  std::optional<uint64_t> reach{};      // entries the consumer may touch; default: covered pages
  std::optional<StepId> table_epoch{};  // the step its plan or graph was built for
  std::span<const NameId> loads{};      // pins that end inside this step
  // The last step at which this row's table changed, where the caller knows better than the ledger
  // (a log shows the tables themselves). Compared with table_epoch.
  std::optional<StepId> table_changed{};
  bool scales = true;             // false: this step's writes leave scale entries alone
  uint64_t pools = ~uint64_t{0};  // bit p: this pass touches the row in pool p
};
// A shared-prefix table, read instead of the first entries of these rows.
struct PrefixPlan {
  std::span<const Row> rows;
  std::span<const int64_t> table;
  PoolId pool{};
};
// One pool's arrays, exactly those the kernels will read, indexed by batch row. They are read at
// Step and again at Confirm, and failing rows are made harmless in them: they must live, and be
// writable where the table's sanitise mode says so, until the step is confirmed.
struct PoolBuffers {
  PoolId pool{};
  TableView table;
  SlotView slots;
  LengthView lengths;
};
struct StepEvent {
  StepId step;
  RankId rank{0};
  std::span<const RowPlan> rows;
  std::span<const Row> pads;  // padded rows: no request, must be harmless
  std::span<const PrefixPlan> prefix{};
  std::span<const PoolBuffers> pools;  // every pool that the pass touches
};
struct ConfirmEvent {
  StepId step;
  RankId rank{0};
};
struct RetireEvent {
  StepId step;
  RankId rank = kAllRanks;
};

using Event =
    std::variant<AdmitEvent, AllocEvent, ShareEvent, ForkEvent, CowEvent, TrimEvent, DropEvent,
                 ReleaseEvent, FreeEvent, PublishEvent, UnpublishEvent, PinEvent, UnpinEvent,
                 ReadyEvent, BindRowEvent, AuditEvent, WriteEvent, ReadEvent, ScaleEvent,
                 RescaleEvent, CopyEvent, StepEvent, ConfirmEvent, RetireEvent>;

}  // namespace kvfence
