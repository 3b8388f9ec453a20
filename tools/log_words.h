// Findings and expectations in words, for every verb that plays logs; and what may stand in a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvfence/check_log.h"

namespace kvfence::tools {

inline constexpr const char* kRed = "\x1b[31m";
inline constexpr const char* kGreen = "\x1b[32m";
inline constexpr const char* kPlain = "\x1b[0m";

// A text from a log as part of one line: its bytes don't steer the terminal, its length is bounded.
std::string Printable(std::string_view text);
// The reasons of a set, in their order.
std::vector<std::string> NamesOf(CheckSet reasons);
// "reason req R page 3 at 0 row 1 step 2: expected 4, found 7"; `pools`: the log's, named where
// there are several.
std::string Words(const LoggedViolation& logged, const std::vector<std::string>& pools);
// "expected ..., which was not reported".
std::string Words(const LoggedExpect& logged, const std::vector<std::string>& pools);

}  // namespace kvfence::tools
