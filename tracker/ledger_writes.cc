// Content outside steps: write, read, scale, rescale, copy.
//
// Idea: these say what happens to the memory itself, in stream order, whoever was entitled to it.
// So they always take effect, and the birth mark they leave is that of whom they were made for; a
// page that has gone to somebody else in the meantime carries a foreign stamp from then on.
#include <algorithm>

#include "ledger_impl.h"

namespace kvfence {
namespace {

constexpr size_t kMaxSums = size_t{1} << 18;

}  // namespace

std::optional<ledger::KeyContent> Ledger::Impl::OriginOf(const ContentOf& as, uint32_t pool,
                                                         uint32_t number) {
  if (as.req) {
    const std::optional<Stamp> stamp = requests_.StampOf(as.req, pool, as.at.value_or(0));
    if (stamp) return ledger::KeyContent{.stamp = *stamp};
    Report(Reason::kIdentityReused, {.req = requests_.Resolve(as.req)});
    return std::nullopt;
  }
  if (as.key) {
    if (index_.Find(*as.key, pool) != kNone) return index_.Content(*as.key, pool, number);
    Report(Reason::kStaleIndexEntry, {.req = {}, .pool = pool});
    return std::nullopt;
  }
  return ledger::KeyContent{.stamp = kNobodyStamp};
}

Status Ledger::Impl::Write(const WriteEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  if (event.as.req && !event.as.at) return Status::Invalid("write: `as.req` goes with `as.at`");
  BeginEvent();
  const uint32_t pool = event.pool.value();
  const uint64_t page_size = config_.pools[pool].page_size;
  if (SayOutOfRange(pool, event.page, event.as.req)) return {};
  if (event.first > page_size || event.n > page_size - event.first) {
    ReportPage(Reason::kPageOutOfRange, event.as.req, pool, event.page.value(), -1, page_size,
               event.first + event.n);
    return {};
  }
  const auto page = static_cast<uint32_t>(event.page.value());
  Page& p = pages_.at(pool, page);
  PinRef pinned = event.xfer == NameId() ? PinRef() : PinOf(event.xfer, pool, page);
  if (pinned && pins_.at(pinned.pin).dir == CopyDir::kOut) pinned = {};  // it may only read
  const uint32_t number = pinned ? pins_.at(pinned.pin).pages[pinned.index].number : 0;
  const std::optional<ledger::KeyContent> origin = OriginOf(event.as, pool, number);
  if (!origin) return {};
  // For a place of which nothing was ever known nobody can have brought anything.
  const bool unclear = origin->stamp == kNoStamp ||
                       (event.as.key && pinned && pins_.at(pinned.pin).pages[pinned.index].twice);
  const Stamp stamp = unclear ? kNobodyStamp : origin->stamp;
  if (IsNull(pool, event.page)) return {};  // nobody's content, which only failed rows read
  const bool used = stream() && FailUsers(pool, page, true, event.xfer);
  if ((event.xfer != NameId() && !pinned) || used) {
    ReportPage(Reason::kInFlight, requests_.Resolve(event.as.req), pool, page, -1, 0, p.tag);
  }
  if (used && RunningWrites(pool, page)) SuspectPage(pool, page, Reason::kInFlight);
  if (event.n == 0) return {};
  const uint64_t slots = event.first + event.n;
  const bool same = origin->pool == pool && origin->slots == slots;
  CheckSum(stamp,
           {.sum = event.sum, .brought = true, .slots = slots, .promised = same ? origin->sum : 0},
           pool, event.page);
  // Of what was never read under the key nothing comes back.
  const uint64_t last = std::clamp(origin->slots, event.first, event.first + event.n);
  EraseContent(p, {last, event.first + event.n});
  const bool put =
      last > event.first &&
      PutContent(pool, page, WithOthers(pool, stamp, {event.first, last}), stamp, pinned);
  if (put && !config_.pools[pool].scales) p.scale = scale_epochs_[pool];
  ShowContent(pool, page);
  return {};
}

// Slots and those beside them that other ranks hold: what this rank holds is what it must have.
SlotRange Ledger::Impl::WithOthers(uint32_t pool, Stamp stamp, SlotRange slots) const {
  const PoolConfig& c = config_.pools[pool];
  if (c.interleave_ranks == 0 || !StampIsReal(stamp)) return slots;
  const uint64_t start = StampPage(stamp) * c.page_size;
  const auto elsewhere = [&](uint64_t slot) {
    return (start + slot) / c.interleave_stride % c.interleave_ranks != rank_.value();
  };
  while (slots.first > 0 && elsewhere(slots.first - 1)) --slots.first;
  while (slots.last < c.page_size && elsewhere(slots.last)) ++slots.last;
  return slots;
}

// What comes back under a key is what was read under it, whatever became of that birth elsewhere.
// Pools of one model hold different layers of the same tokens: a birth has a sum in each. But what
// is brought into a pool that has none yet must be what some pool had.
uint32_t Ledger::Impl::SumOf(Stamp stamp, const Summed& summed, uint32_t pool) const {
  const auto of = [&](uint32_t p) -> uint32_t {  // 0: none of as much content
    const auto there = sums_.find({stamp, p});
    const bool says = there != sums_.end() && !there->second.mixed;
    return says && there->second.slots == summed.slots ? there->second.sum : 0;
  };
  if (summed.promised != 0) return summed.promised;
  if (sums_.contains({stamp, pool})) return of(pool);
  uint32_t other = 0;
  for (uint32_t p = 0; p < config_.pools.size() && summed.brought; ++p) {
    if (of(p) == summed.sum.value()) return 0;
    other = of(p) != 0 ? of(p) : other;
  }
  return other;
}

// Content of one birth has one checksum, wherever it is written or read.
void Ledger::Impl::CheckSum(Stamp stamp, const Summed& summed, uint32_t pool, PageId page) {
  const uint32_t sum = summed.sum.value();
  if (sum == 0 || !StampIsReal(stamp)) return;
  const uint32_t expected = SumOf(stamp, summed, pool);
  const bool other = expected != 0 && expected != sum;
  if (other) {
    ReportPage(Reason::kContentMismatch, {}, pool, page.value(), -1, expected, sum);
    if (checks_.Has(Reason::kContentMismatch)) {
      SuspectPage(pool, static_cast<uint32_t>(page.value()), Reason::kContentMismatch);
    }
  }
  Sum& known = SumAt(stamp, pool);
  // A wrong one doesn't become what right copies are judged by.
  if (!known.mixed) known = {other ? expected : sum, summed.slots};
}

Ledger::Impl::Sum& Ledger::Impl::SumAt(Stamp stamp, uint32_t pool) {
  const SumKey key{stamp, pool};
  const auto found = sums_.find(key);
  if (found != sums_.end()) return found->second;
  if (sums_order_.size() < kMaxSums) {
    sums_order_.push_back(key);
  } else {
    sums_.erase(sums_order_[sums_next_]);
    sums_order_[sums_next_] = key;
    sums_next_ = (sums_next_ + 1) % kMaxSums;
  }
  return sums_[key];
}

Status Ledger::Impl::Read(const ReadEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  BeginEvent();
  const uint32_t pool = event.pool.value();
  if (SayOutOfRange(pool, event.page)) return {};
  const auto page = static_cast<uint32_t>(event.page.value());
  const Page& p = pages_.at(pool, page);
  const PinRef pinned = PinOf(event.xfer, pool, page);
  NoteRead(event.xfer, pool, page, event.sum);
  if (!pinned) {
    ReportPage(Reason::kInFlight, {}, pool, page, -1, 0, p.tag);
    CheckSum(p.stamp, {.sum = event.sum, .slots = content_.Fill(p)}, pool, event.page);
    return {};
  }
  JudgeSource(event.xfer, pool, page);
  CheckSum(p.stamp, {.sum = event.sum, .slots = content_.Fill(p)}, pool, event.page);
  return {};
}

// Written for another page, it's no live page's mark, whatever that one's tag.
uint16_t Ledger::Impl::ScaleOf(const ContentOf& as, uint32_t pool, uint32_t page) {
  if (as.req) {
    const uint32_t slot = requests_.Find(as.req);
    // Of an ended incarnation no tag is remembered: 0 is no live page's mark.
    const Held* held =
        slot == kNone ? nullptr : HeldAt(requests_.at(slot), pool, as.at.value_or(0));
    if (held == nullptr || held->page != page) return 0;
    return static_cast<uint16_t>(held->tag);
  }
  if (!as.key) return 0;
  const uint32_t entry = index_.Find(*as.key, pool);
  if (entry == kNone || index_.at(entry).page != page) return 0;
  return static_cast<uint16_t>(index_.at(entry).tag);
}

Status Ledger::Impl::Scale(const ScaleEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  BeginEvent();
  const uint32_t pool = event.pool.value();
  if (SayOutOfRange(pool, event.page) || IsNull(pool, event.page)) return {};
  if (event.as && event.as->req && !requests_.StampOf(event.as->req, pool, 0)) {
    Report(Reason::kIdentityReused, {.req = requests_.Resolve(event.as->req)});
    return {};
  }
  if (!config_.pools[pool].scales) return {};  // one scale for the whole pool: see rescale
  const auto page = static_cast<uint32_t>(event.page.value());
  Page& p = pages_.at(pool, page);
  p.scale = event.as ? ScaleOf(*event.as, pool, page) : static_cast<uint16_t>(p.tag);
  TellContent(pool, page);
  return {};
}

Status Ledger::Impl::Rescale(const RescaleEvent& event) {
  if (Status s = CheckPool(event.pool); !s.ok()) return s;
  BeginEvent();
  const uint32_t pool = event.pool.value();
  ++scale_epochs_[pool];
  if (deltas_ != nullptr) deltas_->ScaleEpoch(event.pool, scale_epochs_[pool]);
  // Where pages have marks of their own, those of older content become nobody's. It's rare.
  for (uint32_t page = 0; config_.pools[pool].scales && page < config_.pools[pool].pages; ++page) {
    Page& p = pages_.at(pool, page);
    if (!TagLive(p.tag) || p.scale != static_cast<uint16_t>(p.tag)) continue;
    p.scale = static_cast<uint16_t>(~p.tag);
    TellContent(pool, page);
  }
  return {};
}

Status Ledger::Impl::Copy(const CopyEvent& event) {
  if (Status s = CheckPool(event.from_pool); !s.ok()) return s;
  if (Status s = CheckPool(event.to_pool); !s.ok()) return s;
  BeginEvent();
  const uint32_t from_pool = event.from_pool.value();
  const uint32_t to_pool = event.to_pool.value();
  const bool lost = SayOutOfRange(from_pool, event.from);
  if (SayOutOfRange(to_pool, event.to) || lost || IsNull(to_pool, event.to)) return {};
  const auto from_page = static_cast<uint32_t>(event.from.value());
  const auto to_page = static_cast<uint32_t>(event.to.value());
  PinRef pinned;
  if (event.xfer != NameId()) {
    pinned = PinOf(event.xfer, to_pool, to_page);
    if (!Pinned(to_pool, to_page)) ReportPage(Reason::kInFlight, {}, to_pool, to_page);
    if (!Pinned(from_pool, from_page)) ReportPage(Reason::kInFlight, {}, from_pool, from_page);
    if (pinned && pins_.at(pinned.pin).dir != CopyDir::kIn) pinned = {};
    NoteRead(event.xfer, from_pool, from_page);
  }
  if (stream() && FailUsers(to_pool, to_page, true, event.xfer)) {
    ReportPage(Reason::kInFlight, {}, to_pool, to_page);
    if (RunningWrites(to_pool, to_page)) SuspectPage(to_pool, to_page, Reason::kInFlight);
  }
  JudgeSource(event.xfer, from_pool, from_page);
  CopyContent(from_pool, from_page, to_pool, to_page, pinned);
  return {};
}

// A copy of what was never written, or isn't yet.
void Ledger::Impl::JudgeSource(NameId xfer, uint32_t pool, uint32_t page) {
  const Page& p = pages_.at(pool, page);
  if (IsNull(pool, PageId(page))) return;
  if (config_.pools[pool].kind != PoolKind::kKv) {
    if (p.failed) ReportPage(Reason::kNotCommitted, {}, pool, page);
    return;
  }
  const PinRef pinned = xfer == NameId() ? PinRef() : PinOf(xfer, pool, page);
  const uint64_t need = pinned ? pins_.at(pinned.pin).pages[pinned.index].need : 0;
  if (content_.AnyValid(p) && content_.Valid(p, 0, need)) return;
  const RequestId req = pinned ? pins_.at(pinned.pin).req : RequestId();
  ReportPage(Reason::kNotCommitted, req, pool, page, -1, need, content_.Fill(p));
}

void Ledger::Impl::CopyContent(uint32_t from_pool, uint32_t from_page, uint32_t to_pool,
                               uint32_t to_page, PinRef pinned) {
  const Page& from = pages_.at(from_pool, from_page);
  Page& to = pages_.at(to_pool, to_page);
  const uint64_t size =
      std::min(config_.pools[from_pool].page_size, config_.pools[to_pool].page_size);
  const uint64_t n = std::min<uint64_t>(content_.Fill(from), size);
  if (pinned) {
    std::vector<ledger::LoadedRun> runs;
    for (uint64_t i = 0; i < n; ++i) {
      const Stamp birth = content_.Birth(from, i);
      if (birth == kNoStamp) continue;
      const bool on = !runs.empty() && runs.back().first + runs.back().n == i;
      if (on && runs.back().birth == birth) {
        ++runs.back().n;
      } else {
        runs.push_back({i, 1, birth});
      }
    }
    EraseContent(to, {0, config_.pools[to_pool].page_size});
    pins_.at(pinned.pin).pages[pinned.index].runs = std::move(runs);
  } else if (&from != &to) {
    CutRuns(to, {0, config_.pools[to_pool].page_size});
    content_.Copy(from, to, size);
    CarryWrites(from_pool, from_page, to_pool, to_page, size);
  }
  to.failed = from.failed && config_.pools[to_pool].kind != PoolKind::kKv;
  CopyScale(from_pool, from, to_pool, &to);
  ShowContent(to_pool, to_page);
}

void Ledger::Impl::CopyScale(uint32_t from_pool, const Page& from, uint32_t to_pool,
                             Page* to) const {
  if (!config_.pools[to_pool].scales) {
    // Copied within a pool, content keeps its scale epoch; into another it's made anew there.
    to->scale = from_pool == to_pool ? from.scale : scale_epochs_[to_pool];
    return;
  }
  // A valid scale entry is valid in the copy too.
  const bool valid =
      !config_.pools[from_pool].scales || from.scale == static_cast<uint16_t>(from.tag);
  to->scale = valid ? static_cast<uint16_t>(to->tag) : uint16_t{0};
}

// Slots that launched rows are still to be settled for have the same fate in the copy.
void Ledger::Impl::CarryWrites(uint32_t from_pool, uint32_t from, uint32_t to_pool, uint32_t to,
                               uint64_t size) {
  const Page& source = pages_.at(from_pool, from);
  const Page& target = pages_.at(to_pool, to);
  if (from == to && from_pool == to_pool) return;
  for (const auto& record : steps_.records()) {
    const size_t written = record->writes.size() + record->copies.size();
    for (size_t i = 0; i < written; ++i) {
      const bool direct = i < record->writes.size();
      ledger::SlotWrite w = direct ? record->writes[i] : record->copies[i - record->writes.size()];
      if (w.page != from || w.pool != from_pool || w.tag != source.tag || w.first >= size) continue;
      if (!record->clean(w.row)) continue;
      w.carried = true;
      w.before = {};
      w.pool = to_pool;
      w.page = to;
      w.tag = target.tag;
      w.n = static_cast<uint32_t>(std::min<uint64_t>(w.n, size - w.first));
      w.old_stamp = w.new_stamp = target.stamp;
      record->copies.push_back(w);
    }
  }
}

}  // namespace kvfence
