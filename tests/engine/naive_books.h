// A naive reading of the event language: a tracker that keeps the engine's books with maps and sets
// and complains about every event that a rightful engine would not send. It knows nothing of the
// ledger; it also plays the fence's part at Retire, failing the rows that a test asks for.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/noop_tracker.h"

namespace kvfence {

class NaiveBooks {
 public:
  explicit NaiveBooks(const FenceConfig& config)
      : pages_(static_cast<int64_t>(config.pools[0].pages)), size_(config.pools[0].page_size) {
    for (int64_t page = 1; page < pages_; ++page) free_.insert(page);
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
    for (const PageId page : e.pages) {
      Expect(free_.erase(page.value()) == 1, "alloc of a page that isn't free");
      Expect(!quarantined.contains(page.value()), "alloc of a quarantined page");
      Hold(e.req, page.value());
      committed_[page.value()] = 0;
    }
  }
  void Share(const ShareEvent& e) {
    ++counts["share"];
    Expect(e.keys.size() == e.pages.size(), "share with a key per page");
    for (size_t i = 0; i < e.pages.size(); ++i) {
      const int64_t page = e.pages[i].value();
      const auto it = index_.find(e.keys[i].value());
      Expect(it != index_.end() && it->second == page, "share by a key that names another page");
      Expect(committed_[page] == size_, "share of a page that isn't full");
      Hold(e.req, page);
    }
    Expect(e.tokens == e.pages.size() * size_, "share tells the tokens of full pages");
    requests_[e.req.word()].length = e.tokens;
  }
  void Trim(const TrimEvent& e) {
    ++counts["trim"];
    Expect(Live(e.req) && e.tokens <= requests_[e.req.word()].length, "trim to more than there is");
    requests_[e.req.word()].length = e.tokens;
  }
  void Drop(const DropEvent& e) {
    ++counts["drop"];
    std::vector<int64_t>& pages = requests_[e.req.word()].pages;
    Expect(e.at + e.n == pages.size(), "drop of what isn't the tail");
    Expect(e.at * size_ >= requests_[e.req.word()].length, "drop of pages with tokens");
    while (pages.size() > e.at) {
      holders_[pages.back()].erase(e.req.word());
      pages.pop_back();
    }
  }
  void Release(const ReleaseEvent& e) {
    ++counts["release"];
    Expect(Live(e.req), "release of a request that isn't live");
    for (const int64_t page : requests_[e.req.word()].pages) holders_[page].erase(e.req.word());
    requests_.erase(e.req.word());
  }
  void Free(const FreeEvent& e) {
    ++counts["free"];
    for (const PageId page : e.pages) {
      Expect(holders_[page.value()].empty() && named_[page.value()] == 0, "free of a held page");
      Expect(free_.insert(page.value()).second, "free of a free page");
    }
  }
  void Publish(const PublishEvent& e) {
    ++counts["publish"];
    Expect(Live(e.req) && e.at < requests_[e.req.word()].pages.size(),
           "publish of a page not held");
    const int64_t page = requests_[e.req.word()].pages[e.at];
    Expect(committed_[page] == size_, "publish of a page that isn't full");
    Expect(index_.emplace(e.key.value(), page).second, "publish of a known key");
    ++named_[page];
  }
  void Unpublish(const UnpublishEvent& e) {
    ++counts["unpublish"];
    const auto it = index_.find(e.key.value());
    Expect(it != index_.end(), "unpublish of an unknown key");
    if (it == index_.end()) return;
    --named_[it->second];
    index_.erase(it);
  }
  void BindRow(const BindRowEvent& e) {
    ++counts["row"];
    if (launched_) Expect(!e.req, "rebinding before the step is retired");
    bound_[e.row.value()] = e.req.word();
  }
  void Audit(const AuditEvent& e) {
    ++counts["audit"];
    Expect(e.idle && requests_.empty(), "idle audit with live requests");
    for (int64_t page = 1; page < pages_; ++page) {
      Expect(free_.contains(page) != (named_[page] > 0), "at the end a page is free or cached");
    }
  }
  void Step(const StepEvent& e) {
    ++counts["step"];
    Expect(!launched_ && e.step.value() == last_step_ + 1, "steps follow each other");
    last_step_ = e.step.value();
    launched_ = true;
    step_ = e;
    pools_.assign(e.pools.begin(), e.pools.end());
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
      if (Live(plan.req)) result.good_prefix = requests_[plan.req.word()].length / size_ * size_;
      results_.push_back(result);
    }
    unpublish_ = std::exchange(unpublish_next, {});
    quarantine_ = std::exchange(quarantine_next, {});
    for (const auto& [pool, page] : quarantine_) quarantined.insert(page.value());
    return Settlement{
        .step = e.step, .rows = results_, .unpublish = unpublish_, .quarantine = quarantine_};
  }

  bool Live(RequestId id) const { return requests_.contains(id.word()); }
  const std::map<uint64_t, int64_t>& index() const { return index_; }
  const std::vector<int64_t>& PagesOf(RequestId id) { return requests_[id.word()].pages; }
  std::string FirstComplaint() const { return complaints.empty() ? "" : complaints.front(); }

 private:
  struct Request {
    std::vector<int64_t> pages;
    uint64_t length = 0;
  };

  void Expect(bool right, const char* complaint) {
    if (!right) complaints.push_back("step " + std::to_string(last_step_) + ": " + complaint);
  }
  void Hold(RequestId id, int64_t page) {
    Expect(Live(id), "a page for a request that isn't live");
    requests_[id.word()].pages.push_back(page);
    Expect(holders_[page].insert(id.word()).second, "the same page twice in one request");
  }
  void CheckRow(const RowPlan& plan, size_t place) {
    const uint64_t row = plan.row.value();
    const PoolBuffers& pool = pools_[0];
    Expect(row == place, "rows are 0 .. n-1 in order");
    Expect(Live(plan.req) && bound_[plan.row.value()] == plan.req.word(),
           "row is bound to another");
    if (!Live(plan.req)) return;
    const Request& r = requests_[plan.req.word()];
    const uint64_t end = r.length + plan.new_tokens;
    Expect(plan.new_tokens > 0, "a row without new tokens");
    Expect(pool.lengths.values.Get(row) == static_cast<int64_t>(end), "length");
    const uint64_t covered = (end + size_ - 1) / size_;
    Expect(r.pages.size() >= covered && *plan.reach >= covered, "pages for all tokens");
    for (uint64_t k = 0; k < *plan.reach; ++k) {
      const int64_t entry = pool.table.entries.Get(row * pool.table.stride + k);
      Expect(entry == (k < covered ? r.pages[k] : 0), "table entry");
    }
    const auto first = static_cast<uint64_t>(pool.slots.indptr.Get(row));
    Expect(pool.slots.indptr.Get(row + 1) == static_cast<int64_t>(first + plan.new_tokens),
           "starts");
    for (uint64_t i = 0; i < plan.new_tokens; ++i) {
      const uint64_t position = r.length + i;
      const int64_t page = r.pages[position / size_];
      Expect(pool.slots.slots.Get(first + i) ==
                 page * static_cast<int64_t>(size_) + static_cast<int64_t>(position % size_),
             "write slot");
      Expect(holders_[page].size() == 1 && named_[page] == 0, "a written page is the row's alone");
    }
  }
  void CheckPad(Row row) {
    const PoolBuffers& pool = pools_[0];
    const uint64_t r = row.value();
    Expect(r >= plans_.size() && r < pool.table.rows, "padded rows come after live ones");
    for (uint64_t k = 0; k < pool.table.width; ++k) {
      Expect(pool.table.entries.Get(r * pool.table.stride + k) == 0, "a padded row's entry");
    }
    Expect(pool.slots.slots.Get(static_cast<uint64_t>(pool.slots.indptr.Get(r))) < 0, "pad slot");
  }
  void Commit(const RowPlan& plan) {
    if (!Live(plan.req)) return;
    Request& r = requests_[plan.req.word()];
    for (uint64_t i = 0; i < plan.new_tokens; ++i, ++r.length) {
      ++committed_[r.pages[r.length / size_]];
    }
  }

  int64_t pages_;
  uint64_t size_;
  std::set<int64_t> free_;
  std::map<uint64_t, Request> requests_;           // by RequestId word, live ones
  std::map<int64_t, std::set<uint64_t>> holders_;  // by page
  std::map<int64_t, uint64_t> committed_;          // slots, by page
  std::map<int64_t, uint64_t> named_;              // index entries, by page
  std::map<uint64_t, int64_t> index_;
  std::map<uint32_t, uint32_t> incarnations_;
  std::map<uint32_t, uint64_t> bound_;
  uint64_t last_step_ = 0;
  bool launched_ = false;
  StepEvent step_{};
  std::vector<PoolBuffers> pools_;
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
