// The list of fault kinds: the single place where a kind's name, hook and answers stand.
#include "kvfence/fault_kind.h"

#include <array>

namespace kvfence {
namespace {

using R = Reason;

constexpr CheckSet Set(std::initializer_list<Reason> reasons) {
  CheckSet set;
  for (const Reason reason : reasons) set = set + reason;
  return set;
}

// Writes from outside: the content is foreign; or a step that runs uses the page; or another copy
// reads it just then.
constexpr CheckSet kLateWrite =
    Set({R::kStampMismatch, R::kChangedDuringStep, R::kInFlight, R::kCopyRaced});

constexpr std::array kKinds = {
    FaultKind{"stale_mapping", 'A', "before_upload", Set({R::kPageMismatch}), false,
              "a table row goes on naming a page that was given back (an entry kept over "
              "preemption, or of the row's last tenant)"},
    FaultKind{"stale_index_entry", 'A', "after_retire",
              Set({R::kFreedWhileHeld, R::kStaleIndexEntry, R::kTagMismatch, R::kDoubleFree}),
              false,
              "a cached page is evicted but its prefix-index entry stays, and a later request "
              "hits it",
              "prefix_cache", "one_space"},
    FaultKind{"double_free", 'B', "after_retire",
              Set({R::kDoubleFree, R::kIssuedWhileHeld, R::kTagMismatch}), false,
              "a free page is returned once more, so the free list names it twice and two "
              "requests get it",
              "", "one_space"},
    FaultKind{"free_while_held", 'B', "after_retire",
              Set({R::kFreedWhileHeld, R::kTagMismatch, R::kStaleIndexEntry}), false,
              "a page is returned while a running request holds it (a reference that was not "
              "counted)",
              "", "one_space"},
    FaultKind{"issue_held", 'B', "on_alloc",
              Set({R::kIssuedWhileHeld, R::kTagMismatch, R::kStaleIndexEntry}), false,
              "the allocator hands out a page that a running request holds", "", "one_space", 2},
    FaultKind{"double_return", 'B', "on_return",
              Set({R::kDoubleFree, R::kFreedWhileHeld, R::kIssuedWhileHeld, R::kTagMismatch}),
              false, "a request's end returns a page twice", "", "one_space"},
    FaultKind{"issue_twice", 'B', "on_alloc", Set({R::kIssuedWhileHeld, R::kTagMismatch}), false,
              "one allocation hands out the same page for two logical pages", "", "one_space"},
    FaultKind{"page_lost", 'B', "on_return", Set({R::kConservation}), true,
              "a page that its only holder gives up isn't returned: neither the allocator nor the "
              "fence hears of it (a leak)",
              "", "one_space"},
    FaultKind{"free_cached", 'B', "after_retire",
              Set({R::kFreedWhileHeld, R::kStaleIndexEntry, R::kTagMismatch}), false,
              "a page that rests in the prefix index is returned", "prefix_cache", "one_space"},
    FaultKind{"copy_skipped", 'L', "after_retire", Set({R::kWriteShared}), false,
              "a page that siblings share is taken for one's alone: they write into it without a "
              "copy of their own",
              "parallel_sampling", "swap", 2},
    FaultKind{"late_foreign_write", 'C', "async", kLateWrite, false,
              "a copy for the page's former owner lands after the page was issued again"},
    FaultKind{"stray_write", 'C', "async", kLateWrite, false,
              "a copy of nobody's content lands in a page that is in use"},
    FaultKind{"misplaced_copy", 'K', "async", kLateWrite, false,
              "a copy of the right request's content lands at the wrong logical page"},
    FaultKind{"load_permuted", 'K', "on_arrive", Set({R::kContentMismatch}), false,
              "a copy from the host brings the right page with its slots in another order, and "
              "sums are given on both sides",
              "swap,host_offload,prefix_cache"},
    FaultKind{"row_unannounced", 'D', "on_bind_row", Set({R::kRowEpoch}), true,
              "a batch row gets a new tenant that the fence isn't told of"},
    FaultKind{"table_flip", 'D', "between_validate_and_attention", Set({R::kChangedDuringStep}),
              false, "a table word changes after validate and before attention reads it"},
    FaultKind{"length_flip", 'D', "between_validate_and_attention", Set({R::kChangedDuringStep}),
              false, "a length changes after validate and before attention reads it"},
    FaultKind{"slot_dropped", 'D', "between_validate_and_attention", Set({R::kChangedDuringStep}),
              false, "a write slot turns into a skip after validate"},
    FaultKind{"late_row_swap", 'D', "between_validate_and_attention", Set({R::kChangedDuringStep}),
              false, "two rows' table entries are exchanged after validate (an upload too early)",
              "", "", 2},
    FaultKind{"table_rewritten", 'D', "after_attention", Set({R::kChangedDuringStep}), true,
              "a table word is overwritten after attention and before the step is confirmed"},
    FaultKind{"confirm_lost", 'D', "on_confirm", Set({R::kUnverified, R::kChangedDuringStep}), true,
              "the re-check of a step is never launched on a rank, so its rows have no complete "
              "verdict"},
    FaultKind{"row_swap", 'E', "before_validate",
              Set({R::kPageMismatch, R::kPageOutOfRange, R::kRowTail}), false,
              "two rows' table entries are exchanged", "", "", 2},
    FaultKind{"row_tail", 'E', "before_validate", Set({R::kRowTail}), false,
              "an entry beyond the covered pages, but within the kernel's reach, names another's "
              "page",
              "", "", 2},
    FaultKind{"torn_table", 'E', "before_validate",
              Set({R::kPageMismatch, R::kPageOutOfRange, R::kRowTail}), false,
              "the end of a row is what the last step's buffer held: half an upload"},
    FaultKind{"tag_flip", 'E', "async", Set({R::kTagMismatch, R::kChangedDuringStep}), true,
              "a bit of the fence's own record flips: the tag of a page that is in use"},
    FaultKind{"entry_out_of_range", 'E', "before_validate", Set({R::kPageOutOfRange}), false,
              "an entry is beyond the pool, negative, or has a flag left in its upper bits"},
    FaultKind{"null_entry", 'E', "before_validate", Set({R::kPageOutOfRange}), false,
              "an entry that will be read is the null page"},
    FaultKind{"entries_swapped", 'E', "before_validate", Set({R::kPageMismatch}), false,
              "two entries of one row are exchanged: its own pages, out of order"},
    FaultKind{"duplicate_entry", 'E', "before_validate", Set({R::kPageMismatch}), false,
              "an entry repeats the one before it"},
    FaultKind{"entries_shifted", 'E', "before_validate", Set({R::kPageMismatch}), false,
              "entries stand one place too early (an index that is off by one)"},
    FaultKind{"crossed_row", 'E', "before_validate", Set({R::kPageMismatch, R::kPageOutOfRange}),
              false, "a row is given the entries of another", "", "", 2},
    FaultKind{"stamp_flip", 'E', "async", Set({R::kStampMismatch, R::kChangedDuringStep}), true,
              "a bit of the fence's own record flips: the stamp of a page that is in use"},
    FaultKind{"fill_lost", 'E', "async", Set({R::kNotCommitted}), true,
              "the fence's own record forgets that a page in use is written"},
    FaultKind{"padded_row", 'F', "before_validate", Set({R::kPadRow}), false,
              "a padded row names a live page and writes into it", "padded_batches"},
    FaultKind{
        "plan_stale", 'E', "before_validate", Set({R::kTableEpoch}), false,
        "a graph is replayed with the attention plan of its replay before, which gives a row too "
        "few pages",
        "replayed_graphs"},
    FaultKind{"pad_write", 'F', "before_validate", Set({R::kPadRow}), false,
              "a padded row, harmless to read, writes into a live page", "padded_batches"},
    FaultKind{"narrow_index", 'G', "at_start", Set({R::kGeometry}), false,
              "kernels compute slots in fewer bits than the pool needs, as its header says: pages "
              "beyond them wrap"},
    FaultKind{"wrong_write_slot", 'G', "before_validate", Set({R::kWriteTarget}), false,
              "a new token's write slot lies in another request's page", "", "", 2},
    FaultKind{"length_off_by_one", 'G', "before_validate", Set({R::kLengthMismatch}), false,
              "the length that attention uses is one token too long or too short"},
    FaultKind{"length_off_by_page", 'G', "before_validate", Set({R::kLengthMismatch}), false,
              "the length that attention uses is a page too long or too short"},
    FaultKind{"slot_shifted", 'G', "before_validate", Set({R::kWriteTarget}), false,
              "a new token's write slot is off by one"},
    FaultKind{"slot_repeated", 'G', "before_validate", Set({R::kWriteTarget}), false,
              "two new tokens of a row have one write slot"},
    FaultKind{"lengths_swapped", 'G', "before_validate", Set({R::kLengthMismatch}), false,
              "the lengths of two rows are exchanged", "", "", 2},
    FaultKind{"length_stale", 'G', "before_validate", Set({R::kLengthMismatch}), false,
              "the length that attention uses is that of the step before"},
    FaultKind{"length_wild", 'G', "before_validate", Set({R::kLengthMismatch}), false,
              "the length that attention uses is beyond what any table covers"},
    FaultKind{"skipped_write", 'J', "before_validate", Set({R::kNotCommitted}), false,
              "a new token's write slot is a skip: what attention reads there was never written"},
    FaultKind{"key_collides", 'I', "on_share", Set({R::kKeyMismatch}), false,
              "a prefix key leaves out the adapter, media or salt, and finds another one's page",
              "prefix_cache,mixed_identity", "", 2},
    FaultKind{"rank_table", 'M', "before_validate", Set({R::kPageMismatch}), false,
              "the table of one rank, not the first, names another page than the others'",
              "tensor_parallel"},
    FaultKind{"rank_row", 'M', "before_validate", Set({R::kRankDivergence}), false,
              "one rank, not the first, lacks a row that the others compute: it's padding there",
              "tensor_parallel"},
    FaultKind{"scale_flip", 'N', "async", Set({R::kScaleMismatch}), true,
              "a bit flips in the device's mark of whose scales a page has"},
    FaultKind{"old_incarnation", 'O', "before_validate", Set({R::kIdentityReused}), true,
              "a row runs under the id of an incarnation that has ended"},
};

}  // namespace

std::span<const FaultKind> FaultKinds() { return kKinds; }

const FaultKind* FindFaultKind(std::string_view name) {
  for (const FaultKind& kind : kKinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace kvfence
