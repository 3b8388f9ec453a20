// A ledger on a stage: events by short names, findings collected, and a second bookkeeping made
// only of the deltas, as a gate would have it.
//
// Invariant checked by Gate::ExpectSame: the deltas say everything, so what a gate has is what the
// ledger has, but for what launched rows still write.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kvfence/ledger.h"
#include "kvfence/validate.h"

namespace kvfence::testing {

// Applies deltas to maps.
class DeltaMirror : public DeltaSink {
 public:
  void Page(PoolId pool, uint32_t page, uint32_t fields, const PageRecord& record) override {
    PageRecord& r = pages[{pool.value(), page}];
    if ((fields & kApplyTag) != 0) r = {.tag = record.tag, .fill_flags = 0, .scale = 0, .stamp = 0};
    if ((fields & kApplyFlags) != 0) {
      r.fill_flags = static_cast<uint16_t>((r.fill_flags & kFillMask) |
                                           (record.fill_flags & (kPageShared | kPageSealed)));
    }
    if ((fields & kApplyContent) != 0) {
      r.fill_flags =
          static_cast<uint16_t>((r.fill_flags & ~kFillMask) | (record.fill_flags & kFillMask));
      r.scale = record.scale;
      r.stamp = record.stamp;
    }
  }
  void Expect(RequestId req, PoolId pool, uint32_t at, const Expectation& e) override {
    auto& list = lists[{req.word(), pool.value()}];
    ASSERT_LT(at, list.size());
    list[at] = e;
  }
  void Resize(RequestId req, PoolId pool, uint32_t count) override {
    lists[{req.word(), pool.value()}].resize(count, Expectation{kNoPage, 0, kNoStamp});
  }
  void End(RequestId req) override {
    for (auto it = lists.begin(); it != lists.end();) {
      it = it->first.first == req.word() ? lists.erase(it) : std::next(it);
    }
  }
  void Bind(Row row, RequestId req) override { rows[row.value()] = req; }
  void ScaleEpoch(PoolId pool, uint16_t epoch) override { epochs[pool.value()] = epoch; }

  std::map<std::pair<uint32_t, uint32_t>, PageRecord> pages;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<Expectation>> lists;
  std::map<uint32_t, RequestId> rows;
  std::map<uint32_t, uint16_t> epochs;
};

inline FenceConfig SmallConfig(Frees frees = Frees::kExplicit, Reuse reuse = Reuse::kRetired) {
  FenceConfig config;
  config.pools.push_back({.name = "full", .pages = 16, .page_size = 16, .space = ""});
  config.rows = 4;
  config.width = 8;
  config.frees = frees;
  config.reuse = reuse;
  config.level = Level::kAudit;
  config.judge_afresh = true;
  return config;
}

class Scene {
 public:
  explicit Scene(FenceConfig config = SmallConfig())
      : config_(config),
        ledger(config_, RankId(0), &gate, [this](const Violation& v) { findings.push_back(v); }) {}

  static NameId N(const std::string& name) {
    uint32_t word = 0;
    for (const char c : name) word = word * 31 + static_cast<unsigned char>(c);
    return NameId(word + 1);
  }
  static RequestId R(const std::string& name, uint32_t inc = 0) { return RequestId(N(name), inc); }
  static KeyId K(const std::string& name) { return KeyId(N(name).value()); }
  static std::vector<PageId> P(std::initializer_list<int64_t> pages) {
    std::vector<PageId> ids;
    for (const int64_t p : pages) ids.emplace_back(p);
    return ids;
  }

  RequestId Admit(const std::string& req, uint32_t identity = 0) {
    return ledger.Admit({.name = N(req), .identity = IdentityId(identity)});
  }
  void Alloc(const std::string& req, std::initializer_list<int64_t> pages,
             std::optional<uint64_t> at = {}, uint32_t pool = 0) {
    const auto ids = P(pages);
    Ok(ledger.Alloc({.req = R(req), .pages = ids, .at = at, .pool = PoolId(pool)}));
  }
  void Share(const std::string& req, std::initializer_list<int64_t> pages, uint64_t tokens,
             std::vector<std::string> keys = {}) {
    const auto ids = P(pages);
    std::vector<KeyId> key_ids;
    for (const auto& k : keys) key_ids.push_back(K(k));
    Ok(ledger.Share({.req = R(req), .pages = ids, .tokens = tokens, .keys = key_ids}));
  }
  void Free(std::initializer_list<int64_t> pages) {
    const auto ids = P(pages);
    Ok(ledger.Free({.pages = ids}));
  }
  void Release(const std::string& req) { Ok(ledger.Release({.req = R(req)})); }
  void Bind(uint32_t row, const std::string& req) {
    Ok(ledger.BindRow({.row = Row(row), .req = req.empty() ? RequestId() : R(req)}));
  }
  void Publish(const std::string& key, const std::string& req, uint64_t at) {
    PublishEvent event;
    event.key = K(key);
    event.req = R(req);
    event.at = at;
    Ok(ledger.Publish(event));
  }
  void Unpublish(const std::string& key) { Ok(ledger.Unpublish({.key = K(key)})); }
  void PinCopy(const std::string& id, CopyDir dir, std::initializer_list<int64_t> pages,
               const std::string& req = "", std::optional<uint64_t> at = {},
               std::optional<uint64_t> lease = {}) {
    const auto ids = P(pages);
    PinEvent event;
    event.id = N(id);
    event.dir = dir;
    event.pages = ids;
    if (!req.empty()) event.req = R(req);
    event.at = at;
    event.lease = lease;
    Ok(ledger.Pin(event));
  }
  void Unpin(const std::string& id, bool ok = true) { Ok(ledger.Unpin({.id = N(id), .ok = ok})); }
  void WriteAs(int64_t page, uint64_t first, uint64_t n, RequestId as, uint64_t at,
               const std::string& xfer = "") {
    WriteEvent event;
    event.page = PageId(page);
    event.first = first;
    event.n = n;
    event.as.req = as;
    event.as.at = at;
    if (!xfer.empty()) event.xfer = N(xfer);
    Ok(ledger.Write(event));
  }
  void ReadBy(int64_t page, const std::string& xfer) {
    Ok(ledger.Read({.page = PageId(page), .xfer = N(xfer)}));
  }

  struct RowOf {
    uint32_t row;
    std::string req;
    uint64_t new_tokens;
    std::optional<uint64_t> base{};
    uint64_t draft = 0;
    std::vector<std::string> loads{};
  };
  const StepPlan& Launch(uint64_t step, const std::vector<RowOf>& rows,
                         std::vector<uint32_t> pads = {}) {
    std::vector<RowPlan> plans;
    std::vector<std::vector<NameId>> loads(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const auto& id : rows[i].loads) loads[i].push_back(N(id));
      RowPlan plan;
      plan.row = Row(rows[i].row);
      plan.req = R(rows[i].req);
      plan.new_tokens = rows[i].new_tokens;
      plan.base = rows[i].base;
      plan.draft = rows[i].draft;
      plan.loads = loads[i];
      plans.push_back(plan);
    }
    std::vector<Row> pad_rows;
    for (const uint32_t r : pads) pad_rows.emplace_back(r);
    std::vector<PoolBuffers> pools;
    for (uint32_t p = 0; p < config_.pools.size(); ++p) {
      PoolBuffers b;
      b.pool = PoolId(p);
      b.table.width = config_.width;
      pools.push_back(b);
    }
    StepEvent event;
    event.step = StepId(step);
    event.rows = plans;
    event.pads = pad_rows;
    event.pools = pools;
    const StepPlan* plan = nullptr;
    Ok(ledger.Launch(event, &plan));
    return *plan;
  }
  void Confirm(uint64_t step) { Ok(ledger.Confirm(StepId(step))); }
  std::vector<LaunchedRow> Retire(uint64_t step) {
    std::vector<LaunchedRow> rows;
    Ok(ledger.Retire(StepId(step), &rows));
    return rows;
  }
  void Run(uint64_t step, const std::vector<RowOf>& rows) {
    Launch(step, rows);
    Confirm(step);
    Retire(step);
  }
  // What the device found: reason of each row task.
  std::vector<uint32_t> Found(uint64_t step, const std::vector<CheckSet>& reasons) {
    std::vector<uint32_t> masks;
    for (const CheckSet r : reasons) masks.push_back(r.mask());
    return ledger.Judge(StepId(step), masks);
  }

  // The findings since the last call, as "reason req page" words in order.
  std::vector<std::string> Take() {
    std::vector<std::string> words;
    for (const Violation& v : findings) {
      words.push_back(std::string(ReasonName(v.reason)) + " " + std::to_string(v.page));
    }
    findings.clear();
    return words;
  }
  Expectation ExpectationOf(const std::string& req, uint64_t at, uint32_t pool = 0) const {
    return ledger.View(R(req)).expectations[pool][at];
  }
  LedgerPageView PageOf(int64_t page, uint32_t pool = 0) const {
    return ledger.ViewPage(PoolId(pool), PageId(page));
  }
  static void Ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.message(); }

  FenceConfig config_;
  DeltaMirror gate;
  std::vector<Violation> findings;
  Ledger ledger;
};

using Words = std::vector<std::string>;

}  // namespace kvfence::testing
