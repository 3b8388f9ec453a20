// Files that are whole or not there: written under a temporary name beside, then renamed.
#pragma once

#include <string>

#include "kvfence/status.h"

namespace kvfence::tools {

// Makes `dir` (and its parents) and proves that a file can be written in it.
Status PrepareFolder(const std::string& dir);
// Writes the whole text under `path`, or leaves whatever was there as it was.
Status WriteFile(const std::string& path, const std::string& text);

}  // namespace kvfence::tools
