// Faults that are there when the engine starts: how it was built, not what it does.
#include <algorithm>
#include <bit>

#include "injector.h"
#include "kvfence/engine.h"

namespace kvfence {
namespace {

class NarrowIndex final : public Injector {
  // Of a pool with n slots whose kernels count to 2^bits < n, or to half of that.
  std::string AtStart(Rng& rng, EngineConfig* engine) override {
    const uint64_t slots = engine->pages * engine->page_size;
    if (engine->numeric || !std::has_single_bit(engine->page_size)) return "";
    const auto page_bits = static_cast<uint64_t>(std::bit_width(engine->page_size) - 1);
    const auto top = static_cast<uint64_t>(std::bit_width(slots - 1) - 1);
    // At least two pages: the null page, and one more.
    if (top < page_bits + 1) return "";
    engine->index_bits = std::max(top - rng.Below(2), page_bits + 1);
    return "the kernels compute slots in " + std::to_string(engine->index_bits) +
           " bits, and the pool has " + std::to_string(slots) + " slots";
  }
};

}  // namespace

std::unique_ptr<Injector> MakeStartInjector(std::string_view kind) {
  if (kind == "narrow_index") return std::make_unique<NarrowIndex>();
  return nullptr;
}

}  // namespace kvfence
