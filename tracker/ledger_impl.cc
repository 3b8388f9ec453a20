#include "ledger_impl.h"

#include <algorithm>

#include "kvfence/check.h"
#include "kvfence/rng.h"
#include "kvfence/validate.h"

namespace kvfence {
namespace {

// No request maps this many pages in a row that it never named: `at` far beyond a list is refused.
constexpr uint64_t kMaxGap = uint64_t{1} << 20;

uint64_t DigestOf(uint32_t pool, uint32_t at, uint32_t page, Tag tag) {
  return Mix64(Mix64(uint64_t{pool} << 32 | at) ^ (uint64_t{page} << 32 | tag));
}

}  // namespace

Ledger::Impl::Impl(const FenceConfig& config, RankId rank, DeltaSink* deltas,
                   std::function<void(const Violation&)> report)
    : config_(config),
      checks_(config.checks()),
      has_state_(std::ranges::any_of(
          config.pools, [](const PoolConfig& pool) { return pool.kind != PoolKind::kKv; })),
      rank_(rank),
      deltas_(deltas),
      report_(std::move(report)),
      pages_(config),
      requests_(static_cast<uint32_t>(config.pools.size())),
      index_(static_cast<uint32_t>(config.pools.size())),
      scale_epochs_(config.pools.size(), 0),
      rows_(config.rows),
      task_of_row_(config.rows, kNone) {}

void Ledger::Impl::Report(Reason reason, Violation v) {
  if (!checks_.Has(reason)) return;
  v.reason = reason;
  v.rank = rank_.value();
  if (report_) report_(v);
}

void Ledger::Impl::ReportPage(Reason reason, RequestId req, uint32_t pool, int64_t page, int64_t at,
                              uint64_t expected, uint64_t found) {
  if (!checks_.Has(reason)) return;
  const std::pair<uint32_t, int64_t> place{pool, page};
  if (page >= 0 && std::find(reported_.begin(), reported_.end(), place) != reported_.end()) return;
  reported_.push_back(place);
  Report(reason,
         {.req = req, .pool = pool, .at = at, .page = page, .expected = expected, .found = found});
}

uint32_t Ledger::Impl::Living(RequestId req) {
  const uint32_t slot = requests_.Find(req);
  if (slot == kNone) Report(Reason::kIdentityReused, {.req = requests_.Resolve(req)});
  return slot;
}

Status Ledger::Impl::CheckPool(PoolId pool) const {
  if (pool.value() < config_.pools.size()) return {};
  return Status::Invalid("there is no pool " + std::to_string(pool.value()));
}

PageRecord Ledger::Impl::RecordOf(const Page& page) const {
  return {.tag = page.tag,
          .fill_flags = static_cast<uint16_t>(content_.Fill(page) | page.flags),
          .scale = page.scale,
          .stamp = page.stamp};
}

void Ledger::Impl::TellContent(uint32_t pool, uint32_t page) { Tell(pool, page, kApplyContent); }

void Ledger::Impl::Tell(uint32_t pool, uint32_t page, uint32_t fields) {
  if (deltas_ == nullptr) return;
  const PageRecord record = RecordOf(pages_.at(pool, page));
  // All pools of a space see the one tag.
  for (const uint32_t p : pages_.pools_of_space(pages_.space_of(pool))) {
    if (page < config_.pools[p].pages) deltas_->Page(PoolId(p), page, fields, record);
  }
}

bool Ledger::Impl::JudgeIssue(RequestId req, uint32_t pool, PageId page, uint64_t at) {
  const auto logical = static_cast<int64_t>(at);
  if (SayOutOfRange(pool, page, req)) return false;
  if (IsNull(pool, page)) {  // I-6
    ReportPage(Reason::kIssuedWhileHeld, req, pool, page.value(), logical);
    return false;
  }
  const auto index = static_cast<uint32_t>(page.value());
  const Page& p = pages_.at(pool, index);
  const bool held = p.mappings != kNone || p.entries != kNone;
  const bool used = !stream() && FailUsers(pool, index, false, {});
  raced_ = used && RunningWrites(pool, index);
  if (held) {
    ReportPage(Reason::kIssuedWhileHeld, req, pool, page.value(), logical, 0, p.tag);
  } else if (p.pins != kNone || used) {
    ReportPage(Reason::kInFlight, req, pool, page.value(), logical, 0, p.tag);
  }
  return true;
}

void Ledger::Impl::Stale(uint32_t pool, uint32_t page) {
  Page& p = pages_.at(pool, page);
  while (p.mappings != kNone) {
    const ledger::Mapping m = pages_.mapping(p.mappings);
    Incarnation& inc = requests_.at(m.inc);
    Held& held = inc.lists[m.pool][m.at];
    KVF_CHECK(held.tag == p.tag && held.page == page, "I-5: holders are counted by current tag");
    NoteLetGo(inc, m.pool, m.at, page, m.since);
    pages_.Unmap(p, held.node);
    held.node = kNone;
  }
  while (p.entries != kNone) UnlinkEntry(p.entries);
  p.out_pins = 0;
}

void Ledger::Impl::Issue(uint32_t pool, uint32_t page) {
  Stale(pool, page);
  Page& p = pages_.at(pool, page);
  if (!TagLive(p.tag)) ++live_pages_;
  p.tag = TagAfterIssue(p.tag);
  p.owner = pool;
  p.suspect = 0;
  p.flags = 0;
  p.ran = false;
  p.failed = false;
  content_.Wipe(p);
  ++changes_;
  Tell(pool, page, kApplyTag | kApplyFlags | kApplyContent);
}

void Ledger::Impl::GiveBack(uint32_t pool, uint32_t page) {
  Stale(pool, page);
  Page& p = pages_.at(pool, page);
  KVF_CHECK(TagLive(p.tag), "I-7: only a live page is returned");
  --live_pages_;
  p.tag = TagAfterReturn(p.tag);
  p.flags = 0;
  p.ran = false;
  p.failed = false;
  content_.Wipe(p);
  ++changes_;
  Tell(pool, page, kApplyTag | kApplyFlags | kApplyContent);
}

void Ledger::Impl::MaybeGiveBack(uint32_t pool, uint32_t page) {
  if (explicit_frees()) return;
  const Page& p = pages_.at(pool, page);
  if (!TagLive(p.tag) || p.mappings != kNone || p.entries != kNone || p.pins != kNone) return;
  if (std::find(kept_.begin(), kept_.end(), PageId(page)) != kept_.end()) return;
  GiveBack(pool, page);
}

void Ledger::Impl::Take(uint32_t slot, uint32_t pool, uint32_t at, uint32_t page, Tag tag,
                        Stamp stamp) {
  Incarnation& inc = requests_.at(slot);
  Held& held = inc.lists[pool][at];
  KVF_CHECK(held.page == kNoPage, "I-34: a logical page is let go before it's taken again");
  held = {.page = page, .tag = tag, .node = kNone, .suspect = 0, .stamp = stamp};
  inc.digest += DigestOf(pool, at, page, tag);
  Changed(inc);
  ++live_entries_;
  ++changes_;
  if (deltas_ != nullptr) {
    deltas_->Expect(inc.id, PoolId(pool), at, {.page = page, .tag = tag, .stamp = stamp});
  }
  Page& p = pages_.at(pool, page);
  if (p.tag != tag || !TagLive(tag)) return;
  held.node = pages_.Map(p, pool, slot, at, now_);
  UpdateFlags(pool, page);
  if (p.suspect != 0) Suspect(slot, pool, at, static_cast<Reason>(p.suspect - 1));
}

void Ledger::Impl::Suspect(uint32_t slot, uint32_t pool, uint32_t at, Reason reason) {
  if (!keeps_failed() || !checks_.Has(reason)) return;
  Incarnation& inc = requests_.at(slot);
  Held& held = inc.lists[pool][at];
  if (held.suspect == 0) ++inc.suspects;
  held.suspect = 1 + static_cast<uint32_t>(reason);
}

void Ledger::Impl::SuspectPage(uint32_t pool, uint32_t page, Reason reason) {
  Page& p = pages_.at(pool, page);
  p.suspect = static_cast<uint8_t>(1 + static_cast<uint32_t>(reason));
  for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
    const ledger::Mapping& m = pages_.mapping(n);
    Suspect(m.inc, m.pool, m.at, reason);
  }
}

void Ledger::Impl::LetGo(uint32_t slot, uint32_t pool, uint32_t at) {
  Incarnation& inc = requests_.at(slot);
  Held& held = inc.lists[pool][at];
  if (held.page == kNoPage) return;
  const Held old = held;
  held = {};
  if (old.suspect != 0) --inc.suspects;
  inc.digest -= DigestOf(pool, at, old.page, old.tag);
  --live_entries_;
  ++changes_;
  if (deltas_ != nullptr) {
    deltas_->Expect(inc.id, PoolId(pool), at, {.page = kNoPage, .tag = 0, .stamp = kNoStamp});
  }
  if (old.node == kNone) return;
  Page& p = pages_.at(pool, old.page);
  p.last_expected = old.stamp;
  NoteLetGo(inc, pool, at, old.page, pages_.mapping(old.node).since);
  pages_.Unmap(p, old.node);
  UpdateFlags(pool, old.page);
  MaybeGiveBack(pool, old.page);
}

void Ledger::Impl::Resize(uint32_t slot, uint32_t pool, uint64_t count) {
  Incarnation& inc = requests_.at(slot);
  if (inc.lists[pool].size() == count) return;
  inc.lists[pool].resize(count);
  if (deltas_ != nullptr) deltas_->Resize(inc.id, PoolId(pool), static_cast<uint32_t>(count));
}

void Ledger::Impl::UpdateFlags(uint32_t pool, uint32_t page) {
  Page& p = pages_.at(pool, page);
  if (Alone(p) && HasSpared(p)) thinned_.emplace_back(pool, page);
  uint16_t flags = 0;
  // Where rows may read what another row writes in the same step, mapping a page that is yet to be
  // written is legal, so Launch judges writes to shared pages itself.
  if (!config_.same_step_reads && pages_.Shared(p)) flags |= kPageShared;
  // What steps write in pools that don't count in tokens is known to the device only; a page that
  // was published before its first step is still to be written.
  const bool something = p.stamp != kNoStamp && p.stamp != kFailedStamp;
  const bool holds = config_.pools[pool].kind == PoolKind::kKv || p.ran || something;
  if (holds && (p.entries != kNone || p.out_pins > 0)) flags |= kPageSealed;
  if (flags == p.flags) return;
  p.flags = flags;
  Tell(pool, page, kApplyFlags);
}

void Ledger::Impl::SetExpected(uint32_t slot, uint32_t pool, uint32_t at, Stamp stamp) {
  Incarnation& inc = requests_.at(slot);
  Held& held = inc.lists[pool][at];
  held.stamp = stamp;
  if (deltas_ == nullptr) return;
  deltas_->Expect(inc.id, PoolId(pool), at,
                  {.page = held.page, .tag = held.tag, .stamp = held.stamp});
}

Status Ledger::Impl::CheckGrowth(const Incarnation& inc, uint32_t pool, uint64_t at,
                                 uint64_t n) const {
  const uint64_t size = inc.lists[pool].size();
  if (at <= kMaxLogicalPage && at <= size + kMaxGap && n <= kMaxLogicalPage + 1 - at) return {};
  return Status(StatusCode::kResourceExhausted,
                "logical page " + std::to_string(at) + " is beyond what a request may hold");
}

// Logical pages are 24 bits of a stamp (I-3), so tokens are no more, whatever the page size.
Status Ledger::Impl::CheckTokens(uint64_t tokens) const {
  if (tokens <= kMaxLogicalPage) return {};
  return Status(StatusCode::kResourceExhausted,
                std::to_string(tokens) + " tokens are more than a request can have");
}

const Ledger::Impl::Held* Ledger::Impl::HeldAt(const Incarnation& inc, uint32_t pool,
                                               uint64_t at) const {
  const auto& list = inc.lists[pool];
  return at < list.size() && list[at].page != kNoPage ? &list[at] : nullptr;
}

void Ledger::Impl::LinkEntry(uint32_t entry) {
  ledger::IndexEntry& e = index_.at(entry);
  Page& p = pages_.at(e.pool, e.page);
  if (p.entries == kNone) ++cached_pages_;
  index_.Link(p, entry);
  UpdateFlags(e.pool, e.page);
}

void Ledger::Impl::UnlinkEntry(uint32_t entry) {
  ledger::IndexEntry& e = index_.at(entry);
  if (!e.linked) return;
  Page& p = pages_.at(e.pool, e.page);
  index_.Unlink(p, entry);
  if (p.entries == kNone) --cached_pages_;
  UpdateFlags(e.pool, e.page);
}

bool Ledger::Impl::SayOutOfRange(uint32_t pool, PageId page, RequestId req) {
  if (pages_.InRange(pool, page)) return false;
  ReportPage(Reason::kPageOutOfRange, req, pool, page.value());
  return true;
}

void Ledger::Impl::NoteLetGo(const Incarnation& inc, uint32_t pool, uint32_t at, uint32_t page,
                             uint64_t since) {
  for (auto note = inc.launches.rbegin(); note != inc.launches.rend(); ++note) {
    if (note->step < steps_.retired()) return;
    StepRecord* record = steps_.Find(note->step);
    if (record == nullptr || since >= record->launched_at) continue;
    if (!record->rows[note->row].runs) continue;
    if (record->UseOf(note->row, pool, at) == nullptr) continue;
    Page& p = pages_.at(pool, page);
    record->let_go.push_back(
        {.pool = pool, .page = page, .tag = p.tag, .at = at, .row = note->row});
    p.last_use = std::max(p.last_use, note->step + 1);
  }
}

uint32_t Ledger::Impl::RowIn(const StepRecord& record, uint32_t inc) const {
  const auto& launches = requests_.at(inc).launches;
  for (auto note = launches.rbegin(); note != launches.rend(); ++note) {
    if (note->step == record.step) return note->row;
    if (note->step < record.step) break;
  }
  return kNone;
}

void Ledger::Impl::UsersOf(uint32_t pool, uint32_t page, bool unconfirmed_only,
                           std::vector<User>* users) {
  users->clear();
  const Page& p = pages_.at(pool, page);
  const uint32_t space = pages_.space_of(pool);
  if (p.mappings == kNone && p.last_use <= steps_.retired()) return;
  for (const auto& record : steps_.records()) {
    if (unconfirmed_only && record->confirmed) continue;
    for (uint32_t n = p.mappings; n != kNone; n = pages_.mapping(n).next) {
      const ledger::Mapping& m = pages_.mapping(n);
      if (m.since >= record->launched_at) continue;
      ForRowsIn(*record, m.inc, [&](uint32_t row) {
        if (!record->rows[row].runs || record->UseOf(row, m.pool, m.at) == nullptr) return;
        users->push_back({.record = record.get(), .row = row, .at = m.at, .pool = m.pool});
      });
    }
    if (p.last_use > record->step) {
      for (const ledger::LetGo& gone : record->let_go) {
        if (gone.page != page || pages_.space_of(gone.pool) != space) continue;
        if (!record->rows[gone.row].runs) continue;
        users->push_back(
            {.record = record.get(), .row = gone.row, .at = gone.at, .pool = gone.pool});
      }
    }
  }
  // Rows fail in launch order, whichever way they were found.
  std::sort(users->begin(), users->end(), [](const User& a, const User& b) {
    return std::pair(a.record->step, a.row) < std::pair(b.record->step, b.row);
  });
}

// May a step that isn't confirmed yet still write the page? What a copy brings there, or who gets
// it next, can't be relied on: the step's write may come last, whatever stands in the log.
bool Ledger::Impl::RunningWrites(uint32_t pool, uint32_t page) const {
  for (const auto& record : steps_.records()) {
    if (record->confirmed) continue;
    for (const ledger::SlotWrite& w : record->writes) {
      if (w.page == page && pages_.space_of(w.pool) == pages_.space_of(pool)) return true;
    }
  }
  return false;
}

bool Ledger::Impl::FailUsers(uint32_t pool, uint32_t page, bool unconfirmed_only, NameId loading) {
  if (!checks_.Has(Reason::kInFlight)) return false;
  UsersOf(pool, page, unconfirmed_only, &users_);
  bool any = false;
  for (const User& user : users_) {
    const auto& row = user.record->rows[user.row];
    const auto begin = user.record->loads.begin();
    // A copy that the row waits for, layer by layer, may write its pages.
    if (loading != NameId() && std::find(begin + row.loads_begin, begin + row.loads_end, loading) !=
                                   begin + row.loads_end) {
      continue;
    }
    any = true;
    FailRow(*user.record, user.row, Reason::kInFlight);
  }
  return any;
}

}  // namespace kvfence
