// A naive reading of the Prometheus text format, for comparing with what was meant.
//
// It shares nothing with the serialiser: a line is "series value", a series is its text up to the
// last space.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace kvfence::testing {

// A series as the text writes it: name{label="value",...}. Values need no escape here.
std::string Named(std::string_view name,
                  std::initializer_list<std::pair<std::string_view, std::string_view>> labels);

// Value by series, such as `kvfence_pages{state="free"}`. Fails the test on a series given twice.
std::map<std::string, double> ParseExposition(const std::string& text);

// Family names by their TYPE lines, with the type.
std::map<std::string, std::string> ParseTypes(const std::string& text);

// Every word in `text` that begins with kvfence_, wherever it stands.
std::set<std::string> KvfenceNames(const std::string& text);

// The family of a series name: without the _bucket, _sum or _count of a histogram in `types`.
std::string FamilyOf(const std::string& name, const std::map<std::string, std::string>& types);

// The whole file below the source tree; fails the test if it can't be read.
std::string ReadSourceFile(const std::string& relative);

}  // namespace kvfence::testing
