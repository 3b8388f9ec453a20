#include "seed_words.h"

#include <charconv>

namespace kvfence::tools {

std::optional<uint64_t> SeedFromWord(std::string_view word) {
  uint64_t seed = 0;
  const auto parse = [&](std::string_view digits, int base) {
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), seed, base);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (parse(word, 10)) return seed;
  if (word.substr(0, 2) == "0x") word.remove_prefix(2);
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  if (word.empty() || word.size() > 64 || word.find_first_not_of(kHex) != std::string_view::npos) {
    return std::nullopt;
  }
  parse(word.substr(0, 16), 16);
  return seed;
}

}  // namespace kvfence::tools
