// The layout of an incident's timeline: every entry is seen, nothing lies outside, holders are who
// the story says.
#include "report/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/sections.h"
#include "tests/model/seeded.h"
#include "tests/tools/html_check.h"
#include "tests/tools/sample_report.h"

namespace kvfence::tools {
namespace {

using ::testing::ElementsAre;

TEST(Timeline, LanesInOrderOfAppearanceRequestsAbovePages) {
  const TimelineLayout layout = LayOut(SampleReport().stories[0].timeline);
  std::vector<std::string> labels;
  for (const Lane& lane : layout.lanes) labels.push_back(lane.label);
  EXPECT_THAT(labels, ElementsAre("engine", "r4", "r8", "page 9", "page 17"));
  EXPECT_THAT(layout.marks[0], ElementsAre(1, 3, 4));
  EXPECT_THAT(layout.marks[4], ElementsAre(0));
  EXPECT_THAT(layout.marks[8], ElementsAre(2));
}

TEST(Timeline, PagesAreHeldFromAllocToRelease) {
  const TimelineLayout layout = LayOut(SampleReport().stories[0].timeline);
  ASSERT_EQ(layout.holdings.size(), 3u);
  EXPECT_EQ(layout.holdings[0].lane, 3u);  // page 9, r4
  EXPECT_EQ(layout.holdings[0].first, 0u);
  EXPECT_EQ(layout.holdings[0].end, 2u);
  EXPECT_FALSE(layout.holdings[0].before);
  EXPECT_EQ(layout.holdings[2].lane, 3u);  // page 9 again, r8, to the end
  EXPECT_EQ(layout.holdings[2].request, 1u);
  EXPECT_EQ(layout.holdings[2].end, 9u);
}

TEST(Timeline, WhatWasHeldBeforeTheStoryBeginsStartsAtTheEdge) {
  const TimelineLayout layout = LayOut({{1, "fault", "", "", {}}, {2, "release", "", "r1", {5}}});
  ASSERT_EQ(layout.holdings.size(), 1u);
  EXPECT_TRUE(layout.holdings[0].before);
  EXPECT_EQ(layout.holdings[0].end, 1u);
}

TEST(Timeline, ManyPagesShareTheLastLane) {
  std::vector<int64_t> pages;
  for (int64_t page = 1; page <= 20; ++page) pages.push_back(page);
  const TimelineLayout layout =
      LayOut({{1, "alloc", "", "r1", pages}, {2, "share", "", "r2", {20}}});
  ASSERT_EQ(layout.lanes.size(), 2 + kMaxPageLanes + 1);
  EXPECT_EQ(layout.lanes[2 + kMaxPageLanes - 1].label, "page 20");  // named twice, so it has one
  EXPECT_EQ(layout.lanes.back().label, "other pages");
}

void CheckRandomStory() {
  const auto whats = std::vector<std::string>{"alloc", "share", "release", "fault", "violation"};
  std::vector<TimelineEntry> story(*rc::gen::inRange<size_t>(0, 60));
  for (TimelineEntry& entry : story) {
    entry.step = *rc::gen::inRange<int64_t>(-1, 20);
    entry.what = *rc::gen::elementOf(whats);
    entry.request = *rc::gen::element<std::string>("", "r1", "r2", "r3");
    entry.pages = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(-1, 12));
  }
  const TimelineLayout layout = LayOut(story);
  RC_ASSERT(layout.marks.size() == story.size());
  for (const std::vector<size_t>& lanes : layout.marks) {
    RC_ASSERT(!lanes.empty());
    for (const size_t lane : lanes) RC_ASSERT(lane < layout.lanes.size());
  }
  size_t columns = 0;
  for (const StepSpan& span : layout.steps) {
    RC_ASSERT(span.first == columns);
    RC_ASSERT(span.end > span.first);
    for (size_t i = span.first; i < span.end; ++i) RC_ASSERT(story[i].step == span.step);
    columns = span.end;
  }
  RC_ASSERT(columns == story.size());
  for (const Holding& held : layout.holdings) {
    RC_ASSERT(held.first <= held.end);
    RC_ASSERT(held.end <= story.size());
    RC_ASSERT(held.row < kMaxHoldingRows);
    RC_ASSERT(layout.lanes[held.lane].kind == Lane::Kind::kPage);
  }
  IncidentStory drawn;
  drawn.timeline = story;
  RC_ASSERT(ReadHtml("<!DOCTYPE html><main>" + TimelineOf(drawn) + "</main>").error.empty());
}

TEST(Timeline, EveryEntryIsSeenAndNothingLiesOutside) {
  testing::CheckSeeded("timeline", 11, 60, CheckRandomStory);
}

}  // namespace
}  // namespace kvfence::tools
