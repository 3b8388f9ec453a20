// Text into HTML: escaping, and numbers as people read them.
//
// Invariant: whatever a name holds (markup, quotes, control bytes, bytes that aren't UTF-8), it
// comes out as text. Every string of a report that isn't ours goes through Escape or ScriptJson.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvfence::tools {

// For element content and for attribute values in double quotes. Bytes that aren't UTF-8 and
// control characters become U+FFFD.
std::string Escape(std::string_view text);
// JSON for the inside of a <script>: the same value, without '<', '>' and '&'.
std::string ScriptJson(std::string_view json);
// A file name as a relative link.
std::string LinkTo(std::string_view file);

// "12,031".
std::string Grouped(uint64_t number);
// "98.7%"; never "100%" or "0%" for what isn't all or nothing. Of nothing: "-".
std::string Percent(uint64_t part, uint64_t whole);
// "1 fault", "2 faults".
std::string Count(uint64_t number, std::string_view noun);
// A CSS number with three digits, 0..1.
std::string Fraction(double value);

}  // namespace kvfence::tools
