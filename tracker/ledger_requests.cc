#include "ledger_requests.h"

#include "kvfence/check.h"

namespace kvfence::ledger {
namespace {

// How much is remembered of what has ended: incarnations, and expectations of foreign lineage.
constexpr uint64_t kMaxEnded = uint64_t{1} << 16;
constexpr uint64_t kMaxEndedForeign = uint64_t{1} << 20;

}  // namespace

bool RequestBook::LatestLives(NameId name) const {
  const auto it = names_.find(name.value());
  return it != names_.end() && it->second.slot != kNone;
}

RequestId RequestBook::Latest(NameId name) const {
  const auto it = names_.find(name.value());
  return it == names_.end() ? RequestId() : RequestId(name, it->second.latest);
}

uint32_t RequestBook::Admit(NameId name, IdentityId identity) {
  Name& known = names_[name.value()];
  if (known.slot != kNone) older_[slots_[known.slot].id.word()] = known.slot;
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
    slots_.back().lists.resize(pools_);
  }
  const uint32_t slot = unused_.back();
  unused_.pop_back();
  known.slot = slot;
  ++known.latest;
  Incarnation& inc = slots_[slot];
  inc.id = RequestId(name, known.latest);
  inc.serial = ++serials_;
  KVF_CHECK(inc.serial <= kMaxSerial, "I-3: a stamp holds the serial");
  inc.identity = identity;
  inc.live = true;
  return slot;
}

uint32_t RequestBook::Find(RequestId req) const {
  const auto it = names_.find(req.name().value());
  if (it == names_.end()) return kNone;
  if (req.incarnation() == 0 || req.incarnation() == it->second.latest) return it->second.slot;
  const auto older = older_.find(req.word());
  return older == older_.end() ? kNone : older->second;
}

RequestId RequestBook::Resolve(RequestId req) const {
  if (req.incarnation() != 0) return req;
  const RequestId latest = Latest(req.name());
  return latest ? latest : req;
}

void RequestBook::Remember(const Incarnation& inc) {
  ended_at_[inc.id.word()] = ended_begin_ + ended_.size();
  Ended& ended = ended_.emplace_back();
  ended.id = inc.id;
  ended.serial = inc.serial;
  for (uint32_t pool = 0; pool < pools_; ++pool) {
    for (uint32_t at = 0; at < inc.lists[pool].size(); ++at) {
      const Held& held = inc.lists[pool][at];
      if (held.page == kNoPage || held.stamp == MakeStamp(inc.serial, at)) continue;
      ended.foreign.push_back({pool, at, held.stamp});
    }
  }
  ended_foreign_ += ended.foreign.size();
  while (ended_.size() > kMaxEnded || (ended_.size() > 1 && ended_foreign_ > kMaxEndedForeign)) {
    const Ended& oldest = ended_.front();
    ended_at_.erase(oldest.id.word());
    const auto name = names_.find(oldest.id.name().value());
    // The name itself is forgotten too, once nothing newer of it is about.
    if (name != names_.end() && name->second.slot == kNone &&
        name->second.latest == oldest.id.incarnation()) {
      names_.erase(name);
    }
    ended_foreign_ -= oldest.foreign.size();
    ended_.pop_front();
    ++ended_begin_;
  }
}

void RequestBook::End(uint32_t slot) {
  Incarnation& inc = slots_[slot];
  KVF_CHECK(inc.live, "I-31: an incarnation ends once");
  Name& known = names_[inc.id.name().value()];
  if (known.slot == slot) {
    known.slot = kNone;
  } else {
    older_.erase(inc.id.word());
  }
  Remember(inc);
  for (auto& list : inc.lists) list.clear();
  inc.launches.clear();
  inc.bases.clear();
  inc.length = 0;
  inc.digest = 0;
  inc.suspects = 0;
  inc.changed_step = 0;
  inc.live = false;
  unused_.push_back(slot);
}

std::optional<Stamp> RequestBook::StampOf(RequestId req, uint32_t pool, uint64_t at) const {
  const RequestId id = Resolve(req);
  const uint32_t slot = Find(id);
  if (slot != kNone) {
    const Incarnation& inc = slots_[slot];
    const auto& list = inc.lists[pool];
    if (at < list.size() && list[at].page != kNoPage) return list[at].stamp;
    return MakeStamp(inc.serial, at);
  }
  const auto it = ended_at_.find(id.word());
  if (it == ended_at_.end()) return std::nullopt;
  const Ended& ended = ended_[it->second - ended_begin_];
  for (const Foreign& f : ended.foreign) {
    if (f.pool == pool && f.at == at) return f.stamp;
  }
  return MakeStamp(ended.serial, at);
}

}  // namespace kvfence::ledger
