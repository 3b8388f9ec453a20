// Page history, incident records and the blast radius (I-16: none of them is needed to decide).
#include "kvfence/incident.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kvfence/policy.h"

namespace kvfence {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

PageHistoryEntry Entry(uint64_t event, int64_t page, PageVerb verb) {
  return {event, 1, RequestId(NameId(1), 1), 0, page, verb};
}

TEST(PageHistory, I16KeepsTheLastEventsOfAPageOldestFirstInFixedMemory) {
  PageHistory history(4);
  history.Append(Entry(1, 7, PageVerb::kAlloc));
  history.Append(Entry(2, 8, PageVerb::kAlloc));
  history.Append(Entry(3, 7, PageVerb::kFree));
  EXPECT_EQ(history.Of(PoolId(0), PageId(7)).size(), 2u);
  history.Append(Entry(4, 7, PageVerb::kAlloc));
  history.Append(Entry(5, 7, PageVerb::kShare));  // pushes event 1 out
  const auto found = history.Of(PoolId(0), PageId(7));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].event, 3u);
  EXPECT_EQ(found[2].event, 5u);
  EXPECT_EQ(history.Of(PoolId(0), PageId(7), 1)[0].event, 5u);
  EXPECT_THAT(history.Of(PoolId(1), PageId(7)), IsEmpty());
}

TEST(Incident, IsOneJsonLineThatNamesHoldersAndHistory) {
  IncidentRecord record;
  record.violation.reason = Reason::kTagMismatch;
  record.violation.req = RequestId(NameId(1), 2);
  record.violation.page = 7;
  record.violation.pool = 0;
  record.holders = {RequestId(NameId(2), 1)};
  record.history = {Entry(3, 7, PageVerb::kFree)};
  const IncidentNames names{
      [](NameId id) { return id == NameId(1) ? std::string_view("R\"\n") : std::string_view("S"); },
      [](uint32_t) { return std::string_view("full"); }};
  const std::string line = ToJson(record, names);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["reason"], "tag_mismatch");
  EXPECT_EQ(json["req"], "R\"\n#2");
  EXPECT_EQ(json["holders"][0], "S");
  EXPECT_EQ(json["history"][0]["verb"], "free");
  EXPECT_FALSE(json.contains("at"));
}

// Page p is published as key 100 + p; each failed row was to write page 50.
class Facts : public LedgerFacts {
 public:
  std::vector<KeyId> KeysOf(PoolId, PageId page) const override {
    return {KeyId(100 + static_cast<uint64_t>(page.value()))};
  }
  std::vector<std::pair<PoolId, PageId>> WrittenPages(StepId, Row) const override {
    return {{PoolId(0), PageId(50)}};
  }
  bool IsSuspect(PoolId, PageId page) const override { return page.value() == 77; }
  bool IsCurrent(PoolId, PageId, uint64_t tag) const override { return tag == 5; }
};

SettlementStore Rows(int rows, int failed, Reason reason) {
  SettlementStore store;
  for (int i = 0; i < rows; ++i) {
    RowResult row;
    row.row = Row(static_cast<uint32_t>(i));
    if (i < failed) row.reasons = reason;
    store.rows.push_back(row);
  }
  return store;
}

Violation On(Reason reason, int64_t page) {
  Violation v;
  v.reason = reason;
  v.pool = 0;
  v.page = page;
  return v;
}

TEST(Policy, AMappingReasonEndsOnlyTheRow) {
  SettlementStore store = Rows(4, 1, Reason::kPageMismatch);
  ApplyPolicy(Policy::kAbort, StepId(1), {On(Reason::kPageMismatch, 9)}, Facts(), &store);
  EXPECT_FALSE(store.rows[0].published);
  EXPECT_TRUE(store.rows[1].published);
  EXPECT_THAT(store.quarantine, IsEmpty());
  EXPECT_THAT(store.unpublish, ElementsAre(KeyId(150))) << "what the row was to write isn't there";
}

TEST(Policy, AContentReasonQuarantinesThePageAndTakesItOutOfTheIndex) {
  SettlementStore store = Rows(4, 1, Reason::kStampMismatch);
  ApplyPolicy(Policy::kAbort, StepId(1), {On(Reason::kStampMismatch, 9)}, Facts(), &store);
  EXPECT_THAT(store.quarantine, ElementsAre(std::pair(PoolId(0), PageId(9))));
  EXPECT_THAT(store.unpublish, ElementsAre(KeyId(150), KeyId(109)));
  EXPECT_FALSE(store.storm);
}

// The fence's own record is damaged: whoever hits the page would fail. It's told from a page that
// was issued again, whose entries are others'.
TEST(Policy, APageAboutWhichTheDeviceContradictsTheBooksLeavesTheIndex) {
  Violation tag = On(Reason::kTagMismatch, 9);
  tag.row = 0;
  for (const uint64_t expected : {5, 3}) {
    tag.expected = expected;
    SettlementStore store = Rows(2, 2, Reason::kTagMismatch);
    ApplyPolicy(Policy::kAbort, StepId(1), {tag}, Facts(), &store);
    EXPECT_TRUE(store.storm);
    EXPECT_THAT(store.quarantine, IsEmpty());
    const std::vector<KeyId> keys =
        expected == 5 ? std::vector{KeyId(150), KeyId(109)} : std::vector{KeyId(150)};
    EXPECT_EQ(store.unpublish, keys);
  }
}

TEST(Policy, ASuspectPageIsQuarantinedWhateverWasSaidOfIt) {
  SettlementStore store = Rows(4, 0, Reason::kStampMismatch);
  ApplyPolicy(Policy::kAbort, StepId(1),
              {On(Reason::kIssuedWhileHeld, 77), On(Reason::kIssuedWhileHeld, 9)}, Facts(), &store);
  EXPECT_THAT(store.quarantine, ElementsAre(std::pair(PoolId(0), PageId(77))));
  EXPECT_THAT(store.unpublish, ElementsAre(KeyId(177)));
}

TEST(Policy, WhenMostRowsFailNothingIsQuarantined) {
  SettlementStore store = Rows(4, 3, Reason::kStampMismatch);
  ApplyPolicy(Policy::kAbort, StepId(1), {On(Reason::kStampMismatch, 9)}, Facts(), &store);
  EXPECT_TRUE(store.storm);
  EXPECT_THAT(store.quarantine, IsEmpty());
  Violation of_a_row = On(Reason::kStampMismatch, 9);
  of_a_row.row = 0;
  ApplyPolicy(Policy::kRecompute, StepId(1), {of_a_row}, Facts(), &store);
  EXPECT_THAT(store.quarantine, IsEmpty());
  EXPECT_THAT(store.unpublish, Contains(KeyId(109))) << "who is sent back would find it again";
  SettlementStore one = Rows(1, 1, Reason::kStampMismatch);
  ApplyPolicy(Policy::kAbort, StepId(1), {}, Facts(), &one);
  EXPECT_FALSE(one.storm) << "one row of one is no storm";
}

TEST(Policy, StopIsAskedForByAnyFindingAndByNoOtherPolicy) {
  SettlementStore store = Rows(4, 0, Reason::kStampMismatch);
  ApplyPolicy(Policy::kStop, StepId(1), {}, Facts(), &store);
  EXPECT_FALSE(store.stop);
  ApplyPolicy(Policy::kAbort, StepId(1), {On(Reason::kDoubleFree, 9)}, Facts(), &store);
  EXPECT_FALSE(store.stop);
  ApplyPolicy(Policy::kStop, StepId(1), {On(Reason::kDoubleFree, 9)}, Facts(), &store);
  EXPECT_TRUE(store.stop) << "no row failed, but something is wrong";
  SettlementStore failed = Rows(4, 3, Reason::kUnverified);
  ApplyPolicy(Policy::kStop, StepId(1), {}, Facts(), &failed);
  EXPECT_TRUE(failed.stop);
}

TEST(Policy, LogPublishesAllTheSame) {
  SettlementStore store = Rows(2, 1, Reason::kStampMismatch);
  ApplyPolicy(Policy::kLog, StepId(1), {On(Reason::kStampMismatch, 9)}, Facts(), &store);
  EXPECT_TRUE(store.rows[0].published);
  EXPECT_THAT(store.quarantine, IsEmpty());
}

}  // namespace
}  // namespace kvfence
