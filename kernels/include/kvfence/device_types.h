// What lies on the device, word for word: page records, expectations, the step's tasks, verdicts.
//
// Idea: the ledger says (through the journal) what every launched row may touch; validate compares
// that with the arrays the kernels will read. All structs are PODs of fixed size: they travel in
// one copy per pass. Invariant: 16 bytes a page and 16 bytes a live expectation (I-15).
#pragma once

#include <cstdint>

#include "kvfence/table_view.h"
#include "kvfence/tag.h"

namespace kvfence {

// fill and two flags share 16 bits: page sizes up to 16,383 tokens.
inline constexpr uint16_t kFillMask = 0x3FFF;
inline constexpr uint16_t kPageShared = 0x4000;  // more than one request maps the page
inline constexpr uint16_t kPageSealed = 0x8000;  // an index entry or an `out` pin names the page
inline constexpr uint32_t kMaxPageSize = kFillMask;

// The device's record of one page. tag and the flags are the ledger's; fill, scale and stamp follow
// the content: confirm writes them for clean rows, movers of pages carry them with the bytes.
struct PageRecord {
  Tag tag;
  uint16_t fill_flags;  // kFillMask: slots from the page's start that are committed; and flags
  uint16_t scale;       // per-page scales: low half of the tag when the scale was written;
                        // per-tensor scales: the pool's scale epoch when the content was written
  Stamp stamp;          // kNoStamp: no content since the page was issued
};
static_assert(sizeof(PageRecord) == 16);

// What a request expects of one logical page. A page of kNoPage: it holds nothing there.
inline constexpr uint32_t kNoPage = 0xFFFFFFFFu;
struct Expectation {
  uint32_t page;
  Tag tag;
  Stamp stamp;
};
static_assert(sizeof(Expectation) == 16);

// Expectations live in chunks, so that device memory follows live pages, not rows x context.
inline constexpr uint32_t kChunkEntries = 64;

// A pool that steps fill once and read from then on, whatever the request's length.
inline constexpr uint8_t kCrossForm = 2;

// One pool's part of the gate, and what its geometry is.
struct PoolState {
  PageRecord* records;  // [pages]
  uint32_t pages;
  uint32_t page_size;
  uint32_t null_page;
  uint32_t window;    // tokens; 0: full attention
  int64_t skip_slot;  // used when has_skip_slot: the only negative slot that means "skip"
  uint8_t has_skip_slot;
  uint8_t page_scales;  // pages carry their own scale entries
  // `state` (1) and `cross` (kCrossForm) pools: length, fill and write position don't apply.
  uint8_t free_form;
  uint8_t pad;
  uint16_t scale_epoch;  // per-tensor scales
  uint16_t pad2;
  uint32_t interleave_ranks;   // 0: none. The rank holds positions p with
  uint32_t interleave_stride;  // (p / stride) % ranks == rank
};

// One launched row. Kind kPad has no request.
enum class RowKind : uint32_t { kLive, kPad };
struct RowTask {
  uint64_t request;        // RequestId word that the row must be bound to
  uint64_t length_before;  // tokens before this step
  uint64_t new_tokens;
  uint64_t draft;
  uint64_t reach;          // table entries the consumer may touch; at least the covered pages
  uint64_t table_epoch;    // step its plan was built for; compared when has_table_epoch
  uint64_t table_changed;  // last step at which its binding or table changed
  uint32_t row;            // line of the batch table
  RowKind kind;
  uint32_t group;  // rows that read one shared-prefix table share their fate
  uint8_t has_table_epoch;
  uint8_t keep_scales;  // this step's writes leave scale entries alone
  uint8_t doomed;       // 1 + Reason that the host failed it for before launch, 0: none. Such a
                        // row is sanitised and its verdict is that reason; nothing is judged.
  uint8_t pad;
};

// One (row, pool): which expectations, and which logical pages to judge.
struct PoolTask {
  uint32_t row_task;
  uint32_t pool;         // index into the launch's pools
  uint32_t first_page;   // first logical page that a window of the step reaches
  uint32_t covered;      // pages of length_before + new_tokens (for free_form: all it holds)
  uint32_t end_page;     // one past the last page to look at: covered, draft pages and reach
  uint32_t expected;     // expectations the request has in this pool
  uint32_t chunk_begin;  // its chunk ids: chunks[chunk_begin + k / kChunkEntries]
  uint32_t write_begin;  // its write pages: write_stamps[write_begin + (k - write_first)]
  uint32_t write_first;  // logical page of the first written position
  uint32_t write_pages;  // pages that new and draft positions touch
  uint32_t prefix;       // index of the shared-prefix table read instead of first entries, or ~0
  uint32_t late_begin;   // logical pages whose fill, stamp and scale validate does not ask: sorted
  uint32_t late_end;     // range late_pages[late_begin .. late_end), see kLateAtConfirm
  uint32_t open_from;    // 1 + first position from which on slots aren't committed yet; 0: all are
  uint64_t work_begin;   // running sum of (end_page - first_page): balances blocks over pages
};

// A late page with this bit is asked at confirm (`loads`); one without it is written by another row
// of the same step, and the host settles whether that row was clean.
inline constexpr uint32_t kLateAtConfirm = 0x80000000u;

// A shared-prefix table on the device (already decoded to pages by whoever uploads it).
struct PrefixTable {
  const int64_t* pages;
  uint32_t count;
  uint32_t pad;
};

// One verdict word per launched row: the low half are reason bits (0: clean), the high half the low
// 32 bits of step + 1, so that a word that was never written is never taken for clean (I-9).
using VerdictWord = uint64_t;
KVF_HD constexpr VerdictWord MakeVerdict(uint64_t step, uint32_t reasons) {
  return (step + 1) << 32 | reasons;
}
KVF_HD constexpr bool VerdictIsOf(VerdictWord word, uint64_t step) {
  return word >> 32 == ((step + 1) & 0xFFFFFFFFu);
}
KVF_HD constexpr uint32_t VerdictReasons(VerdictWord word) { return static_cast<uint32_t>(word); }

// One entry of the bounded findings list: an extra for people, never needed for the decision.
struct DeviceFinding {
  uint32_t row_task;
  uint32_t pool;    // ~0: a whole row
  uint32_t at;      // ~0: a whole row
  uint32_t reason;  // Reason
  int64_t page;
  uint64_t expected;
  uint64_t found;
};

}  // namespace kvfence
