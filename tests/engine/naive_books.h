// A naive reading of the event language: a tracker that keeps the engine's books with maps and sets
// and complains about every event that a rightful engine would not send. It knows nothing of the
// ledger; it also plays the fence's part at Retire, failing the rows that a test asks for.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/noop_tracker.h"

namespace kvfence {

class NaiveBooks {
 public:
  explicit NaiveBooks(const FenceConfig& config) {
    for (const PoolConfig& c : config.pools) {
      Pool& pool = pools_.emplace_back();
      pool.pages = static_cast<int64_t>(c.pages);
      pool.size = c.page_size;
      pool.window = c.window;
      pool.free = c.space.empty() ? std::make_shared<std::set<int64_t>>() : pools_[0].free;
      if (!pool.free) pool.free = std::make_shared<std::set<int64_t>>();
      for (int64_t page = 1; page < pool.pages; ++page) pool.free->insert(page);
    }
  }

  // What the test's fence says of a row: empty for clean. Called for each row at Retire.
  std::function<CheckSet(StepId, Row, RequestId)> verdict;
  std::vector<KeyId> unpublish_next;                       // for the next settlement
  std::vector<std::pair<PoolId, PageId>> quarantine_next;  // for the next settlement
  std::vector<std::string> complaints;
  std::map<std::string, uint64_t> counts;  // events by verb
  std::set<int64_t> quarantined;           // pages that must not be issued again
  uint64_t pads = 0;

  RequestId Admit(const AdmitEvent& e) {
    ++counts["admit"];
    const RequestId id(e.name, ++incarnations_[e.name.value()]);
    if (id.incarnation() > 1) Expect(!Live(RequestId(e.name, id.incarnation() - 1)), "admit twice");
    requests_[id.word()] = {};
    return id;
  }
  void Alloc(const AllocEvent& e) {
    ++counts["alloc"];
    Pool& pool = pools_[e.pool.value()];
    Expect(!e.at || *e.at == PagesOf(e.req, e.pool).size() || pool.window > 0,
           "alloc leaves a gap");
    if (e.at) FillTo(e.req, e.pool, *e.at);
    for (const PageId page : e.pages) {
      Expect(pool.free->erase(page.value()) == 1, "alloc of a page that isn't free");
      Expect(!quarantined.contains(page.value()), "alloc of a quarantined page");
      Hold(e.req, e.pool, page.value());
      pool.committed[page.value()] = 0;
    }
  }
  void Share(const ShareEvent& e) {
    ++counts["share"];
    Pool& pool = pools_[e.pool.value()];
    Expect(e.keys.size() == e.pages.size(), "share with a key per page");
    const uint64_t first = FirstRead(e.tokens, pool.window) / pool.size;
    for (size_t i = 0; i < e.pages.size(); ++i) {
      const int64_t page = e.pages[i].value();
      Expect((page == 0) == (i < first), "share of the pages that the window reaches");
      if (page == 0) {
        FillTo(e.req, e.pool, i + 1);
        continue;
      }
      const auto it = pool.index.find(e.keys[i].value());
      Expect(it != pool.index.end() && it->second == page,
             "share by a key that names another page");
      Expect(pool.committed[page] == pool.size, "share of a page that isn't full");
      Hold(e.req, e.pool, page);
    }
    Expect(e.tokens == e.pages.size() * pool.size, "share tells the tokens of full pages");
    Request& r = requests_[e.req.word()];
    Expect(e.pool == PoolId(0) || r.length == e.tokens, "share of as much in each pool");
    r.length = e.tokens;
  }
  void Trim(const TrimEvent& e) {
    ++counts["trim"];
    Expect(Live(e.req) && e.tokens <= requests_[e.req.word()].length, "trim to more than there is");
    requests_[e.req.word()].length = e.tokens;
  }
  void Drop(const DropEvent& e) {
    ++counts["drop"];
    Pool& pool = pools_[e.pool.value()];
    Request& r = requests_[e.req.word()];
    std::vector<int64_t>& pages = r.pages[e.pool.value()];
    Expect(e.n > 0 && e.at + e.n <= pages.size(), "drop of pages that it has");
    const bool tail = e.at + e.n == pages.size() && e.at * pool.size >= r.length;
    const bool slid = (e.at + e.n) * pool.size <= FirstRead(r.length, pool.window);
    Expect(tail || slid, "drop of pages with tokens that will be read");
    for (uint64_t at = e.at; at < e.at + e.n; ++at) {
      pool.holders[pages[at]].erase(e.req.word());
      pages[at] = 0;
    }
    if (tail) pages.resize(e.at);
  }
  void Release(const ReleaseEvent& e) {
    ++counts["release"];
    Expect(Live(e.req), "release of a request that isn't live");
    for (size_t i = 0; i < pools_.size(); ++i) {
      for (const int64_t page : requests_[e.req.word()].pages[i]) {
        pools_[i].holders[page].erase(e.req.word());
      }
    }
    requests_.erase(e.req.word());
  }
  void Free(const FreeEvent& e) {
    ++counts["free"];
    Pool& pool = pools_[e.pool.value()];
    for (const PageId page : e.pages) {
      Expect(pool.holders[page.value()].empty() && pool.named[page.value()] == 0,
             "free of a held page");
      Expect(pool.free->insert(page.value()).second, "free of a free page");
    }
  }
  void Publish(const PublishEvent& e) {
    ++counts["publish"];
    Pool& pool = pools_[e.pool.value()];
    Expect(Live(e.req) && e.at < PagesOf(e.req, e.pool).size(), "publish of a page not held");
    const int64_t page = PagesOf(e.req, e.pool)[e.at];
    Expect(page != 0 && pool.committed[page] == pool.size, "publish of a page that isn't full");
    Expect(pool.index.emplace(e.key.value(), page).second, "publish of a known key");
    ++pool.named[page];
  }
  void Unpublish(const UnpublishEvent& e) {
    ++counts["unpublish"];
    Pool& pool = pools_[e.pool.value()];
    const auto it = pool.index.find(e.key.value());
    Expect(it != pool.index.end(), "unpublish of an unknown key");
    if (it == pool.index.end()) return;
    --pool.named[it->second];
    pool.index.erase(it);
  }
  void BindRow(const BindRowEvent& e) {
    ++counts["row"];
    if (launched_) Expect(!e.req, "rebinding before the step is retired");
    bound_[e.row.value()] = e.req.word();
  }
  void Audit(const AuditEvent& e) {
    ++counts["audit"];
    Expect(e.idle && requests_.empty(), "idle audit with live requests");
    for (int64_t page = 1; page < pools_[0].pages; ++page) {
      for (Pool& pool : pools_) {
        const bool shared = pool.free == pools_[0].free && pools_.size() > 1;
        if (page >= pool.pages || (shared && pool.free->contains(page) == (pool.named[page] > 0)))
          continue;
        Expect(shared || pool.free->contains(page) != (pool.named[page] > 0),
               "at the end a page is free or cached");
      }
    }
  }
  void Step(const StepEvent& e) {
    ++counts["step"];
    Expect(!launched_ && e.step.value() == last_step_ + 1, "steps follow each other");
    last_step_ = e.step.value();
    launched_ = true;
    step_ = e;
    buffers_.assign(e.pools.begin(), e.pools.end());
    Expect(buffers_.size() == pools_.size(), "a step gives the buffers of each pool");
    plans_.assign(e.rows.begin(), e.rows.end());
    pads += e.pads.size();
    for (size_t i = 0; i < plans_.size(); ++i) CheckRow(plans_[i], i);
    for (const Row row : e.pads) CheckPad(row);
  }
  void Confirm(const ConfirmEvent& e) {
    ++counts["confirm"];
    Expect(launched_ && e.step.value() == last_step_, "confirm of the launched step");
  }
  Result<Settlement> Retire(const RetireEvent& e) {
    ++counts["retire"];
    Expect(launched_ && e.step.value() == last_step_, "retire of the launched step");
    launched_ = false;
    results_.clear();
    for (const RowPlan& plan : plans_) {
      RowResult result;
      result.row = plan.row;
      result.req = plan.req;
      if (verdict) result.reasons = verdict(e.step, plan.row, plan.req);
      result.published = result.reasons.empty();
      if (result.published) Commit(plan);
      if (Live(plan.req)) result.good_prefix = requests_[plan.req.word()].length / size() * size();
      results_.push_back(result);
    }
    unpublish_ = std::exchange(unpublish_next, {});
    quarantine_ = std::exchange(quarantine_next, {});
    for (const auto& [pool, page] : quarantine_) quarantined.insert(page.value());
    return Settlement{
        .step = e.step, .rows = results_, .unpublish = unpublish_, .quarantine = quarantine_};
  }

  bool Live(RequestId id) const { return requests_.contains(id.word()); }
  const std::map<uint64_t, int64_t>& index() const { return pools_[0].index; }
  const std::vector<int64_t>& PagesOf(RequestId id, PoolId pool = PoolId(0)) {
    std::vector<std::vector<int64_t>>& pages = requests_[id.word()].pages;
    pages.resize(pools_.size());
    return pages[pool.value()];
  }
  std::string FirstComplaint() const { return complaints.empty() ? "" : complaints.front(); }

 private:
  struct Pool {
    int64_t pages = 0;
    uint64_t size = 1;
    uint64_t window = 0;
    std::shared_ptr<std::set<int64_t>> free{};        // of the space
    std::map<int64_t, std::set<uint64_t>> holders{};  // by page
    std::map<int64_t, uint64_t> committed{};          // slots, by page
    std::map<int64_t, uint64_t> named{};              // index entries, by page
    std::map<uint64_t, int64_t> index{};
  };
  struct Request {
    std::vector<std::vector<int64_t>> pages;  // by pool; 0: left behind by the window
    uint64_t length = 0;
  };

  uint64_t size() const { return pools_[0].size; }
  static uint64_t FirstRead(uint64_t position, uint64_t window) {
    return window > 0 && position + 1 > window ? position + 1 - window : 0;
  }
  void Expect(bool right, const char* complaint) {
    if (!right) complaints.push_back("step " + std::to_string(last_step_) + ": " + complaint);
  }
  // Places before `at` that a window has left behind.
  void FillTo(RequestId id, PoolId pool, uint64_t at) {
    PagesOf(id, pool);
    std::vector<int64_t>& pages = requests_[id.word()].pages[pool.value()];
    if (pages.size() < at) pages.resize(at);
  }
  void Hold(RequestId id, PoolId pool, int64_t page) {
    Expect(Live(id), "a page for a request that isn't live");
    PagesOf(id, pool);
    requests_[id.word()].pages[pool.value()].push_back(page);
    Expect(pools_[pool.value()].holders[page].insert(id.word()).second,
           "the same page twice in one request");
  }
  void CheckRow(const RowPlan& plan, size_t place) {
    Expect(plan.row.value() == place, "rows are 0 .. n-1 in order");
    Expect(Live(plan.req) && bound_[plan.row.value()] == plan.req.word(),
           "row is bound to another");
    Expect(plan.new_tokens > 0, "a row without new tokens");
    if (!Live(plan.req)) return;
    for (const PoolBuffers& buffers : buffers_) CheckRowIn(plan, buffers);
  }
  void CheckRowIn(const RowPlan& plan, const PoolBuffers& buffers) {
    const uint64_t row = plan.row.value();
    Pool& pool = pools_[buffers.pool.value()];
    const std::vector<int64_t>& pages = PagesOf(plan.req, buffers.pool);
    const uint64_t length = requests_[plan.req.word()].length;
    const uint64_t end = length + plan.new_tokens;
    Expect(buffers.lengths.values.Get(row) == static_cast<int64_t>(end), "length");
    const uint64_t covered = (end + pool.size - 1) / pool.size;
    Expect(pages.size() >= covered && *plan.reach >= covered, "pages for all tokens");
    const uint64_t first = FirstRead(length, pool.window) / pool.size;
    for (uint64_t k = first; k < std::max(covered, *plan.reach); ++k) {
      const int64_t entry = buffers.table.entries.Get(row * buffers.table.stride + k);
      Expect(entry == (k < covered ? pages[k] : 0), "table entry");
      Expect(k >= covered || entry != 0, "a page that will be read");
    }
    const auto start = static_cast<uint64_t>(buffers.slots.indptr.Get(row));
    Expect(buffers.slots.indptr.Get(row + 1) == static_cast<int64_t>(start + plan.new_tokens),
           "starts");
    for (uint64_t i = 0; i < plan.new_tokens; ++i) {
      const uint64_t position = length + i;
      const int64_t page = pages[position / pool.size];
      Expect(buffers.slots.slots.Get(start + i) == page * static_cast<int64_t>(pool.size) +
                                                       static_cast<int64_t>(position % pool.size),
             "write slot");
      Expect(pool.holders[page].size() == 1 && pool.named[page] == 0,
             "a written page is the row's alone");
    }
  }
  void CheckPad(Row row) {
    for (const PoolBuffers& pool : buffers_) {
      const uint64_t r = row.value();
      Expect(r >= plans_.size() && r < pool.table.rows, "padded rows come after live ones");
      for (uint64_t k = 0; k < pool.table.width; ++k) {
        Expect(pool.table.entries.Get(r * pool.table.stride + k) == 0, "a padded row's entry");
      }
      Expect(pool.slots.slots.Get(static_cast<uint64_t>(pool.slots.indptr.Get(r))) < 0, "pad slot");
    }
  }
  void Commit(const RowPlan& plan) {
    if (!Live(plan.req)) return;
    Request& r = requests_[plan.req.word()];
    for (uint64_t i = 0; i < plan.new_tokens; ++i, ++r.length) {
      for (size_t p = 0; p < pools_.size(); ++p) {
        ++pools_[p].committed[r.pages[p][r.length / pools_[p].size]];
      }
    }
  }

  std::vector<Pool> pools_;
  std::map<uint64_t, Request> requests_;  // by RequestId word, live ones
  std::map<uint32_t, uint32_t> incarnations_;
  std::map<uint32_t, uint64_t> bound_;
  uint64_t last_step_ = 0;
  bool launched_ = false;
  StepEvent step_{};
  std::vector<PoolBuffers> buffers_;
  std::vector<RowPlan> plans_;
  std::vector<RowResult> results_;
  std::vector<KeyId> unpublish_;
  std::vector<std::pair<PoolId, PageId>> quarantine_;
};

// The tracker that an engine holds by value.
struct NaiveTracker {
  static constexpr bool kTracks = true;
  NaiveBooks* books;

  RequestId Admit(const AdmitEvent& e) { return books->Admit(e); }
  void Alloc(const AllocEvent& e) { books->Alloc(e); }
  void Share(const ShareEvent& e) { books->Share(e); }
  void Trim(const TrimEvent& e) { books->Trim(e); }
  void Drop(const DropEvent& e) { books->Drop(e); }
  void Release(const ReleaseEvent& e) { books->Release(e); }
  void Free(const FreeEvent& e) { books->Free(e); }
  void Publish(const PublishEvent& e) { books->Publish(e); }
  void Unpublish(const UnpublishEvent& e) { books->Unpublish(e); }
  void BindRow(const BindRowEvent& e) { books->BindRow(e); }
  void Audit(const AuditEvent& e) { books->Audit(e); }
  void Write(const WriteEvent&) { ++books->counts["write"]; }
  void Step(const StepEvent& e) { books->Step(e); }
  void Confirm(const ConfirmEvent& e) { books->Confirm(e); }
  Result<Settlement> Retire(const RetireEvent& e) { return books->Retire(e); }
};
static_assert(Tracker<NaiveTracker>);

}  // namespace kvfence
