// Random passes, and random damage to them: what the property tests and the oracle are fed with.
//
// Idea: a correct batch of random shape (pools, layouts, widths, windows, prefixes, drafts, pads),
// then a few random changes of random words that a fence must judge. Deterministic in its seed.
#pragma once

#include <cstdint>

#include "kvfence/rng.h"
#include "tests/kernels/validate_batch.h"

namespace kvfence {

// An undamaged batch of up to `rows` live rows over up to `pools` pools.
Batch RandomBatch(Rng& rng, uint32_t pools, uint32_t rows);

// Changes one random word of what the fence compares: an array, a record, an expectation, a task.
// `device_only`: only what may change between validate and confirm.
void Damage(Batch& batch, Rng& rng, bool device_only = false);

// Things that are legal but unusual: late pages, sealed pages, doomed rows, masks with few checks.
void Vary(Batch& batch, Rng& rng);

}  // namespace kvfence
