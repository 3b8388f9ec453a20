// What a fence refuses to start with, and the start-up geometry check.
#include <optional>
#include <utility>

#include "fence_impl.h"

namespace kvfence {
namespace {

Status Bad(const PoolConfig& pool, const std::string& what) {
  return Status::Invalid("pool '" + pool.name + "': " + what);
}

Status CheckPool(const PoolConfig& pool) {
  if (pool.name.empty()) return Bad(pool, "name must not be empty");
  if (pool.page_size < 1 || pool.page_size > kMaxPageSize) {
    return Bad(pool, "page_size must be 1.." + std::to_string(kMaxPageSize) + ", got " +
                         std::to_string(pool.page_size));
  }
  if (pool.pages < 2 || pool.pages >= kNoPage) {
    return Bad(pool, "pages must be 2.." + std::to_string(kNoPage - 1) +
                         " (the null page is one of them), got " + std::to_string(pool.pages));
  }
  if (pool.null_page >= pool.pages) {
    return Bad(pool, "null_page must be below pages, got " + std::to_string(pool.null_page));
  }
  if (pool.window >= uint64_t{1} << 32) return Bad(pool, "window must be below 2^32");
  if (pool.interleave_ranks >= uint64_t{1} << 31 || pool.interleave_stride < 1 ||
      pool.interleave_stride >= uint64_t{1} << 31) {
    return Bad(pool, "interleave must be [ranks, stride] with stride at least 1");
  }
  return Status();
}

Violation Geometry(size_t pool, uint64_t expected, uint64_t found) {
  Violation v;
  v.reason = Reason::kGeometry;
  v.pool = static_cast<int64_t>(pool);
  v.expected = expected;
  v.found = found;
  return v;
}

// How many places an index of that many bits can tell apart (a signed one of 32 has 31).
uint64_t Places(uint64_t bits) { return bits >= 64 ? ~uint64_t{0} : uint64_t{1} << bits; }

// What the pool's arithmetic multiplies page indices up to: bytes, or slots where those aren't
// said. All ones where 64 bits don't hold it.
uint64_t Extent(const PoolConfig& pool, uint64_t unit) {
  if (unit != 0 && pool.pages > ~uint64_t{0} / unit) return ~uint64_t{0};
  return pool.pages * unit;
}
uint64_t Bytes(const PoolConfig& pool) { return Extent(pool, pool.page_bytes.value_or(0)); }

// Pools of one space name the same memory by the same ids, so a page must be as large for all of
// them. They may cut it into different numbers of tokens only where its bytes are said.
std::optional<std::pair<uint64_t, uint64_t>> SizesDisagree(const PoolConfig& a,
                                                           const PoolConfig& b) {
  if (a.space.empty() || a.space != b.space) return std::nullopt;
  const bool bytes = a.page_bytes && b.page_bytes;
  if (!bytes && (a.kind != PoolKind::kKv || b.kind != PoolKind::kKv)) return std::nullopt;
  const uint64_t of_a = bytes ? *a.page_bytes : a.page_size;
  const uint64_t of_b = bytes ? *b.page_bytes : b.page_size;
  if (of_a == of_b) return std::nullopt;
  return std::pair(of_a, of_b);
}

bool Overlap(const PoolConfig& a, const PoolConfig& b) {
  if (!a.base || !b.base || Bytes(a) == 0 || Bytes(b) == 0) return false;
  // The same pages on purpose, if they begin at the same place.
  if (!a.space.empty() && a.space == b.space && *a.base == *b.base) return false;
  return *a.base < *b.base ? *b.base - *a.base < Bytes(a) : *a.base - *b.base < Bytes(b);
}

}  // namespace

Status CheckConfig(const FenceConfig& config) {
  if (config.pools.empty()) return Status::Invalid("pools must name at least one pool");
  if (config.rows < 1 || config.rows > uint64_t{1} << 24) {
    return Status::Invalid("rows must be 1..2^24, got " + std::to_string(config.rows));
  }
  if (config.ranks < 1 || config.ranks > 1024) {
    return Status::Invalid("ranks must be 1..1024, got " + std::to_string(config.ranks));
  }
  for (const PoolConfig& pool : config.pools) {
    if (Status status = CheckPool(pool); !status.ok()) return status;
    if (pool.width == 0 && config.width == 0) return Bad(pool, "width must be at least 1");
    for (const PoolConfig& other : config.pools) {
      if (&other == &pool) break;
      if (other.name == pool.name) return Bad(pool, "the name is used twice");
    }
  }
  return Status();
}

std::vector<Violation> CheckGeometry(const FenceConfig& config) {
  std::vector<Violation> found;
  for (size_t i = 0; i < config.pools.size(); ++i) {
    const PoolConfig& pool = config.pools[i];
    const uint64_t extent = Extent(pool, pool.page_bytes.value_or(pool.page_size));
    const uint64_t end = pool.base.value_or(0) + Bytes(pool);
    if (pool.index_bits && extent > Places(*pool.index_bits)) {
      found.push_back(Geometry(i, Places(*pool.index_bits), extent));
    } else if (end < pool.base.value_or(0)) {
      found.push_back(Geometry(i, ~uint64_t{0}, end));  // addresses wrap
    }
    for (size_t j = 0; j < i; ++j) {
      const PoolConfig& other = config.pools[j];
      if (const auto sizes = SizesDisagree(other, pool)) {
        found.push_back(Geometry(i, sizes->first, sizes->second));
      } else if (Overlap(pool, other)) {
        found.push_back(Geometry(i, *other.base, *pool.base));
      }
    }
  }
  return found;
}

}  // namespace kvfence
