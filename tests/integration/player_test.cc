// The player's arrays: what kernels would read of a log's step, whatever the line says.
#include "integration/player.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "kvfence/event_log_reader.h"
#include "open_fence.h"

namespace kvfence {
namespace {

using testing::ElementsAre;

// Plays all lines; the fence then holds the last step.
struct Play {
  explicit Play(const std::string& log) {
    std::istringstream in(log);
    reader = EventLogReader::FromStream(&in, "x").value();
    player = std::make_unique<Player<OpenFence>>(&fence, reader->config(), nullptr,
                                                 [](StepId, Row) { return false; });
    TargetNames<OpenFence> names(&fence);
    LogRecord record;
    for (;;) {
      auto more = reader->Next(&names, &record);
      EXPECT_TRUE(more.ok()) << more.status().message();
      if (!more.ok() || !more.value()) return;
      status = player->Play(record.event);
      if (!status.ok()) return;
    }
  }
  std::vector<int64_t> Table(size_t pool, uint32_t row) const {
    const TableView& view = fence.step.pools[pool].table;
    const auto line = static_cast<uint64_t>(view.row_map.Get(row));
    std::vector<int64_t> words;
    for (uint64_t i = 0; i < view.width; ++i)
      words.push_back(view.entries.Get(line * view.stride + i));
    return words;
  }
  std::vector<int64_t> Slots(size_t pool, uint32_t row) const {
    const SlotView& view = fence.step.pools[pool].slots;
    std::vector<int64_t> words;
    for (int64_t i = view.indptr.Get(row); i < view.indptr.Get(row + 1); ++i) {
      words.push_back(view.slots.Get(static_cast<uint64_t>(i)));
    }
    return words;
  }
  OpenFence fence;
  std::unique_ptr<EventLogReader> reader;
  std::unique_ptr<Player<OpenFence>> player;
  Status status;
};

const std::string kOne =
    R"({"kvfence_log":1,"pools":[{"name":"p","pages":16,"page_size":4}],"rows":4,"width":4})"
    "\n{\"ev\":\"admit\",\"req\":\"R\"}\n{\"ev\":\"row\",\"row\":2,\"req\":\"R\"}\n";

std::string StepOf(int step, const std::string& what) {
  return R"({"ev":"step","step":)" + std::to_string(step) +
         R"(,"rows":[{"row":2,"req":"R","new":2,)" + what + "}]}\n";
}

TEST(Player, LaysOutTablesSlotsAndLengths) {
  Play play(kOne + R"({"ev":"step","step":1,"rows":[{"row":2,"req":"R","new":3,"table":[5,6],)"
                   R"("len":7,"write":[[22,2],24]}],"pads":[{"row":0,"table":[9],"len":3,)"
                   R"("write":[-1]}]})");
  ASSERT_EQ(play.fence.step.pools.size(), 1u);
  EXPECT_THAT(play.Table(0, 2), ElementsAre(5, 6, 0, 0));
  EXPECT_THAT(play.Table(0, 0), ElementsAre(9, 0, 0, 0));
  EXPECT_THAT(play.Slots(0, 2), ElementsAre(22, 23, 24));
  EXPECT_THAT(play.Slots(0, 0), ElementsAre(-1));
  EXPECT_THAT(play.Slots(0, 1), ElementsAre());
  EXPECT_EQ(play.fence.step.pools[0].lengths.values.Get(2), 7);
  EXPECT_EQ(play.fence.step.pads.size(), 1u);
}

TEST(Player, PatchesBuildOnTheLastTable) {
  Play play(kOne + StepOf(1, R"("table":[5,6],"len":2,"write":[])") +
            StepOf(2, R"("patch":[[3,8],[0,7]],"len":2,"write":[])") +
            StepOf(3, R"("patch":[[1,0]],"len":2,"write":[])"));
  EXPECT_THAT(play.Table(0, 2), ElementsAre(7, 0, 0, 8));
}

TEST(Player, TablesThatGrewShorterLeaveNothingBehind) {
  Play play(kOne + StepOf(1, R"("table":[5,6,7,8],"len":2,"write":[])") +
            "{\"ev\":\"confirm\",\"step\":1}\n{\"ev\":\"retire\",\"step\":1}\n" +
            StepOf(2, R"("table":[9],"len":2,"write":[])"));
  EXPECT_THAT(play.Table(0, 2), ElementsAre(9, 0, 0, 0));
}

TEST(Player, NullEntriesOfSlotTablesAreTheNullPagesSlots) {
  Play play(R"({"kvfence_log":1,"pools":[{"name":"p","pages":16,"page_size":2,"null_page":3,)"
            R"("entries":"slots"}],"rows":4,"width":4})"
            "\n{\"ev\":\"admit\",\"req\":\"R\"}\n" +
            StepOf(1, R"("table":[10],"len":2,"write":[])"));
  EXPECT_THAT(play.Table(0, 2), ElementsAre(10, 7, 6, 7));
  EXPECT_EQ(play.fence.step.pools[0].table.entries_per_page, 2u);
}

TEST(Player, AbsurdRunsKeepSomeSurplusSlots) {
  Play play(kOne + StepOf(1, R"("draft":1,"table":[],"len":2,"write":[[8,18446744073709551615]])"));
  const std::vector<int64_t> kept = play.Slots(0, 2);
  ASSERT_GE(kept.size(), 4u);
  EXPECT_EQ(std::vector<int64_t>(kept.begin(), kept.begin() + 4),
            (std::vector<int64_t>{8, 9, 10, 11}));
  EXPECT_LE(kept.size(), 3u + 64u);
  Play many(kOne + R"({"ev":"step","step":1,"rows":[{"row":2,"req":"R","new":18446744073709551615,)"
                   R"("draft":18446744073709551615,"table":[],"len":2,)"
                   R"("write":[[8,18446744073709551615]]}]})");
  EXPECT_LE(many.Slots(0, 2).size(), 3u * 64u);
  Play skipped(kOne + StepOf(1, R"("table":[],"len":2,"write":[[-1,9223372036854775807]])"));
  EXPECT_LE(skipped.Slots(0, 2).size(), 2u + 64u);
  Play behind(kOne + StepOf(1, R"("table":[],"len":2,"write":[[-1,9223372036854775807],7,8])"));
  EXPECT_EQ(behind.Slots(0, 2).back(), 7) << "one that is no skip, wherever it stands";
  Play highest(kOne + StepOf(1, R"("table":[],"len":2,"write":[[9223372036854775807,5]])"));
  EXPECT_THAT(highest.Slots(0, 2), testing::Each(INT64_MAX));
}

TEST(Player, SaysWhenATableOrBindingLastChanged) {
  const auto changed = [](const std::string& middle) {
    Play play(kOne + StepOf(1, R"("table":[5,6],"len":2,"write":[])") + middle +
              StepOf(9, R"("table":[5,6,0],"len":2,"write":[])"));
    return play.fence.plans.at(0).table_changed->value();
  };
  EXPECT_EQ(changed(""), 1u);
  EXPECT_EQ(changed(StepOf(4, R"("table":[5,7],"len":2,"write":[])")), 9u);
  EXPECT_EQ(changed(StepOf(4, R"("table":[5,6,0,0],"len":2,"write":[])")), 1u);
  EXPECT_EQ(changed(StepOf(4, R"("patch":[[2,7]],"len":2,"write":[])") +
                    StepOf(5, R"("patch":[[2,0]],"len":2,"write":[])")),
            5u);
  EXPECT_EQ(changed("{\"ev\":\"row\",\"row\":2,\"req\":\"R\"}\n"), 1u) << "bound as it was";
  EXPECT_EQ(changed("{\"ev\":\"row\",\"row\":2,\"req\":null}\n"
                    "{\"ev\":\"row\",\"row\":2,\"req\":\"R\"}\n"),
            9u);
  EXPECT_EQ(changed("{\"ev\":\"admit\",\"req\":\"R\"}\n{\"ev\":\"row\",\"row\":2,\"req\":\"R\"}\n"),
            9u)
      << "another incarnation";
}

TEST(Player, ConfirmPutsTheOtherTableInPlace) {
  Play play(kOne + StepOf(1, R"("table":[5,6,7],"len":2,"write":[])") +
            R"({"ev":"confirm","step":1,"rows":[{"row":2,"table":[5,8]}]})");
  EXPECT_THAT(play.fence.confirmed_words, ElementsAre(5, 8, 0, 0));
}

TEST(Player, PoolsThatARowDoesNotTouchAreLeftOut) {
  Play play(
      R"({"kvfence_log":1,"pools":[{"name":"a","pages":16,"page_size":4},{"name":"b",)"
      R"("pages":16,"page_size":4},{"name":"c","pages":16,"page_size":4,"width":2}],)"
      R"("rows":4,"width":4})"
      "\n{\"ev\":\"admit\",\"req\":\"R\"}\n"
      R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":1,"tables":{"a":[1],"c":[2]},)"
      R"("len":1,"writes":{"c":[8],"a":[4]}},)"
      R"({"row":3,"req":"R","new":1,"tables":{"a":[3]},"len":1,"writes":{"a":[12]}}]})");
  ASSERT_EQ(play.fence.step.pools.size(), 2u);
  EXPECT_EQ(play.fence.step.pools[1].pool, PoolId(2));
  EXPECT_EQ(play.fence.step.pools[1].table.width, 2u);
  EXPECT_EQ(play.fence.plans[0].pools, 0b101u);
  EXPECT_EQ(play.fence.plans[1].pools, 0b001u);
  EXPECT_THAT(play.Slots(1, 0), ElementsAre(8));
  EXPECT_THAT(play.Slots(1, 3), ElementsAre());
}

TEST(Player, StepsThatAreTooLargeAreRefused) {
  Play play(R"({"kvfence_log":1,"pools":[{"name":"p","pages":16,"page_size":4}],"rows":16,)"
            R"("width":16777216})"
            "\n{\"ev\":\"admit\",\"req\":\"R\"}\n"
            R"({"ev":"step","step":1,"pads":[)"
            R"({"row":0,"table":[],"len":0,"write":[]},{"row":1,"table":[],"len":0,"write":[]},)"
            R"({"row":2,"table":[],"len":0,"write":[]},{"row":3,"table":[],"len":0,"write":[]},)"
            R"({"row":4,"table":[],"len":0,"write":[]},{"row":5,"table":[],"len":0,"write":[]},)"
            R"({"row":6,"table":[],"len":0,"write":[]},{"row":7,"table":[],"len":0,"write":[]},)"
            R"({"row":8,"table":[],"len":0,"write":[]}]})");
  EXPECT_EQ(play.status.code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kvfence
