// The words of core: tags (I-1, I-2), stamps (I-3), levels as sets (I-4), generator (I-20).
#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <string>

#include "kvfence/finding.h"
#include "kvfence/reason.h"
#include "kvfence/rng.h"
#include "kvfence/status.h"
#include "kvfence/tag.h"
#include "kvfence/types.h"

namespace kvfence {
namespace {

TEST(Tag, GrowsOnIssueAndOnReturnAndNeverRepeats) {
  std::set<Tag> seen;
  Tag tag = 0;
  for (int i = 0; i < 1000; ++i) {
    tag = TagAfterIssue(tag);
    EXPECT_TRUE(TagLive(tag));
    EXPECT_TRUE(seen.insert(tag).second);
    tag = TagAfterReturn(tag);
    EXPECT_FALSE(TagLive(tag));
    EXPECT_TRUE(seen.insert(tag).second);
  }
}

TEST(Tag, ADoubleIssueBeginsANewLiveGeneration) {
  const Tag tag = TagAfterIssue(0);
  EXPECT_EQ(TagAfterIssue(tag), tag + 2);
  EXPECT_EQ(TagAfterReturn(TagAfterReturn(tag)), tag + 1);
}

TEST(Tag, NoTagAtOrAboveTheRetiredMarkIsEverIssued) {
  for (Tag tag = kTagRetired - 16; tag != 0; ++tag) {
    if (!TagExhausted(tag)) {
      EXPECT_LT(TagAfterIssue(tag), kTagRetired) << tag;
    }
  }
}

TEST(Stamp, KeepsSerialAndPageExactly) {
  const Stamp stamp = MakeStamp(kMaxSerial, kMaxLogicalPage - 1);
  EXPECT_EQ(StampSerial(stamp), kMaxSerial);
  EXPECT_EQ(StampPage(stamp), kMaxLogicalPage - 1);
  EXPECT_NE(MakeStamp(1, 0), kNoStamp);
}

TEST(Reason, NamesAreUniqueAndReadBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_TRUE(names.insert(ReasonName(reason)).second);
    EXPECT_EQ(ReasonFromName(ReasonName(reason)), reason);
  }
  EXPECT_FALSE(ReasonFromName("storm").has_value());
}

TEST(Level, EachHoldsAllOfTheOneBefore) {
  EXPECT_TRUE((kMapChecks - kFullChecks).empty());
  EXPECT_TRUE((kFullChecks - kAuditChecks).empty());
  EXPECT_EQ(kAuditChecks.size(), kReasonCount);
  EXPECT_TRUE(ChecksOf(Level::kOff).empty());
}

CheckSet Named(std::initializer_list<std::string_view> names) {
  CheckSet set;
  for (const std::string_view name : names) set = set + *ReasonFromName(name);
  return set;
}

// docs/checks says at which level each speaks first; this is that list, in words of its own.
TEST(Level, HoldsWhatTheDesignGivesIt) {
  const CheckSet map = Named({"page_out_of_range", "page_mismatch", "tag_mismatch", "write_target",
                              "write_shared", "length_mismatch", "row_tail", "row_epoch", "pad_row",
                              "table_epoch", "changed_during_step", "unverified", "geometry"});
  const CheckSet full = map + Named({"stamp_mismatch", "scale_mismatch", "not_committed",
                                     "stale_index_entry", "key_mismatch", "freed_while_held",
                                     "double_free", "issued_while_held", "in_flight", "copy_raced",
                                     "content_mismatch", "rank_divergence", "identity_reused"});
  EXPECT_EQ(ChecksOf(Level::kMap), map);
  EXPECT_EQ(ChecksOf(Level::kFull), full);
  EXPECT_EQ(ChecksOf(Level::kAudit), full + Named({"conservation"}));
}

TEST(Rng, IsTheSameEverywhere) {
  Rng rng(7);
  const uint64_t first = rng.Next();
  Rng again(7);
  EXPECT_EQ(again.Next(), first);
  EXPECT_NE(Rng(8).Next(), first);
}

TEST(Rng, BelowIsInRangeAndReachesEveryValue) {
  Rng rng(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t v = rng.Between(3, 9);
    EXPECT_GE(v, 3u);
    EXPECT_LE(v, 9u);
    seen.insert(v);
  }
  EXPECT_EQ(seen.size(), 7u);
}

TEST(Status, CarriesItsMessage) {
  EXPECT_TRUE(Status().ok());
  Result<int> bad = Status::Invalid("page_size must be at least 1");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "page_size must be at least 1");
}

TEST(CheckDeathTest, StopsTheProcessAndNamesTheInvariant) {
  EXPECT_DEATH(KVF_CHECK(1 == 2, "I-1 tags never repeat"), "I-1 tags never repeat");
}

}  // namespace
}  // namespace kvfence
