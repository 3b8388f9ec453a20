// The tight loop of validate_fast.h with vector gathers, where the processor has them.
#pragma once

#include <cstdint>

#include "validate_fast_masks.h"

namespace kvfence::fence {

// Are entries[0 .. n) exactly the expected pages, in the expected state?
using AllEqual32 = bool (*)(const int32_t* entries, const Expectation* want,
                            const PageRecord* records, uint64_t n, const FastMasks& masks);
using AllEqual64 = bool (*)(const int64_t* entries, const Expectation* want,
                            const PageRecord* records, uint64_t n, const FastMasks& masks);

// All variants that this processor can run, plain first. They give the same answers.
struct FastLoop {
  const char* name;
  AllEqual32 all_equal_32;
  AllEqual64 all_equal_64;
};
inline constexpr int kMaxFastLoops = 3;
struct FastLoops {
  FastLoop loops[kMaxFastLoops];
  int count;
};
const FastLoops& AvailableFastLoops();
// The best of them.
const FastLoop& BestFastLoop();

}  // namespace kvfence::fence
