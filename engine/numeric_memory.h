// The numeric cache of one part of the model: for each of its layers, keys and values of all pages,
// as the kernels' pools have them.
//
// What a page is to copies and to the host is all layers' bytes of it. Invariant: a slot's bytes of
// one layer lie side by side, so a page's first tokens are its first bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvfence/kv_pages.h"

namespace kvfence {

class NumericMemory {
 public:
  struct Shape {
    size_t layers = 0;
    uint64_t pages = 0;
    uint64_t page_size = 0;
    uint32_t kv_heads = 0;
    uint32_t key_dim = 0;
    uint32_t value_dim = 0;  // 0: no values of their own (MLA)
    KvType type = KvType::kE4m3;
    float scale = 1.0f;
    uint32_t null_page = 0;
  };
  explicit NumericMemory(const Shape& shape);

  uint64_t pages() const { return shape_.pages; }
  uint64_t page_size() const { return shape_.page_size; }
  bool Contains(int64_t page) const {
    return page >= 0 && static_cast<uint64_t>(page) < shape_.pages;
  }
  bool ContainsSlot(int64_t slot) const {
    return slot >= 0 && static_cast<uint64_t>(slot) < shape_.pages * shape_.page_size;
  }
  // The layer's pool; its arrays may be written.
  KvPages PagesOf(size_t layer);

  void CopyPage(uint64_t from, uint64_t to);
  // Appends the page's bytes; or writes those of its first `tokens` tokens and returns behind all.
  void ReadPage(uint64_t page, std::vector<uint8_t>* bytes) const;
  const uint8_t* WritePage(uint64_t page, uint64_t tokens, const uint8_t* bytes);
  // A checksum of its first `tokens` tokens, from `sum` on.
  uint64_t Sum(uint64_t page, uint64_t tokens, uint64_t sum) const;
  // One slot of one layer, to be put back.
  void SaveSlot(size_t layer, int64_t slot, std::vector<uint8_t>* bytes) const;
  void RestoreSlot(size_t layer, int64_t slot, const uint8_t* bytes);
  uint64_t SlotBytes() const;  // of one layer
  // Junk by the seed into the slot, in all layers.
  void Scribble(int64_t slot, uint64_t seed);

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  // Keys or values of a layer.
  struct Plane {
    std::vector<Line> lines;
    uint64_t token_bytes = 0;
    uint8_t* At(uint64_t slot) {
      return reinterpret_cast<uint8_t*>(lines.data()) + slot * token_bytes;
    }
    const uint8_t* At(uint64_t slot) const {
      return reinterpret_cast<const uint8_t*>(lines.data()) + slot * token_bytes;
    }
  };
  std::span<Plane> PlanesOf(size_t layer) {
    return std::span(planes_).subspan(layer * per_layer_, per_layer_);
  }
  std::span<const Plane> PlanesOf(size_t layer) const {
    return std::span(planes_).subspan(layer * per_layer_, per_layer_);
  }

  Shape shape_;
  size_t per_layer_;
  std::vector<Plane> planes_;  // by layer: keys, then values
};

}  // namespace kvfence
