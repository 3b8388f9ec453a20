// One line of an event log, key by key: what histories are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvfence::testing {

// {"key":value,...} in the order of the calls.
class Object {
 public:
  Object& Raw(std::string_view key, std::string_view json) {
    text_ += text_.size() == 1 ? "\"" : ",\"";
    text_.append(key).append("\":").append(json);
    return *this;
  }
  Object& Text(std::string_view key, std::string_view value) {
    return Raw(key, "\"" + std::string(value) + "\"");
  }
  template <class Number>
  Object& Number_(std::string_view key, Number value) {
    return Raw(key, std::to_string(value));
  }
  Object& Count(std::string_view key, uint64_t value) { return Number_(key, value); }
  Object& Index(std::string_view key, int64_t value) { return Number_(key, value); }
  std::string Done() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

// [a,b,...] of what `show` makes of each item.
template <class Items, class Show>
std::string List(const Items& items, Show&& show) {
  std::string text = "[";
  for (const auto& item : items) text.append(text.size() == 1 ? "" : ",").append(show(item));
  return text + "]";
}
inline std::string Numbers(const std::vector<int64_t>& items) {
  return List(items, [](int64_t n) { return std::to_string(n); });
}
inline std::string Strings(const std::vector<std::string>& items) {
  return List(items, [](const std::string& s) { return "\"" + s + "\""; });
}

}  // namespace kvfence::testing
