// TagTable alone, as an engine with its own pool uses it (I-1, I-2).
#include "kvfence/tag_table.h"

#include <gtest/gtest.h>

#include <set>

namespace kvfence {
namespace {

TEST(TagTable, GrowsOnIssueAndOnReturnAndNeverRepeats) {  // I-1
  TagTable tags(3);
  std::set<Tag> seen = {tags.tag(PageId(1))};
  for (int i = 0; i < 1000; ++i) {
    Result<Tag> issued = tags.Issue(PageId(1));
    ASSERT_TRUE(issued.ok());
    EXPECT_TRUE(TagLive(*issued));
    EXPECT_TRUE(tags.Live(PageId(1)));
    EXPECT_TRUE(seen.insert(*issued).second);
    Result<Tag> returned = tags.Return(PageId(1));
    ASSERT_TRUE(returned.ok());
    EXPECT_EQ(*returned, tags.tag(PageId(1)));
    EXPECT_FALSE(tags.Live(PageId(1)));
    EXPECT_TRUE(seen.insert(*returned).second);
  }
  EXPECT_EQ(tags.tag(PageId(0)), 0u);
  EXPECT_EQ(tags.tag(PageId(2)), 0u);
  EXPECT_EQ(tags.tags().size(), 3u);
  EXPECT_EQ(tags.tags()[1], 2000u);
  EXPECT_EQ(tags.double_issues(), 0u);
  EXPECT_EQ(tags.retired(), 0u);
}

TEST(TagTable, ASecondIssueOfALivePageBeginsANewGenerationAndIsCounted) {
  TagTable tags(2);
  const Tag first = tags.Issue(PageId(1)).value();
  const Tag second = tags.Issue(PageId(1)).value();
  EXPECT_GT(second, first);
  EXPECT_TRUE(TagLive(second));
  EXPECT_EQ(tags.double_issues(), 1u);
}

TEST(TagTable, ASecondReturnIsRefusedAndChangesNothing) {
  TagTable tags(2);
  ASSERT_TRUE(tags.Issue(PageId(1)).ok());
  ASSERT_TRUE(tags.Return(PageId(1)).ok());
  const Tag before = tags.tag(PageId(1));
  EXPECT_EQ(tags.Return(PageId(1)).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(tags.tag(PageId(1)), before);
}

TEST(TagTable, APageWhoseTagsAreUsedUpRetires) {  // I-2
  TagTable tags(2, kTagRetired - 6);
  int issues = 0;
  while (tags.Issue(PageId(1)).ok()) {
    ASSERT_LT(tags.tag(PageId(1)), kTagRetired);
    ASSERT_TRUE(tags.Return(PageId(1)).ok());
    ASSERT_LT(++issues, 10);
  }
  EXPECT_EQ(issues, 2);
  EXPECT_TRUE(tags.Retired(PageId(1)));
  EXPECT_FALSE(tags.Retired(PageId(0)));
  EXPECT_EQ(tags.retired(), 1u);
  EXPECT_EQ(tags.Issue(PageId(1)).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(tags.Return(PageId(1)).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(tags.retired(), 1u);
}

TEST(TagTable, ALivePageRetiresOnlyWhenItIsReturned) {  // I-2
  TagTable tags(2, kTagRetired - 4);
  ASSERT_TRUE(tags.Issue(PageId(1)).ok());
  ASSERT_TRUE(tags.Issue(PageId(1)).ok());  // the last tag there is
  EXPECT_FALSE(tags.Issue(PageId(1)).ok());
  EXPECT_TRUE(tags.Live(PageId(1)));
  EXPECT_FALSE(tags.Retired(PageId(1)));
  ASSERT_TRUE(tags.Return(PageId(1)).ok());
  EXPECT_TRUE(tags.Retired(PageId(1)));
}

TEST(TagTable, BornUsedUpIsRetired) {
  const TagTable tags(5, kTagRetired - 2);
  EXPECT_EQ(tags.retired(), 5u);
  EXPECT_TRUE(tags.Retired(PageId(4)));
}

TEST(TagTable, RefusesPagesBeyondIt) {
  TagTable tags(2);
  for (const int64_t page : {int64_t{-1}, int64_t{2}, int64_t{1} << 32, INT64_MIN}) {
    EXPECT_EQ(tags.Issue(PageId(page)).status().code(), StatusCode::kInvalidArgument) << page;
    EXPECT_EQ(tags.Return(PageId(page)).status().code(), StatusCode::kInvalidArgument) << page;
    EXPECT_EQ(tags.tag(PageId(page)), kTagRetired) << page;
    EXPECT_FALSE(tags.Live(PageId(page))) << page;
    EXPECT_FALSE(tags.Retired(PageId(page))) << page;
  }
}

}  // namespace
}  // namespace kvfence
