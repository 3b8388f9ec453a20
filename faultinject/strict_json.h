// Numbers from files that others may have touched: each is a count that can be, or the file is
// refused by the field's name.
//
// nlohmann's get<uint64_t> takes -5 for 2^64-5, 1.5 for 1 and true for 1. Nothing gets better by
// being misread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvfence {

// What no count of a campaign reaches; 65536 shards of it don't wrap when they add up.
inline constexpr uint64_t kMostCounted = (uint64_t{1} << 48) - 1;

// Caught where a file is read, never further up.
struct FieldError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A whole number of 0..most.
inline uint64_t CountOf(const nlohmann::ordered_json& json, const std::string& field,
                        uint64_t most = kMostCounted) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    if (value <= most) return value;
  }
  throw FieldError(
      field + " must be a number of 0.." + std::to_string(most) + ", not " +
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).substr(0, 60));
}

// A list of them, of the size that `counts` has.
template <class Counts>
void CountsOf(const nlohmann::ordered_json& json, const std::string& field, Counts* counts,
              uint64_t most = kMostCounted) {
  if (!json.is_array() || json.size() != counts->size()) {
    throw FieldError(field + " must be a list of " + std::to_string(counts->size()));
  }
  for (size_t i = 0; i < counts->size(); ++i) {
    (*counts)[i] = CountOf(json[i], field + "[" + std::to_string(i) + "]", most);
  }
}

// Seconds: finite, not negative.
inline double SecondsOf(const nlohmann::ordered_json& json, const std::string& field) {
  if (json.is_number() && json.get<double>() >= 0 && json.get<double>() < 1e15) {
    return json.get<double>();
  }
  throw FieldError(field + " must be a number of seconds, not " + json.dump().substr(0, 60));
}

}  // namespace kvfence
