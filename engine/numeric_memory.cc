#include "numeric_memory.h"

#include <algorithm>
#include <cstring>

#include "kvfence/rng.h"

namespace kvfence {

NumericMemory::NumericMemory(const Shape& shape)
    : shape_(shape), per_layer_(shape.value_dim > 0 ? 2 : 1) {
  const uint64_t number = shape.type == KvType::kE4m3 ? 1 : 2;
  const uint64_t dims[2] = {shape.key_dim, shape.value_dim};
  planes_.resize(shape.layers * per_layer_);
  for (size_t i = 0; i < planes_.size(); ++i) {
    Plane& plane = planes_[i];
    plane.token_bytes = number * shape.kv_heads * dims[i % per_layer_];
    const uint64_t bytes = shape.pages * shape.page_size * plane.token_bytes;
    plane.lines.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
  }
}

KvPages NumericMemory::PagesOf(size_t layer) {
  const std::span<Plane> planes = PlanesOf(layer);
  KvPages pages;
  pages.k_cache = planes[0].At(0);
  pages.v_cache = per_layer_ > 1 ? planes[1].At(0) : nullptr;
  pages.type = shape_.type;
  pages.num_kv_heads = shape_.kv_heads;
  pages.head_dim = shape_.key_dim;
  pages.page_size = static_cast<uint32_t>(shape_.page_size);
  pages.null_page = shape_.null_page;
  pages.num_pages = shape_.pages;
  pages.k_scale = pages.v_scale = shape_.scale;
  return pages;
}

void NumericMemory::CopyPage(uint64_t from, uint64_t to) {
  for (Plane& plane : planes_) {
    std::copy_n(plane.At(from * shape_.page_size), shape_.page_size * plane.token_bytes,
                plane.At(to * shape_.page_size));
  }
}

void NumericMemory::ReadPage(uint64_t page, std::vector<uint8_t>* bytes) const {
  for (const Plane& plane : planes_) {
    const uint8_t* first = plane.At(page * shape_.page_size);
    bytes->insert(bytes->end(), first, first + shape_.page_size * plane.token_bytes);
  }
}

const uint8_t* NumericMemory::WritePage(uint64_t page, uint64_t tokens, const uint8_t* bytes) {
  for (Plane& plane : planes_) {
    std::copy_n(bytes, tokens * plane.token_bytes, plane.At(page * shape_.page_size));
    bytes += shape_.page_size * plane.token_bytes;
  }
  return bytes;
}

uint64_t NumericMemory::Sum(uint64_t page, uint64_t tokens, uint64_t sum) const {
  for (const Plane& plane : planes_) {
    const uint8_t* first = plane.At(page * shape_.page_size);
    for (uint64_t b = 0; b < tokens * plane.token_bytes; ++b) sum = Mix64(sum ^ first[b]);
  }
  return sum;
}

uint64_t NumericMemory::SlotBytes() const {
  uint64_t bytes = 0;
  for (const Plane& plane : PlanesOf(0)) bytes += plane.token_bytes;
  return bytes;
}

void NumericMemory::SaveSlot(size_t layer, int64_t slot, std::vector<uint8_t>* bytes) const {
  for (const Plane& plane : PlanesOf(layer)) {
    const uint8_t* first = plane.At(static_cast<uint64_t>(slot));
    bytes->insert(bytes->end(), first, first + plane.token_bytes);
  }
}

void NumericMemory::RestoreSlot(size_t layer, int64_t slot, const uint8_t* bytes) {
  for (Plane& plane : PlanesOf(layer)) {
    std::copy_n(bytes, plane.token_bytes, plane.At(static_cast<uint64_t>(slot)));
    bytes += plane.token_bytes;
  }
}

void NumericMemory::Scribble(int64_t slot, uint64_t seed) {
  for (size_t i = 0; i < planes_.size(); ++i) {
    uint8_t* bytes = planes_[i].At(static_cast<uint64_t>(slot));
    for (uint64_t b = 0; b < planes_[i].token_bytes; b += sizeof(uint64_t)) {
      const uint64_t junk = Mix64(Mix64(seed + i) + b);
      std::memcpy(bytes + b, &junk, sizeof junk);
    }
  }
}

}  // namespace kvfence
