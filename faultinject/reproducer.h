// The smallest log beside a whole one: what a campaign leaves for whoever looks into a bad outcome.
#pragma once

#include <atomic>
#include <string>

namespace kvfence {

// The name of the smallest log beside this one.
std::string SmallestNameOf(const std::string& log);

// Shrinks `dir`/`log` to its first finding. Returns the name of the file written beside it, whole
// or not at all; empty where the log shows no finding, or none that could be written down.
std::string WriteSmallest(const std::string& dir, const std::string& log,
                          const std::atomic<bool>* stop);

}  // namespace kvfence
