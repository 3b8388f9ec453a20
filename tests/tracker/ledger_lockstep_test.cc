// The ledger beside its naive model, event by event, over random sequences, illegal ones included.
//
// After each event findings and state must agree: lengths, expectations, tags, stamps, slots,
// holders, index entries, pins, whose each slot is (I-96). What the deltas say must agree with the
// ledger too. A failing sequence is shrunk to the few events that matter.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "kvfence/rng.h"
#include "ledger_scene.h"
#include "tests/model/ledger_model.h"
#include "tests/model/seeded.h"

namespace kvfence::testing {
namespace {

using Bytes = std::array<uint8_t, 8>;

FenceConfig LockstepConfig(Frees frees, Reuse reuse) {
  FenceConfig config;
  config.pools.push_back({.name = "full", .pages = 8, .page_size = 4, .space = ""});
  config.pools.push_back({.name = "window", .pages = 6, .page_size = 2, .window = 3, .space = ""});
  config.rows = 3;
  config.width = 8;
  config.frees = frees;
  config.reuse = reuse;
  // All host checks, but no audit after each step: that one is an event of its own here.
  config.level = Level::kFull;
  config.judge_afresh = true;
  return config;
}

// One sequence: bytes become events that mean something in the state reached so far.
class Lockstep {
 public:
  explicit Lockstep(const FenceConfig& config)
      : config_(config),
        model(config),
        ledger(config, RankId(0), &gate, [this](const Violation& v) {
          Violation plain = v;
          // Which of several holders is named is the ledger's choice.
          if (v.reason == Reason::kFreedWhileHeld || v.reason == Reason::kConservation) {
            plain.req = {};
            plain.at = -1;
          }
          // Nor does it matter which of the places where a row maps one page twice.
          if (v.reason == Reason::kNotCommitted && v.step >= 0) plain.at = -1;
          said.insert(LedgerModel::Text(plain));
        }) {}

  void Play(const Bytes& b) {
    said.clear();
    model.findings.clear();
    switch (b[0] % 32) {
      case 0:
      case 1:
        return Admit(b);
      case 2:
      case 3:
      case 4:
      case 5:
        return Alloc(b);
      case 6:
      case 7:
        return Share(b);
      case 8:
        return Both(ForkEvent{.from = Req(b[1]), .to = Req(b[2])}, &Ledger::Fork);
      case 9:
        return Both(
            CowEvent{.req = Req(b[1]), .at = b[2] % 4u, .page = Page(b[3]), .pool = Pool(b[4])},
            &Ledger::Cow);
      case 10:
        return Trim(b);
      case 11:
        return Both(
            DropEvent{.req = Req(b[1]), .at = b[2] % 4u, .n = b[3] % 3u, .pool = Pool(b[4])},
            &Ledger::Drop);
      case 12:
        return Both(ReleaseEvent{.req = Req(b[1])}, &Ledger::Release);
      case 13:
      case 14:
        return Free(b);
      case 15:
      case 16:
        return Publish(b);
      case 17:
        return Both(UnpublishEvent{KeyId(b[1] % 3u), Pool(b[2])}, &Ledger::Unpublish);
      case 18:
      case 19:
        return Pin(b);
      case 20:
        return Both(UnpinEvent{.id = NameId(1 + b[1] % 2u), .ok = b[2] % 4 != 0}, &Ledger::Unpin);
      case 21:
        return Both(ReadyEvent{.req = Req(b[1]), .tokens = b[2] % 10u}, &Ledger::Ready);
      case 22:
        return Both(
            BindRowEvent{.row = Row(b[1] % 3u), .req = b[2] % 4 == 0 ? RequestId() : Req(b[2])},
            &Ledger::BindRow);
      case 23:
        return Both(AuditEvent{.idle = b[1] % 2 == 0}, &Ledger::Audit);
      case 24:
        return Write(b);
      case 25:
        return Both(
            ReadEvent{.page = Page(b[1]), .xfer = NameId(1 + b[2] % 2u), .pool = Pool(b[3])},
            &Ledger::Read);
      case 26:
        return Both(CopyEvent{.from = Page(b[1]),
                              .to = Page(b[2]),
                              .from_pool = Pool(b[3]),
                              .to_pool = Pool(b[4])},
                    &Ledger::Copy);
      case 27:
        return Confirm(b);
      case 28:
        return Retire();
      default:
        return Step(b);
    }
  }

  void Compare() const {
    RC_ASSERT(said == model.findings);
    for (uint32_t pool = 0; pool < 2; ++pool) {
      for (int64_t page = 0; page < static_cast<int64_t>(config_.pools[pool].pages); ++page) {
        ComparePage(pool, page);
      }
    }
    for (const auto& [id, request] : model.requests) {
      const LedgerView view = ledger.View(id);
      RC_ASSERT(view.live);
      RC_ASSERT(view.length == request.length);
      for (uint32_t pool = 0; pool < 2; ++pool) {
        CompareList(id, pool, request.lists[pool], view.expectations[pool]);
      }
    }
    CompareSnapshot();
  }

  // I-91: while nothing is in flight, a snapshot says what the ledger has, all of it.
  void CompareSnapshot() const {
    DeltaMirror anew;
    Same(ledger.Snapshot(&anew).ok() ? 1 : 0, model.steps.empty() ? 1 : 0, "a snapshot's leave");
    Same(anew.pages.empty() || model.steps.empty() ? 1 : 0, 1, "a refused snapshot tells nothing");
    if (!model.steps.empty()) return;
    for (uint32_t pool = 0; pool < 2; ++pool) {
      for (uint32_t page = 0; page < config_.pools[pool].pages; ++page) {
        const PageRecord want = ledger.ViewPage(PoolId(pool), PageId(page)).record;
        const PageRecord have = anew.pages[{pool, page}];
        const std::string of = " of page " + std::to_string(page) + " anew";
        Same(have.tag, want.tag, "tag" + of);
        Same(have.stamp, want.stamp, "stamp" + of);
        Same(have.scale, want.scale, "scale" + of);
        Same(have.fill_flags, want.fill_flags, "fill and flags" + of);
      }
    }
    size_t lists = 0;
    for (const auto& [id, request] : model.requests) {
      const LedgerView view = ledger.View(id);
      for (uint32_t pool = 0; pool < 2; ++pool) {
        const auto& want = view.expectations[pool];
        if (want.empty()) continue;
        ++lists;
        const auto& have = anew.lists[{id.word(), pool}];
        Same(have.size(), want.size(), "entries anew");
        for (size_t at = 0; at < want.size(); ++at) {
          Same(have[at].page, want[at].page, "page anew");
          Same(have[at].tag, want[at].tag, "tag anew");
          Same(have[at].stamp, want[at].stamp, "stamp anew");
        }
      }
    }
    Same(anew.lists.size(), lists, "lists anew");
    for (const auto& [row, req] : gate.rows) {
      Same(anew.rows[row].word(), req.word(), "row " + std::to_string(row) + " anew");
    }
  }

  FenceConfig config_;
  LedgerModel model;
  DeltaMirror gate;
  Ledger ledger;
  std::multiset<std::string> said;

 private:
  static RequestId Req(uint8_t b) { return RequestId(NameId(1 + b % 4u), b < 224 ? 0 : b % 3u); }
  static PageId Page(uint8_t b) { return PageId(b % 32 == 31 ? -1 : b % 32 == 30 ? 8 : b % 8); }
  static PoolId Pool(uint8_t b) { return PoolId(b % 4 == 0 ? 1u : 0u); }
  static std::optional<uint64_t> At(uint8_t b) {
    return b % 4 != 0 ? std::nullopt : std::optional<uint64_t>(b / 4 % 4);
  }

  template <class Event>
  void Both(const Event& event, Status (Ledger::*verb)(const Event&)) {
    if ((ledger.*verb)(event).ok()) model.On(event);
  }

  void Admit(const Bytes& b) {
    const NameId name(1 + b[1] % 4u);
    // Two lives of one name are legal to say, but keep them rare.
    if (model.requests.count(RequestId(name, model.latest[name])) != 0 && b[2] % 8 != 0) return;
    const AdmitEvent event{.name = name, .identity = IdentityId(b[3] % 3 == 0 ? 1u : 0u)};
    const RequestId id = ledger.Admit(event);
    model.On(event);
    RC_ASSERT(id == RequestId(name, model.latest[name]));
  }

  void Alloc(const Bytes& b) {
    const std::array<PageId, 2> pages{Page(b[2]), Page(b[3])};
    Both(AllocEvent{.req = Req(b[1]),
                    .pages = Pages(pages.data(), 1 + b[4] % 2u),
                    .at = At(b[5]),
                    .pool = Pool(b[6])},
         &Ledger::Alloc);
  }

  void Share(const Bytes& b) {
    std::array<PageId, 2> pages{Page(b[2]), Page(b[3])};
    const std::array<KeyId, 2> keys{KeyId(b[4] % 3u), KeyId(b[4] / 4 % 3u)};
    const size_t n = 1 + b[5] % 2u;
    const bool keyed = b[6] % 2 == 0;
    PoolId pool = Pool(b[6] / 2);
    const LedgerModel::Key* const entry = model.Lookup(keys[0], pool.value());
    if (keyed && b[2] >= 128 && entry != nullptr) {  // mostly a hit is of the entry's page
      pages[0] = PageId(entry->page);
      pool = PoolId(entry->pool);
    }
    Both(ShareEvent{.req = Req(b[1]),
                    .pages = Pages(pages.data(), n),
                    .tokens = b[5] % 9u,
                    .at = At(b[7]),
                    .keys = std::span(keys.data(), keyed ? n : 0),
                    .pool = pool},
         &Ledger::Share);
  }

  void Trim(const Bytes& b) {
    TrimEvent event{.req = Req(b[1]), .tokens = b[2] % 10u};
    if (b[3] % 3 == 0 && next_step_ > 1) event.step = StepId(next_step_ - 1 - b[3] % 2u);
    Both(event, &Ledger::Trim);
  }

  void Free(const Bytes& b) {
    const std::array<PageId, 2> pages{Page(b[1]), Page(b[2])};
    Both(FreeEvent{.pages = Pages(pages.data(), 1 + b[3] % 2u), .pool = Pool(b[4])}, &Ledger::Free);
  }

  void Publish(const Bytes& b) {
    PublishEvent event;
    event.key = KeyId(b[1] % 3u);
    event.pool = Pool(b[4]);
    if (b[5] % 4 == 0) {
      event.page = Page(b[2]);
      event.from_key = KeyId(b[3] % 3u);
    } else {
      event.req = Req(b[2]);
      event.at = b[3] % 3u;
    }
    Both(event, &Ledger::Publish);
  }

  void Pin(const Bytes& b) {
    const std::array<PageId, 2> pages{Page(b[2]), Page(b[3])};
    PinEvent event;
    event.id = NameId(1 + b[1] % 2u);
    event.dir = b[1] / 2 % 2 == 0 ? CopyDir::kIn : CopyDir::kOut;
    event.pages = Pages(pages.data(), 1 + b[4] % 2u);
    event.pool = Pool(b[4] / 2);
    if (b[5] % 2 == 0) {
      event.req = Req(b[6]);
      event.at = b[7] % 3u;
    }
    if (event.dir == CopyDir::kIn && b[5] % 8 == 0) {
      event.key = KeyId(b[7] % 3u);
      event.pages = Pages(pages.data(), 1);
    }
    Both(event, &Ledger::Pin);
  }

  void Write(const Bytes& b) {
    WriteEvent event;
    event.page = Page(b[1]);
    event.pool = Pool(b[2]);
    event.first = b[3] % 3u;
    event.n = b[3] / 4 % 4u;
    if (b[4] % 8 != 0) {
      event.as.req = Req(b[4]);
      event.as.at = b[5] % 3u;
    }
    if (b[6] % 2 == 0) event.xfer = NameId(1 + b[6] / 2 % 2u);
    Both(event, &Ledger::Write);
  }

  void Step(const Bytes& b) {
    if (model.steps.size() >= 3) return Retire();
    std::vector<RowPlan> plans;
    for (uint32_t row = 0; row < 3; ++row) {
      const uint8_t x = b[1 + row];
      if (x % 4 == 0 && row != 0) continue;
      RowPlan plan;
      plan.row = Row(row);
      plan.req = Req(static_cast<uint8_t>(x / 4));
      plan.new_tokens = b[4 + row] % 5u;
      plan.draft = b[4 + row] / 8 % 8 == 0 ? 2 : 0;
      if (x % 32 == 7) plan.base = b[7] % 8u;
      plans.push_back(plan);
    }
    std::vector<PoolBuffers> pools(2);
    pools[1].pool = PoolId(1);
    StepEvent event;
    event.step = StepId(next_step_++);
    event.rows = plans;
    event.pools = pools;
    const StepPlan* plan = nullptr;
    RC_ASSERT(ledger.Launch(event, &plan).ok());
    model.On(event);
    Store(event.step, *plan);
    Compare();
    if (b[7] % 4 == 0) Judge(model.steps.size() - 1, b[7] / 4);
  }

  // Fails a row of a step, as if the device had.
  void Judge(size_t index, uint8_t which) {
    const LedgerModel::LaunchedStep& step = model.steps[index];
    if (step.rows.empty()) return;
    std::vector<uint32_t> reasons(step.rows.size(), 0);
    reasons[which % reasons.size()] = ReasonBit(Reason::kTagMismatch);
    said.clear();
    RC_ASSERT(ledger.Judge(StepId(step.step), reasons).empty());
    model.Judge(StepId(step.step), reasons);
  }

  // What confirm does on the device for rows that are clean: the expectation follows the write.
  void Store(StepId step, const StepPlan& plan) {
    const auto launched = ledger.Launched(step);
    for (const PoolTask& task : plan.pool_tasks) {
      if (!launched[task.row_task].reasons.empty()) continue;
      const RowTask& row = plan.rows[task.row_task];
      auto& list = gate.lists[{row.request, task.pool}];
      const uint64_t size = config_.pools[task.pool].page_size;
      for (uint32_t i = 0; i < task.write_pages; ++i) {
        const uint32_t at = task.write_first + i;
        // Only pages that new tokens lie in are stamped, not those of drafts.
        const uint64_t end = row.length_before + row.new_tokens;
        const bool fresh = row.new_tokens > 0 && end > at * size;
        if (!fresh || at >= list.size()) continue;
        if (list[at].page == kNoPage) continue;
        if (list[at].tag != gate.pages[{task.pool, list[at].page}].tag) continue;
        list[at].stamp = plan.write_stamps[task.write_begin + i];
      }
    }
  }

  void Confirm(const Bytes& b) {
    if (model.steps.empty()) return;
    const size_t index = b[1] % model.steps.size();
    const StepId step(model.steps[index].step);
    if (b[2] % 4 == 0 && !model.steps[index].confirmed) Judge(index, b[3]);
    RC_ASSERT(said == model.findings);
    said.clear();
    RC_ASSERT(ledger.Confirm(step).ok());
    model.On(ConfirmEvent{.step = step});
  }

  void Retire() {
    if (model.steps.empty()) return;
    const StepId step(model.steps.front().step);
    std::vector<LaunchedRow> rows;
    const std::vector<LedgerModel::LaunchedRow> before = model.steps.front().rows;
    RC_ASSERT(ledger.Retire(step, &rows).ok());
    model.On(RetireEvent{.step = step});
    RC_ASSERT(rows.size() == before.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      // Unverified ones apart, what failed is what the model failed.
      const CheckSet late = Reason::kUnverified;
      RC_ASSERT(rows[i].reasons - late == before[i].reasons - late);
    }
  }

  // RapidCheck and gtest both report what an exception says.
  template <class A, class B>
  static void Same(const A& ledger, const B& model, const std::string& what) {
    if (ledger == model) return;
    throw std::runtime_error(what + ": ledger " + std::to_string(ledger) + ", model " +
                             std::to_string(model));
  }

  void ComparePage(uint32_t pool, int64_t page) const {
    const LedgerModel::Page& p = model.pages[pool][static_cast<size_t>(page)];
    const LedgerPageView view = ledger.ViewPage(PoolId(pool), PageId(page));
    const std::string of = " of pool " + std::to_string(pool) + " page " + std::to_string(page);
    Same(view.record.tag, p.tag, "tag" + of);
    Same(view.record.stamp, model.Shown(pool, page), "stamp" + of);
    for (size_t i = 0; i < p.slots.size(); ++i) {
      if (view.committed[i]) Same(view.valid[i] ? 1 : 0, 1, "I-30: a committed slot" + of);
      Same(view.valid[i] ? 1 : 0, p.slots[i].valid ? 1 : 0, "valid slot" + of);
      Same(view.committed[i] ? 1 : 0, p.slots[i].committed ? 1 : 0, "committed slot" + of);
    }
    const std::set<RequestId> holders = model.Requests(pool, page);
    Same(view.holders.size(), holders.size(), "holders" + of);
    for (const RequestId id : view.holders) Same(holders.count(id), 1u, "holder" + of);
    Same(view.index_entries, model.Entries(pool, page), "entries" + of);
    Same(view.pins, model.Pins(pool, page), "pins" + of);
    const bool shared = holders.size() > 1;
    const bool sealed = view.index_entries > 0 || model.OutPins(pool, page) > 0;
    const int flags = (shared ? kPageShared : 0) | (sealed ? kPageSealed : 0);
    Same(view.record.fill_flags & ~kFillMask, flags, "flags" + of);
    const auto told = gate.pages.find({pool, static_cast<uint32_t>(page)});
    if (told == gate.pages.end()) return;
    Same(told->second.tag, p.tag, "told tag" + of);
    Same(told->second.fill_flags & ~kFillMask, flags, "told flags" + of);
  }

  void CompareList(RequestId id, uint32_t pool, const std::vector<LedgerModel::Entry>& want,
                   const std::vector<Expectation>& have) const {
    const auto told = gate.lists.find({id.word(), pool});
    const std::string of = " of " + std::to_string(id.word()) + " pool " + std::to_string(pool);
    Same(have.size(), want.size(), "entries" + of);
    Same(told == gate.lists.end() ? 0 : told->second.size(), have.size(), "told entries" + of);
    for (size_t at = 0; at < want.size(); ++at) {
      const LedgerModel::Entry& e = want[at];
      const std::string here = of + " at " + std::to_string(at);
      Same(have[at].page == kNoPage ? -1 : int64_t{have[at].page}, e.page, "page" + here);
      Same(told->second[at].page, have[at].page, "told page" + here);
      if (e.page < 0) continue;
      Same(have[at].tag, e.tag, "tag" + here);
      Same(have[at].stamp, e.stamp, "stamp" + here);
      Same(told->second[at].tag, e.tag, "told tag" + here);
      Same(told->second[at].stamp, e.stamp, "told stamp" + here);
    }
  }

  uint64_t next_step_ = 1;
};

// Where the model says "some holder's stamp", take the ledger's if some holder, entry or last
// holder had it before the event.
class Adopter {
 public:
  explicit Adopter(const LedgerModel& model) {
    for (const auto& [id, request] : model.requests) {
      for (const auto& list : request.lists) {
        for (const auto& e : list) known_.insert(e.stamp);
      }
    }
    for (const auto& [id, key] : model.keys) known_.insert(key.stamp);
    for (const auto& pool : model.pages) {
      for (const auto& page : pool) known_.insert(page.last_expected);
    }
  }
  void Settle(const Ledger& ledger, LedgerModel* model) const {
    for (auto& [id, request] : model->requests) {
      for (uint32_t pool = 0; pool < request.lists.size(); ++pool) {
        for (size_t at = 0; at < request.lists[pool].size(); ++at) {
          LedgerModel::Entry& e = request.lists[pool][at];
          if (e.stamp != LedgerModel::kAnyHolders) continue;
          const Stamp stamp = ledger.View(id).expectations[pool][at].stamp;
          RC_ASSERT(known_.count(stamp) != 0);
          e.stamp = stamp;
        }
      }
    }
  }

 private:
  std::set<Stamp> known_;
};

void Check(Frees frees, Reuse reuse) {
  const auto sequence = *rc::gen::container<std::vector<Bytes>>(rc::gen::arbitrary<Bytes>());
  Lockstep both(LockstepConfig(frees, reuse));
  for (const Bytes& bytes : sequence) {
    const Adopter adopter(both.model);
    both.Play(bytes);
    adopter.Settle(both.ledger, &both.model);
    both.Compare();
  }
}

// Longer runs than a property has, from fixed seeds: every host reason must have come up, or the
// comparison above would say nothing about it.
TEST(LedgerLockstep, LongRunsReachEveryHostReason) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    Lockstep both(LockstepConfig(seed % 2 == 0 ? Frees::kExplicit : Frees::kImplicit,
                                 seed / 2 % 2 == 0 ? Reuse::kRetired : Reuse::kStream));
    for (int i = 0; i < 300; ++i) {
      Bytes bytes;
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng.Below(256));
      const Adopter adopter(both.model);
      both.Play(bytes);
      adopter.Settle(both.ledger, &both.model);
      ASSERT_EQ(both.said, both.model.findings) << "seed " << seed << " event " << i;
      ASSERT_NO_THROW(both.Compare()) << "seed " << seed << " event " << i;
      for (const std::string& text : both.said) ++seen[text.substr(0, text.find(' '))];
    }
  }
  for (const Reason reason :
       {Reason::kPageOutOfRange, Reason::kPageMismatch, Reason::kNotCommitted, Reason::kRowEpoch,
        Reason::kLengthMismatch, Reason::kUnverified, Reason::kStaleIndexEntry,
        Reason::kKeyMismatch, Reason::kFreedWhileHeld, Reason::kDoubleFree,
        Reason::kIssuedWhileHeld, Reason::kInFlight, Reason::kCopyRaced, Reason::kConservation,
        Reason::kIdentityReused}) {
    EXPECT_GE(seen[std::string(ReasonName(reason))], 1) << ReasonName(reason);
  }
}

TEST(LedgerLockstep, ExplicitRetired) {
  CheckSeeded("explicit, retired", 201, 100, [] { Check(Frees::kExplicit, Reuse::kRetired); });
}
TEST(LedgerLockstep, ExplicitStream) {
  CheckSeeded("explicit, stream", 202, 100, [] { Check(Frees::kExplicit, Reuse::kStream); });
}
TEST(LedgerLockstep, ImplicitRetired) {
  CheckSeeded("implicit, retired", 203, 100, [] { Check(Frees::kImplicit, Reuse::kRetired); });
}
TEST(LedgerLockstep, ImplicitStream) {
  CheckSeeded("implicit, stream", 204, 100, [] { Check(Frees::kImplicit, Reuse::kStream); });
}

}  // namespace
}  // namespace kvfence::testing
