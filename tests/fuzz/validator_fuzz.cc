// Validate and confirm on arbitrary arrays: tables, lengths, index pointers, slots, row maps and
// decode words full of garbage, each in a heap buffer of exactly its size.
//
// Idea: what the ledger says (records, expectations, tasks) is a consistent random pass, for it
// never comes from the engine's arrays (I-8); the arrays come from the input. ASan sees each read
// outside them. Held against it: every row gets a verdict of this step (I-9), and the CUDA source,
// run on the CPU in a permuted order, leaves the same bytes behind.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kvfence/rng.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/kernels/validate_random.h"
#include "tests/kernels/validate_run.h"

namespace kvfence {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// An array of the input's choice: of any size, with words that mean something or nothing.
IntBuffer Garbage(FuzzInput& in, const IntBuffer& old) {
  const uint8_t how = in.Below(4);
  if (how == 0) return old;
  const uint64_t size = how == 1 ? old.size() : in.Byte();
  IntBuffer buffer(in.Chance(2) ? 64 : 32, size, 0);
  for (uint64_t i = 0; i < std::min(size, old.size()); ++i) buffer.Set(i, old.Get(i));
  for (uint64_t changes = in.Byte() % 32; changes > 0 && size > 0; --changes) {
    buffer.Set(in.Byte() % size, in.Value());
  }
  return buffer;
}

// Index pointers, lengths and maps must be as long as their view says; what they say is free.
void Damage(FuzzInput& in, Batch& batch, uint32_t pool) {
  PoolArrays& a = batch.arrays[pool];
  const auto rows = static_cast<uint64_t>(batch.row_requests.size());
  if (in.Chance(2)) a.entries = Garbage(in, a.entries);
  if (in.Chance(2)) a.slots = Garbage(in, a.slots);
  if (!a.saved.empty()) a.saved = IntBuffer(a.entries.empty() ? 32 : 64, a.entries.size(), 0);
  if (in.Chance(3)) {
    a.lengths = Garbage(in, a.lengths);
    a.length_rows = static_cast<uint32_t>(a.lengths.size());
  }
  if (in.Chance(3)) {
    a.slot_indptr = Garbage(in, a.slot_indptr);
    a.slot_rows = a.slot_indptr.empty() ? 0 : static_cast<uint32_t>(a.slot_indptr.size() - 1);
  }
  if (in.Chance(4)) a.shape.layout = in.Chance(2) ? TableLayout::kCsr : TableLayout::kDense;
  if (a.shape.layout == TableLayout::kCsr) {
    if (in.Chance(2)) a.indptr = Garbage(in, a.indptr);
    a.shape.rows = a.indptr.empty() ? 0 : static_cast<uint32_t>(a.indptr.size() - 1);
    if (a.last_page_len.size() != a.shape.rows || in.Chance(2)) {
      a.last_page_len = IntBuffer(in.Chance(2) ? 64 : 32, a.shape.rows, in.Value());
    }
  } else {
    if (in.Chance(4)) a.shape.width = static_cast<uint64_t>(in.Value());
    if (in.Chance(4)) a.shape.stride = static_cast<uint64_t>(in.Value());
    if (in.Chance(4)) a.shape.rows = static_cast<uint32_t>(in.Value());
  }
  if (in.Chance(4)) {
    a.row_map = IntBuffer(in.Chance(2) ? 64 : 32, rows, in.Value());
    for (uint64_t i = 0; i < rows; ++i) a.row_map.Set(i, in.Value());
  }
  if (in.Chance(4)) a.shape.mask = in.Value();
  if (in.Chance(4)) a.shape.divisor = in.Value();
  if (in.Chance(4)) a.shape.entries_per_page = static_cast<uint32_t>(in.Value());
  if (in.Chance(4)) a.shape.sanitise = static_cast<SanitiseMode>(in.Below(3));
}

void DamagePrefix(FuzzInput& in, Batch& batch) {
  for (auto& prefix : batch.prefixes) {
    if (!in.Chance(2)) continue;
    prefix.resize(in.Byte() % 12);
    for (int64_t& page : prefix) page = in.Value();
  }
}

void Play(FuzzInput in) {
  Rng rng(in.Byte() | in.Byte() << 8);
  const auto pools = 1u + in.Below(2), rows = 1u + in.Below(4);
  Batch grown = RandomBatch(rng, pools, rows);
  if (in.Chance(2)) Vary(grown, rng);
  for (uint32_t pool = 0; pool < pools; ++pool) Damage(in, grown, pool);
  DamagePrefix(in, grown);
  Batch cpu = grown;  // a copied vector is as large as it must be, no larger
  Batch shim = cpu;
  ValidateCpuOn(cpu);
  ValidateShimOn(shim, in.Byte());
  for (uint32_t r = 0; r < cpu.rows.size(); ++r) {
    Require(VerdictIsOf(cpu.verdicts[r], cpu.step_number), "I-9: a row without a verdict");
  }
  Require(cpu.finding_count <= cpu.finding_capacity, "more findings than places");
  Require(OutcomeOf(cpu) == OutcomeOf(shim), "validate: CPU and CUDA source differ");
  const uint64_t seed = in.Word();
  for (Batch* batch : {&cpu, &shim}) {
    Rng same(seed);
    for (uint64_t i = same.Below(4); i > 0; --i) Damage(*batch, same, true);
  }
  const ConfirmPart part = in.Chance(3) ? ConfirmPart::kStoreOnly : ConfirmPart::kBoth;
  ConfirmCpuOn(cpu, part);
  ConfirmShimOn(shim, part, in.Byte());
  Require(OutcomeOf(cpu) == OutcomeOf(shim), "confirm: CPU and CUDA source differ");
}

}  // namespace
}  // namespace kvfence

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvfence::Play(kvfence::FuzzInput(data, size));
  return 0;
}
