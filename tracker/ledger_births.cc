// Whose the content of a page's slots is.
//
// Idea: movers (`write`, `copy`) may leave slots of several births in one page. The page's one
// stamp, which the device compares, is theirs if they agree, else kMixedStamp, which nobody
// expects; it counts what copies have brought and not ended yet. I-96: beside somebody's
// content nobody's is none, so a page that is zeroed before or behind its owner's tokens is the
// owner's, and what was only zeroed isn't there; but zeros over tokens that somebody relies on are
// content, and foreign.
#include <algorithm>

#include "ledger_impl.h"

namespace kvfence {

using ledger::Joined;

void Ledger::Impl::CutRuns(const Page& page, SlotRange slots) {
  ForLoads(page, [&](ledger::PinPage& part) {
    std::vector<ledger::LoadedRun> left;
    for (const ledger::LoadedRun& run : part.runs) {
      const uint64_t end = run.first + run.n;
      const uint64_t before = std::min(end, slots.first);
      const uint64_t behind = std::max(run.first, slots.last);
      if (run.first < before) left.push_back({run.first, before - run.first, run.birth});
      if (behind < end) left.push_back({behind, end - behind, run.birth});
    }
    part.runs = std::move(left);
  });
}

void Ledger::Impl::EraseContent(Page& page, SlotRange slots) {
  CutRuns(page, slots);
  content_.Void(page, slots.first, slots.last - slots.first);
}

void Ledger::Impl::VoidSlots(Page& page, SlotRange slots) {
  slots.last = std::min<uint64_t>(slots.last, content_.Fill(page));
  for (uint64_t i = slots.first; page.pins != kNone && i < slots.last; ++i) {
    if (content_.Valid(page, i, i + 1)) CutRuns(page, {i, i + 1});
  }
  if (slots.first < slots.last) content_.Void(page, slots.first, slots.last - slots.first);
}

// One past the last slot that a request's length, an index entry or an `out` copy covers.
uint64_t Ledger::Impl::ReliedEnd(const Page& page) const {
  if (page.entries != kNone || page.out_pins > 0) return content_.Fill(page);
  uint64_t end = 0;
  for (uint32_t node = page.mappings; node != kNone; node = pages_.mapping(node).next) {
    const ledger::Mapping& m = pages_.mapping(node);
    const uint64_t start = uint64_t{m.at} * config_.pools[m.pool].page_size;
    const uint64_t length = requests_.at(m.inc).length;
    end = std::max(end, length > start ? length - start : 0);
  }
  return std::min<uint64_t>(end, content_.Fill(page));
}

void Ledger::Impl::LayContent(Page& page, SlotRange slots, Stamp birth, PinRef pinned) {
  page.failed = false;
  const uint64_t n = slots.last - slots.first;
  if (pinned) {
    pins_.at(pinned.pin).pages[pinned.index].runs.push_back({slots.first, n, birth});
  } else {
    content_.Commit(page, slots.first, n, birth);
  }
}

bool Ledger::Impl::PutContent(uint32_t pool, uint32_t page, SlotRange slots, Stamp birth,
                              PinRef pinned) {
  Page& p = pages_.at(pool, page);
  const bool nobodys = birth == kNobodyStamp;
  const uint64_t ruined_end = nobodys ? std::min(slots.last, ReliedEnd(p)) : 0;
  std::vector<uint64_t> ruined;
  for (uint64_t i = slots.first; i < ruined_end; ++i) {
    if (content_.Valid(p, i, i + 1)) ruined.push_back(i);
  }
  EraseContent(p, slots);
  const Stamp rest = BirthOf(p, kNoStamp, kNoStamp);
  if (rest != kNoStamp && nobodys != (rest == kNobodyStamp)) {
    // What steps leave in other pools isn't known, so there the page is nobody's as a whole.
    if (nobodys && config_.pools[pool].kind == PoolKind::kKv) {
      for (const uint64_t i : ruined) LayContent(p, {i, i + 1}, birth, pinned);
      return !ruined.empty();
    }
    EraseContent(p, {0, config_.pools[pool].page_size});
  }
  LayContent(p, slots, birth, pinned);
  return true;
}

// The birth of all that lies in the page; what is of birth `taken` counts as of birth `as`.
Stamp Ledger::Impl::BirthOf(const Page& page, Stamp taken, Stamp as) {
  const auto seen = [&](Stamp birth) { return birth == taken ? as : birth; };
  Stamp birth = kNoStamp;
  if (taken == kNoStamp || content_.Born(page) != kMixedStamp) {
    birth = seen(content_.Born(page));
  } else {
    for (uint64_t i = 0; i < content_.Fill(page); ++i) {
      birth = Joined(birth, seen(content_.Birth(page, i)));
    }
  }
  ForLoads(page, [&](const ledger::PinPage& part) {
    for (const ledger::LoadedRun& run : part.runs) {
      if (!content_.Valid(page, run.first, run.first + run.n))
        birth = Joined(birth, seen(run.birth));
    }
  });
  return birth;
}

// Did the row make a page its own that was promised as something else, and does its writing stand?
bool Ledger::Impl::MadeOwn(const Page& page, const ledger::SlotWrite& write) const {
  if (write.old_expected == write.new_stamp) return false;
  bool stands = write.n > 0;
  for (uint64_t i = write.first; stands && i < write.first + write.n; ++i) {
    stands = content_.Birth(page, i) != write.old_expected;
  }
  return stands;
}

void Ledger::Impl::Derive(uint32_t pool, uint32_t page) {
  Page& p = pages_.at(pool, page);
  if (p.pins == kNone && p.irregular == kNone) {
    if (!content_.AnyValid(p)) p.stamp = p.failed ? kFailedStamp : kNoStamp;
    return;
  }
  Stamp birth = BirthOf(p, kNoStamp, kNoStamp);
  // A row that waits for a copy may write behind what that one brings. Until its confirm the page
  // is expected to be what it was promised as, so what the row wrote is taken for that.
  for (const auto& record : steps_.records()) {
    if (birth != kMixedStamp || record->confirmed) continue;
    for (const ledger::SlotWrite& w : record->writes) {
      if (w.page != page || w.pool != pool || w.tag != p.tag || !record->clean(w.row)) continue;
      if (MadeOwn(p, w)) birth = BirthOf(p, w.new_stamp, w.old_expected);
    }
  }
  content_.Show(p, birth == kNoStamp && p.failed ? kFailedStamp : birth);
}

void Ledger::Impl::ShowContent(uint32_t pool, uint32_t page) {
  Derive(pool, page);
  TellContent(pool, page);
}

void Ledger::Impl::ExchangeBirths(uint32_t pool, uint32_t page, Stamp from, Stamp to) {
  Page& p = pages_.at(pool, page);
  if (from == to) return;
  content_.Exchange(p, from, to);
  ForLoads(p, [&](ledger::PinPage& part) {
    for (ledger::LoadedRun& run : part.runs) run.birth = run.birth == from ? to : run.birth;
  });
  Derive(pool, page);
}

}  // namespace kvfence
