// Validate, confirm and apply as CUDA kernels.
//
// Idea: the work is one flat list of items: every logical page of every (row, pool), then every
// (row, pool), then every row. A block takes a contiguous part, so that a long row doesn't wait for
// one block, and finds its first row by binary search of work_begin. Reasons are gathered with
// atomics; the block that finishes last completes the verdicts and makes failing rows harmless.
// Every decision stands in validate_core.h and settle_core.h. Invariants: a verdict word is written
// after all items were judged (I-9); no block waits for another, nothing is allocated, nothing is
// copied to the host. Compiled by nvcc, and by any C++ compiler through cuda_on_cpu.h.
#pragma once

#include "kvfence/cuda_on_cpu.h"
#include "settle_core.h"
#include "validate_plain.h"

namespace kvfence::fence {
inline namespace KVF_KERNEL_BUILD {

#define KVF_OUT_OF_LINE __attribute__((noinline))

inline constexpr unsigned kFenceThreads = 256;
inline constexpr unsigned kFenceBlocksAtOnce = 2;  // of a multiprocessor

using Wide = unsigned long long;  // the toolkit's 64-bit atomics know no other name for it
static_assert(sizeof(Wide) == sizeof(uint64_t));

// A padded row that may be at fault: the last block looks again and says what it is.
inline constexpr uint32_t kSuspectPad = 1u << 31;
static_assert(kReasonCount < 31);

__device__ inline void Count(const StepScratch& scratch, uint32_t counter, uint64_t n) {
  atomicAdd(reinterpret_cast<Wide*>(scratch.counters + counter), static_cast<Wide>(n));
}
__device__ inline void MarkRow(const StepScratch& scratch, uint32_t row_task, uint32_t bits) {
  atomicOr(reinterpret_cast<unsigned*>(scratch.row_reasons + row_task), bits);
}

__device__ inline void Emit(const StepScratch& scratch, uint32_t row_task, uint32_t pool,
                            uint32_t at, const Place& place) {
  const uint32_t i = atomicAdd(reinterpret_cast<unsigned*>(scratch.finding_count), 1u);
  if (i >= scratch.finding_capacity) return;
  scratch.findings[i] =
      DeviceFinding{row_task, pool, at, place.reason, place.page, place.expected, place.found};
}
__device__ inline void ReportPlace(const StepScratch& scratch, uint32_t row_task, uint32_t pool,
                                   uint32_t at, const Place& place) {
  if (place.clean()) return;
  MarkRow(scratch, row_task, 1u << place.reason);
  Emit(scratch, row_task, pool, at, place);
}

// --- items --------------------------------------------------------------------------------------

// The last pool task whose pages begin at or before item `work`.
__device__ inline uint32_t PoolTaskOfWork(const StepView& step, uint64_t work) {
  uint32_t lo = 0;
  uint32_t hi = step.pool_task_count;
  while (lo + 1 < hi) {
    const uint32_t mid = lo + (hi - lo) / 2;
    if (step.pool_tasks[mid].work_begin <= work) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  return lo;
}

// Page k of a padded row: its entries are null.
__device__ inline void SuspectPadEntries(const StepView& step, const StepScratch& scratch,
                                         const RowPool& rp, uint64_t begin, uint64_t end) {
  Place place{step.checks};
  for (uint64_t j = begin; j < Min(end, PadEntries(rp)); ++j) JudgePadEntry(place, rp, j);
  if (!place.clean()) MarkRow(scratch, rp.task->row_task, kSuspectPad);
}

// What a padded row has beside the pages of the work list: further entries, and slots.
__device__ inline void SuspectPad(const StepView& step, const StepScratch& scratch,
                                  const RowPool& rp) {
  if (rp.entries.broken || rp.writes.broken) MarkRow(scratch, rp.task->row_task, kSuspectPad);
  SuspectPadEntries(step, scratch, rp, 0, rp.task->first_page * rp.per_page);
  SuspectPadEntries(step, scratch, rp, rp.task->end_page * rp.per_page, ~uint64_t{0});
  Place place{step.checks};
  for (uint64_t i = 0; i < SlotCount(rp); ++i) JudgePadSlot(place, rp, i);
  if (!place.clean()) MarkRow(scratch, rp.task->row_task, kSuspectPad);
}

// Where a thread stands in its share of the pages: pool task, and page of it to look at next.
struct PageCursor {
  uint32_t task;
  uint64_t next;  // ~0: the task isn't begun
};

// The thread's next page in [lo, hi) that isn't plainly as expected, skipping rows that `wants`
// turns down; false when there is none. It calls nothing, so that the loop's values stay in
// registers; whoever judges the page opens the row again.
template <class Wants>
__device__ __forceinline__ bool NextDoubtful(const GateView& gate, const StepView& step,
                                             uint64_t lo, uint64_t hi, Wants&& wants,
                                             PageCursor* cursor, uint64_t* k) {
  for (; cursor->task < step.pool_task_count; ++cursor->task, cursor->next = ~uint64_t{0}) {
    const PoolTask& task = step.pool_tasks[cursor->task];
    if (task.work_begin >= hi) return false;
    if (!wants(task.row_task)) continue;
    const uint64_t pages = task.end_page - task.first_page;
    const uint64_t begin = Max(lo, task.work_begin) - task.work_begin;
    const uint64_t end = Min(hi - task.work_begin, pages);
    if (begin >= end) continue;
    const RowPool rp = OpenRowPool(gate, step, cursor->task);
    const FastSpan plain = rp.row->kind == RowKind::kPad ? FastSpan{} : FastSpanOf(rp);
    uint64_t i = cursor->next == ~uint64_t{0} ? begin + threadIdx.x : cursor->next;
    for (; i < end; i += blockDim.x) {
      *k = task.first_page + i;
      if (Holds(plain, *k) && PlainlyEqual(gate, step, rp, *k)) continue;
      cursor->next = i + blockDim.x;
      return true;
    }
  }
  return false;
}

// Calls f(t, k) for each page k of pool task t that NextDoubtful finds.
template <class Wants, class F>
__device__ __forceinline__ void ForPages(const GateView& gate, const StepView& step, uint64_t lo,
                                         uint64_t hi, Wants&& wants, F&& f) {
  if (lo >= hi) return;
  PageCursor cursor = {PoolTaskOfWork(step, lo), ~uint64_t{0}};
  uint64_t k = 0;
  while (NextDoubtful(gate, step, lo, hi, wants, &cursor, &k)) f(cursor.task, k);
}

// The items of this block: [lo, hi) of the flat list.
struct BlockShare {
  uint64_t lo;
  uint64_t hi;
};
__device__ inline BlockShare ShareOfBlock(const StepView& step) {
  const uint64_t total = step.work + step.pool_task_count + step.row_count;
  const uint64_t each = CeilDiv(total, gridDim.x);
  const uint64_t lo = Min(uint64_t{blockIdx.x} * each, total);
  return BlockShare{lo, Min(lo + each, total)};
}

// True in all threads of the block that finishes last; what other blocks did is visible to it.
__device__ inline bool LastBlock(const StepScratch& scratch) {
  KVF_SHARED_ARRAY(unsigned, last, 1);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const Wide done = atomicAdd(reinterpret_cast<Wide*>(scratch.group_done), Wide{1});
    last[0] = done + 1 == gridDim.x ? 1u : 0u;
    if (last[0] != 0) scratch.group_done[0] = 0;  // for the next launch
    __threadfence();
  }
  __syncthreads();
  return last[0] != 0;
}

// --- validate -----------------------------------------------------------------------------------

__device__ KVF_OUT_OF_LINE inline void ValidatePage(const GateView& gate, const StepView& step,
                                                    const StepScratch& scratch, uint32_t t,
                                                    uint64_t k) {
  const RowPool rp = OpenRowPool(gate, step, t);
  const uint32_t r = rp.task->row_task;
  if (rp.row->kind == RowKind::kPad) {
    SuspectPadEntries(step, scratch, rp, k * rp.per_page, (k + 1) * rp.per_page);
    return;
  }
  if (IsWritePage(*rp.task, k)) NoteStamp(scratch, rp, k - rp.task->write_first);
  const Place place = JudgePage(gate, step, scratch, rp, k);
  if (place.clean()) return;
  ReportPlace(scratch, r, rp.task->pool, static_cast<uint32_t>(k), place);
  if (!FailsGroup(gate, step, rp, k, place)) return;
  atomicMax(reinterpret_cast<unsigned*>(scratch.group_failed + rp.row->group),
            ~static_cast<uint32_t>(k));
}

__device__ KVF_OUT_OF_LINE inline void ValidatePool(const GateView& gate, const StepView& step,
                                                    const StepScratch& scratch, uint32_t t) {
  const RowPool rp = OpenRowPool(gate, step, t);
  if (rp.row->doomed != 0) return;
  Count(scratch, kCounterEntries, CountEntries(rp));
  if (rp.row->kind == RowKind::kPad) {
    SuspectPad(step, scratch, rp);
    return;
  }
  for (uint64_t i = FirstStray(rp); i < SlotCount(rp);) {
    const PlaceAt stray = NextStray(rp, step.checks, i);
    ReportPlace(scratch, rp.task->row_task, rp.task->pool, stray.at, stray.place);
  }
  // Write pages that the page items didn't see.
  for (uint64_t w = 0; w < rp.task->write_pages; ++w) {
    const uint64_t k = rp.task->write_first + w;
    if (k >= rp.task->first_page && k < rp.task->end_page) {
      w = Max(w, Min(rp.task->write_pages, rp.task->end_page - rp.task->write_first) - 1);
    } else {
      NoteStamp(scratch, rp, w);
    }
  }
}

__device__ KVF_OUT_OF_LINE inline void ValidateRow(const GateView& gate, const StepView& step,
                                                   const StepScratch& scratch, uint32_t r) {
  if (step.rows[r].doomed != 0) return;
  Count(scratch, kCounterRows, 1);
  if (step.rows[r].kind == RowKind::kPad) return;
  ReportPlace(scratch, r, ~0u, ~0u, JudgeRow(gate, step, r, step.checks));
}

// A row's reasons, complete. Only the last block calls it, one thread per row.
__device__ KVF_OUT_OF_LINE inline uint32_t CompleteRow(const GateView& gate, const StepView& step,
                                                       const StepScratch& scratch, uint32_t r) {
  const RowTask& row = step.rows[r];
  if (row.doomed != 0) return DoomedMask(row);
  uint32_t reasons = atomicOr(reinterpret_cast<unsigned*>(scratch.row_reasons + r), 0u);
  if ((reasons & kSuspectPad) != 0) {
    const PadPlace pad = JudgePad(gate, step, r, step.checks);
    reasons = pad.place.clean() ? 0 : 1u << pad.place.reason;
    if (!pad.place.clean()) Emit(scratch, r, pad.pool, ~0u, pad.place);
  }
  const uint32_t group =
      atomicOr(reinterpret_cast<unsigned*>(scratch.group_failed + row.group), 0u);
  if (group != 0 && (reasons & Bit(Reason::kPageMismatch)) == 0) {
    const GroupFinding found = JudgeGroup(gate, step, r, ~group);
    reasons |= Bit(Reason::kPageMismatch);
    Emit(scratch, r, found.pool, ~group, found.place);
  }
  return reasons;
}

// All threads of the block together make row r harmless.
__device__ KVF_OUT_OF_LINE inline void SanitiseRow(const GateView& gate, const StepView& step,
                                                   uint32_t r) {
  for (uint32_t t = FirstPoolTask(step, r);
       t < step.pool_task_count && step.pool_tasks[t].row_task == r; ++t) {
    const RowPool rp = OpenRowPool(gate, step, t);
    const SanitisePlan plan = PlanSanitise(step, rp);
    for (uint64_t i = threadIdx.x; i < plan.entries.count; i += blockDim.x) {
      SanitiseEntry(rp, plan, i);
    }
    for (uint64_t i = threadIdx.x; i < plan.slots.count; i += blockDim.x) {
      SanitiseSlot(rp, plan, i);
    }
    if (threadIdx.x == 0) SanitiseLength(rp);
  }
}

// With three blocks a multiprocessor, ptxas would spill for sm_100.
__global__ void __launch_bounds__(kFenceThreads, kFenceBlocksAtOnce)
    ValidateKernel(const KVF_GRID_CONSTANT GateView gate, const KVF_GRID_CONSTANT StepView step,
                   const KVF_GRID_CONSTANT StepScratch scratch) {
  const BlockShare share = ShareOfBlock(step);
  ForPages(
      gate, step, share.lo, Min(share.hi, step.work),
      [&](uint32_t r) { return step.rows[r].doomed == 0; },
      [&](uint32_t t, uint64_t k) { ValidatePage(gate, step, scratch, t, k); });
  for (uint64_t i = Max(share.lo, step.work) + threadIdx.x; i < share.hi; i += blockDim.x) {
    const uint64_t at = i - step.work;
    if (at < step.pool_task_count) {
      ValidatePool(gate, step, scratch, static_cast<uint32_t>(at));
    } else {
      ValidateRow(gate, step, scratch, static_cast<uint32_t>(at - step.pool_task_count));
    }
  }
  if (!LastBlock(scratch)) return;
  for (uint32_t r = threadIdx.x; r < step.row_count; r += blockDim.x) {
    const uint32_t reasons = CompleteRow(gate, step, scratch, r);
    scratch.row_reasons[r] = reasons;
    if (reasons != 0) Count(scratch, kCounterRowsFailed, 1);
  }
  __syncthreads();
  for (uint32_t r = 0; r < step.row_count && step.sanitise != 0; ++r) {
    if (scratch.row_reasons[r] != 0) SanitiseRow(gate, step, r);
  }
  __threadfence();
  __syncthreads();
  for (uint32_t r = threadIdx.x; r < step.row_count; r += blockDim.x) {
    scratch.verdicts[r] = MakeVerdict(step.step, scratch.row_reasons[r]);
  }
  if (threadIdx.x == 0) Count(scratch, kCounterRuns, 1);
}

// --- confirm ------------------------------------------------------------------------------------

__device__ KVF_OUT_OF_LINE inline void RecheckPage(const GateView& gate, const StepView& step,
                                                   const StepScratch& scratch, uint32_t t,
                                                   uint64_t k, When when) {
  const RowPool rp = OpenRowPool(gate, step, t);
  if (rp.row->kind == RowKind::kPad) {
    SuspectPadEntries(step, scratch, rp, k * rp.per_page, (k + 1) * rp.per_page);
    return;
  }
  ReportPlace(scratch, rp.task->row_task, rp.task->pool, static_cast<uint32_t>(k),
              ConfirmPage(gate, step, scratch, rp, k, when));
}

__device__ KVF_OUT_OF_LINE inline void RecheckPool(const GateView& gate, const StepView& step,
                                                   const StepScratch& scratch, uint32_t t) {
  const uint32_t r = step.pool_tasks[t].row_task;
  if (!CleanSoFar(step, scratch, r)) return;
  const RowPool rp = OpenRowPool(gate, step, t);
  if (rp.row->kind == RowKind::kPad) {
    SuspectPad(step, scratch, rp);
    return;
  }
  for (uint64_t i = FirstStray(rp); i < SlotCount(rp);) {
    const PlaceAt stray = ConfirmStray(step, rp, i);
    ReportPlace(scratch, r, rp.task->pool, stray.at, stray.place);
  }
}

__device__ KVF_OUT_OF_LINE inline void RecheckRow(const GateView& gate, const StepView& step,
                                                  const StepScratch& scratch, uint32_t r) {
  if (step.rows[r].kind == RowKind::kPad || !CleanSoFar(step, scratch, r)) return;
  ReportPlace(scratch, r, ~0u, ~0u, ConfirmRow(gate, step, r));
}

__device__ inline void Recheck(const GateView& gate, const StepView& step,
                               const StepScratch& scratch, When when) {
  const BlockShare share = ShareOfBlock(step);
  ForPages(
      gate, step, share.lo, Min(share.hi, step.work),
      [&](uint32_t r) { return CleanSoFar(step, scratch, r); },
      [&](uint32_t t, uint64_t k) { RecheckPage(gate, step, scratch, t, k, when); });
  for (uint64_t i = Max(share.lo, step.work) + threadIdx.x; i < share.hi; i += blockDim.x) {
    const uint64_t at = i - step.work;
    if (at < step.pool_task_count) {
      RecheckPool(gate, step, scratch, static_cast<uint32_t>(at));
    } else {
      RecheckRow(gate, step, scratch, static_cast<uint32_t>(at - step.pool_task_count));
    }
  }
}

// The last block: rows that were clean at validate and aren't any more.
__device__ KVF_OUT_OF_LINE inline void CompleteRecheck(const GateView& gate, const StepView& step,
                                                       const StepScratch& scratch) {
  for (uint32_t r = threadIdx.x; r < step.row_count; r += blockDim.x) {
    if (!CleanSoFar(step, scratch, r)) continue;
    uint32_t reasons = atomicOr(reinterpret_cast<unsigned*>(scratch.row_reasons + r), 0u);
    if ((reasons & kSuspectPad) != 0) {
      const Place place = ConfirmRow(gate, step, r);
      reasons = place.clean() ? 0 : 1u << place.reason;
      if (!place.clean()) Emit(scratch, r, ~0u, ~0u, place);
    }
    scratch.row_reasons[r] = reasons;
    if (reasons == 0) continue;
    Count(scratch, kCounterRowsFailed, 1);
    scratch.verdicts[r] = MakeVerdict(step.step, reasons);
  }
  if (threadIdx.x == 0) Count(scratch, kCounterRuns, 1);
}

// The last block: tables that were only borrowed are given back, before verdicts change.
__device__ KVF_OUT_OF_LINE inline void RestoreTables(const GateView& gate, const StepView& step,
                                                     const StepScratch& scratch) {
  if (step.sanitise == 0) return;
  for (uint32_t t = 0; t < step.pool_task_count; ++t) {
    const PoolTask& task = step.pool_tasks[t];
    if (step.tables[task.pool].sanitise != SanitiseMode::kRestore) continue;
    if (!FailedSoFar(step, scratch, task.row_task)) continue;
    const RowPool rp = OpenRowPool(gate, step, t);
    const SanitisePlan plan = PlanSanitise(step, rp);
    for (uint64_t i = threadIdx.x; i < plan.entries.count; i += blockDim.x) {
      RestoreEntry(rp, plan, i);
    }
  }
}

// The last block stores for clean rows: the few write pages of a decode step one thread a row, a
// prefill chunk's all threads together.
__device__ KVF_OUT_OF_LINE inline void StoreRows(const GateView& gate, const StepView& step,
                                                 const StepScratch& scratch) {
  constexpr uint32_t kFew = 4;
  const auto wants = [&](const PoolTask& task) {
    return task.write_pages != 0 && step.rows[task.row_task].kind != RowKind::kPad &&
           CleanSoFar(step, scratch, task.row_task);
  };
  for (uint32_t t = threadIdx.x; t < step.pool_task_count; t += blockDim.x) {
    if (!wants(step.pool_tasks[t])) continue;
    const RowPool rp = OpenRowPool(gate, step, t);
    for (uint64_t w = 0; w < Min(kFew, rp.task->write_pages); ++w) Store(gate, step, rp, w);
  }
  for (uint32_t t = 0; t < step.pool_task_count; ++t) {
    if (step.pool_tasks[t].write_pages <= kFew || !wants(step.pool_tasks[t])) continue;
    const RowPool rp = OpenRowPool(gate, step, t);
    for (uint64_t w = kFew + threadIdx.x; w < rp.task->write_pages; w += blockDim.x) {
      Store(gate, step, rp, w);
    }
  }
}

__global__ void __launch_bounds__(kFenceThreads, kFenceBlocksAtOnce)
    ConfirmKernel(const KVF_GRID_CONSTANT GateView gate, const KVF_GRID_CONSTANT StepView step,
                  const KVF_GRID_CONSTANT StepScratch scratch, ConfirmPart part) {
  const When when = part == ConfirmPart::kRecheckOnly ? When::kAfterStore : When::kConfirm;
  if (part != ConfirmPart::kStoreOnly) Recheck(gate, step, scratch, when);
  if (!LastBlock(scratch)) return;
  if (part != ConfirmPart::kRecheckOnly) RestoreTables(gate, step, scratch);
  __syncthreads();
  if (part != ConfirmPart::kStoreOnly) CompleteRecheck(gate, step, scratch);
  __threadfence();
  __syncthreads();
  if (part != ConfirmPart::kRecheckOnly) StoreRows(gate, step, scratch);
}

// --- apply --------------------------------------------------------------------------------------

// Items name different targets, so each may go to any thread. One that names what the gate hasn't
// got changes nothing: the row that relies on it then fails.
__global__ void __launch_bounds__(kFenceThreads)
    ApplyKernel(GateView gate, const ApplyItem* items, uint64_t count) {
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x) {
    Apply(gate, items[i]);
  }
}

// Blocks of a launch with that many items, at most `most`.
inline unsigned FenceBlocks(uint64_t items, unsigned most) {
  return static_cast<unsigned>(Max(1, Min(CeilDiv(items, kFenceThreads), most)));
}
inline uint64_t FenceItems(const StepView& step) {
  return step.work + step.pool_task_count + step.row_count;
}

}  // namespace KVF_KERNEL_BUILD
}  // namespace kvfence::fence
