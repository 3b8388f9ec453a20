// Random batches with random damage: the CPU launches say what the naive oracle says, the CUDA
// source says the same bit for bit in any order of blocks and threads, and nobody else's bytes
// change.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "kvfence/reason.h"
#include "tests/kernels/validate_random.h"
#include "tests/kernels/validate_run.h"
#include "tests/model/validate_model.h"

namespace kvfence {
namespace {

struct Case {
  Batch batch;
  Rng rng;
};
Case MakeCase(uint64_t seed, uint32_t pools, uint32_t rows, uint32_t damage) {
  Rng rng(seed);
  Batch batch = RandomBatch(rng, pools, rows);
  Vary(batch, rng);
  for (uint32_t i = 0; i < damage; ++i) Damage(batch, rng);
  batch.Bind();
  return Case{std::move(batch), rng};
}
Case AnyCase(uint32_t least_damage) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto pools = *rc::gen::inRange<uint32_t>(1, 4);
  const auto rows = *rc::gen::inRange<uint32_t>(1, 6);
  const auto damage = *rc::gen::inRange<uint32_t>(least_damage, 8);
  return MakeCase(seed, pools, rows, damage);
}

RC_GTEST_PROP(ValidateProperty, AnUndamagedBatchIsClean, ()) {
  Rng rng(*rc::gen::arbitrary<uint64_t>());
  Batch batch =
      RandomBatch(rng, *rc::gen::inRange<uint32_t>(1, 4), *rc::gen::inRange<uint32_t>(1, 6));
  batch.Bind();
  const auto before = MemoryOf(batch);
  ValidateCpuOn(batch);
  if (batch.finding_count != 0) RC_FAIL(Show(FindingsOf(batch)));
  RC_ASSERT(MemoryOf(batch) == before);
  ConfirmCpuOn(batch);
  if (batch.finding_count != 0) RC_FAIL(Show(FindingsOf(batch)));
  for (uint32_t r = 0; r < batch.rows.size(); ++r) RC_ASSERT(batch.ReasonsOf(r) == 0u);
}

RC_GTEST_PROP(ValidateProperty, SaysWhatTheOracleSays, ()) {
  Case c = AnyCase(0);
  const ModelVerdict model = ModelValidate(c.batch.gate(), c.batch.step());
  const auto seen = ModelSeen(c.batch.gate(), c.batch.step());
  ValidateCpuOn(c.batch);
  const auto findings = FindingsOf(c.batch);
  if (findings != model.findings)
    RC_FAIL("cpu " + Show(findings) + "\nmodel " + Show(model.findings));
  RC_ASSERT(ReasonsOf(c.batch) == model.reasons);
  for (const auto& [i, stamp] : seen) RC_ASSERT(c.batch.seen_stamps.at(i) == stamp);
  RC_TAG(findings.empty() ? "clean" : "findings");
}

RC_GTEST_PROP(ValidateProperty, ConfirmSaysAndStoresWhatTheOracleSays, ()) {
  Case c = AnyCase(0);
  Batch& batch = c.batch;
  ValidateCpuOn(batch);
  const std::vector<Stamp> seen = batch.seen_stamps;
  const std::vector<uint32_t> before = ReasonsOf(batch);
  const uint32_t first = batch.finding_count;
  for (uint64_t i = c.rng.Below(4); i > 0; --i) Damage(batch, c.rng, true);
  const ModelVerdict model = ModelConfirm(batch.gate(), batch.step(), before, seen, false);
  const ModelStores stores = ModelStore(batch.gate(), batch.step(), model.reasons);
  auto records = batch.records;
  for (const auto& [place, record] : stores.records) {
    records[place.first][static_cast<size_t>(place.second)] = record;
  }
  auto arena = batch.arena;
  for (const auto& [index, stamp] : stores.expected_stamps) arena[index].stamp = stamp;
  ConfirmCpuOn(batch);
  const auto findings = FindingsOf(batch, first);
  if (findings != model.findings)
    RC_FAIL("cpu " + Show(findings) + "\nmodel " + Show(model.findings));
  RC_ASSERT(ReasonsOf(batch) == model.reasons);
  for (size_t p = 0; p < records.size(); ++p) {
    RC_ASSERT(BytesOf(batch.records[p]) == BytesOf(records[p]));
  }
  RC_ASSERT(BytesOf(batch.arena) == BytesOf(arena));
  RC_TAG(findings.empty() ? "clean" : "findings");
}

RC_GTEST_PROP(ValidateProperty, StoringFirstAndCheckingLaterTripsOverNothing, ()) {
  Case c = AnyCase(0);
  Batch& batch = c.batch;
  ValidateCpuOn(batch);
  const std::vector<Stamp> seen = batch.seen_stamps;
  const uint32_t first = batch.finding_count;
  ConfirmCpuOn(batch, ConfirmPart::kStoreOnly);
  RC_ASSERT(batch.finding_count == first);
  const std::vector<uint32_t> reasons = ReasonsOf(batch);
  const ModelVerdict model = ModelConfirm(batch.gate(), batch.step(), reasons, seen, true);
  const auto memory = MemoryOf(batch);
  ConfirmCpuOn(batch, ConfirmPart::kRecheckOnly);
  RC_ASSERT(MemoryOf(batch) == memory);
  RC_ASSERT(ReasonsOf(batch) == model.reasons);
  for (const ModelFinding& f : FindingsOf(batch, first)) {
    RC_ASSERT(f.reason != Reason::kChangedDuringStep);
  }
}

RC_GTEST_PROP(ValidateProperty, CudaSourceSaysTheSameInAnyOrder, ()) {
  Case c = AnyCase(0);
  Batch cpu = c.batch;
  Batch shim = c.batch;
  cpu.Bind();
  shim.Bind();
  const auto schedule = *rc::gen::inRange<uint64_t>(0, 50);
  ValidateCpuOn(cpu);
  ValidateShimOn(shim, schedule);
  RC_ASSERT(OutcomeOf(cpu) == OutcomeOf(shim));
  Rng same = c.rng;
  for (uint64_t i = c.rng.Below(3); i > 0; --i) Damage(cpu, c.rng, true);
  for (uint64_t i = same.Below(3); i > 0; --i) Damage(shim, same, true);
  const ConfirmPart part = *rc::gen::element(ConfirmPart::kBoth, ConfirmPart::kStoreOnly);
  ConfirmCpuOn(cpu, part);
  ConfirmShimOn(shim, part, schedule + 1);
  RC_ASSERT(OutcomeOf(cpu) == OutcomeOf(shim));
  if (part == ConfirmPart::kBoth) return;
  ConfirmCpuOn(cpu, ConfirmPart::kRecheckOnly);
  ConfirmShimOn(shim, ConfirmPart::kRecheckOnly, schedule + 2);
  RC_ASSERT(OutcomeOf(cpu) == OutcomeOf(shim));
}

// Elements of an index-pointed array that are row r's by a sane pointer pair.
bool InRange(const IntBuffer& indptr, uint32_t row, uint64_t size, uint64_t i) {
  if (row + 1 >= indptr.size()) return false;
  const int64_t a = indptr.Get(row), b = indptr.Get(row + 1);
  if (a < 0 || b < a || b > static_cast<int64_t>(size)) return false;
  return static_cast<int64_t>(i) >= a && static_cast<int64_t>(i) < b;
}

bool HasEntry(const Batch& batch, uint32_t pool, uint32_t row, uint64_t i) {
  const PoolArrays& a = batch.arrays[pool];
  if (a.shape.layout == TableLayout::kCsr) return InRange(a.indptr, row, a.entries.size(), i);
  const int64_t line = a.row_map.empty() ? row : a.row_map.Get(row);
  if (line < 0 || line >= a.shape.rows) return false;
  const uint64_t begin = static_cast<uint64_t>(line) * a.shape.stride;
  return i >= begin && i < begin + a.shape.width;
}

// I-10: what a clean row reads, and what belongs to no failing row, is as it was.
RC_GTEST_PROP(ValidateProperty, I10SanitisingChangesNoOtherRow, ()) {
  Case c = AnyCase(1);
  Batch& after = c.batch;
  const Batch before = after;
  ValidateCpuOn(after);
  std::set<uint32_t> failed;
  std::set<uint32_t> clean;
  for (uint32_t r = 0; r < after.rows.size(); ++r) {
    (after.ReasonsOf(r) != 0 && after.sanitise ? failed : clean).insert(after.rows[r].row);
  }
  for (uint32_t p = 0; p < after.pools.size(); ++p) {
    const PoolArrays& a = after.arrays[p];
    const PoolArrays& b = before.arrays[p];
    RC_ASSERT(a.indptr == b.indptr);
    RC_ASSERT(a.slot_indptr == b.slot_indptr);
    RC_ASSERT(a.row_map == b.row_map);
    RC_ASSERT(BytesOf(after.records[p]) == BytesOf(before.records[p]));
    const auto owned = [&](const std::set<uint32_t>& rows, auto&& has) {
      return std::any_of(rows.begin(), rows.end(), has);
    };
    for (uint64_t i = 0; i < a.entries.size(); ++i) {
      if (a.entries.Get(i) == b.entries.Get(i)) continue;
      const auto has = [&](uint32_t row) { return HasEntry(before, p, row, i); };
      RC_ASSERT(owned(failed, has));
      // A clean row's line may lose only what no kernel can read.
      const int64_t unit = (b.entries.Get(i) & b.shape.mask) / b.shape.divisor;
      const bool unreadable =
          b.entries.Get(i) < 0 || unit / b.shape.entries_per_page >= before.pools[p].pages;
      RC_ASSERT(unreadable || !owned(clean, has));
    }
    for (uint64_t i = 0; i < a.slots.size(); ++i) {
      if (a.slots.Get(i) == b.slots.Get(i)) continue;
      const auto has = [&](uint32_t row) { return InRange(b.slot_indptr, row, b.slots.size(), i); };
      RC_ASSERT(owned(failed, has));
      RC_ASSERT(!owned(clean, has));
    }
    for (uint64_t i = 0; i < a.lengths.size(); ++i) {
      if (a.lengths.Get(i) != b.lengths.Get(i)) RC_ASSERT(failed.contains(uint32_t(i)));
    }
    for (uint64_t i = 0; i < a.last_page_len.size(); ++i) {
      if (a.last_page_len.Get(i) == b.last_page_len.Get(i)) continue;
      RC_ASSERT(failed.contains(uint32_t(i)));
    }
  }
}

// A failing row reads the null page only, and writes nothing.
RC_GTEST_PROP(ValidateProperty, FailingRowsAreHarmless, ()) {
  Case c = AnyCase(1);
  Batch& batch = c.batch;
  ValidateCpuOn(batch);
  RC_PRE(batch.sanitise);
  for (const PoolTask& task : batch.tasks) {
    if (batch.ReasonsOf(task.row_task) == 0) continue;
    const uint32_t row = batch.rows[task.row_task].row;
    const PoolArrays& a = batch.arrays[task.pool];
    const PoolState& pool = batch.pools[task.pool];
    const bool csr = a.shape.layout == TableLayout::kCsr;
    bool sane_slots = row < a.slot_rows;
    for (uint64_t r = 1; r < a.slot_indptr.size(); ++r) {
      sane_slots = sane_slots && a.slot_indptr.Get(r - 1) <= a.slot_indptr.Get(r);
    }
    if (a.shape.sanitise == SanitiseMode::kNever || csr || !a.row_map.empty()) continue;
    for (uint64_t j = 0; j < uint64_t{task.end_page} * a.shape.entries_per_page; ++j) {
      const uint64_t i = batch.EntryIndex(task.pool, row, j);
      const int64_t unit = (a.entries.Get(i) & a.shape.mask) / a.shape.divisor;
      RC_ASSERT(unit / a.shape.entries_per_page == int64_t{pool.null_page});
    }
    for (uint64_t i = 0; i < a.slots.size() && sane_slots; ++i) {
      if (!InRange(a.slot_indptr, row, a.slots.size(), i)) continue;
      const int64_t slot = a.slots.Get(i);
      const bool skipped = pool.has_skip_slot != 0 ? slot == pool.skip_slot : slot < 0;
      RC_ASSERT(skipped);
    }
    if (!a.lengths.empty() && batch.rows[task.row_task].kind == RowKind::kLive && !pool.free_form) {
      const int64_t length = a.lengths.Get(row);
      RC_ASSERT(length >= 0);
      RC_ASSERT(length <= int64_t(a.shape.width / a.shape.entries_per_page * pool.page_size));
    }
  }
}

// The random batches are no use unless they meet every reason that the device gives.
TEST(ValidateProperty, EveryReasonIsMet) {
  std::vector<int> met(kReasonCount, 0);
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Case c = MakeCase(seed, static_cast<uint32_t>(1 + seed % 3),
                      static_cast<uint32_t>(1 + seed % 5), static_cast<uint32_t>(1 + seed % 4));
    ValidateCpuOn(c.batch);
    for (uint64_t i = c.rng.Below(4); i > 0; --i) Damage(c.batch, c.rng, true);
    ConfirmCpuOn(c.batch);
    ASSERT_LE(c.batch.finding_count, c.batch.finding_capacity);
    for (const ModelFinding& f : FindingsOf(c.batch)) ++met[static_cast<size_t>(f.reason)];
  }
  for (Reason reason :
       {Reason::kPageOutOfRange, Reason::kPageMismatch, Reason::kTagMismatch,
        Reason::kStampMismatch, Reason::kScaleMismatch, Reason::kNotCommitted, Reason::kWriteTarget,
        Reason::kWriteShared, Reason::kLengthMismatch, Reason::kRowTail, Reason::kRowEpoch,
        Reason::kPadRow, Reason::kTableEpoch, Reason::kChangedDuringStep}) {
    EXPECT_GE(met[static_cast<size_t>(reason)], 5) << ReasonName(reason);
  }
}

}  // namespace
}  // namespace kvfence
