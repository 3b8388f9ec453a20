// Runs a program with text on its standard input, and keeps what it says.
#pragma once

#include <string>
#include <vector>

namespace kvfence::testing {

struct ProcessResult {
  int exit_code = -1;  // 127: not found
  std::string output;  // standard output and error together
};

// Finds argv[0] on PATH. Blocks until the program ends.
ProcessResult RunProcess(const std::vector<std::string>& argv, const std::string& input = "");

// Whether `name` is an executable file on PATH.
bool OnPath(const std::string& name);

}  // namespace kvfence::testing
