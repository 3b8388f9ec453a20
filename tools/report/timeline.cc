#include "report/timeline.h"

#include <algorithm>
#include <map>
#include <set>

namespace kvfence::tools {
namespace {

class Layouter {
 public:
  explicit Layouter(const std::vector<TimelineEntry>& timeline) : timeline_(timeline) {}

  TimelineLayout Run() {
    MakeSteps();
    MakeLanes();
    for (size_t i = 0; i < timeline_.size(); ++i) {
      layout_.marks.push_back(LanesOf(timeline_[i]));
      Follow(timeline_[i], i);
    }
    for (auto& [key, holding] : open_) {
      holding.end = timeline_.size();
      layout_.holdings.push_back(holding);
    }
    return std::move(layout_);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  using Key = std::pair<int64_t, std::string>;  // page, request

  void MakeSteps() {
    for (size_t i = 0; i < timeline_.size(); ++i) {
      if (layout_.steps.empty() || layout_.steps.back().step != timeline_[i].step) {
        layout_.steps.push_back({timeline_[i].step, i, i});
      }
      layout_.steps.back().end = i + 1;
    }
  }

  // The pages named most often get a lane each, earlier named first among equals.
  std::set<int64_t> PagesWithLanes() const {
    std::map<int64_t, size_t> named;
    std::vector<int64_t> order;
    for (const TimelineEntry& entry : timeline_) {
      for (const int64_t page : entry.pages) {
        if (named[page]++ == 0) order.push_back(page);
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return named[a] > named[b]; });
    if (order.size() > kMaxPageLanes) order.resize(kMaxPageLanes);
    return {order.begin(), order.end()};
  }

  void MakeLanes() {
    const std::set<int64_t> with_lanes = PagesWithLanes();
    bool other_pages = false, engine = false;
    std::vector<int64_t> pages;
    for (const TimelineEntry& entry : timeline_) {
      engine = engine || (entry.request.empty() && entry.pages.empty());
      if (!entry.request.empty() && requests_.count(entry.request) == 0) {
        requests_.emplace(entry.request, requests_.size());
        request_names_.push_back(entry.request);
      }
      for (const int64_t page : entry.pages) {
        if (with_lanes.count(page) == 0) {
          other_pages = true;
        } else if (std::find(pages.begin(), pages.end(), page) == pages.end()) {
          pages.push_back(page);
        }
      }
    }
    if (engine) layout_.lanes.push_back({Lane::Kind::kEngine, "engine"});
    first_request_ = layout_.lanes.size();
    for (size_t i = 0; i < request_names_.size(); ++i) {
      layout_.lanes.push_back({Lane::Kind::kRequest, request_names_[i], i});
    }
    for (const int64_t page : pages) {
      page_lanes_[page] = layout_.lanes.size();
      layout_.lanes.push_back({Lane::Kind::kPage, "page " + std::to_string(page)});
    }
    if (other_pages) {
      other_pages_ = layout_.lanes.size();
      layout_.lanes.push_back({Lane::Kind::kOtherPages, "other pages"});
    }
  }

  size_t LaneOfPage(int64_t page) const {
    const auto it = page_lanes_.find(page);
    return it == page_lanes_.end() ? other_pages_ : it->second;
  }

  std::vector<size_t> LanesOf(const TimelineEntry& entry) const {
    std::set<size_t> lanes;
    if (!entry.request.empty()) lanes.insert(first_request_ + requests_.at(entry.request));
    for (const int64_t page : entry.pages) lanes.insert(LaneOfPage(page));
    if (lanes.empty()) lanes.insert(0);  // the engine's: such entries make one
    return {lanes.begin(), lanes.end()};
  }

  // Whose pages these are, from what the story says of them.
  void Follow(const TimelineEntry& entry, size_t column) {
    if (entry.request.empty()) return;
    const bool gets = entry.what == "alloc" || entry.what == "share";
    const bool gives = entry.what == "release" || entry.what == "free";
    if (!gets && !gives) return;
    for (const int64_t page : entry.pages) {
      const size_t lane = LaneOfPage(page);
      if (lane == other_pages_) continue;
      const Key key{page, entry.request};
      const auto it = open_.find(key);
      if (gets && it == open_.end()) {
        const size_t row = FreeRow(lane);
        open_[key] = {lane, requests_.at(entry.request), row, false, column, column};
      } else if (gives) {
        // Held since before the story begins, if the story doesn't say since when.
        Holding holding{lane, requests_.at(entry.request), FreeRow(lane), true, 0, column};
        if (it != open_.end()) {
          holding = it->second;
          holding.end = column;
          open_.erase(it);
        }
        layout_.holdings.push_back(holding);
      }
    }
  }

  size_t FreeRow(size_t lane) const {
    std::set<size_t> taken;
    for (const auto& [key, holding] : open_) {
      if (holding.lane == lane) taken.insert(holding.row);
    }
    size_t row = 0;
    while (taken.count(row) != 0) ++row;
    return std::min(row, kMaxHoldingRows - 1);
  }

  const std::vector<TimelineEntry>& timeline_;
  TimelineLayout layout_;
  std::map<std::string, size_t> requests_;  // by name: number in order of appearance
  std::vector<std::string> request_names_;
  std::map<int64_t, size_t> page_lanes_;
  std::map<Key, Holding> open_;
  size_t first_request_ = 0;
  size_t other_pages_ = kNone;
};

}  // namespace

TimelineLayout LayOut(const std::vector<TimelineEntry>& timeline) {
  return Layouter(timeline).Run();
}

}  // namespace kvfence::tools
