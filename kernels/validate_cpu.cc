// Validate, confirm and apply on the CPU: one thread, rows in order.
//
// Idea: who judges which place, nothing else; every decision stands in validate_core.h and
// settle_core.h, and the tight loop over the common case in validate_fast.h. Invariant: a verdict
// word is written only after everything of the row was judged (I-9).
#include <algorithm>
#include <cstdint>
#include <tuple>

#include "kvfence/check.h"
#include "kvfence/validate.h"
#include "settle_core.h"
#include "validate_fast.h"

namespace kvfence {
namespace {

using fence::Bit;
using fence::Place;
using fence::PlaceAt;
using fence::RowPool;
using fence::When;

// One launch: where findings and reasons go.
class Launch {
 public:
  Launch(const GateView& gate, const StepView& step, const StepScratch& scratch)
      : gate_(gate), step_(step), scratch_(scratch), first_finding_(*scratch.finding_count) {}

  void Report(uint32_t row_task, uint32_t pool, uint32_t at, const Place& place) {
    if (place.clean()) return;
    scratch_.row_reasons[row_task] |= 1u << place.reason;
    const uint32_t i = (*scratch_.finding_count)++;
    if (i >= scratch_.finding_capacity) return;
    scratch_.findings[i] =
        DeviceFinding{row_task, pool, at, place.reason, place.page, place.expected, place.found};
  }

  // Findings of this launch in row, pool, page order; whole rows come last of their row.
  void SortFindings() {
    const uint32_t end = std::min(*scratch_.finding_count, scratch_.finding_capacity);
    if (end <= first_finding_ + 1) return;
    std::stable_sort(scratch_.findings + first_finding_, scratch_.findings + end,
                     [](const DeviceFinding& a, const DeviceFinding& b) {
                       return std::tie(a.row_task, a.pool, a.at) <
                              std::tie(b.row_task, b.pool, b.at);
                     });
  }

 protected:
  // Calls f(pool task index) for those of a row.
  template <class F>
  void ForPoolTasks(uint32_t row_task, F&& f) {
    if (next_task_ >= step_.pool_task_count || step_.pool_tasks[next_task_].row_task > row_task) {
      next_task_ = fence::FirstPoolTask(step_, row_task);
    }
    while (next_task_ < step_.pool_task_count && step_.pool_tasks[next_task_].row_task < row_task) {
      ++next_task_;
    }
    for (; next_task_ < step_.pool_task_count && step_.pool_tasks[next_task_].row_task == row_task;
         ++next_task_) {
      f(next_task_);
    }
  }

  const GateView& gate_;
  const StepView& step_;
  const StepScratch& scratch_;

 private:
  uint32_t first_finding_;
  uint32_t next_task_ = 0;
};

class Validate : public Launch {
 public:
  using Launch::Launch;

  void Run() {
    for (uint32_t r = 0; r < step_.row_count; ++r) JudgeRowTask(r);
    for (uint32_t r = 0; r < step_.row_count; ++r) Finish(r);
    scratch_.counters[kCounterRuns] += 1;
    SortFindings();
  }

 private:
  void JudgeRowTask(uint32_t r) {
    const RowTask& row = step_.rows[r];
    if (row.doomed != 0) return;
    scratch_.counters[kCounterRows] += 1;
    if (row.kind == RowKind::kPad) {
      Report(r, ~0u, ~0u, fence::JudgePad(gate_, step_, r, step_.checks));
    } else {
      Report(r, ~0u, ~0u, fence::JudgeRow(gate_, step_, r, step_.checks));
    }
    ForPoolTasks(r, [&](uint32_t t) { JudgePool(r, t); });
  }

  void JudgePool(uint32_t r, uint32_t t) {
    const RowPool rp = fence::OpenRowPool(gate_, step_, t);
    scratch_.counters[kCounterEntries] += fence::CountEntries(rp);
    if (rp.row->kind == RowKind::kPad) return;
    fence::ForEachDoubtful(gate_, step_, rp, [&](uint64_t k) {
      const Place place = fence::JudgePage(gate_, step_, scratch_, rp, k);
      if (place.clean()) return;
      Report(r, rp.task->pool, static_cast<uint32_t>(k), place);
      if (!fence::FailsGroup(gate_, step_, rp, k, place)) return;
      uint32_t& failed = scratch_.group_failed[rp.row->group];
      failed = std::max(failed, ~static_cast<uint32_t>(k));
    });
    for (uint64_t i = fence::FirstStray(rp); i < fence::SlotCount(rp);) {
      const PlaceAt stray = fence::NextStray(rp, step_.checks, i);
      Report(r, rp.task->pool, stray.at, stray.place);
    }
    for (uint32_t w = 0; w < rp.task->write_pages; ++w) fence::NoteStamp(scratch_, rp, w);
  }

  void Finish(uint32_t r) {
    const RowTask& row = step_.rows[r];
    uint32_t& reasons = scratch_.row_reasons[r];
    reasons |= fence::DoomedMask(row);
    const uint32_t group_failed = scratch_.group_failed[row.group];
    const bool own = (reasons & Bit(Reason::kPageMismatch)) != 0;
    if (row.doomed == 0 && group_failed != 0 && !own) {
      const fence::GroupFinding group = fence::JudgeGroup(gate_, step_, r, ~group_failed);
      Report(r, group.pool, ~group_failed, group.place);
    }
    if (reasons != 0) {
      scratch_.counters[kCounterRowsFailed] += 1;
      if (step_.sanitise != 0) SanitiseRowCpu(gate_, step_, r);
    }
    scratch_.verdicts[r] = MakeVerdict(step_.step, reasons);
  }
};

class Confirm : public Launch {
 public:
  Confirm(const GateView& gate, const StepView& step, const StepScratch& scratch, ConfirmPart part)
      : Launch(gate, step, scratch),
        when_(part == ConfirmPart::kRecheckOnly ? When::kAfterStore : When::kConfirm) {}

  // Tables that were only borrowed are given back before anything is judged anew.
  void Restore() {
    if (step_.sanitise == 0) return;
    for (uint32_t r = 0; r < step_.row_count; ++r) {
      if (!fence::FailedSoFar(step_, scratch_, r)) continue;
      ForPoolTasks(r, [&](uint32_t t) {
        const RowPool rp = fence::OpenRowPool(gate_, step_, t);
        if (rp.table->sanitise != SanitiseMode::kRestore) return;
        const fence::SanitisePlan plan = fence::PlanSanitise(step_, rp);
        for (uint64_t i = 0; i < plan.entries.count; ++i) fence::RestoreEntry(rp, plan, i);
      });
    }
  }

  void Recheck() {
    for (uint32_t r = 0; r < step_.row_count; ++r) {
      if (!fence::CleanSoFar(step_, scratch_, r)) continue;
      scratch_.row_reasons[r] = 0;
      Report(r, ~0u, ~0u, fence::ConfirmRow(gate_, step_, r));
      if (step_.rows[r].kind != RowKind::kPad) {
        ForPoolTasks(r, [&](uint32_t t) { RecheckPool(r, t); });
      }
      if (scratch_.row_reasons[r] == 0) continue;
      scratch_.counters[kCounterRowsFailed] += 1;
      scratch_.verdicts[r] = MakeVerdict(step_.step, scratch_.row_reasons[r]);
    }
    scratch_.counters[kCounterRuns] += 1;
    SortFindings();
  }

  void Store() {
    for (uint32_t r = 0; r < step_.row_count; ++r) {
      if (step_.rows[r].kind == RowKind::kPad || !fence::CleanSoFar(step_, scratch_, r)) continue;
      ForPoolTasks(r, [&](uint32_t t) {
        const RowPool rp = fence::OpenRowPool(gate_, step_, t);
        for (uint32_t w = 0; w < rp.task->write_pages; ++w) fence::Store(gate_, step_, rp, w);
      });
    }
  }

 private:
  void RecheckPool(uint32_t r, uint32_t t) {
    const RowPool rp = fence::OpenRowPool(gate_, step_, t);
    fence::ForEachDoubtful(gate_, step_, rp, [&](uint64_t k) {
      Report(r, rp.task->pool, static_cast<uint32_t>(k),
             fence::ConfirmPage(gate_, step_, scratch_, rp, k, when_));
    });
    for (uint64_t i = fence::FirstStray(rp); i < fence::SlotCount(rp);) {
      const PlaceAt stray = fence::ConfirmStray(step_, rp, i);
      Report(r, rp.task->pool, stray.at, stray.place);
    }
  }

  const When when_;
};

void Reset(const StepView& step, const StepScratch& scratch) {
  std::fill_n(scratch.verdicts, step.row_count, VerdictWord{0});
  std::fill_n(scratch.row_reasons, step.row_count, 0u);
  std::fill_n(scratch.group_done, step.group_count, uint64_t{0});
  std::fill_n(scratch.group_failed, step.group_count, 0u);
  std::fill_n(scratch.counters, kCounters, uint64_t{0});
  *scratch.finding_count = 0;
}

}  // namespace

void ApplyCpu(const GateView& gate, const ApplyItem* items, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    KVF_CHECK(fence::Apply(gate, items[i]), "I-11: a delta names what the gate hasn't got");
  }
}

void ValidateCpu(const GateView& gate, const StepView& step, const StepScratch& scratch) {
  Reset(step, scratch);
  Validate(gate, step, scratch).Run();
}

void ConfirmCpu(const GateView& gate, const StepView& step, const StepScratch& scratch,
                ConfirmPart part) {
  Confirm confirm(gate, step, scratch, part);
  if (part != ConfirmPart::kRecheckOnly) confirm.Restore();
  if (part != ConfirmPart::kStoreOnly) confirm.Recheck();
  if (part != ConfirmPart::kRecheckOnly) confirm.Store();
}

void SanitiseRowCpu(const GateView& gate, const StepView& step, uint32_t row_task) {
  for (uint32_t t = fence::FirstPoolTask(step, row_task);
       t < step.pool_task_count && step.pool_tasks[t].row_task == row_task; ++t) {
    const RowPool rp = fence::OpenRowPool(gate, step, t);
    const fence::SanitisePlan plan = fence::PlanSanitise(step, rp);
    for (uint64_t i = 0; i < plan.entries.count; ++i) fence::SanitiseEntry(rp, plan, i);
    for (uint64_t i = 0; i < plan.slots.count; ++i) fence::SanitiseSlot(rp, plan, i);
    fence::SanitiseLength(rp);
  }
}

}  // namespace kvfence
