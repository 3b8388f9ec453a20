// What the tight loop compares: which bits of a page record, against what.
#pragma once

#include <bit>
#include <cstdint>

#include "kvfence/device_types.h"

namespace kvfence::fence {

// What has to be equal, as bit masks over the two halves of a page record.
struct FastMasks {
  uint64_t low;  // tag, fill and scale mark
  uint64_t stamp;
  uint64_t fill;    // a full page's fill, in place
  uint64_t scale;   // the pool's scale epoch, in place; 0 for per-page scales
  uint64_t by_tag;  // all ones where the scale mark is the tag's low half
  uint32_t pages;
  uint32_t null_page;
};
static_assert(std::endian::native == std::endian::little, "halves of records are read as words");

}  // namespace kvfence::fence
