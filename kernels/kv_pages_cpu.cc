// Append, hand-off and checksums on the CPU, one head of one token after the other; and what no
// backend can run.
#include <algorithm>

#include "kv_pages_core.h"

namespace kvfence {
namespace pages {
namespace {

// Calls f(side, token, head) for the page's first `tokens` tokens.
template <class F>
void ForHeads(const KvPages& p, uint32_t tokens, F&& f) {
  for (uint32_t s = 0; s < Sides(p); ++s) {
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t h = 0; h < p.num_kv_heads; ++h) f(static_cast<Side>(s), t, h);
    }
  }
}

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

Status CheckPages(const KvPages& p) {
  if (p.num_kv_heads == 0 || p.head_dim == 0 || p.head_dim % 8 != 0) {
    return Status::Invalid("num_kv_heads and head_dim must be positive, head_dim a multiple of 8");
  }
  if (p.page_size == 0) return Status::Invalid("page_size must be at least 1");
  if (p.k_cache == nullptr) return Status::Invalid("k_cache is missing");
  if (!Aligned(p.k_cache) || !Aligned(p.v_cache) || p.page_stride % 16 != 0) {
    return Status::Invalid("caches and page_stride must be multiples of 16 bytes");
  }
  if (p.page_stride != 0 && p.page_stride < PackedPage(p)) {
    return Status::Invalid("page_stride is smaller than a page");
  }
  return Status();
}

void MovePage(const KvHandOff& hand_off, const Move& move, KvCounts* counts) {
  float page_scale[2] = {1.0f, 1.0f};
  for (uint32_t s = 0; s < Sides(hand_off.to); ++s) {
    const auto side = static_cast<Side>(s);
    float* scales = PageScales(hand_off.to, side);
    if (scales == nullptr) continue;
    float largest = 0.0f;
    ForHeads(hand_off.to, move.tokens, [&](Side of, uint32_t t, uint32_t h) {
      if (of == side) largest = std::max(largest, LargestOfHead(hand_off, side, move, t, h));
    });
    page_scale[s] = scales[move.to] = PageScaleOf(hand_off.to, largest);
  }
  ForHeads(hand_off.to, hand_off.to.page_size, [&](Side side, uint32_t t, uint32_t h) {
    counts->saturated +=
        MoveHead(hand_off, side, move, t, h, page_scale[static_cast<uint32_t>(side)]);
  });
  MoveRecord(hand_off, move);
}

void AddCounts(const KvCounts& counts, KvCounts* to) {
  if (to == nullptr) return;
  to->saturated += counts.saturated;
  to->skipped += counts.skipped;
}

}  // namespace
}  // namespace pages

Status CheckKvAppend(const KvAppend& a) {
  if (Status status = pages::CheckPages(a.pages); !status.ok()) return status;
  if (a.tokens == 0) return Status();
  if (a.k.data == nullptr || (a.pages.v_cache != nullptr && a.v.data == nullptr)) {
    return Status::Invalid("k or v is missing");
  }
  if (!a.slots.present()) return Status::Invalid("slots are missing");
  return Status();
}

Status AppendPagedKvCacheCpu(const KvAppend& a) {
  if (Status status = CheckKvAppend(a); !status.ok()) return status;
  KvCounts counts;
  for (uint64_t i = 0; i < a.tokens; ++i) {
    counts.skipped += pages::SlotIsWrong(a, i) ? 1 : 0;
    pages::ForHeads(a.pages, 1, [&](pages::Side side, uint32_t, uint32_t h) {
      counts.saturated += pages::AppendHead(a, side, i, h);
    });
  }
  pages::AddCounts(counts, a.counts);
  return Status();
}

Status CheckKvHandOff(const KvHandOff& h) {
  if (Status status = pages::CheckPages(h.from); !status.ok()) return status;
  if (Status status = pages::CheckPages(h.to); !status.ok()) return status;
  if (h.from.num_kv_heads != h.to.num_kv_heads || h.from.head_dim != h.to.head_dim ||
      h.from.page_size != h.to.page_size || pages::Sides(h.from) != pages::Sides(h.to)) {
    return Status::Invalid("the pools differ in heads, head_dim, page_size or v_cache");
  }
  if ((h.from_records == nullptr) != (h.to_records == nullptr)) {
    return Status::Invalid("page records must be given for both pools or for neither");
  }
  if (h.count == 0) return Status();
  if (!h.from_pages.present() || !h.to_pages.present()) {
    return Status::Invalid("from_pages or to_pages is missing");
  }
  return Status();
}

Status HandOffPagesCpu(const KvHandOff& h) {
  if (Status status = CheckKvHandOff(h); !status.ok()) return status;
  KvCounts counts;
  for (uint64_t i = 0; i < h.count; ++i) {
    const pages::Move move = pages::MoveOf(h, i);
    if (move.valid) {
      pages::MovePage(h, move, &counts);
    } else {
      ++counts.skipped;
    }
  }
  pages::AddCounts(counts, h.counts);
  return Status();
}

Status CheckKvChecksums(const KvChecksums& c) {
  if (Status status = pages::CheckPages(c.pages); !status.ok()) return status;
  if (c.count == 0) return Status();
  if (!c.page_list.present() || c.sums == nullptr) {
    return Status::Invalid("page_list or sums is missing");
  }
  return Status();
}

Status PageChecksumsCpu(const KvChecksums& c) {
  if (Status status = CheckKvChecksums(c); !status.ok()) return status;
  for (uint64_t i = 0; i < c.count; ++i) {
    const int64_t page = c.page_list.Get(i);
    c.sums[i] = 0;
    if (!pages::IsPage(c.pages, page)) continue;
    const uint64_t at = static_cast<uint64_t>(page);
    uint64_t sum = pages::SumOfScales(c.pages, at);
    const uint32_t tokens = pages::TokensOf(c.tokens, i, c.pages.page_size);
    pages::ForHeads(c.pages, tokens, [&](pages::Side side, uint32_t t, uint32_t h) {
      sum += pages::SumOfHead(c.pages, side, at, t, h);
    });
    c.sums[i] = sum;
  }
  return Status();
}

}  // namespace kvfence
