// A worker process: does runs as it's told, one at a time, until nobody tells it any more.
#pragma once

#include <atomic>

#include "run_doer.h"

namespace kvfence {

// Makes the process, just forked, a worker: signals meant for the campaign don't reach it, it ends
// with its parent, and all descriptors but this one (negative: none) are closed. Returns where it
// is now.
int BecomeWorker(int socket);

// Never returns. `stop`, shared with the parent: runs end now, cut.
[[noreturn]] void ServeRuns(const DoerOptions& options, const std::atomic<bool>* stop, int socket);

}  // namespace kvfence
