// The bytes of a fuzz input, taken one after another; where they end, zeros follow.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvfence {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
    return word;
  }
  // Below `bound`, at most 256 values.
  uint8_t Below(unsigned bound) { return static_cast<uint8_t>(Byte() % bound); }
  bool Chance(unsigned one_in) { return Byte() % one_in == 0; }
  // Mostly small, sometimes negative, an edge of a type, or anything.
  int64_t Value() {
    const uint8_t kind = Byte();
    if (kind < 160) return kind % 40;
    switch (kind % 8) {
      case 0:
        return -1 - Byte();
      case 1:
        return int64_t{1} << (Byte() % 64);
      case 2:
        return INT64_MAX - Byte();
      case 3:
        return INT64_MIN + Byte();
      case 4:
        return static_cast<int64_t>(UINT32_MAX) - Byte();
      case 5:
        return INT32_MIN + int64_t{Byte()};
      case 6:
        return static_cast<int64_t>(Byte()) << 4;
      default:
        return static_cast<int64_t>(Word());
    }
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace kvfence
