#include "ledger_content.h"

#include <algorithm>
#include <bit>

namespace kvfence::ledger {
namespace {

using Bits = std::vector<uint64_t>;

bool Test(const Bits& bits, uint64_t i) {
  return i / 64 < bits.size() && (bits[i / 64] >> (i % 64) & 1u) != 0;
}

void Set(Bits& bits, uint64_t first, uint64_t last) {
  if (bits.size() * 64 < last) bits.resize((last + 63) / 64);
  for (uint64_t i = first; i < last; ++i) bits[i / 64] |= uint64_t{1} << (i % 64);
}

void Clear(Bits& bits, uint64_t first, uint64_t last) {
  last = std::min<uint64_t>(last, bits.size() * 64);
  for (uint64_t i = first; i < last; ++i) bits[i / 64] &= ~(uint64_t{1} << (i % 64));
}

bool All(const Bits& bits, uint64_t first, uint64_t last) {
  for (uint64_t i = first; i < last; ++i) {
    if (!Test(bits, i)) return false;
  }
  return true;
}

bool None(const Bits& bits, uint64_t first, uint64_t last) {
  for (uint64_t i = first; i < last; ++i) {
    if (Test(bits, i)) return false;
  }
  return true;
}

uint64_t Count(const Bits& bits) {
  uint64_t n = 0;
  for (const uint64_t word : bits) n += static_cast<uint64_t>(std::popcount(word));
  return n;
}

uint64_t End(const Bits& bits) {
  for (size_t w = bits.size(); w > 0; --w) {
    if (bits[w - 1] != 0) return w * 64 - static_cast<uint64_t>(std::countl_zero(bits[w - 1]));
  }
  return 0;
}

}  // namespace

void ContentBook::Drop(Page& page) {
  if (page.irregular == kNone) return;
  Irregular& bits = irregular_[page.irregular];
  if (bits.holey) --holey_;
  bits.holey = false;
  bits.valid.clear();
  bits.settled.clear();
  bits.births.clear();
  unused_.push_back(page.irregular);
  page.irregular = kNone;
}

void ContentBook::Wipe(Page& page) {
  Drop(page);
  page.fill = 0;
  page.settled = 0;
  page.stamp = kNoStamp;
  page.scale = 0;
  ++page.version;
}

bool ContentBook::Valid(const Page& page, uint64_t first, uint64_t last) const {
  if (first >= last) return true;
  if (page.irregular == kNone) return last <= page.fill;
  return All(irregular_[page.irregular].valid, first, last);
}

bool ContentBook::Settled(const Page& page, uint64_t first, uint64_t last) const {
  if (first >= last) return true;
  if (page.irregular == kNone) return last <= page.settled;
  return All(irregular_[page.irregular].settled, first, last);
}

Stamp ContentBook::Birth(const Page& page, uint64_t slot) const {
  if (!Valid(page, slot, slot + 1)) return kNoStamp;
  const bool own = page.irregular != kNone && !irregular_[page.irregular].births.empty();
  return own ? irregular_[page.irregular].births[slot] : page.stamp;
}

Stamp ContentBook::Born(const Page& page) const {
  if (page.fill == 0) return kNoStamp;
  if (page.irregular == kNone || irregular_[page.irregular].births.empty()) return page.stamp;
  Stamp born = kNoStamp;
  for (uint64_t i = 0; i < page.fill; ++i) born = Joined(born, Birth(page, i));
  return born;
}

bool ContentBook::Holey(const Page& page) const {
  return page.irregular != kNone && irregular_[page.irregular].holey;
}

ContentBook::Irregular& ContentBook::Spread(Page& page) {
  if (page.irregular == kNone) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<uint32_t>(irregular_.size()));
      irregular_.emplace_back();
    }
    page.irregular = unused_.back();
    unused_.pop_back();
    Set(irregular_[page.irregular].valid, 0, page.fill);
    Set(irregular_[page.irregular].settled, 0, page.settled);
  }
  return irregular_[page.irregular];
}

void ContentBook::Bear(Irregular& bits, const Page& page) {
  if (!bits.births.empty()) return;
  bits.births.resize(std::max<size_t>(1, bits.valid.size() * 64), kNoStamp);
  for (size_t i = 0; i < bits.births.size(); ++i) {
    if (Test(bits.valid, i)) bits.births[i] = page.stamp;
  }
}

void ContentBook::Gather(Page& page) {
  Irregular& bits = irregular_[page.irregular];
  bool alike = true;
  for (size_t i = 0; i < bits.births.size() && alike; ++i) {
    alike = !Test(bits.valid, i) || bits.births[i] == page.stamp;
  }
  if (alike) bits.births.clear();
  const uint64_t fill = End(bits.valid);
  const uint64_t settled = End(bits.settled);
  page.fill = static_cast<uint16_t>(fill);
  page.settled = static_cast<uint16_t>(settled);
  const bool holey = Count(bits.valid) != fill;
  if (!holey && alike && Count(bits.settled) == settled) {
    Drop(page);
    return;
  }
  if (holey != bits.holey) holey_ += holey ? 1 : ~uint64_t{0};
  bits.holey = holey;
}

ContentBook::Saved ContentBook::Save(const Page& page) const {
  Saved saved{.fill = page.fill,
              .settled = page.settled,
              .version = page.version,
              .stamp = page.stamp,
              .bits = nullptr};
  if (page.irregular != kNone) {
    saved.bits = std::make_shared<const Irregular>(irregular_[page.irregular]);
  }
  return saved;
}

void ContentBook::Restore(Page& page, const Saved& saved) {
  Drop(page);
  page.fill = saved.fill;
  page.settled = saved.settled;
  page.version = saved.version;
  page.stamp = saved.stamp;
  if (saved.bits == nullptr) return;
  Irregular& bits = Spread(page);
  bits.valid = saved.bits->valid;
  bits.settled = saved.bits->settled;
  bits.births = saved.bits->births;
  Gather(page);
}

void ContentBook::Launch(Page& page, uint64_t first, uint64_t n, Stamp birth) {
  if (n == 0) return;
  ++page.version;
  if (page.fill == 0) page.stamp = birth;
  if (page.irregular == kNone && first <= page.fill && page.stamp == birth) {
    page.fill = std::max(page.fill, static_cast<uint16_t>(first + n));
    return;
  }
  Irregular& bits = Spread(page);
  if (page.stamp != birth || !bits.births.empty()) {
    Bear(bits, page);
    if (bits.births.size() < first + n) bits.births.resize(first + n, kNoStamp);
    std::fill_n(bits.births.begin() + static_cast<std::ptrdiff_t>(first), n, birth);
  }
  Set(bits.valid, first, first + n);
  Gather(page);
}

void ContentBook::Settle(Page& page, uint64_t first, uint64_t n) {
  if (n == 0) return;
  const uint64_t last = std::min<uint64_t>(first + n, page.fill);
  if (page.irregular == kNone && first <= page.settled) {
    page.settled = std::max(page.settled, static_cast<uint16_t>(last));
    return;
  }
  Irregular& bits = Spread(page);
  for (uint64_t i = first; i < last; ++i) {
    if (Test(bits.valid, i)) Set(bits.settled, i, i + 1);
  }
  Gather(page);
}

void ContentBook::Commit(Page& page, uint64_t first, uint64_t n, Stamp birth) {
  Launch(page, first, n, birth);
  Settle(page, first, n);
}

void ContentBook::Void(Page& page, uint64_t first, uint64_t n) {
  if (n == 0 || first >= page.fill) return;
  if (page.irregular != kNone && None(irregular_[page.irregular].valid, first, first + n)) return;
  ++page.version;
  if (page.irregular == kNone && first + n >= page.fill) {
    page.fill = static_cast<uint16_t>(first);
    page.settled = std::min(page.settled, page.fill);
  } else {
    Irregular& bits = Spread(page);
    Clear(bits.valid, first, first + n);
    Clear(bits.settled, first, first + n);
    Gather(page);
  }
  if (page.fill == 0) page.stamp = kNoStamp;
}

void ContentBook::Copy(const Page& from, Page& to, uint64_t size) {
  // The source's numbers first: `from` and `to` may be the same page.
  const uint16_t fill = static_cast<uint16_t>(std::min<uint64_t>(from.fill, size));
  const uint16_t settled = std::min(from.settled, fill);
  const Stamp stamp = fill == 0 ? kNoStamp : from.stamp;
  if (&from == &to) return;
  Drop(to);
  ++to.version;
  to.fill = fill;
  to.settled = settled;
  to.stamp = stamp;
  if (from.irregular == kNone) return;
  Irregular& bits = Spread(to);
  const Irregular& source = irregular_[from.irregular];
  bits.valid = source.valid;
  bits.settled = source.settled;
  bits.births = source.births;
  Clear(bits.valid, size, ~uint64_t{0});
  Clear(bits.settled, size, ~uint64_t{0});
  Gather(to);
  if (to.fill == 0) to.stamp = kNoStamp;
}

void ContentBook::Own(Page& page, Stamp birth) {
  page.stamp = birth;
  if (page.irregular == kNone) return;
  irregular_[page.irregular].births.clear();
  Gather(page);
}

void ContentBook::Exchange(Page& page, Stamp from, Stamp to) {
  if (page.fill == 0) return;
  if (page.irregular == kNone || irregular_[page.irregular].births.empty()) {
    if (page.stamp == from) page.stamp = to;
    return;
  }
  std::ranges::replace(irregular_[page.irregular].births, from, to);
  Gather(page);
}

void ContentBook::Show(Page& page, Stamp stamp) {
  if (page.stamp == stamp) return;
  if (page.fill != 0) Bear(Spread(page), page);
  page.stamp = stamp;
  if (page.irregular != kNone) Gather(page);
}

}  // namespace kvfence::ledger
