// Seeds as people type them: numbers, and commit ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::tools {

// Decimal digits that fit 64 bits are that number. Else up to 64 hex digits (either case, with or
// without 0x): the first 16 of them as a hexadecimal number, so a commit id is a seed, and the same
// one however long it's written from 16 digits on. Nothing: neither.
std::optional<uint64_t> SeedFromWord(std::string_view word);

}  // namespace kvfence::tools
