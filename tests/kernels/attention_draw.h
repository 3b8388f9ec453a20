// What random cases of decode attention draw alike: formats and layouts.
#pragma once

#include "kvfence/rng.h"
#include "tests/kernels/attention_case.h"

namespace kvfence {

template <class T, size_t kN>
T OneOf(Rng* rng, const T (&all)[kN]) {
  return all[rng->Below(kN)];
}

// Number formats, scales, how the cache and the context are cut; shape->mla is known.
inline void DrawFormats(Rng* rng, Shape* shape) {
  shape->page_scales = rng->Chance(1, 2);
  shape->head_scales = !shape->mla && rng->Chance(1, 3);
  shape->bf16 = rng->Chance(1, 3);
  shape->bf16_kv = rng->Chance(1, 3);
  shape->hnd = rng->Chance(1, 3);
  shape->packed_mla = rng->Chance(1, 2);
  shape->interleaved_kv = rng->Chance(1, 4);
  shape->kv_chunk_size = OneOf(rng, {0u, 32u, 64u, 96u});
}

}  // namespace kvfence
