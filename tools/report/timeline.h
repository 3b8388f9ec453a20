// Lays a story out: lanes, columns, marks and who held which page when. No markup here.
//
// Every entry has a column of its own, in the story's order, so that cause stands left of effect
// even within one step. An entry has a mark in each lane it concerns. Invariant: each entry has at
// least one mark, and all marks lie inside the lanes and columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kvfence/campaign.h"

namespace kvfence::tools {

struct Lane {
  enum class Kind { kEngine, kRequest, kPage, kOtherPages };
  Kind kind{};
  std::string label;
  size_t request = 0;  // kRequest: its number among the story's requests, for its colour
};

// Steps that stand together: columns [first, end) are of one step.
struct StepSpan {
  int64_t step = -1;
  size_t first = 0, end = 0;
};

// Somebody holds a page from one column to another; `row` keeps overlapping holders apart.
struct Holding {
  size_t lane = 0;
  size_t request = 0;
  size_t row = 0;
  bool before = false;  // since before the story begins
  size_t first = 0, end = 0;
};

struct TimelineLayout {
  std::vector<Lane> lanes;
  std::vector<StepSpan> steps;
  std::vector<std::vector<size_t>> marks;  // by entry: the lanes that it concerns
  std::vector<Holding> holdings;
};

inline constexpr size_t kMaxPageLanes = 8;
inline constexpr size_t kMaxHoldingRows = 3;

TimelineLayout LayOut(const std::vector<TimelineEntry>& timeline);

}  // namespace kvfence::tools
