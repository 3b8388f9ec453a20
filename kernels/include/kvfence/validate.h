// The fence's three launches: apply, validate, confirm. CPU and CUDA have one meaning, which stands
// in validate_core.h; this header is plain C++ and names no CUDA type (a stream is a void*).
//
// Protocol per pass and rank, in stream order: Apply (journal deltas) - Validate - the engine's
// kernels - Confirm. No call synchronises or allocates; all may be captured into a CUDA graph. For
// the CUDA backend all pointers are device pointers. Errors are refusals of the launch itself.
// A dense table without lengths can't be judged and fails its rows (length_mismatch).
#pragma once

#include <cstdint>

#include "kvfence/device_types.h"
#include "kvfence/status.h"

namespace kvfence {

// One journal delta for the device, 32 bytes. At most one item per (target, index) in a batch, so
// that items can be applied in any order.
enum class ApplyTarget : uint32_t { kPage, kExpectation, kRow, kScaleEpoch };
inline constexpr uint32_t kApplyTag = 1;      // page: tag; fill, scale and stamp are wiped with it
inline constexpr uint32_t kApplyFlags = 2;    // page: shared and sealed
inline constexpr uint32_t kApplyContent = 4;  // page: fill, scale, stamp
struct ApplyItem {
  ApplyTarget target;
  uint32_t pool;
  uint32_t index;   // page; arena index of the expectation; row
  uint32_t fields;  // kApply* bits, for pages
  union {
    PageRecord record;  // kScaleEpoch: record.scale is the new epoch
    Expectation expectation;
    struct { uint64_t request; uint64_t unused; } row;  // request word bound to the row, 0: none
  };
};
static_assert(sizeof(ApplyItem) == 32);

// The gate's device memory.
struct GateView {
  PoolState* pools;
  uint32_t pool_count;
  Expectation* expectations;  // arena: chunk c holds entries [c * kChunkEntries, ...)
  uint32_t chunk_count;
  uint64_t* row_requests;     // [rows] request word bound to each batch row
  uint32_t rows;
};

// What one pass brings beside the gate's memory; arrays on the device.
struct StepView {
  uint64_t step;
  uint32_t rank;
  uint32_t checks;                 // CheckSet mask: only these reasons may fire
  uint8_t sanitise;                // false under policy `log`
  uint8_t same_step_reads;
  const RowTask* rows;
  uint32_t row_count;
  const PoolTask* pool_tasks;      // grouped by row_task, ascending; work_begin ascending
  uint32_t pool_task_count;
  uint64_t work;                   // total (end_page - first_page)
  const uint32_t* chunks;          // chunk ids
  const Stamp* write_stamps;       // what confirm stores for each written page
  const uint32_t* late_pages;
  const PrefixTable* prefixes;
  uint32_t prefix_count;
  uint32_t group_count;            // groups are 0 .. group_count-1
  const TableView* tables;         // [pool_count], of the launch's pools
  const SlotView* slots;           // [pool_count]
  const LengthView* lengths;       // [pool_count]
};

// Scratch of one pass, kept from validate to settle (two passes in flight need two). It begins as
// zeros, but for seen_stamps and findings: ValidateCpu sees to that itself; on a device they come
// with the copy that brings the step's arrays, as a memset would be one more launch. What isn't
// zero fails rows, or leaves all of them without a verdict.
struct StepScratch {
  VerdictWord* verdicts;        // [row_count] out
  uint32_t* row_reasons;        // [row_count]
  uint64_t* group_done;         // [group_count] element 0 counts the blocks that have finished
  uint32_t* group_failed;       // [group_count] ~(first mismatching prefix page), 0: none
  Stamp* seen_stamps;           // [sum of write_pages] stamps at validate
  DeviceFinding* findings;      // [finding_capacity]
  uint32_t* finding_count;      // may exceed the capacity: then the list is cut, verdicts are not
  uint32_t finding_capacity;
  uint64_t* counters;           // [kCounters] written by the kernels themselves (I-12): validate
                                // starts them at 0, confirm's re-check adds a run and failed rows
};
inline constexpr uint32_t kCounterRuns = 0, kCounterRows = 1, kCounterEntries = 2,
                          kCounterRowsFailed = 3, kCounters = 4;

void ApplyCpu(const GateView& gate, const ApplyItem* items, uint64_t count);
void ValidateCpu(const GateView& gate, const StepView& step, const StepScratch& scratch);
// What confirm does. Both, but for logs in which a later step is launched before this one is
// confirmed: its writes precede that step in the stream, so they're stored first, re-checked later.
enum class ConfirmPart : uint32_t { kBoth, kStoreOnly, kRecheckOnly };
void ConfirmCpu(const GateView& gate, const StepView& step, const StepScratch& scratch,
                ConfirmPart part = ConfirmPart::kBoth);
// Makes one more row harmless (a same-step reader of a failed writer) before attention reads. The
// caller sets its verdict word, so that confirm neither stores for it nor keeps a borrowed table.
void SanitiseRowCpu(const GateView& gate, const StepView& step, uint32_t row_task);

Status ApplyCuda(const GateView& gate, const ApplyItem* items, uint64_t count, void* stream);
Status ValidateCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                    void* stream);
Status ConfirmCuda(const GateView& gate, const StepView& step, const StepScratch& scratch,
                   void* stream);

}  // namespace kvfence
