// The log's writer: read(write(e)) == e for every verb, field by field; recording from arrays in
// any layout; files under a temporary name until they're whole.
#include "kvfence/event_log_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kvfence/event_log_reader.h"
#include "kvfence/rng.h"

namespace kvfence {
namespace {

using testing::HasSubstr;

// --- equality, written out: it doesn't use the schema that reader and writer share
// ----------------

template <class T>
bool Same(const T& a, const T& b) {
  return a == b;
}
bool Same(double, double) = delete;
template <class T>
bool Same(std::span<const T> a, std::span<const T> b);
bool Same(const ContentOf& a, const ContentOf& b) {
  return a.req == b.req && a.at == b.at && a.key == b.key;
}
bool Same(const std::optional<ContentOf>& a, const std::optional<ContentOf>& b) {
  return a.has_value() == b.has_value() && (!a || Same(*a, *b));
}
bool Same(const LogTable& a, const LogTable& b) {
  return a.pool == b.pool && a.is_patch == b.is_patch && Same(a.entries, b.entries) &&
         Same(a.edits, b.edits);
}
bool Same(const LogWrites& a, const LogWrites& b) {
  return a.pool == b.pool && Same(a.runs, b.runs);
}
bool Same(const LogRow& a, const LogRow& b) {
  const RowPlan &p = a.plan, &q = b.plan;
  return p.row == q.row && p.req == q.req && p.new_tokens == q.new_tokens && p.draft == q.draft &&
         p.base == q.base && p.reach == q.reach && p.table_epoch == q.table_epoch &&
         Same(p.loads, q.loads) && p.scales == q.scales && a.len == b.len &&
         Same(a.tables, b.tables) && Same(a.writes, b.writes) && Same(a.drafts, b.drafts);
}
bool Same(const LogPad& a, const LogPad& b) {
  return a.row == b.row && a.len == b.len && Same(a.tables, b.tables) && Same(a.writes, b.writes);
}
bool Same(const PrefixPlan& a, const PrefixPlan& b) {
  return a.pool == b.pool && Same(a.rows, b.rows) && Same(a.table, b.table);
}
bool Same(const LogConfirmRow& a, const LogConfirmRow& b) {
  return a.row == b.row && Same(a.tables, b.tables);
}
template <class T>
bool Same(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Same(a[i], b[i])) return false;
  }
  return true;
}
// Compares the members of two events of one type, by structured bindings.
#define KVF_SAME(Type, ...)                      \
  bool SameEvent(const Type& a, const Type& b) { \
    const auto members = [](const Type& e) {     \
      const auto& [__VA_ARGS__] = e;             \
      return std::tie(__VA_ARGS__);              \
    };                                           \
    return SameTuple(members(a), members(b));    \
  }
template <class Tuple>
bool SameTuple(const Tuple& a, const Tuple& b) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return (Same(std::get<I>(a), std::get<I>(b)) && ...);
  }
  (std::make_index_sequence<std::tuple_size_v<Tuple>>());
}
KVF_SAME(AdmitEvent, m1, m2, m3)
KVF_SAME(AllocEvent, m1, m2, m3, m4, m5)
KVF_SAME(ShareEvent, m1, m2, m3, m4, m5, m6, m7, m8)
KVF_SAME(ForkEvent, m1, m2, m3)
KVF_SAME(CowEvent, m1, m2, m3, m4, m5)
KVF_SAME(TrimEvent, m1, m2, m3, m4)
KVF_SAME(DropEvent, m1, m2, m3, m4, m5)
KVF_SAME(ReleaseEvent, m1, m2)
KVF_SAME(FreeEvent, m1, m2, m3)
KVF_SAME(PublishEvent, m1, m2, m3, m4, m5, m6, m7, m8, m9)
KVF_SAME(UnpublishEvent, m1, m2, m3)
KVF_SAME(PinEvent, m1, m2, m3, m4, m5, m6, m7, m8, m9)
KVF_SAME(UnpinEvent, m1, m2, m3)
KVF_SAME(ReadyEvent, m1, m2, m3)
KVF_SAME(BindRowEvent, m1, m2, m3)
KVF_SAME(AuditEvent, m1, m2)
KVF_SAME(WriteEvent, m1, m2, m3, m4, m5, m6, m7, m8)
KVF_SAME(ReadEvent, m1, m2, m3, m4, m5)
KVF_SAME(ScaleEvent, m1, m2, m3, m4)
KVF_SAME(RescaleEvent, m1, m2)
KVF_SAME(CopyEvent, m1, m2, m3, m4, m5, m6)
KVF_SAME(LogStep, m1, m2, m3, m4, m5)
KVF_SAME(LogConfirm, m1, m2, m3)
KVF_SAME(RetireEvent, m1, m2)
KVF_SAME(LogExpect, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10)
#undef KVF_SAME

// --- random events
// ---------------------------------------------------------------------------------

FenceConfig Config(int pools) {
  FenceConfig config;
  config.pools.push_back({.name = "full", .pages = 64, .page_size = 16});
  if (pools > 1) config.pools.push_back({.name = "s\"wa", .pages = 32, .page_size = 4, .width = 6});
  config.rows = 4;
  config.width = 8;
  config.ranks = 2;
  config.frees = Frees::kExplicit;
  return config;
}

// Makes random records; owns what their views show.
class Maker {
 public:
  Maker(uint64_t seed, const FenceConfig& config, LogNames* names)
      : rng_(seed), config_(config), names_(names) {}

  LogEvent Make() {
    const RankId rank = rng_.Chance(1, 3) ? RankId(Small(2)) : kAllRanks;
    switch (rng_.Below(25)) {
      case 0:
        return AdmitEvent{Name(), Identity(), rank};
      case 1:
        return AllocEvent{Req(), PageList(), Maybe(Small(9)), Pool(), rank};
      case 2:
        return Share(rank);
      case 3:
        return ForkEvent{Req(), Req(), rank};
      case 4:
        return CowEvent{Req(), rng_.Next(), Page(), Pool(), rank};
      case 5:
        return TrimEvent{Req(), rng_.Next(), Maybe(StepId(rng_.Next())), rank};
      case 6:
        return DropEvent{Req(), Small(9), Small(9), Pool(), rank};
      case 7:
        return ReleaseEvent{Req(), rank};
      case 8:
        return FreeEvent{PageList(), Pool(), rank};
      case 9:
        return Publish(rank);
      case 10:
        return UnpublishEvent{Key(), Pool(), rank};
      case 11:
        return PinEvent{Name(),
                        rng_.Chance(1, 2) ? CopyDir::kIn : CopyDir::kOut,
                        PageList(),
                        rng_.Chance(1, 2) ? Req() : RequestId(),
                        Maybe(Small(5)),
                        Maybe(Key()),
                        Maybe(Small(5)),
                        Pool(),
                        rank};
      case 12:
        return UnpinEvent{Name(), rng_.Chance(1, 2), rank};
      case 13:
        return ReadyEvent{Req(), Small(99), rank};
      case 14:
        return BindRowEvent{Row(Small(4)), rng_.Chance(1, 2) ? Req() : RequestId(), rank};
      case 15:
        return AuditEvent{rng_.Chance(1, 2), rank};
      case 16:
        return WriteEvent{Page(),       Small(16),    rng_.Next(), Of(),
                          NameOrNone(), NameOrNone(), Pool(),      rank};
      case 17:
        return ReadEvent{Page(), Name(), NameOrNone(), Pool(), rank};
      case 18:
        return ScaleEvent{Page(), Maybe(Of()), Pool(), rank};
      case 19:
        return RescaleEvent{Pool(), rank};
      case 20:
        return CopyEvent{Page(), Page(), Pool(), Pool(), NameOrNone(), rank};
      case 21:
        return Step();
      case 22:
        return Confirm();
      case 23:
        return RetireEvent{StepId(rng_.Next()), RankId(Small(2))};
      default:
        return Expect();
    }
  }

 private:
  uint32_t Small(uint64_t bound) { return static_cast<uint32_t>(rng_.Below(bound)); }
  template <class T>
  std::optional<T> Maybe(T value) {
    return rng_.Chance(1, 2) ? std::optional<T>(value) : std::nullopt;
  }
  std::optional<uint64_t> Maybe(uint32_t value) { return Maybe(uint64_t{value}); }
  template <class T, class One>
  std::span<const T> List(uint64_t most, One one) {
    auto& values = Pooled<T>().emplace_back();
    for (uint64_t i = rng_.Below(most + 1); i > 0; --i) values.push_back(one());
    return values;
  }
  template <class T>
  static std::deque<std::vector<T>>& Pooled() {
    static std::deque<std::vector<T>> pool;
    return pool;
  }
  NameId Name() {
    constexpr std::string_view kNames[] = {"R", "req-7", "a\"b\\", "é€😀", "\n\t\x01", "K", " "};
    return names_->Intern(kNames[rng_.Below(7)]);
  }
  NameId NameOrNone() { return rng_.Chance(1, 2) ? Name() : NameId(); }
  KeyId Key() { return KeyId(Name().value()); }
  RequestId Req() { return RequestId(Name(), Small(3)); }
  PageId Page() { return PageId(static_cast<int64_t>(rng_.Next()) >> rng_.Below(64)); }
  PoolId Pool() { return PoolId(Small(config_.pools.size())); }
  Pages PageList() {
    return List<PageId>(5, [&] { return Page(); });
  }
  IdentityId Identity() {
    std::vector<IdentityField> fields;
    for (uint64_t i = rng_.Below(3); i > 0; --i) {
      fields.push_back({"k" + std::to_string(i), std::string(names_->NameOf(Name()))});
    }
    return names_->InternIdentity(fields);
  }
  ContentOf Of() {
    switch (rng_.Below(3)) {
      case 0:
        return {Req(), uint64_t{Small(9)}, {}};
      case 1:
        return {{}, {}, Key()};
      default:
        return {};
    }
  }
  ShareEvent Share(RankId rank) {
    ShareEvent e{Req(), PageList(), rng_.Next(), Maybe(Small(9)), {}, {}, Pool(), rank};
    auto& keys = Pooled<KeyId>().emplace_back();
    auto& digests = Pooled<NameId>().emplace_back();
    const bool with_keys = rng_.Chance(1, 2), with_digests = rng_.Chance(1, 2);
    for (size_t i = 0; i < e.pages.size(); ++i) {
      if (with_keys) keys.push_back(Key());
      if (with_digests) digests.push_back(NameOrNone());
    }
    e.keys = keys;
    e.digests = digests;
    return e;
  }
  PublishEvent Publish(RankId rank) {
    PublishEvent e{.key = Key()};
    if (rng_.Chance(1, 2)) {
      e.req = Req();
      e.at = Small(9);
    } else {
      e.page = Page();
      e.from_key = Key();
    }
    e.identity = Maybe(Identity());
    e.digest = NameOrNone();
    e.pool = Pool();
    e.rank = rank;
    return e;
  }
  LogTable Table(uint32_t pool, bool may_patch) {
    LogTable table{PoolId(pool), may_patch && rng_.Chance(1, 3), {}, {}};
    if (table.is_patch) {
      table.edits = List<TableEdit>(3, [&] { return TableEdit{Small(6), Page().value()}; });
    } else {
      table.entries = List<int64_t>(6, [&] { return Page().value(); });
    }
    return table;
  }
  // In the order in which the writer puts them: whole tables, then patched ones.
  std::span<const LogTable> Tables(bool may_patch) {
    std::vector<LogTable> all;
    for (uint32_t p = 0; p < config_.pools.size(); ++p) all.push_back(Table(p, may_patch));
    std::stable_partition(all.begin(), all.end(), [](const LogTable& t) { return !t.is_patch; });
    return Pooled<LogTable>().emplace_back(all);
  }
  std::span<const LogWrites> Writes() {
    auto& all = Pooled<LogWrites>().emplace_back();
    for (uint32_t p = 0; p < config_.pools.size(); ++p) {
      all.push_back({PoolId(p), List<SlotRun>(3, [&] {
                       return SlotRun{Page().value(), rng_.Chance(1, 2) ? 1 : rng_.Next()};
                     })});
    }
    return all;
  }
  LogRow OneRow(uint32_t row) {
    LogRow r;
    r.plan = {.row = Row(row), .req = Req(), .new_tokens = rng_.Next(), .draft = Small(2)};
    r.plan.base = Maybe(Small(9));
    r.plan.reach = Maybe(Small(9));
    r.plan.table_epoch = Maybe(StepId(rng_.Next()));
    r.plan.loads = List<NameId>(2, [&] { return Name(); });
    r.plan.scales = rng_.Chance(1, 2);
    r.len = Page().value();
    r.tables = Tables(true);
    r.writes = Writes();
    return r;
  }
  LogStep Step() {
    uint32_t row = 0;
    LogStep step{StepId(rng_.Next()), RankId(Small(2)), {}, {}, {}};
    step.rows = List<LogRow>(2, [&] { return OneRow(row++); });
    step.pads = List<LogPad>(2, [&] {
      return LogPad{Row(row++), Page().value(), Tables(true), Writes()};
    });
    step.prefix = List<PrefixPlan>(2, [&] {
      return PrefixPlan{List<Row>(3, [&] { return Row(Small(4)); }),
                        List<int64_t>(6, [&] { return Page().value(); }), Pool()};
    });
    return step;
  }
  LogConfirm Confirm() {
    uint32_t row = 0;
    LogConfirm confirm{StepId(rng_.Next()), RankId(Small(2)), {}};
    confirm.rows = List<LogConfirmRow>(3, [&] { return LogConfirmRow{Row(row++), Tables(false)}; });
    return confirm;
  }
  LogExpect Expect() {
    LogExpect e;
    e.clean = rng_.Chance(1, 4);
    if (e.clean) return e;
    e.reason = static_cast<Reason>(Small(kReasonCount));
    e.has_reason = true;
    if (rng_.Chance(1, 2)) e.req = Req();
    e.page = Maybe(Page());
    e.pool = Maybe(Pool());
    e.at = Maybe(Small(9));
    e.step = Maybe(StepId(rng_.Next()));
    e.row = Maybe(Row(Small(4)));
    e.rank = Maybe(RankId(Small(2)));
    return e;
  }

  Rng rng_;
  const FenceConfig& config_;
  LogNames* names_;
};

class RoundTrip : public testing::TestWithParam<int> {};

TEST_P(RoundTrip, WhatIsReadBackIsWhatWasWritten) {
  const FenceConfig config = Config(GetParam());
  LogNames names;
  Maker maker(5 + static_cast<uint64_t>(GetParam()), config, &names);
  std::vector<size_t> seen(std::variant_size_v<LogEvent>);
  for (int i = 0; i < 4000; ++i) {
    const LogEvent event = maker.Make();
    std::ostringstream out;
    auto writer = EventLogWriter::ToStream(&out, config, &names);
    ASSERT_TRUE(writer.ok());
    writer.value()->Write(event);
    ASSERT_TRUE(writer.value()->Close().ok());
    std::istringstream in(out.str());
    auto reader = EventLogReader::FromStream(&in, "x");
    ASSERT_TRUE(reader.ok()) << reader.status().message() << out.str();
    LogRecord record;
    const auto more = reader.value()->Next(&names, &record);
    ASSERT_TRUE(more.ok()) << more.status().message() << "\n" << out.str();
    ASSERT_EQ(record.event.index(), event.index());
    ++seen[event.index()];
    std::visit(
        [&]<class E>(const E& e) {
          EXPECT_TRUE(SameEvent(e, std::get<E>(record.event))) << out.str();
        },
        event);
    std::ostringstream again;
    auto second = EventLogWriter::ToStream(&again, reader.value()->config(), &names);
    second.value()->Write(record.event);
    ASSERT_TRUE(second.value()->Close().ok());
    EXPECT_EQ(again.str(), out.str());
  }
  for (const size_t count : seen) EXPECT_GT(count, 50u);
}
INSTANTIATE_TEST_SUITE_P(Pools, RoundTrip, testing::Values(1, 2));

TEST(EventLogWriter, HeadersReadBack) {
  FenceConfig config = Config(2);
  config.pools[0].window = 8;
  config.pools[0].scales = true;
  config.pools[0].null_page = 3;
  config.pools[0].skip_slot = -1;
  config.pools[0].slot_entries = true;
  config.pools[0].kind = PoolKind::kState;
  config.pools[0].space = "s";
  config.pools[0].interleave_ranks = 2;
  config.pools[0].interleave_stride = 3;
  config.pools[0].base = 1;
  config.pools[0].page_bytes = 2;
  config.pools[0].index_bits = 3;
  config.reuse = Reuse::kStream;
  config.same_step_reads = true;
  config.level = Level::kMap;
  config.about = "x\ny";
  LogNames names;
  std::ostringstream out;
  auto writer = EventLogWriter::ToStream(&out, config, &names);
  ASSERT_TRUE(writer.value()->Close().ok());
  EXPECT_EQ(out.str(),
            R"({"kvfence_log":1,"pools":[{"name":"full","pages":64,"page_size":16,"window":8,)"
            R"("scales":true,"null_page":3,"skip_slot":-1,"base":1,"page_bytes":2,"index_bits":3,)"
            R"("space":"s","entries":"slots","kind":"state","interleave":[2,3]},{"name":"s\"wa",)"
            R"("pages":32,"page_size":4,"width":6}],"rows":4,"width":8,"ranks":2,)"
            R"("frees":"explicit","reuse":"stream","same_step_reads":true,"level":"map",)"
            "\"about\":\"x\\u000ay\"}\n");
  std::istringstream in(out.str());
  auto reader = EventLogReader::FromStream(&in, "x");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::ostringstream again;
  auto second = EventLogWriter::ToStream(&again, reader.value()->config(), &names);
  ASSERT_TRUE(second.value()->Close().ok());
  EXPECT_EQ(again.str(), out.str());
}

// --- recording
// ---------------------------------------------------------------------------------------

struct Recorder {
  explicit Recorder(const FenceConfig& config, EventLogWriterOptions options = {}) {
    auto made = EventLogWriter::ToStream(&out, config, &names, std::move(options));
    writer = std::move(made).value();
    (void)writer->Flush();
    out.str("");
  }
  std::string Lines() {
    EXPECT_TRUE(writer->Flush().ok());
    std::string text = out.str();
    out.str("");
    return text;
  }
  LogNames names;
  std::ostringstream out;
  std::unique_ptr<EventLogWriter> writer;
};

FenceConfig OnePool() {
  FenceConfig config;
  config.pools.push_back({.name = "p", .pages = 64, .page_size = 4});
  config.rows = 4;
  config.width = 4;
  return config;
}

TEST(Recorder, LeavesOutTheLatestIncarnation) {
  LogNames* table = nullptr;
  Recorder recorder(OnePool(), {.latest = [&](NameId name) { return RequestId(name, 2); }});
  table = &recorder.names;
  const NameId name = table->Intern("R");
  recorder.writer->On(ReleaseEvent{RequestId(name, 2)});
  recorder.writer->On(ReleaseEvent{RequestId(name, 1)});
  EXPECT_EQ(recorder.Lines(),
            "{\"ev\":\"release\",\"req\":\"R\"}\n{\"ev\":\"release\",\"req\":\"R\",\"inc\":1}\n");
}

TEST(Recorder, RetireOfAllRanksIsALineEach) {
  FenceConfig config = OnePool();
  config.ranks = 2;
  Recorder recorder(config);
  recorder.writer->On(RetireEvent{StepId(3), kAllRanks});
  recorder.writer->On(RetireEvent{StepId(4), RankId(0)});
  EXPECT_EQ(recorder.Lines(),
            "{\"ev\":\"retire\",\"step\":3}\n{\"ev\":\"retire\",\"step\":4,\"rank\":0}\n");
}

TEST(Recorder, EngineKeysAreSixteenDigits) {
  Recorder recorder(OnePool());
  recorder.writer->On(UnpublishEvent{KeyId(0xFEDCBA9876543210u)});
  EXPECT_EQ(recorder.Lines(), "{\"ev\":\"unpublish\",\"key\":\"fedcba9876543210\"}\n");
}

TEST(Recorder, DenseTablesOf32BitsWithARowMapAndGivenSlots) {
  Recorder recorder(OnePool());
  std::vector<int32_t> entries = {9, 9, 9, 9, 5, 6, 0, 0};
  std::vector<int32_t> map = {0, 0, 1, 0};
  std::vector<int32_t> indptr = {0, 0, 0, 3, 3};
  std::vector<int64_t> slots = {22, 23, 24};
  std::vector<int32_t> lengths = {0, 0, 9, 0};
  PoolBuffers buffers;
  buffers.table.entries = {entries.data(), 32};
  buffers.table.entries_size = 8;
  buffers.table.stride = 4;
  buffers.table.width = 4;
  buffers.table.rows = 2;
  buffers.table.row_map = {map.data(), 32};
  buffers.slots = {{slots.data(), 64}, 3, {indptr.data(), 32}, 4};
  buffers.lengths = {{lengths.data(), 32}, 4};
  const RowPlan plan{
      .row = Row(2), .req = RequestId(recorder.names.Intern("R"), 1), .new_tokens = 3};
  StepEvent step{StepId(1), RankId(0), {&plan, 1}, {}, {}, {&buffers, 1}};
  recorder.writer->On(step);
  EXPECT_EQ(recorder.Lines(),
            R"({"ev":"step","step":1,"rows":[{"row":2,"req":"R","inc":1,"new":3,"table":[5,6],)"
            "\"len\":9,\"write\":[[22,3]]}]}\n");
  entries[5] = 7;
  recorder.writer->On(ConfirmEvent{StepId(1)}, [](Row) { return false; });
  EXPECT_EQ(recorder.Lines(),
            "{\"ev\":\"confirm\",\"step\":1,\"rows\":[{\"row\":2,\"table\":[5,7]}]}\n");
}

TEST(Recorder, ARowThatTheFenceAlteredIsNoChange) {
  Recorder recorder(OnePool());
  std::vector<int32_t> entries = {5, 6};
  std::vector<int32_t> lengths = {8};
  PoolBuffers buffers;
  buffers.table.entries = {entries.data(), 32};
  buffers.table.entries_size = buffers.table.stride = buffers.table.width = 2;
  buffers.table.rows = 1;
  buffers.lengths = {{lengths.data(), 32}, 1};
  const RowPlan plan{
      .row = Row(0), .req = RequestId(recorder.names.Intern("R"), 1), .new_tokens = 2};
  recorder.writer->On(StepEvent{StepId(1), RankId(0), {&plan, 1}, {}, {}, {&buffers, 1}});
  EXPECT_THAT(recorder.Lines(), HasSubstr(R"("len":8,"write":[[26,2]])"))
      << "slots that aren't given follow from the positions";
  entries = {0, 0};
  recorder.writer->On(ConfirmEvent{StepId(1)}, [](Row) { return true; });
  EXPECT_EQ(recorder.Lines(), "{\"ev\":\"confirm\",\"step\":1}\n");
}

TEST(Recorder, CsrTablesSayTheirLength) {
  Recorder recorder(OnePool());
  std::vector<int32_t> indptr = {0, 1, 3}, entries = {4, 8, 9}, last = {2, 3};
  PoolBuffers buffers;
  buffers.table.layout = TableLayout::kCsr;
  buffers.table.entries = {entries.data(), 32};
  buffers.table.entries_size = 3;
  buffers.table.rows = 2;
  buffers.table.indptr = {indptr.data(), 32};
  buffers.table.last_page_len = {last.data(), 32};
  const RowPlan plan{
      .row = Row(1), .req = RequestId(recorder.names.Intern("R"), 1), .new_tokens = 1};
  recorder.writer->On(StepEvent{StepId(1), RankId(0), {&plan, 1}, {}, {}, {&buffers, 1}});
  EXPECT_THAT(recorder.Lines(), HasSubstr(R"("table":[8,9],"len":7,"write":[38])"));
}

TEST(Recorder, SlotTablesAndPackedEntriesBecomePages) {
  Recorder recorder(OnePool());
  // Slots of pages 5, 6 and, wrongly, of page 9 in the middle of the third.
  std::vector<int64_t> entries = {20, 21, 22, 23, 24, 25, 26, 27, 28, 36, 30, 31};
  std::vector<int32_t> lengths = {12};
  PoolBuffers buffers;
  buffers.table.entries = {entries.data(), 64};
  buffers.table.entries_size = buffers.table.stride = buffers.table.width = 12;
  buffers.table.rows = 1;
  buffers.table.entries_per_page = 4;
  buffers.lengths = {{lengths.data(), 32}, 1};
  const RowPlan plan{.row = Row(0), .req = RequestId(recorder.names.Intern("R"), 1)};
  recorder.writer->On(StepEvent{StepId(1), RankId(0), {&plan, 1}, {}, {}, {&buffers, 1}});
  EXPECT_THAT(recorder.Lines(), HasSubstr(R"("table":[5,6,9],)"));
  std::vector<int32_t> packed = {static_cast<int32_t>(0x40000000 | 6), -1, 10};
  buffers.table.entries = {packed.data(), 32};
  buffers.table.entries_size = buffers.table.stride = buffers.table.width = 3;
  buffers.table.entries_per_page = 1;
  buffers.table.mask = 0x3FFFFFFF;
  buffers.table.divisor = 2;
  recorder.writer->On(StepEvent{StepId(2), RankId(0), {&plan, 1}, {}, {}, {&buffers, 1}});
  EXPECT_THAT(recorder.Lines(), HasSubstr(R"("table":[3,-1,5],)"));
}

// --- files
// -------------------------------------------------------------------------------------------

TEST(EventLogWriter, AFileHasItsNameOnlyWhenItIsWhole) {
  const std::string path = testing::TempDir() + "kvfence_writer_test.kvlog";
  std::filesystem::remove(path);
  LogNames names;
  {
    auto writer = EventLogWriter::Open(path, OnePool(), &names);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    writer.value()->On(AuditEvent{});
    ASSERT_TRUE(writer.value()->Flush().ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(std::filesystem::exists(path + ".part"));
    ASSERT_TRUE(writer.value()->Close().ok());
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  auto reader = EventLogReader::Open(path);
  ASSERT_TRUE(reader.ok());
  LogRecord record;
  EXPECT_TRUE(reader.value()->Next(&names, &record).value());
  EXPECT_FALSE(reader.value()->Next(&names, &record).value());
  EXPECT_EQ(reader.value()->Where(), path + ":3");
  std::filesystem::remove(path);
}

TEST(EventLogWriter, AFullDiskSurfaces) {
  LogNames names;
  std::ofstream full("/dev/full");
  if (!full) GTEST_SKIP() << "no /dev/full here";
  auto writer = EventLogWriter::ToStream(&full, OnePool(), &names);
  ASSERT_TRUE(writer.ok());
  for (int i = 0; i < 100000; ++i) writer.value()->On(AuditEvent{});
  EXPECT_EQ(writer.value()->status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(writer.value()->Close().message(), HasSubstr("cannot write"));
  EXPECT_FALSE(EventLogWriter::Open("/nonexistent/x.kvlog", OnePool(), &names).ok());
}

TEST(EventLogWriter, BytesThatAreNoUtf8StayApartAndReadable) {
  Recorder recorder(OnePool());
  recorder.writer->On(AdmitEvent{recorder.names.Intern("a\xff")});
  recorder.writer->On(AdmitEvent{recorder.names.Intern("a\xfe")});
  EXPECT_EQ(recorder.Lines(),
            "{\"ev\":\"admit\",\"req\":\"a\\u00ff\"}\n{\"ev\":\"admit\",\"req\":\"a\\u00fe\"}\n");
}

}  // namespace
}  // namespace kvfence
