// Ctrl-C for verbs that work for long: the first ends the work soon and keeps what was done, the
// second ends the program at once.
#pragma once

#include <atomic>

namespace kvfence::tools {

// Takes over SIGINT and SIGTERM; true in the flag once one of them came. The flag lives for ever.
const std::atomic<bool>& StopOnInterrupt();

}  // namespace kvfence::tools
