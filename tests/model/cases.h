// How many cases a random test tries: KVFENCE_CASES=10000 in the environment makes the long run.
#pragma once

#include <cstdlib>

#if defined(__SANITIZE_THREAD__)
#define KVF_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define KVF_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVF_THREAD_SANITIZER 1
#endif
#if __has_feature(address_sanitizer)
#define KVF_ADDRESS_SANITIZER 1
#endif
#endif

namespace kvfence::testing {

// ThreadSanitizer follows each access: a case that computes much takes a hundred times as long.
#ifdef KVF_THREAD_SANITIZER
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#ifdef KVF_ADDRESS_SANITIZER
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// KVFENCE_CASES in the environment, or else what's usual.
inline int Cases(int usual) {
  const char* text = std::getenv("KVFENCE_CASES");
  return text == nullptr ? usual : std::atoi(text);
}

}  // namespace kvfence::testing
