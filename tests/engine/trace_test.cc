// The trace reader names file, line and fault; the generator gives what the reader would accept.
#include "kvfence/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace kvfence {
namespace {

using testing::HasSubstr;

constexpr char kGood[] =
    R"({"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]})";

std::string Refusal(const std::string& text) {
  std::istringstream in(text);
  Result<std::vector<TraceRequest>> trace = ReadTrace(in, "t.jsonl");
  return trace.ok() ? "accepted" : trace.status().message();
}

TEST(ReadTrace, ReadsTheFormat) {
  std::istringstream in(std::string(kGood) + "\n" + kGood + "\n");
  Result<std::vector<TraceRequest>> trace = ReadTrace(in, "t.jsonl");
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[1].timestamp_ms, 5u);
  EXPECT_EQ((*trace)[1].input_length, 600u);
  EXPECT_EQ((*trace)[1].output_length, 3u);
  EXPECT_EQ((*trace)[1].hash_ids, (std::vector<uint64_t>{1, 2}));
}

TEST(ReadTrace, NamesFileLineAndFault) {
  const std::string good = std::string(kGood) + "\n";
  EXPECT_THAT(Refusal(good + "{\"timestamp\": 1,\n" + good), HasSubstr("t.jsonl:2: not a JSON"));
  EXPECT_THAT(Refusal(good + "{\"timestamp\": 1"),
              HasSubstr("t.jsonl:2: the last line is cut off"));
  EXPECT_THAT(Refusal(good + "\n" + good), HasSubstr("t.jsonl:2: not a JSON"));
  EXPECT_THAT(Refusal("[1,2]\n"), HasSubstr("t.jsonl:1: expected an object"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":-4,"output_length":1,"hash_ids":[1]})"),
              HasSubstr("t.jsonl:1: input_length is negative"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":4,"hash_ids":[1]})"),
              HasSubstr("field 'output_length' is missing"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":4,"output_length":1})"),
              HasSubstr("field 'hash_ids' is missing"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":513,"output_length":1,"hash_ids":[1]})"),
              HasSubstr("hash_ids has 1 ids, but input_length needs 2"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":0,"output_length":1,"hash_ids":[]})"),
              HasSubstr("input_length must be 1 to"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":1e3,"output_length":1,"hash_ids":[1]})"),
              HasSubstr("input_length must be an integer"));
  EXPECT_THAT(Refusal(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":["a"]})"),
              HasSubstr("hash_ids must be an integer"));
  EXPECT_THAT(
      Refusal(
          R"({"timestamp":1,"input_length":99999999999999999999,"output_length":1,"hash_ids":[1]})"),
      HasSubstr("input_length must be an integer"));
  EXPECT_THAT(Refusal(std::string("\0\0\0", 3)), HasSubstr("t.jsonl:1:"));
  EXPECT_THAT(Refusal(""), HasSubstr("holds no request"));
  EXPECT_THAT(ReadTrace("/nowhere/t.jsonl").status().message(), HasSubstr("cannot be opened"));
}

TEST(GenerateTrace, IsSeededAndOfTheShape) {
  TraceShape shape;
  shape.requests = 500;
  const std::vector<TraceRequest> a = GenerateTrace(shape);
  const std::vector<TraceRequest> b = GenerateTrace(shape);
  ASSERT_EQ(a.size(), 500u);
  std::set<uint64_t> seen;
  uint64_t blocks = 0, repeated = 0;
  uint64_t below = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].hash_ids, b[i].hash_ids);
    EXPECT_EQ(a[i].output_length, b[i].output_length);
    EXPECT_EQ(a[i].hash_ids.size(), (a[i].input_length + kTraceBlock - 1) / kTraceBlock);
    EXPECT_LE(a[i].input_length, shape.largest_input);
    EXPECT_LE(a[i].output_length, shape.largest_output);
    if (a[i].output_length <= shape.median_output) ++below;
    for (const uint64_t id : a[i].hash_ids) {
      ++blocks;
      if (!seen.insert(id).second) ++repeated;
    }
  }
  EXPECT_GT(repeated * 10, blocks * 3) << "prefixes are shared";
  EXPECT_GT(repeated, 0u);
  EXPECT_LT(repeated * 10, blocks * 9);
  EXPECT_NEAR(static_cast<double>(below), 250, 60);
  shape.seed = 2;
  EXPECT_NE(GenerateTrace(shape)[3].input_length, a[3].input_length);
}

TEST(PromptTokens, EqualIdsAreEqualTokens) {
  const TraceRequest a{.input_length = 700, .output_length = 1, .hash_ids = {9, 4}};
  const TraceRequest b{.input_length = 520, .output_length = 1, .hash_ids = {9, 5}};
  const std::vector<uint32_t> ta = PromptTokens(a), tb = PromptTokens(b);
  ASSERT_EQ(ta.size(), 700u);
  ASSERT_EQ(tb.size(), 520u);
  EXPECT_TRUE(std::equal(ta.begin(), ta.begin() + 512, tb.begin()));
  EXPECT_NE(ta[512], tb[512]);
}

}  // namespace
}  // namespace kvfence
