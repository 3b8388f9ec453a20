// Plays a log into a fence that records, and returns what it recorded.
#pragma once

#include <string>

namespace kvfence::testing {

// Up to the first line that the fence refuses, if there is one.
std::string Recorded(const std::string& log);

}  // namespace kvfence::testing
