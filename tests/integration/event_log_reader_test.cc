// The log's reader: what a line means, and the exact words with which a bad one is refused.
#include "kvfence/event_log_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "kvfence/rng.h"

namespace kvfence {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kHeader =
    R"({"kvfence_log":1,"pools":[{"name":"full","pages":64,"page_size":16},)"
    R"({"name":"swa","pages":32,"page_size":4,"window":8,"width":6}],"rows":4,"width":8,)"
    R"("ranks":2,"frees":"explicit"})";
constexpr const char* kSmall =
    R"({"kvfence_log":1,"pools":[{"name":"p","pages":8,"page_size":4}],"rows":2,"width":3})";

struct Played {
  std::vector<LogRecord> records;  // without their views
  std::string error;
  bool cut_off = false;
};

Played ReadAll(const std::string& text, LogNames* names, uint64_t max_line = kMaxLogLine) {
  Played played;
  std::istringstream in(text);
  auto reader = EventLogReader::FromStream(&in, "x.kvlog", {.more = {}, .max_line = max_line});
  if (!reader.ok()) {
    played.error = reader.status().message();
    return played;
  }
  for (;;) {
    LogRecord record;
    auto more = reader.value()->Next(names, &record);
    if (!more.ok()) {
      played.error = more.status().message();
      played.cut_off = reader.value()->cut_off();
      const auto again = reader.value()->Next(names, &record);
      EXPECT_EQ(again.status().message(), played.error);
    }
    if (!more.ok() || !more.value()) return played;
    played.records.push_back(record);
  }
}

std::string ErrorOf(const std::string& line, const char* header = kHeader) {
  LogNames names;
  return ReadAll(std::string(header) + "\n" + line + "\n", &names).error;
}

template <class E, class Check>
void ReadOne(const std::string& line, Check check, const char* header = kHeader) {
  LogNames names;
  std::istringstream in(std::string(header) + "\n" + line + "\n");
  auto reader = EventLogReader::FromStream(&in, "x.kvlog");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  LogRecord record;
  const auto more = reader.value()->Next(&names, &record);
  ASSERT_TRUE(more.ok()) << more.status().message();
  ASSERT_TRUE(std::holds_alternative<E>(record.event));
  EXPECT_EQ(record.line, 2u);
  check(std::get<E>(record.event), names);
}

TEST(EventLogReader, HeaderBecomesAConfig) {
  std::istringstream in(
      R"({"kvfence_log":1,"pools":[{"name":"a","pages":9,"page_size":2,"scales":true,)"
      R"("null_page":8,"skip_slot":-7,"entries":"slots","kind":"cross","space":"s",)"
      R"("interleave":[2,4],"base":65536,"page_bytes":128,"index_bits":31}],"rows":3,"width":5,)"
      R"("reuse":"stream","same_step_reads":true,"level":"audit","about":"x"})");
  auto reader = EventLogReader::FromStream(&in, "x");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const FenceConfig& config = reader.value()->config();
  ASSERT_EQ(config.pools.size(), 1u);
  const PoolConfig& pool = config.pools[0];
  EXPECT_EQ(pool.name, "a");
  EXPECT_EQ(pool.pages, 9u);
  EXPECT_EQ(pool.page_size, 2u);
  EXPECT_TRUE(pool.scales);
  EXPECT_EQ(pool.null_page, 8u);
  EXPECT_EQ(pool.skip_slot, -7);
  EXPECT_TRUE(pool.slot_entries);
  EXPECT_EQ(pool.kind, PoolKind::kCross);
  EXPECT_EQ(pool.space, "s");
  EXPECT_EQ(pool.interleave_ranks, 2u);
  EXPECT_EQ(pool.interleave_stride, 4u);
  EXPECT_EQ(pool.base, 65536u);
  EXPECT_EQ(pool.page_bytes, 128u);
  EXPECT_EQ(pool.index_bits, 31u);
  EXPECT_EQ(config.rows, 3u);
  EXPECT_EQ(config.width, 5u);
  EXPECT_EQ(config.ranks, 1u);
  EXPECT_EQ(config.frees, Frees::kImplicit);
  EXPECT_EQ(config.reuse, Reuse::kStream);
  EXPECT_TRUE(config.same_step_reads);
  EXPECT_EQ(config.level, Level::kAudit);
  EXPECT_EQ(config.about, "x");
}

TEST(EventLogReader, OwnershipEvents) {
  ReadOne<AllocEvent>(
      R"({"ev":"alloc","req":"R","inc":2,"pages":[1,-2,900],"at":3,"pool":"swa","rank":1})",
      [](const AllocEvent& e, const LogNames& names) {
        EXPECT_EQ(names.NameOf(e.req.name()), "R");
        EXPECT_EQ(e.req.incarnation(), 2u);
        EXPECT_THAT(e.pages, ElementsAre(PageId(1), PageId(-2), PageId(900)));
        EXPECT_EQ(e.at, 3u);
        EXPECT_EQ(e.pool, PoolId(1));
        EXPECT_EQ(e.rank, RankId(1));
      });
  ReadOne<ShareEvent>(
      R"({"tokens":16,"keys":["K","L"],"req":"R","digests":["d",null],"pages":[5,6],"ev":"share"})",
      [](const ShareEvent& e, const LogNames& names) {
        EXPECT_EQ(e.req.incarnation(), 0u);
        EXPECT_EQ(e.tokens, 16u);
        ASSERT_EQ(e.keys.size(), 2u);
        EXPECT_EQ(names.KeyNameOf(e.keys[1]), "L");
        EXPECT_EQ(names.NameOf(e.digests[0]), "d");
        EXPECT_EQ(e.digests[1], NameId{});
        EXPECT_FALSE(e.at);
        EXPECT_EQ(e.rank, kAllRanks);
      });
  ReadOne<AdmitEvent>(R"({"ev":"admit","req":"R","identity":{"salt":"s","adapter":"a"}})",
                      [](const AdmitEvent& e, const LogNames& names) {
                        EXPECT_EQ(names.FieldsOf(e.identity).size(), 2u);
                      });
  ReadOne<BindRowEvent>(R"({"ev":"row","row":3,"req":null})",
                        [](const BindRowEvent& e, const LogNames&) {
                          EXPECT_EQ(e.row, Row(3));
                          EXPECT_FALSE(e.req);
                        });
  ReadOne<PublishEvent>(R"({"ev":"publish","key":"K","page":4,"from_key":"J"})",
                        [](const PublishEvent& e, const LogNames& names) {
                          EXPECT_EQ(e.page, PageId(4));
                          EXPECT_EQ(names.KeyNameOf(*e.from_key), "J");
                          EXPECT_FALSE(e.req);
                        });
}

TEST(EventLogReader, ContentEvents) {
  ReadOne<WriteEvent>(
      R"({"ev":"write","page":2,"first":1,"n":3,"as":{"req":"A","at":0,"inc":1},"xfer":"t",)"
      R"("sum":"9"})",
      [](const WriteEvent& e, const LogNames& names) {
        EXPECT_EQ(names.NameOf(e.as.req.name()), "A");
        EXPECT_EQ(e.as.req.incarnation(), 1u);
        EXPECT_EQ(e.as.at, 0u);
        EXPECT_EQ(names.NameOf(e.xfer), "t");
        EXPECT_EQ(names.NameOf(e.sum), "9");
      });
  ReadOne<WriteEvent>(
      R"({"ev":"write","page":2,"first":1,"n":3,"as":null})",
      [](const WriteEvent& e, const LogNames&) { EXPECT_FALSE(e.as.req || e.as.key || e.as.at); });
  ReadOne<RetireEvent>(R"({"ev":"retire","step":7})", [](const RetireEvent& e, const LogNames&) {
    EXPECT_EQ(e.rank, kAllRanks) << "the host settles a step on all ranks at once";
  });
}

TEST(EventLogReader, StepsCarryTheirArrays) {
  ReadOne<LogStep>(
      R"({"ev":"step","step":4,"rank":1,"rows":[{"row":1,"req":"R","new":3,"base":9,"draft":1,)"
      R"("tables":{"full":[1,2],"swa":[]},"len":-5,"writes":{"full":[7,[16,2],[-1,3]]},)"
      R"("reach":6,"table_epoch":3,"loads":["t"],"scales":false},)"
      R"({"row":0,"req":"S","new":1,"patch":{"swa":[[5,3]]},"table":[4],"len":1,"write":[]}],)"
      R"("pads":[{"row":3,"table":[0],"len":0,"write":[]}],"prefix":{"rows":[0,1],"table":[1]}})",
      [](const LogStep& e, const LogNames&) {
        EXPECT_EQ(e.step, StepId(4));
        EXPECT_EQ(e.rank, RankId(1));
        ASSERT_EQ(e.rows.size(), 2u);
        const LogRow& row = e.rows[0];
        EXPECT_EQ(row.plan.base, 9u);
        EXPECT_EQ(row.plan.draft, 1u);
        EXPECT_EQ(row.plan.reach, 6u);
        EXPECT_EQ(row.plan.table_epoch, StepId(3));
        EXPECT_EQ(row.plan.loads.size(), 1u);
        EXPECT_FALSE(row.plan.scales);
        EXPECT_EQ(row.len, -5);
        ASSERT_EQ(row.tables.size(), 2u);
        EXPECT_THAT(row.tables[0].entries, ElementsAre(1, 2));
        EXPECT_THAT(row.writes[0].runs, ElementsAre(SlotRun{7, 1}, SlotRun{16, 2}, SlotRun{-1, 3}));
        ASSERT_EQ(e.rows[1].tables.size(), 2u);
        EXPECT_TRUE(e.rows[1].tables[1].is_patch || e.rows[1].tables[0].is_patch);
        EXPECT_EQ(e.pads.size(), 1u);
        EXPECT_EQ(e.prefix.size(), 1u);
      });
}

TEST(EventLogReader, AnAbsurdRunStaysARun) {
  ReadOne<LogStep>(R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":1,"table":[],"len":1,)"
                   R"("write":[[0,18446744073709551615]]}]})",
                   [](const LogStep& e, const LogNames&) {
                     EXPECT_EQ(e.rows[0].writes[0].runs[0].n, UINT64_MAX);
                   },
                   kSmall);
}

constexpr std::pair<const char*, const char*> kBadLines[] = {
    {R"({"ev":"frob"})",
     "x.kvlog:2:7: expected a verb (alloc, share, release, admit, free, drop, "
     "trim, cow, fork, publish, unpublish, row, pin, unpin, ready, write, "
     "read, scale, rescale, copy, audit, step, confirm, retire, expect), "
     "found \"frob\""},
    {R"({"req":"R"})", "x.kvlog:2:11: expected \"ev\""},
    {R"({})", "x.kvlog:2:2: expected \"ev\""},
    {R"([1])", "x.kvlog:2:1: expected an object, found an array"},
    {R"({"ev":1})", "x.kvlog:2:7: expected a verb, found a number"},
    {R"({"ev":"release","req":"R","colour":1})",
     "x.kvlog:2:27: expected a key of \"release\" (req, inc, rank), found \"colour\""},
    {R"({"ev":"release","req":"R","req":"S"})", "x.kvlog:2:27: expected \"req\" once"},
    {R"({"ev":"release","ev":"release","req":"R"})", "x.kvlog:2:17: expected \"ev\" once"},
    {R"({"req":"R","ev":"release","ev":"release"})", "x.kvlog:2:27: expected \"ev\" once"},
    {R"({"ev":"release"})", "x.kvlog:2:16: expected \"req\" in \"release\""},
    {R"({"ev":"release","req":7})", "x.kvlog:2:23: expected a string, found a number"},
    {R"({"ev":"release","req":""})", "x.kvlog:2:23: expected a string that isn't empty"},
    {R"({"ev":"release","req":"R"} x)", "x.kvlog:2:28: expected the end of the line, found 'x'"},
    {R"({"ev":"release","req":"R",})", "x.kvlog:2:27: expected a key, found '}'"},
    {R"({"ev":"release" "req":"R"})", "x.kvlog:2:17: expected ',' or '}', found a string"},
    {R"({"ev":"release","req":"R","inc":0})",
     "x.kvlog:2:33: expected an incarnation of at least 1, found 0"},
    {R"({"ev":"publish","key":"K","inc":1,"page":1,"from_key":"J"})",
     "x.kvlog:2:58: expected \"req\" in \"publish\""},
    {R"({"ev":"release","req":"R","rank":2})", "x.kvlog:2:34: expected a rank below 2, found 2"},
    {R"({"ev":"alloc","req":"R","pages":[1,2.5]})",
     "x.kvlog:2:36: expected a page, found a number with a fraction or exponent"},
    {R"({"ev":"alloc","req":"R","pages":[1e3]})",
     "x.kvlog:2:34: expected a page, found a number with a fraction or exponent"},
    {R"({"ev":"alloc","req":"R","pages":[9223372036854775808]})",
     "x.kvlog:2:34: expected a page, found a number beyond 64 bits"},
    {R"({"ev":"alloc","req":"R","pages":[007]})",
     "x.kvlog:2:34: expected a page, found a number with a leading zero"},
    {R"({"ev":"alloc","req":"R","pages":7})",
     "x.kvlog:2:33: expected an array of pages, found a number"},
    {R"({"ev":"alloc","req":"R","pages":["7"]})", "x.kvlog:2:34: expected a page, found a string"},
    {R"({"ev":"alloc","req":"R","pages":[[[[[7]]]]]})",
     "x.kvlog:2:34: expected a page, found an array"},
    {R"({"ev":"alloc","req":"R","pages":[1],"at":-1})",
     "x.kvlog:2:42: expected a count, found a negative number"},
    {R"({"ev":"alloc","req":"R","pages":[1],"pool":"big"})",
     "x.kvlog:2:44: expected the name of a pool, found \"big\""},
    {R"({"ev":"row","row":4,"req":"R"})", "x.kvlog:2:19: expected a row below 4, found 4"},
    {R"({"ev":"row","row":1})", "x.kvlog:2:20: expected \"req\" in \"row\""},
    {R"({"ev":"unpin","id":"t","ok":"yes"})",
     "x.kvlog:2:29: expected true or false, found a string"},
    {R"({"ev":"pin","id":"t","dir":"up","pages":[]})",
     "x.kvlog:2:28: expected \"in\" or \"out\", found \"up\""},
    {R"({"ev":"share","req":"R","pages":[1,2],"tokens":16,"keys":["K"]})",
     "x.kvlog:2:63: expected as many keys as pages"},
    {R"({"ev":"share","req":"R","pages":[1],"tokens":16,"digests":["K","L"]})",
     "x.kvlog:2:68: expected as many digests as pages"},
    {R"({"ev":"publish","key":"K"})",
     "x.kvlog:2:26: expected req and at, or page and from_key, in \"publish\""},
    {R"({"ev":"publish","key":"K","req":"R"})", "x.kvlog:2:36: expected \"at\" in \"publish\""},
    {R"({"ev":"publish","key":"K","req":"R","at":0,"page":1})",
     "x.kvlog:2:52: expected req and at, or page and from_key, in \"publish\""},
    {R"({"ev":"write","page":1,"first":0,"n":1})", "x.kvlog:2:39: expected \"as\" in \"write\""},
    {R"({"ev":"write","page":1,"first":0,"n":1,"as":{"req":"R"}})",
     "x.kvlog:2:45: expected req and at, or key, or null"},
    {R"({"ev":"admit","req":"R","identity":{"a":1}})",
     "x.kvlog:2:41: expected a string, found a number"},
    {R"({"ev":"admit","req":"R","identity":{"a":"1","a":"2"}})",
     "x.kvlog:2:45: expected \"a\" once"},
    {R"({"ev":"expect","reason":"bad_luck"})",
     "x.kvlog:2:25: expected a reason, found \"bad_luck\""},
    {R"({"ev":"expect"})", "x.kvlog:2:15: expected \"reason\" or \"clean\" in \"expect\""},
    {R"({"ev":"expect","clean":false})", "x.kvlog:2:24: expected true, found false"},
    {R"({"ev":"expect","clean":true,"row":1})",
     "x.kvlog:2:36: expected no other key beside \"clean\""},
    {"{\"ev\":\"release\",\"req\":\"a\tb\"}",
     "x.kvlog:2:25: expected no control character in a string, found byte 0x09"},
    {"{\"ev\":\"release\",\"req\":\"a\xff\"}", "x.kvlog:2:25: expected UTF-8, found byte 0xff"},
    {"{\"ev\":\"release\",\"req\":\"\xc0\xaf\"}", "x.kvlog:2:24: expected UTF-8, found byte 0xc0"},
    {R"({"ev":"release","req":"\q"})", "x.kvlog:2:24: expected an escape of JSON"},
    {R"({"ev":"release","req":"\ud800x"})", "x.kvlog:2:30: expected a low surrogate"},
};

TEST(EventLogReader, RefusesBadLinesWithPlaceAndExpectation) {
  for (const auto& [line, error] : kBadLines) EXPECT_EQ(ErrorOf(line), error) << line;
}

TEST(EventLogReader, RefusesBadSteps) {
  const auto row = [](const std::string& rest) {
    return R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":1,)" + rest + "}]}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {row(R"("table":[1,2,3,4],"len":1,"write":[])"),
       "x.kvlog:2:66: expected a table of at most 3 entries, found 4"},
      {row(R"("patch":[[3,1]],"len":1,"write":[])"),
       "x.kvlog:2:68: expected an index below 3, found 3"},
      {row(R"("patch":[[1]],"len":1,"write":[])"), "x.kvlog:2:67: expected [index, page]"},
      {row(R"("table":[],"patch":[],"len":1,"write":[])"),
       "x.kvlog:2:69: expected the first pool once"},
      {row(R"("len":1,"write":[])"), "x.kvlog:2:76: expected \"table\" or \"tables\" in a row"},
      {row(R"("table":[],"len":1)"), "x.kvlog:2:76: expected \"write\" or \"writes\" in a row"},
      {row(R"("table":[],"len":1,"write":[[1,2,3]])"), "x.kvlog:2:86: expected [first, n]"},
      {row(R"("table":[],"len":1,"write":[[1,-2]])"),
       "x.kvlog:2:89: expected a count, found a negative number"},
      {row(R"("table":[],"len":1.5,"write":[])"),
       "x.kvlog:2:75: expected an integer, found a number with a fraction or exponent"},
      {row(R"("tables":{"q":[]},"len":1,"write":[])"),
       "x.kvlog:2:68: expected the name of a pool, found \"q\""},
      {row(R"("tables":{"p":[],"p":[]},"len":1,"write":[])"),
       "x.kvlog:2:75: expected pool \"p\" once"},
      {R"({"ev":"step","step":1,"rows":[{"row":0,"req":"R","new":-1,"table":[],"len":1,)"
       R"("write":[]}]})",
       "x.kvlog:2:56: expected a count, found a negative number"},
      {R"({"ev":"step","step":1,"rows":[{"row":2,"req":"R","new":1,"table":[],"len":1,)"
       R"("write":[]}]})",
       "x.kvlog:2:38: expected a row below 2, found 2"},
      {R"({"ev":"step","step":1,"rows":[],"pads":[{"row":1,"table":[],"len":0,"write":[]},)"
       R"({"row":1,"table":[],"len":0,"write":[]}]})",
       "x.kvlog:2:81: expected each row once, found row 1 again"},
      {R"({"ev":"step","step":1,"rows":[],"prefix":{"rows":[0],"table":[1,2,3,4]}})",
       "x.kvlog:2:42: expected a table of at most 3 entries, found 4"},
      {R"({"ev":"step","rows":[]})", "x.kvlog:2:23: expected \"step\" in \"step\""},
      {R"({"ev":"confirm","step":1,"rows":[{"row":0,"patch":[]}]})",
       "x.kvlog:2:43: expected a key of a row of \"confirm\" (row, table, tables), found "
       "\"patch\""},
      {R"({"ev":"free","pages":[1]})",
       "x.kvlog:2:25: expected no \"free\" in a log whose frees are implicit"},
  };
  for (const auto& [line, error] : cases) EXPECT_EQ(ErrorOf(line, kSmall), error) << line;
}

TEST(EventLogReader, RefusesBadHeaders) {
  const auto error = [](const std::string& text) {
    LogNames names;
    return ReadAll(text, &names).error;
  };
  EXPECT_EQ(error(""), "x.kvlog:1:1: expected the header of a log, found an empty file");
  EXPECT_EQ(error("hello\n"), "x.kvlog:1:1: expected the header, an object, found 'h'");
  EXPECT_EQ(error("\xef\xbb\xbf{}\n"),
            "x.kvlog:1:1: expected the header, an object, found byte 0xef");
  EXPECT_EQ(error(R"({"kvfence_log":2})"), "x.kvlog:1:16: expected format version 1, found 2");
  EXPECT_EQ(error("{\"pools\":[]}\n"), "x.kvlog:1:11: expected at least one pool");
  EXPECT_EQ(error(R"({"pools":[{"name":"p","pages":1,"page_size":1}],"rows":1,"width":1})"),
            "x.kvlog:1:67: expected \"kvfence_log\" in the header");
  EXPECT_EQ(error(R"({"kvfence_log":1,"pools":[{"name":"p","pages":0,"page_size":1}]})"),
            "x.kvlog:1:47: expected a count of at least 1, found 0");
  EXPECT_EQ(error(R"({"kvfence_log":1,"pools":[{"name":"p","pages":4294967296,"page_size":1}]})"),
            "x.kvlog:1:47: expected a count of at most 2147483647, found 4294967296");
  EXPECT_EQ(
      error(R"({"kvfence_log":1,"pools":[{"name":"p","pages":2,"page_size":1,"null_page":2}]})"),
      "x.kvlog:1:27: expected a pool that has its null page");
  EXPECT_EQ(error(R"({"kvfence_log":1,"pools":[{"name":"p","pages":2,"page_size":1},{"name":"p",)"
                  R"("pages":2,"page_size":1}]})"),
            "x.kvlog:1:64: expected pool \"p\" once");
  EXPECT_EQ(
      error(R"({"kvfence_log":1,"pools":[{"name":"p","pages":2,"page_size":1,"interleave":[2]}]})"),
      "x.kvlog:1:76: expected [ranks, stride]");
  EXPECT_EQ(error(R"({"kvfence_log":1,"level":"off"})"),
            "x.kvlog:1:26: expected \"map\", \"full\" or \"audit\", found \"off\"");
  EXPECT_THAT(error(R"({"kvfence_log":1,"row":1})"),
              HasSubstr("x.kvlog:1:18: expected a key of the header (kvfence_log, pools, rows, "));
}

TEST(EventLogReader, DeliversEverythingBeforeTheCut) {
  const std::string whole = std::string(kHeader) + "\n{\"ev\":\"admit\",\"req\":\"R\"}\n";
  const std::string last = R"({"ev":"alloc","req":"R","pages":[1,2],"at":0})";
  for (size_t kept = 1; kept < last.size(); ++kept) {
    LogNames names;
    const Played played = ReadAll(whole + last.substr(0, kept), &names);
    EXPECT_EQ(played.records.size(), 1u);
    EXPECT_TRUE(played.cut_off) << kept << ' ' << played.error;
    EXPECT_THAT(played.error, HasSubstr("x.kvlog:3:" + std::to_string(kept + 1) + ": expected "));
    EXPECT_THAT(played.error, HasSubstr("; the log is cut off here"));
  }
  LogNames names;
  const Played played = ReadAll(whole + last, &names);
  EXPECT_EQ(played.error, "");
  EXPECT_EQ(played.records.size(), 2u) << "a whole last line needs no newline";
}

TEST(EventLogReader, ABadLineIsNoCut) {
  LogNames names;
  const Played played = ReadAll(std::string(kHeader) + "\n{\"ev\":\"frob\"", &names);
  EXPECT_FALSE(played.cut_off);
  EXPECT_THAT(played.error, HasSubstr("found \"frob\""));
}

TEST(EventLogReader, NulBytesAreRefused) {
  LogNames names;
  std::string line = R"({"ev":"release","req":"R"})";
  line[1] = '\0';
  EXPECT_EQ(ErrorOf(line), "x.kvlog:2:2: expected a key, found byte 0x00");
  EXPECT_EQ(ErrorOf(std::string(8, '\0')), "x.kvlog:2:1: expected an object, found byte 0x00");
}

TEST(EventLogReader, BlankLinesAndCarriageReturnsAreNothing) {
  LogNames names;
  const Played played =
      ReadAll(std::string(kHeader) + "\r\n\n  \n{\"ev\":\"admit\",\"req\":\"R\"}\r\n\n", &names);
  EXPECT_EQ(played.error, "");
  ASSERT_EQ(played.records.size(), 1u);
  EXPECT_EQ(played.records[0].line, 4u);
}

TEST(EventLogReader, LongLinesHaveALimit) {
  LogNames names;
  std::string pages = "1";
  for (int i = 0; i < 100000; ++i) pages += ",1";
  const std::string line = R"({"ev":"alloc","req":"R","pages":[)" + pages + "]}";
  EXPECT_EQ(ErrorOf(line), "");
  const std::string text = std::string(kHeader) + "\n" + line + "\n";
  EXPECT_EQ(ReadAll(text, &names, 1000).error,
            "x.kvlog:2:1001: expected a line of at most 1000 bytes");
  EXPECT_EQ(ReadAll(text, &names, line.size()).error, "");
  const std::string endless = std::string(kHeader) + "\n" + std::string(300000, ' ');
  EXPECT_EQ(ReadAll(endless, &names, 1000).error,
            "x.kvlog:2:1001: expected a line of at most 1000 bytes");
}

TEST(EventLogReader, FollowsALogThatIsStillWritten) {
  LogNames names;
  std::stringstream in;
  in << kHeader << "\n{\"ev\":\"adm";
  int asked = 0;
  auto reader = EventLogReader::FromStream(&in, "x", {.more = [&] {
    if (++asked == 1) {
      in.clear();
      in << "it\",\"req\":\"R\"}\n";
      return true;
    }
    return false;
  }});
  ASSERT_TRUE(reader.ok());
  LogRecord record;
  auto more = reader.value()->Next(&names, &record);
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_TRUE(more.value());
  more = reader.value()->Next(&names, &record);
  ASSERT_TRUE(more.ok());
  EXPECT_FALSE(more.value());
}

TEST(EventLogReader, MissingFilesAndDirectoriesAreErrors) {
  const auto absent = EventLogReader::Open("/nonexistent/x.kvlog");
  EXPECT_EQ(absent.status().code(), StatusCode::kUnavailable);
  const auto folder = EventLogReader::Open("/");
  EXPECT_FALSE(folder.ok());
}

// Whatever the bytes: records, then the end or one error with a place in the text.
TEST(EventLogReader, AnyBytesGiveRecordsOrOneError) {
  const std::string lines[] = {
      kHeader,
      R"({"ev":"alloc","req":"R","pages":[1,2],"at":0,"pool":"swa"})",
      R"({"ev":"step","step":4,"rows":[{"row":1,"req":"R","new":3,"tables":{"full":[1]},)"
      R"("len":5,"write":[7,[16,2]]}]})",
      R"({"ev":"expect","reason":"in_flight","page":2})",
      R"({"ev":"write","page":2,"first":1,"n":3,"as":{"key":"K"}})",
  };
  Rng rng(7);
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = lines[0];
    for (uint64_t i = rng.Below(4); i > 0; --i) text += "\n" + lines[rng.Below(5)];
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      const uint64_t at = rng.Below(text.size());
      switch (rng.Below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          text.erase(at, rng.Below(9));
          break;
        case 2: {
          const uint64_t from = rng.Below(text.size());
          text.insert(at, text.substr(from, rng.Below(20)));
          break;
        }
        default:
          text[at] = "[]{},:\"0-\\\n"[rng.Below(11)];
          break;
      }
      if (text.empty()) text = "x";
    }
    LogNames names;
    const Played played = ReadAll(text, &names);
    if (played.error.empty()) continue;
    ++errors;
    EXPECT_TRUE(played.error.starts_with("x.kvlog:")) << played.error;
    EXPECT_EQ(played.error.find('\n'), std::string::npos);
    EXPECT_THAT(played.error, HasSubstr(": expected "));
  }
  EXPECT_GT(errors, 5000);
}

}  // namespace
}  // namespace kvfence
