// How many cases a random test tries: KVFENCE_CASES=10000 in the environment makes the long run.
#pragma once

#include <cstdlib>

namespace kvfence::testing {

// KVFENCE_CASES in the environment, or else what's usual.
inline int Cases(int usual) {
  const char* text = std::getenv("KVFENCE_CASES");
  return text == nullptr ? usual : std::atoi(text);
}

}  // namespace kvfence::testing
