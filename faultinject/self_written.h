// Leaves out how a request's content came to it from elsewhere: its row computes all of its tokens
// by itself, in the step in question.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvfence {

// The lines in which the step at line `step` writes all tokens of its rows whose requests came to
// their length by `ready`, and without that; the same lines where there is nothing to do. What
// brought the content isn't needed any more then, and can be left out line by line.
std::vector<std::string> SelfWritten(const nlohmann::ordered_json& header,
                                     const std::vector<std::string>& lines, size_t step);

}  // namespace kvfence
