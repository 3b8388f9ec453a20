// KVF_CHECK: a broken invariant of ours stops the process, in every build.
//
// It's for our own mistakes only. What an engine got wrong is a finding (data); what a caller got
// wrong is a Status. The text names the invariant by its number in docs/INVARIANTS.md.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kvfence {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const char* why) {
  std::fprintf(stderr, "%s:%d: kvfence invariant broken: %s (%s)\n", file, line, why, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace kvfence

#define KVF_CHECK(condition, why)                      \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::kvfence::CheckFailed(__FILE__, __LINE__, #condition, why))
