// The facade over the real ledger, journal, gate and kernels (I-80, what failed stays failed): a
// freed and reissued page, and that nothing is published without a complete clean verdict of that
// very step on every rank (I-9).
#include "kvfence/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvfence {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Findings : public EventSink {
 public:
  void OnViolation(const Violation& v) override { reasons.emplace_back(ReasonName(v.reason)); }
  void OnStep(const StepStats& stats) override { steps.push_back(stats); }
  void OnAbort(RequestId req, Reason reason) override { aborts.emplace_back(req, reason); }
  std::vector<std::string> reasons;
  std::vector<StepStats> steps;
  std::vector<std::pair<RequestId, Reason>> aborts;
};

// Four rows of four pages of 16 tokens, int32 table, one rank after the other.
class FenceTest : public ::testing::Test {
 protected:
  void Start(uint64_t ranks = 1, Frees frees = Frees::kExplicit) {
    FenceConfig config;
    config.pools = {PoolConfig{.name = "full", .pages = 8, .page_size = 16}};
    config.rows = 4;
    config.width = 4;
    config.ranks = ranks;
    config.frees = frees;
    fence_ = Fence::Create(config, {&findings_}).value();
    table_.assign(16, 0);
  }
  RequestId Admit(const std::string& name) { return fence_->Admit({.name = fence_->Intern(name)}); }
  void Alloc(RequestId req, std::vector<PageId> pages) {
    ASSERT_TRUE(fence_->Alloc({.req = req, .pages = pages}).ok());
  }
  void Row0(RequestId req) { ASSERT_TRUE(fence_->BindRow({.row = Row(0), .req = req}).ok()); }

  // One row that adds `tokens` to a length of `before`, its table as given.
  void Step(uint64_t step, RequestId req, std::vector<int32_t> pages, int64_t before,
            int64_t tokens, uint32_t rank = 0) {
    for (size_t k = 0; k < 4; ++k) table_[k] = k < pages.size() ? pages[k] : 0;
    slots_.clear();
    for (int64_t p = before; p < before + tokens; ++p) {
      slots_.push_back(pages[static_cast<size_t>(p / 16)] * 16 + p % 16);
    }
    const auto count = static_cast<int32_t>(slots_.size());
    for (size_t i = 1; i < 5; ++i) indptr_[i] = count;
    lengths_[0] = before + tokens;
    const RowPlan plan{.row = Row(0), .req = req, .new_tokens = static_cast<uint64_t>(tokens)};
    buffers_.table = {
        .entries = {table_.data(), 32}, .entries_size = 16, .stride = 4, .width = 4, .rows = 4};
    buffers_.slots = {.slots = {slots_.data(), 64},
                      .slots_size = slots_.size(),
                      .indptr = {indptr_, 32},
                      .rows = 4};
    buffers_.lengths = {.values = {lengths_, 64}, .rows = 4};
    const Status status = fence_->Step({.step = StepId(step),
                                        .rank = RankId(rank),
                                        .rows = {&plan, 1},
                                        .pads = {},
                                        .pools = {&buffers_, 1}});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void Confirm(uint64_t step, uint32_t rank = 0) {
    const Status status = fence_->Confirm({.step = StepId(step), .rank = RankId(rank)});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::vector<RowResult> Retire(uint64_t step) {
    Result<Settlement> settled = fence_->Retire({.step = StepId(step)});
    EXPECT_TRUE(settled.ok()) << settled.status().message();
    return {settled->rows.begin(), settled->rows.end()};
  }

  Findings findings_;
  std::unique_ptr<Fence> fence_;
  std::vector<int32_t> table_;
  std::vector<int64_t> slots_;
  int32_t indptr_[5] = {};
  int64_t lengths_[4] = {};
  PoolBuffers buffers_;
};

TEST_F(FenceTest, AnHonestRequestIsPublishedStepByStep) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {1, 2}, 0, 20);
  Confirm(1);
  EXPECT_TRUE(Retire(1)[0].published);
  for (uint64_t step = 2; step < 10; ++step) {
    Step(step, r, {1, 2}, 18 + static_cast<int64_t>(step), 1);
    Confirm(step);
    EXPECT_TRUE(Retire(step)[0].published);
  }
  EXPECT_THAT(findings_.reasons, IsEmpty());
  EXPECT_EQ(findings_.steps.size(), 9u);
  EXPECT_EQ(findings_.steps[0].entries, 2u) << "what was compared is counted (I-12)";
  EXPECT_EQ(fence_->stats().live_entries, 2u);
}

// I-80: whose write comes last, a running step's or a copy's, no log can tell.
TEST_F(FenceTest, APageThatARunningStepMayStillWriteIsNobodysToRead) {
  enum class Gets { kIssued, kIssuedAndLoads, kSharesAndLoads };
  for (const Gets gets : {Gets::kIssued, Gets::kIssuedAndLoads, Gets::kSharesAndLoads}) {
    const bool loads = gets != Gets::kIssued;
    findings_ = {};
    Start();
    const RequestId r = Admit("R"), s = Admit("S");
    const PageId one(1), two(2);
    Alloc(r, {one});
    Row0(r);
    Step(1, r, {1}, 0, 4);
    if (gets != Gets::kSharesAndLoads) {
      Alloc(s, {one});  // though R holds it, and its step may not have written yet
    } else {
      ASSERT_TRUE(fence_->Share({.req = s, .pages = {&one, 1}, .tokens = 4}).ok());
    }
    const NameId copy = loads ? fence_->Intern("copy") : NameId();
    if (loads) {
      ASSERT_TRUE(
          fence_->Pin({.id = copy, .dir = CopyDir::kIn, .pages = {&one, 1}, .req = s, .at = 0})
              .ok());
    }
    ASSERT_TRUE(
        fence_->Write({.page = one, .first = 0, .n = 16, .as = {.req = s, .at = 0}, .xfer = copy})
            .ok());
    Confirm(1);
    Result<Settlement> settled = fence_->Retire({.step = StepId(1)});
    EXPECT_FALSE(settled->rows[0].published);
    EXPECT_THAT(std::vector(settled->quarantine.begin(), settled->quarantine.end()),
                ElementsAre(std::pair(PoolId(0), one)));
    if (loads) {
      ASSERT_TRUE(fence_->Unpin({.id = copy}).ok());
    }
    ASSERT_TRUE(fence_->Ready({.req = s, .tokens = 16}).ok());
    Alloc(s, {two});
    Row0(s);
    Step(2, s, {1, 2}, 16, 1);
    EXPECT_EQ(table_[0], 0) << "harmless before attention reads it";
    Confirm(2);
    EXPECT_FALSE(Retire(2)[0].published);
  }
}

TEST_F(FenceTest, APageThatWentToAnotherRequestEndsOnlyTheRowThatStillNamesIt) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {1, 2}, 0, 20);
  Confirm(1);
  Retire(1);
  const PageId one(1);
  ASSERT_TRUE(fence_->Free({.pages = {&one, 1}}).ok());
  Alloc(Admit("S"), {one});
  Step(2, r, {1, 2}, 20, 1);
  EXPECT_EQ(table_[0], 0) << "harmless before attention reads it";
  Confirm(2);
  const std::vector<RowResult> rows = Retire(2);
  EXPECT_FALSE(rows[0].published);
  EXPECT_TRUE(rows[0].reasons.Has(Reason::kTagMismatch));
  EXPECT_THAT(findings_.reasons, ElementsAre("freed_while_held", "tag_mismatch"));
  EXPECT_THAT(findings_.aborts, ElementsAre(std::pair(r, Reason::kTagMismatch)));
}

TEST_F(FenceTest, I9AStepWithoutConfirmPublishesNothing) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1)});
  Row0(r);
  Step(1, r, {1}, 0, 3);
  EXPECT_FALSE(Retire(1)[0].published);
  EXPECT_THAT(findings_.reasons, ElementsAre("unverified"));
}

TEST_F(FenceTest, I9AMissingRankPublishesNothing) {
  Start(2);
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1)});
  Row0(r);
  Step(1, r, {1}, 0, 3, 0);
  Confirm(1, 0);
  EXPECT_FALSE(Retire(1)[0].published);
  EXPECT_THAT(findings_.reasons, ElementsAre("unverified"));
}

TEST_F(FenceTest, TwoRanksThatAgreeArePublishedAndReportAFindingOnce) {
  Start(2);
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1)});
  Row0(r);
  for (uint32_t rank = 0; rank < 2; ++rank) Step(1, r, {1}, 0, 3, rank);
  for (uint32_t rank = 0; rank < 2; ++rank) Confirm(1, rank);
  EXPECT_TRUE(Retire(1)[0].published);
  const PageId one(1);
  ASSERT_TRUE(fence_->Free({.pages = {&one, 1}}).ok());
  EXPECT_THAT(findings_.reasons, ElementsAre("freed_while_held"));
}

TEST_F(FenceTest, I80AHitOfAnotherIdentityEndsThatRequestAndSpeaksOnce) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1)});
  Row0(r);
  Step(1, r, {1}, 0, 16);
  Confirm(1);
  Retire(1);
  PublishEvent publish;
  publish.key = KeyId(7);
  publish.req = r;
  ASSERT_TRUE(fence_->Publish(publish).ok());
  const IdentityField adapter("adapter", "b");
  const RequestId s = fence_->Admit(
      {.name = fence_->Intern("S"), .identity = fence_->InternIdentity({&adapter, 1})});
  const PageId one(1);
  const KeyId key(7);
  const auto hit = [&] {
    return fence_->Share({.req = s, .pages = {&one, 1}, .tokens = 16, .at = 0, .keys = {&key, 1}});
  };
  ASSERT_TRUE(hit().ok());
  Alloc(s, {PageId(2)});
  Row0(s);
  for (uint64_t step = 2; step < 4; ++step) {
    Step(step, s, {1, 2}, 14 + static_cast<int64_t>(step), 1);
    EXPECT_EQ(table_[0], 0) << "harmless before attention reads it";
    Confirm(step);
    const std::vector<RowResult> rows = Retire(step);
    EXPECT_FALSE(rows[0].published);
    EXPECT_TRUE(rows[0].reasons.Has(Reason::kKeyMismatch));
    EXPECT_EQ(rows[0].good_prefix, 0u) << "no use in keeping what will fail again";
  }
  EXPECT_THAT(findings_.reasons, ElementsAre("key_mismatch"));
  // Nor does it become the request's own on its way over the host.
  const NameId out = fence_->Intern("out"), in = fence_->Intern("in");
  const KeyId swap(8);
  const PageId fresh(3);
  PinEvent pin{.id = out, .dir = CopyDir::kOut, .pages = {&one, 1}, .req = s, .at = 0, .key = swap};
  ASSERT_TRUE(fence_->Pin(pin).ok());
  ASSERT_TRUE(fence_->Read({.page = one, .xfer = out}).ok());
  ASSERT_TRUE(fence_->Unpin({.id = out}).ok());
  ASSERT_TRUE(fence_->Drop({.req = s, .at = 0, .n = 2}).ok());
  ASSERT_TRUE(fence_->Alloc({.req = s, .pages = {&fresh, 1}, .at = 0}).ok());
  pin = {.id = in, .dir = CopyDir::kIn, .pages = {&fresh, 1}, .req = s, .at = 0, .key = swap};
  ASSERT_TRUE(fence_->Pin(pin).ok());
  ASSERT_TRUE(
      fence_->Write({.page = fresh, .first = 0, .n = 16, .as = {.key = swap}, .xfer = in}).ok());
  ASSERT_TRUE(fence_->Unpin({.id = in}).ok());
  ASSERT_TRUE(fence_->Trim({.req = s, .tokens = 16}).ok());
  Alloc(s, {PageId(4)});
  ASSERT_TRUE(fence_->BindRow({.row = Row(0)}).ok());
  Row0(s);
  Step(4, s, {3, 4}, 16, 1);
  Confirm(4);
  EXPECT_FALSE(Retire(4)[0].published);
}

TEST_F(FenceTest, I80AFailedRowStaysFailedUntilItIsBoundAnew) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {2}, 0, 3);
  Confirm(1);
  EXPECT_FALSE(Retire(1)[0].published);
  const size_t said = findings_.reasons.size();
  ASSERT_TRUE(fence_->Trim({.req = r, .tokens = 0}).ok());
  Step(2, r, {1}, 0, 3);
  Confirm(2);
  EXPECT_FALSE(Retire(2)[0].published);
  EXPECT_EQ(findings_.reasons.size(), said) << "it was reported when it failed";
  ASSERT_TRUE(fence_->Trim({.req = r, .tokens = 0}).ok());
  Row0({});
  Row0(r);
  Step(3, r, {1}, 0, 3);
  Confirm(3);
  EXPECT_TRUE(Retire(3)[0].published);
}

TEST_F(FenceTest, I80AWrongChecksumQuarantinesThePageAndFailsItsHolders) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1)});
  WriteEvent write{.page = PageId(1), .first = 0, .n = 16};
  write.as = {.req = r, .at = 0};
  write.sum = fence_->Intern("a");
  ASSERT_TRUE(fence_->Write(write).ok());
  write.sum = fence_->Intern("b");
  ASSERT_TRUE(fence_->Write(write).ok());
  ASSERT_TRUE(fence_->Ready({.req = r, .tokens = 16}).ok());
  Alloc(r, {PageId(2)});
  Row0(r);
  Step(1, r, {1, 2}, 16, 1);
  Confirm(1);
  Result<Settlement> settled = fence_->Retire({.step = StepId(1)});
  ASSERT_TRUE(settled.ok());
  EXPECT_FALSE(settled->rows[0].published);
  ASSERT_EQ(settled->quarantine.size(), 1u);
  EXPECT_EQ(settled->quarantine[0].second, PageId(1));
  EXPECT_THAT(findings_.reasons, ElementsAre("content_mismatch"));
}

TEST_F(FenceTest, AnAuditThatIsAskedForAnswersAtLevelFull) {
  Start();
  Alloc(Admit("R"), {PageId(1)});
  ASSERT_TRUE(fence_->Audit({.idle = false}).ok());
  EXPECT_THAT(findings_.reasons, IsEmpty());
  ASSERT_TRUE(fence_->Audit({.idle = true}).ok());
  EXPECT_THAT(findings_.reasons, ElementsAre("conservation")) << "R holds a page when all is idle";
}

TEST_F(FenceTest, RefusesWhatItCannotUnderstand) {
  Start();
  EXPECT_FALSE(fence_->Confirm({.step = StepId(9)}).ok());
  EXPECT_FALSE(fence_->Retire({.step = StepId(9)}).ok());
  EXPECT_FALSE(
      fence_->Step({.step = StepId(1), .rank = RankId(4), .rows = {}, .pads = {}, .pools = {}})
          .ok());
  FenceConfig config;
  EXPECT_EQ(Fence::Create(config).status().message(), "pools must name at least one pool");
  config.pools = {PoolConfig{.name = "full", .pages = 8, .page_size = 0}};
  config.rows = config.width = 4;
  EXPECT_THAT(Fence::Create(config).status().message(), ::testing::HasSubstr("page_size"));
}

TEST(Geometry, FindsArithmeticThatWrapsAndPoolsThatOverlap) {
  Findings findings;
  FenceConfig config;
  config.rows = config.width = 4;
  config.pools = {PoolConfig{.name = "a",
                             .pages = 8,
                             .page_size = 16,
                             .base = 0,
                             .page_bytes = 4096,
                             .index_bits = 31},
                  PoolConfig{.name = "b",
                             .pages = 8,
                             .page_size = 16,
                             .base = 32768,
                             .page_bytes = 4096,
                             .index_bits = 31}};
  ASSERT_TRUE(Fence::Create(config, {&findings}).ok());
  EXPECT_THAT(findings.reasons, IsEmpty());
  config.pools[1].base = 32767;
  config.pools[0].pages = uint64_t{1} << 20;
  ASSERT_TRUE(Fence::Create(config, {&findings}).ok());
  EXPECT_THAT(findings.reasons, ElementsAre("geometry", "geometry"));
}

// A key that was published ahead of a row which fails is of no use, though the row's request had
// failed before and the row was never let write.
TEST_F(FenceTest, WhatARowThatHadFailedWasToWriteLeavesTheIndex) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {3}, 0, 16);  // another page than its own
  ASSERT_TRUE(fence_->Publish({.key = KeyId(7), .req = r, .at = 1}).ok());
  Confirm(1);
  Step(2, r, {1, 2}, 16, 16);
  Confirm(2);
  EXPECT_FALSE(Retire(1)[0].published);
  Result<Settlement> settled = fence_->Retire({.step = StepId(2)});
  ASSERT_TRUE(settled.ok());
  EXPECT_THAT(settled->unpublish, ElementsAre(KeyId(7)));
}

// I-80 says until it's bound anew: a step that was launched before, and fails after, is about what
// the row was.
TEST_F(FenceTest, ARowBoundAnewIsNotBlamedForWhatItWas) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {3}, 0, 16);  // another page than its own
  Confirm(1);
  Step(2, r, {1, 2}, 16, 1);
  EXPECT_FALSE(Retire(1)[0].published);
  Row0(RequestId());
  ASSERT_TRUE(fence_->Trim({.req = r, .tokens = 0}).ok());
  Row0(r);
  Confirm(2);
  EXPECT_FALSE(Retire(2)[0].published);
  Step(3, r, {1, 2}, 0, 16);
  Confirm(3);
  EXPECT_TRUE(Retire(3)[0].published);
}

// The books take the page for good, the device contradicts them: kept, it would fail again.
TEST_F(FenceTest, APageThatTheDeviceFoundWrongIsNoPartOfTheGoodPrefix) {
  for (const bool damaged : {false, true}) {
    Start();
    const RequestId r = Admit("R");
    Alloc(r, {PageId(1), PageId(2), PageId(3)});
    Row0(r);
    Step(1, r, {1, 2, 3}, 0, 32);
    Confirm(1);
    EXPECT_TRUE(Retire(1)[0].published);
    if (damaged) fence_->DeviceRecord(RankId(0), PoolId(0), PageId(2))->tag ^= 4;
    Step(2, r, {1, 2, damaged ? 3 : 4}, 32, 1);  // or else only the table is wrong
    Confirm(2);
    const std::vector<RowResult> rows = Retire(2);
    EXPECT_FALSE(rows[0].published);
    EXPECT_EQ(rows[0].good_prefix, damaged ? 16u : 32u);
  }
}

// What comes back under the copy's key is what was read, for each place that it was read for: the
// books' word that it's the request's would let the wrong page pass.
TEST_F(FenceTest, APageThatACopyReadsForTwoPlacesIsReadForBoth) {
  Start();
  const RequestId r = Admit("R");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {1, 2}, 0, 32);
  Confirm(1);
  EXPECT_TRUE(Retire(1)[0].published);
  const std::vector<PageId> read = {PageId(2), PageId(2)}, fresh = {PageId(3), PageId(4)};
  const NameId out = fence_->Intern("out"), in = fence_->Intern("in");
  const KeyId key(7);
  ASSERT_TRUE(
      fence_->Pin({.id = out, .dir = CopyDir::kOut, .pages = read, .req = r, .at = 0, .key = key})
          .ok());
  ASSERT_TRUE(fence_->Read({.page = PageId(2), .xfer = out}).ok());
  ASSERT_TRUE(fence_->Unpin({.id = out}).ok());
  ASSERT_TRUE(fence_->Drop({.req = r, .at = 0, .n = 2}).ok());
  ASSERT_TRUE(fence_->Alloc({.req = r, .pages = fresh, .at = 0}).ok());
  ASSERT_TRUE(
      fence_->Pin({.id = in, .dir = CopyDir::kIn, .pages = fresh, .req = r, .at = 0, .key = key})
          .ok());
  for (const PageId page : fresh) {
    ASSERT_TRUE(
        fence_->Write({.page = page, .first = 0, .n = 16, .as = {.key = key}, .xfer = in}).ok());
  }
  ASSERT_TRUE(fence_->Unpin({.id = in}).ok());
  ASSERT_TRUE(fence_->Ready({.req = r, .tokens = 32}).ok());
  Alloc(r, {PageId(5)});
  findings_ = {};
  Step(2, r, {3, 4, 5}, 32, 1);
  Confirm(2);
  EXPECT_FALSE(Retire(2)[0].published);
  EXPECT_THAT(findings_.reasons, ElementsAre("stamp_mismatch"));
}

// What misled one request would mislead the next, or the same one when it's computed again.
TEST_F(FenceTest, AStaleIndexEntryThatWasHitLeavesTheIndex) {
  Start();
  const RequestId r = Admit("R"), s = Admit("S");
  Alloc(r, {PageId(1), PageId(2)});
  Row0(r);
  Step(1, r, {1, 2}, 0, 16);
  Confirm(1);
  Retire(1);
  ASSERT_TRUE(fence_->Publish({.key = KeyId(7), .req = r, .at = 0}).ok());
  const PageId one(1);
  ASSERT_TRUE(fence_->Free({.pages = {&one, 1}}).ok());  // though the index holds it
  const KeyId key(7);
  ASSERT_TRUE(fence_->Share({.req = s, .pages = {&one, 1}, .tokens = 16, .keys = {&key, 1}}).ok());
  EXPECT_THAT(findings_.reasons, ::testing::Contains("stale_index_entry"));
  Step(2, r, {1, 2}, 16, 1);
  Confirm(2);
  Result<Settlement> settled = fence_->Retire({.step = StepId(2)});
  ASSERT_TRUE(settled.ok());
  EXPECT_THAT(std::vector(settled->unpublish.begin(), settled->unpublish.end()),
              ::testing::Contains(KeyId(7)));
}

}  // namespace
}  // namespace kvfence
