// The line's pull parser against the JSON library: same texts accepted, same values, any bytes.
#include "integration/json_pull.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kvfence/rng.h"

namespace kvfence {
namespace {

using nlohmann::json;

// Walks a value as a log's reader would, following what the oracle says stands there.
bool Walk(JsonPull* pull, const json& value) {
  if (value.is_object()) {
    if (!pull->BeginObject("an object")) return false;
    std::string_view key;
    size_t at = 0;
    while (pull->NextKey(&key, &at)) {
      const auto found = value.find(std::string(key));
      if (found == value.end() || !Walk(pull, *found)) return false;
    }
    return pull->ok();
  }
  if (value.is_array()) {
    if (!pull->BeginArray("an array")) return false;
    size_t i = 0;
    while (pull->NextItem()) {
      if (i >= value.size() || !Walk(pull, value[i++])) return false;
    }
    return pull->ok() && i == value.size();
  }
  if (value.is_string()) {
    std::string_view text;
    return pull->String("a string", &text) && text == value.get<std::string>();
  }
  if (value.is_boolean()) {
    bool flag = false;
    return pull->Bool("a bool", &flag) && flag == value.get<bool>();
  }
  if (value.is_null()) return pull->TakeNull();
  if (value.is_number_unsigned()) {
    uint64_t number = 0;
    return pull->Uint("a count", &number) && number == value.get<uint64_t>();
  }
  int64_t number = 0;
  return pull->Int("an integer", &number) && number == value.get<int64_t>();
}

json RandomValue(Rng* rng, int depth) {
  switch (rng->Below(depth > 3 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return rng->Chance(1, 2);
    case 2:
      return static_cast<int64_t>(rng->Next() >> rng->Below(64));
    case 3:
      return -static_cast<int64_t>(rng->Next() >> (1 + rng->Below(63))) - 1;
    case 4: {
      constexpr std::string_view kParts[] = {"a", "\"", "\\", "\n", "é", "\u20ac", "😀", "/", " "};
      std::string text;
      for (uint64_t i = rng->Below(6); i > 0; --i) text += kParts[rng->Below(9)];
      return text;
    }
    case 5: {
      json array = json::array();
      for (uint64_t i = rng->Below(5); i > 0; --i) array.push_back(RandomValue(rng, depth + 1));
      return array;
    }
    default: {
      json object = json::object();
      for (uint64_t i = rng->Below(5); i > 0; --i) {
        object["k\n" + std::to_string(rng->Below(9))] = RandomValue(rng, depth + 1);
      }
      return object;
    }
  }
}

TEST(JsonPull, ReadsWhatTheLibraryWrites) {
  Rng rng(1);
  for (int i = 0; i < 5000; ++i) {
    const json value = RandomValue(&rng, 0);
    const int indent = rng.Chance(1, 3) ? 1 : -1;
    const std::string text = value.dump(indent, ' ', rng.Chance(1, 2));
    JsonPull pull(text);
    EXPECT_TRUE(Walk(&pull, value) && pull.End()) << text << "\n" << pull.error();
  }
}

TEST(JsonPull, AcceptsNoTextThatTheLibraryRefuses) {
  Rng rng(2);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const json value = RandomValue(&rng, 0);
    std::string text = value.dump();
    for (uint64_t n = 1 + rng.Below(2); n > 0 && !text.empty(); --n) {
      const uint64_t at = rng.Below(text.size());
      if (rng.Chance(1, 2)) {
        text[at] = static_cast<char>(rng.Below(256));
      } else {
        text.erase(at, 1 + rng.Below(3));
      }
    }
    const json parsed = json::parse(text, nullptr, false);
    JsonPull pull(text);
    const bool accepted = Walk(&pull, parsed.is_discarded() ? value : parsed) && pull.End();
    if (!parsed.is_discarded()) continue;
    ++refused;
    EXPECT_FALSE(accepted) << text;
  }
  EXPECT_GT(refused, 5000);
}

TEST(JsonPull, SkipsAnyDepthWithoutRecursion) {
  const std::string deep(1000000, '[');
  JsonPull open(deep);
  EXPECT_FALSE(open.Skip());
  EXPECT_TRUE(open.ran_out());
  const std::string whole = deep + std::string(1000000, ']');
  JsonPull closed(whole);
  EXPECT_TRUE(closed.Skip() && closed.End());
}

TEST(JsonPull, NumbersEndWhereSixtyFourBitsEnd) {
  int64_t number = 0;
  uint64_t count = 0;
  JsonPull low("-9223372036854775808");
  EXPECT_TRUE(low.Int("an integer", &number));
  EXPECT_EQ(number, INT64_MIN);
  JsonPull lower("-9223372036854775809");
  EXPECT_FALSE(lower.Int("an integer", &number));
  JsonPull high("18446744073709551615");
  EXPECT_TRUE(high.Uint("a count", &count));
  EXPECT_EQ(count, UINT64_MAX);
  JsonPull higher("18446744073709551616");
  EXPECT_FALSE(higher.Uint("a count", &count));
  EXPECT_EQ(higher.error(), "expected a count, found a number beyond 64 bits");
  JsonPull half("1.0");
  EXPECT_FALSE(half.Uint("a count", &count));
  EXPECT_EQ(half.error(), "expected a count, found a number with a fraction or exponent");
}

}  // namespace
}  // namespace kvfence
