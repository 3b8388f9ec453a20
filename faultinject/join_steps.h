// Leaves out steps of a log by letting later ones do their work: a request that came to its length
// in a hundred decode steps comes to it in one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvfence {

// Indices of the lines that launch a step.
std::vector<size_t> StepLines(const std::vector<std::string>& lines);

// The lines without the steps at the lines `gone` (sorted), their confirms and retires. New tokens
// and write slots of their rows go to the next step that stays with a row of that request.
std::vector<std::string> JoinSteps(const std::vector<std::string>& lines,
                                   const std::vector<size_t>& gone);

}  // namespace kvfence
