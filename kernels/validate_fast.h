// The common case of validate, as one tight loop: pages that were complete before this step, in a
// plain table, all of them as expected.
//
// Idea: the loop (validate_simd.cc) has no branch but its own; it says only "all equal" or "not".
// Whatever it doesn't call equal is judged page by page by validate_core.h, so it decides nothing
// that stands there: it must only never call equal what validate_core.h would find wrong. CPU only.
#pragma once

#include <cstdint>

#include "validate_plain.h"
#include "validate_simd.h"

namespace kvfence::fence {

inline FastMasks MasksOf(const RowPool& rp, uint32_t checks) {
  const auto has = [&](Reason reason) { return (checks & Bit(reason)) != 0; };
  FastMasks m{};
  m.low = 0xFFFFFFFFull;
  if (has(Reason::kNotCommitted)) m.low |= uint64_t{kFillMask} << 32;
  if (has(Reason::kScaleMismatch)) m.low |= 0xFFFFull << 48;
  m.stamp = has(Reason::kStampMismatch) || has(Reason::kNotCommitted) ? ~uint64_t{0} : 0;
  m.fill = rp.page_size << 32;
  m.scale = rp.pool->page_scales != 0 ? 0 : uint64_t{rp.pool->scale_epoch} << 48;
  m.by_tag = rp.pool->page_scales != 0 ? ~uint64_t{0} : 0;
  m.pages = rp.pool->pages;
  m.null_page = rp.pool->null_page;
  return m;
}

// A part of a row whose expectations lie in one piece: all equal?
inline bool RunEqual(const GateView& gate, const StepView& step, const RowPool& rp, uint64_t first,
                     uint64_t n, const FastLoop& loop, const FastMasks& masks) {
  const Expectation* want = ExpectationAt(gate, step, *rp.task, first);
  const Expectation* last = ExpectationAt(gate, step, *rp.task, first + n - 1);
  if (want == nullptr || last == nullptr) return false;  // a chunk that the gate hasn't got
  const IntArray& entries = rp.table->entries;
  const uint64_t at = rp.entries.begin + first;
  return entries.bits == 32 ? loop.all_equal_32(static_cast<const int32_t*>(entries.data) + at,
                                                want, rp.pool->records, n, masks)
                            : loop.all_equal_64(static_cast<const int64_t*>(entries.data) + at,
                                                want, rp.pool->records, n, masks);
}

// One past the last logical page whose expectation lies behind k's in one piece of the arena. Cut
// at a few chunks: a piece that isn't all equal is judged page by page.
inline uint64_t EndOfRun(const StepView& step, const PoolTask& task, uint64_t k) {
  constexpr uint64_t kChunks = 8;
  const uint32_t* chunks = step.chunks + task.chunk_begin;
  const uint64_t known = CeilDiv(task.expected, kChunkEntries);
  const uint64_t first = k / kChunkEntries;
  uint64_t chunk = first + 1;
  while (chunk < known && chunk < first + kChunks && chunks[chunk] == chunks[chunk - 1] + 1) {
    ++chunk;
  }
  return chunk * kChunkEntries;
}

// The record behind the fast span, which the row writes: asked for before the span's hundreds are
// looked at, so that its judgement needn't wait for the memory.
inline void FetchBehind(const RowPool& rp, const FastSpan& fast) {
  if (fast.end >= Min(rp.task->end_page, rp.entries.count)) return;
  const int64_t page = rp.table->entries.Get(rp.entries.begin + fast.end);
  if (InPool(rp, page)) __builtin_prefetch(rp.pool->records + page);
}

// Calls judge(k) for each logical page of the row that needs a closer look, in ascending order.
template <class Judge>
void ForEachDoubtful(const GateView& gate, const StepView& step, const RowPool& rp, Judge&& judge) {
  const FastSpan fast = FastSpanOf(rp);
  const FastMasks masks = MasksOf(rp, step.checks);
  const FastLoop& loop = BestFastLoop();
  if (fast.first < fast.end) FetchBehind(rp, fast);
  uint64_t k = rp.task->first_page;
  while (k < rp.task->end_page) {
    if (k < fast.first || k >= fast.end) {
      judge(k++);
      continue;
    }
    const uint64_t end = Min(fast.end, EndOfRun(step, *rp.task, k));
    if (RunEqual(gate, step, rp, k, end - k, loop, masks)) {
      k = end;
    } else {
      for (; k < end; ++k) judge(k);
    }
  }
}

}  // namespace kvfence::fence
