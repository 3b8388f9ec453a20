// Words of the engine's config: which are off, what they are drawn to be, and what they mean to the
// fence. Nothing here depends on a tracker.
#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "engine_impl.h"
#include "kvfence/engine.h"

namespace kvfence {
namespace {

constexpr uint64_t kMostRows = 65536;
constexpr uint64_t kMostPageSize = 16383;  // as the device's page records count
constexpr uint64_t kMostWidth = uint64_t{1} << 24;
constexpr uint64_t kMostNumericBytes = uint64_t{1} << 33;  // of one group's pages, on one rank
constexpr uint64_t kMostLines = uint64_t{1} << 18;         // query heads of one row in one launch

// What the small transformer's cache and kernels can't take.
Status CheckNumeric(const EngineConfig& c) {
  if (c.index_bits < kWideIndex) return Status::Invalid("numeric: its kernels have wide indices");
  const TransformerShape& shape = *c.numeric;
  if (Status status = CheckTransformerShape(shape); !status.ok()) return status;
  const bool mla = shape.attention == AttentionForm::kMla;
  const uint64_t numbers =
      mla ? kMlaCkvDim + kMlaKpeDim : 2 * uint64_t{shape.kv_heads} * shape.head_dim;
  const auto too_large = [&](uint64_t pages, KvType kv) {
    const uint64_t slot = shape.layers * numbers * (kv == KvType::kE4m3 ? 1 : 2);
    return pages * c.page_size > kMostNumericBytes / slot;
  };
  // What is prefilled apart isn't quantised yet.
  const uint64_t prefill_pages = c.prefill_pages > 0 ? c.prefill_pages : c.pages;
  if (too_large(c.pages, shape.kv) ||
      (c.features.disaggregated && too_large(prefill_pages, KvType::kBf16))) {
    return Status(StatusCode::kResourceExhausted, "numeric: an engine's pages take more than " +
                                                      std::to_string(kMostNumericBytes) + " bytes");
  }
  if (c.token_budget > kMostLines / shape.heads) {
    return Status::Invalid("numeric: token_budget must be at most " +
                           std::to_string(kMostLines / shape.heads) + " with " +
                           std::to_string(shape.heads) + " heads");
  }
  return Status();
}

}  // namespace

Status CheckEngineConfig(const EngineConfig& c) {
  if (c.page_size == 0 || c.page_size > kMostPageSize) {
    return Status::Invalid("page_size must be 1 to " + std::to_string(kMostPageSize) + ", not " +
                           std::to_string(c.page_size));
  }
  if (c.prefill_pages == 1) {
    return Status::Invalid("prefill_pages must be at least 2 (one of them is the null page)");
  }
  if (c.handoff_lease < 3) return Status::Invalid("handoff_lease must be at least 3 steps");
  if (c.pages < 2) {
    return Status::Invalid("pages must be at least 2 (one of them is the null page), not " +
                           std::to_string(c.pages));
  }
  if (c.pages > (uint64_t{1} << 31) - 1) return Status::Invalid("pages must be below 2^31");
  if (c.pages > (uint64_t{1} << 34) / c.page_size) {
    return Status(StatusCode::kResourceExhausted,
                  "pages * page_size is more than the simulated device has (2^34 slots)");
  }
  if (c.rows == 0 || c.rows > kMostRows) {
    return Status::Invalid("rows must be 1 to " + std::to_string(kMostRows) + ", not " +
                           std::to_string(c.rows));
  }
  if (c.width > kMostWidth) return Status::Invalid("width must be at most 2^24");
  if (c.token_budget == 0 || c.token_budget > (uint64_t{1} << 30)) {
    return Status::Invalid("token_budget must be 1 to 2^30, not " + std::to_string(c.token_budget));
  }
  if (c.abort_per_mille > 1000) return Status::Invalid("abort_per_mille must be at most 1000");
  if (c.index_bits > kWideIndex ||
      (c.index_bits < kWideIndex &&
       (!std::has_single_bit(c.page_size) || (uint64_t{1} << c.index_bits) < c.page_size))) {
    return Status::Invalid("index_bits must be at most 63, and hold a page of 2^n slots if fewer");
  }
  if (c.ranks == 0 || c.ranks > 64) return Status::Invalid("ranks must be 1 to 64");
  if (!std::is_sorted(c.buckets.begin(), c.buckets.end())) {
    return Status::Invalid("buckets must grow");
  }
  return c.numeric ? CheckNumeric(c) : Status();
}

void DrawSizes(Rng& rng, uint64_t longest, EngineConfig* c) {
  c->max_chunk = rng.Between(1, std::max<uint64_t>(c->token_budget / 2, 1));
  c->samples = rng.Between(2, 5);
  c->ranks = rng.Between(2, 3);
  c->host_pages = rng.Chance(1, 3) ? rng.Between(1, 40) : rng.Between(100, 5000);
  c->copy_fail_per_mille = rng.Chance(1, 2) ? 0 : rng.Between(10, 200);
  c->draft_tokens = rng.Between(1, 6);
  c->accept_per_cent = rng.Below(101);
  const bool even = c->page_size % 2 == 0;
  const bool twice = 2 * c->page_size <= kMostPageSize;
  const std::array<uint64_t, 4> sizes = {c->page_size, c->page_size,
                                         twice ? 2 * c->page_size : c->page_size,
                                         even ? c->page_size / 2 : c->page_size};
  c->draft_page_size = sizes[rng.Below(sizes.size())];
  // From one page to most of a request.
  c->window = rng.Chance(1, 4) ? rng.Between(1, c->page_size) : rng.Between(1, longest);
  KvGroup swa;
  swa.page_size = c->page_size;
  swa.window = c->window;
  const uint64_t most = longest + 2 + 2 * c->draft_tokens;
  const uint64_t need = MostPages(swa, most, MostGrowth(*c)) + 2;
  c->window_pages = need + rng.Below(2 * need);
  const uint64_t drafts = PagesFor(most, c->draft_page_size) + 2;
  c->draft_pages = drafts + rng.Below(2 * drafts);
  c->graph_rows = rng.Between(1, c->rows);
  c->graph_steps = rng.Chance(1, 2) ? 0 : rng.Between(20, 200);
  const uint64_t full = PagesFor(most, c->page_size) + 2;
  const EngineFeatures& f = c->features;
  const uint64_t others = (f.sliding_window ? need : 0) + (f.speculative ? full : 0);
  if (f.one_space) c->pages = std::max(c->pages, full + others);
  c->prefill_pages = full + (f.one_space ? others : 0) + rng.Below(2 * full);
  c->handoff_lease = rng.Chance(1, 2) ? rng.Between(6, 30) : rng.Between(60, 400);
  c->handoff_late_per_mille = rng.Chance(1, 2) ? 0 : rng.Between(5, 150);
}

std::vector<std::pair<std::string, std::string>> IdentityFields(uint32_t identity) {
  std::vector<std::pair<std::string, std::string>> fields;
  const auto add = [&](const char* name, uint32_t value) {
    if (value != 0) fields.emplace_back(name, std::to_string(value));
  };
  add("adapter", identity & 0xFFFFu);
  add("media", identity >> 16 & 0xFFu);
  add("salt", identity >> 24);
  return fields;
}

FenceConfig FenceConfigFor(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  FenceConfig fence;
  for (const EngineSeat& seat : SeatsOf(config, trace, false)) {
    const std::string before = seat.role == EngineRole::kPrefill ? "prefill_" : "";
    for (const KvGroup& group : GroupsOf(ConfigOf(config, seat.role), trace)) {
      PoolConfig& pool = fence.pools.emplace_back();
      pool.name = before + group.name;
      pool.pages = group.pages;
      pool.page_size = group.page_size;
      pool.width = group.width;
      pool.window = group.window;
      if (!group.space.empty()) pool.space = before + group.space;
      pool.index_bits = config.index_bits;
    }
    fence.rows = seat.first_row + config.rows;
  }
  fence.ranks = RanksOf(config);
  fence.width = fence.pools.front().width;
  fence.frees = Frees::kExplicit;
  fence.same_step_reads = config.features.early_publish;
  fence.reuse = config.features.overlapped ? Reuse::kStream : Reuse::kRetired;
  fence.policy = config.policy;
  return fence;
}

}  // namespace kvfence
