// `kvfence run` as a user meets it: reports, interruptions, broken input, metrics.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "kvfence/rng.h"
#include "tests/tools/html_check.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Two kinds, few requests: well under a second.
std::vector<std::string> Small(const std::string& out, std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"run", "--seed=7", "--requests=32", "--faults=row_tail,row_swap",
                                  "--out=" + out};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// More work than anyone waits for.
std::vector<std::string> Endless(const std::string& out, std::vector<std::string> more = {}) {
  more.push_back("--requests=50000");
  return Small(out, std::move(more));
}

// As bytes, without what a clock measured.
std::string WithoutTimes(const std::string& text) {
  auto report = nlohmann::ordered_json::parse(text);
  report.erase("seconds");
  return report.dump(2);
}

TEST(RunVerb, SameFlagsGiveTheSameBytesButForSeconds) {  // I-20
  const Scratch scratch;
  const Ran first = RunTool(Small(scratch.Path("a"), {"--json"}));
  const Ran second = RunTool(Small(scratch.Path("b"), {"--json"}));
  ASSERT_EQ(first.code, kExitClean) << first.err;
  ASSERT_EQ(second.code, kExitClean) << second.err;
  EXPECT_EQ(WithoutTimes(first.out), WithoutTimes(second.out));
  EXPECT_EQ(ReadAll(scratch.Path("a/report.json")), first.out);
  EXPECT_THAT(first.err, HasSubstr("kvfence run --seed=7 --requests=32"));
  EXPECT_THAT(first.err, HasSubstr("row_swap"));  // the table, for people
  const Ran other = RunTool(Small(scratch.Path("c"), {"--json", "--seed=8"}));
  EXPECT_NE(WithoutTimes(first.out), WithoutTimes(other.out));
}

TEST(RunVerb, JobsAndShardsGiveTheSameBytes) {  // I-120, I-122
  const Scratch scratch;
  const Ran alone = RunTool(Small(scratch.Path("a"), {"--json", "--jobs=0"}));
  ASSERT_EQ(alone.code, kExitClean) << alone.err;
  const Ran two = RunTool(Small(scratch.Path("b"), {"--json", "--jobs=2"}));
  EXPECT_EQ(WithoutTimes(two.out), WithoutTimes(alone.out));
  std::vector<std::string> merge = {"merge", "--json", "--out=" + scratch.Path("whole")};
  for (const std::string part : {"2", "1"}) {
    const std::string out = scratch.Path("part" + part);
    const Ran shard = RunTool(Small(out, {"--shard=" + part + "/2"}));
    ASSERT_EQ(shard.code, kExitClean) << shard.err;
    merge.push_back(part == "1" ? out : out + "/report.json");
  }
  const Ran whole = RunTool(merge);
  ASSERT_EQ(whole.code, kExitClean) << whole.err;
  EXPECT_EQ(WithoutTimes(whole.out), WithoutTimes(alone.out));
  EXPECT_EQ(ReadAll(scratch.Path("whole/report.json")), whole.out);
  EXPECT_THAT(ReadAll(scratch.Path("whole/report.html")), HasSubstr("kvfence run"));
  // In place of a shard's report no other is put.
  const std::string shard = ReadAll(scratch.Path("part1/report.json"));
  merge[2] = "--out=" + scratch.Path("part2/../part1/");
  const Ran over = RunTool(merge);
  EXPECT_EQ(over.code, kExitUsage);
  EXPECT_THAT(over.err, HasSubstr("would overwrite " + scratch.Path("part1/report.json")));
  EXPECT_EQ(ReadAll(scratch.Path("part1/report.json")), shard);
  merge[2] = "--out=" + scratch.Path("whole");
  EXPECT_THAT(ReadAll(scratch.Path("whole/report.html")),
              HasSubstr("--out=" + scratch.Path("whole-again")));
  merge.pop_back();
  const Ran half = RunTool(merge);
  EXPECT_EQ(half.code, kExitUsage);
  EXPECT_THAT(half.err, HasSubstr("shard 1 of 2 is missing"));
}

TEST(RunVerb, KilledAndResumedItEndsAsIfNothingHadHappened) {  // I-121
  const Scratch scratch;
  const std::vector<std::string> flags = {"--requests=1500", "--json"};
  const Ran whole = RunTool(Small(scratch.Path("whole"), flags));
  ASSERT_EQ(whole.code, kExitClean) << whole.err;
  std::vector<std::string> more = flags;
  more.push_back("--resume");
  const std::vector<std::string> words = ToolArgs(Small(scratch.Path("out"), more));
  for (const char* until : {"steps (", "no-fault", "faults,"}) {
    Process run(words, {.terminal = true});
    run.SaysOnError(until);
    run.Signal(SIGKILL);
    run.Wait();
  }
  const Ran resumed = RunTool(Small(scratch.Path("out"), more));
  ASSERT_EQ(resumed.code, kExitClean) << resumed.err;
  EXPECT_EQ(WithoutTimes(resumed.out), WithoutTimes(whole.out));
  EXPECT_THAT(scratch.List("out"), ::testing::ElementsAre("report.html", "report.json"));
}

// At ten moments drawn from a seed, wherever that is: in the no-fault arm, among runs with faults,
// in the middle of a block of the journal, or before there is one.
TEST(RunVerb, KilledTenTimesItsReportIsTheSame) {  // I-121
  const Scratch scratch;
  std::vector<std::string> flags = {"--requests=2000", "--jobs=2", "--json"};
  const Ran whole = RunTool(Small(scratch.Path("whole"), flags));
  ASSERT_EQ(whole.code, kExitClean) << whole.err;
  flags.push_back("--resume");
  Rng rng(1969);
  uint64_t kills = 0, ends = 0;
  while (kills < 10 || ends == 0) {
    const std::string out = scratch.Path("out" + std::to_string(ends));
    Process run(ToolArgs(Small(out, flags)), {});
    if (kills < 10) {
      usleep(static_cast<useconds_t>(rng.Between(5000, 250000)));
      run.Signal(SIGKILL);
    }
    const Ran ran = run.Wait();
    if (ran.code == 128 + SIGKILL) {
      ++kills;
      continue;
    }
    // It was done before it could be killed, or may be done at last.
    ++ends;
    ASSERT_EQ(ran.code, kExitClean) << ran.err;
    EXPECT_EQ(WithoutTimes(ran.out), WithoutTimes(whole.out)) << "after " << kills << " kills";
    EXPECT_THAT(scratch.List(std::filesystem::path(out).filename()),
                ::testing::ElementsAre("report.html", "report.json"));
  }
}

TEST(RunVerb, LeavesAReportThatShowsTheRun) {
  const Scratch scratch;
  const Ran ran = RunTool(Small(scratch.Path("new/deep")));
  ASSERT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("green"));
  EXPECT_THAT(ran.out, HasSubstr("report: " + scratch.Path("new/deep/report.html")));
  for (const std::string& text :
       {ran.out, ran.err, ReadAll(scratch.Path("new/deep/report.html"))}) {
    EXPECT_THAT(text, HasSubstr("--out=" + scratch.Path("new/deep-again")));
  }
  EXPECT_THAT(ReadAll(scratch.Path("new/deep/report.html")),
              HasSubstr("--out=" + scratch.Path("new/deep-run")));
  EXPECT_THAT(scratch.List("new/deep"), ::testing::ElementsAre("report.html", "report.json"));
  const json report = json::parse(ReadAll(scratch.Path("new/deep/report.json")));
  EXPECT_TRUE(report.at("green"));
  EXPECT_FALSE(report.at("partial"));
  const HtmlDocument html = ReadHtml(ReadAll(scratch.Path("new/deep/report.html")));
  ASSERT_EQ(html.error, "");
  EXPECT_EQ(json::parse(html.WithId("report-data")->text), report);
  // Real stories have lanes of requests and of pages, not only of the engine.
  std::vector<std::string> lanes;
  for (const HtmlElement& element : html.elements) {
    const auto it = element.attributes.find("class");
    if (it != element.attributes.end() && it->second == "lane") lanes.push_back(element.text);
  }
  EXPECT_THAT(lanes, Contains(::testing::StartsWith("r")));
  EXPECT_THAT(lanes, Contains(::testing::StartsWith("page ")));
}

TEST(RunVerb, WithoutFaultsOnlyTheNoFaultArmIsRun) {
  const Scratch scratch;
  const Ran ran = RunTool({"run", "--requests=20", "--faults=none", "--page_size=64", "--json",
                           "--out=" + scratch.Path("out")});
  ASSERT_EQ(ran.code, kExitClean) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_TRUE(report.at("faults").empty());
  EXPECT_EQ(report.at("false_alarms"), 0);
  EXPECT_GT(report.at("clean_arm").at("entries_checked"), 0);
  EXPECT_THAT(ReadAll(scratch.Path("out/report.html")), HasSubstr("No faults were asked for"));
}

TEST(RunVerb, ImpossibleSizesAreRefusedWithWhatIsNeeded) {
  const Scratch scratch;
  const Ran ran = RunTool(Small(scratch.Path("out"), {"--pages=2"}));
  EXPECT_EQ(ran.code, kExitUsage) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("kvfence run: "));
  EXPECT_THAT(ran.err, HasSubstr("pages"));
  EXPECT_EQ(ran.out, "");
  const Ran mixed = RunTool({"run", "--faults=none,row_tail", "--out=" + scratch.Path("out")});
  EXPECT_EQ(mixed.code, kExitUsage);
  EXPECT_FALSE(std::filesystem::exists(scratch.Path("out"))) << "nothing is left behind";
  // Seen only when a later run has a longer request.
  const Ran later =
      RunTool({"run", "--seed=7", "--faults=none", "--requests=400", "--pages=56", "--page_size=16",
               "--requests_per_run=5", "--out=" + scratch.Path("out")});
  EXPECT_EQ(later.code, kExitUsage);
  EXPECT_THAT(later.err, HasSubstr("at least 59"));
  EXPECT_FALSE(std::filesystem::exists(scratch.Path("out"))) << "nothing is left behind";
}

// The range that is named is the one that holds, also with a draft model of larger pages.
TEST(RunVerb, TheLargestPageSizeRuns) {
  const Scratch scratch;
  for (const char* seed : {"--seed=1", "--seed=2", "--seed=3", "--seed=4"}) {
    const Ran ran =
        RunTool({"run", seed, "--page_size=16383", "--requests=16", "--json",
                 "--features=speculative", "--faults=row_swap", "--out=" + scratch.Path("out")});
    EXPECT_EQ(ran.code, kExitClean) << ran.err;
  }
}

TEST(RunVerb, FaultsThatCanNeverBePutInAreRefusedByName) {
  const Scratch scratch;
  const std::string out = scratch.Path("out");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--numeric", "--faults=row_swap,narrow_index"}, "'narrow_index' has no part in a numeric"},
      {{"--faults=narrow_index", "--page_size=48"}, "'narrow_index' needs a page_size that is"},
      {{"--faults=rank_row", "--features=-tensor_parallel"}, "'rank_row' needs tensor_parallel,"},
      {{"--faults=key_collides", "--features=none"}, "needs prefix_cache+mixed_identity, which"},
      {{"--faults=row_swap", "--rows=1"}, "'row_swap' needs 2 batch rows, and rows is 1"},
      {{"--faults=all,row_swap"}, "faults: 'all' stands alone"},
      {{"--faults=row_swap,none"}, "faults: 'none' stands alone"},
      {{"--features=cascade,-cascade"}, "features: '-cascade' contradicts"},
      {{"--features=all,-cascade,cascade"}, "features: 'cascade' contradicts"},
      {{"--features=all,none"}, "features: 'none' settles all: it stands first"},
      {{"--features=-cascade,all"}, "features: 'all' settles all: it stands first"}};
  for (const auto& [flags, says] : cases) {
    std::vector<std::string> arguments = {"run", "--requests=8", "--out=" + out};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Ran ran = RunTool(arguments);
    EXPECT_EQ(ran.code, kExitUsage) << says;
    EXPECT_THAT(ran.err, HasSubstr(says));
    EXPECT_FALSE(std::filesystem::exists(out)) << says;
  }
}

// Of all kinds those are left out, and it's said where the command stands.
TEST(RunVerb, AllLeavesOutWhatCanNeverBePutIn) {
  const Scratch scratch;
  const Ran ran = RunTool({"run", "--seed=3", "--requests=8", "--features=-tensor_parallel",
                           "--json", "--out=" + scratch.Path("out")});
  const std::string line = "rank_row: needs tensor_parallel, which features excludes";
  EXPECT_EQ(ran.code, kExitClean) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("left out: " + line + "\n"));
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("left_out").size(), 2u);
  EXPECT_EQ(report.at("left_out")[1], line);
  for (const json& fault : report.at("faults")) EXPECT_NE(fault.at("kind"), "rank_row");
  EXPECT_THAT(ReadAll(scratch.Path("out/report.html")), HasSubstr("<dd>" + line));
}

TEST(RunVerb, FoldersThatCannotBeWrittenAreNamed) {
  const Scratch scratch;
  const std::string file = scratch.Write("file", "not a folder");
  for (const std::string& out : {file, file + "/below", std::string("/proc/no/such")}) {
    const Ran ran = RunTool(Small(out));
    EXPECT_EQ(ran.code, kExitEnvironment);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(out));
  }
  EXPECT_EQ(ReadAll(file), "not a folder");
}

TEST(RunVerb, BrokenTracesAreRefusedByFileAndLine) {
  const Scratch scratch;
  const std::string good =
      R"({"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[1,2]})"
      "\n";
  const std::vector<std::pair<std::string, std::string>> bad_lines = {
      {R"({"timestamp":3,"input_length":60)", "cut off"},
      {"{\"timestamp\":3,,}\n" + good, ""},
      {R"({"timestamp":3,"input_length":-60,"output_length":5,"hash_ids":[1]})", "input_length"},
      {R"({"timestamp":3,"output_length":5,"hash_ids":[1]})", "input_length"},
      {R"({"timestamp":3,"input_length":60,"output_length":5})", "hash_ids"},
      {R"({"timestamp":3,"input_length":60,"output_length":"5","hash_ids":[1]})", "output_length"},
      {R"({"timestamp":3,"input_length":6e99,"output_length":5,"hash_ids":[1]})", "input_length"},
      {"[1,2,3]", "object"},
      {std::string("\0\0\0", 3), ""},
      {"\xff\xfe{}", ""},
  };
  for (const auto& [line, says] : bad_lines) {
    const std::string path = scratch.Write("bad.jsonl", good + line);
    const Ran ran =
        RunTool({"run", "--faults=none", "--trace=" + path, "--out=" + scratch.Path("out")});
    EXPECT_EQ(ran.code, kExitUsage) << line;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(path + ":2: ")) << line;
    EXPECT_THAT(ran.err, HasSubstr(says));
  }
  const Ran empty = RunTool(
      {"run", "--trace=" + scratch.Write("empty.jsonl", ""), "--out=" + scratch.Path("out")});
  EXPECT_EQ(empty.code, kExitUsage);
  EXPECT_THAT(empty.err, HasSubstr("empty.jsonl"));
  const Ran absent =
      RunTool({"run", "--trace=" + scratch.Path("absent"), "--out=" + scratch.Path("out")});
  EXPECT_EQ(absent.code, kExitUsage);
  EXPECT_THAT(absent.err, HasSubstr(scratch.Path("absent")));
}

TEST(RunVerb, CtrlCLeavesAPartialReportThatSaysSo) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  for (const int signal : {SIGINT, SIGTERM}) {
    const Scratch scratch;
    Process run(ToolArgs(Endless(scratch.Path("out"), {"--json"})), {.terminal = true});
    ASSERT_TRUE(run.SaysOnError("steps (")) << run.err();
    run.Signal(signal);
    const Ran ran = run.Wait();
    EXPECT_EQ(ran.code, kExitEnvironment);
    const json report = json::parse(ran.out);
    EXPECT_TRUE(report.at("partial"));
    EXPECT_EQ(json::parse(ReadAll(scratch.Path("out/report.json"))), report);
    EXPECT_THAT(ReadAll(scratch.Path("out/report.html")), HasSubstr("This report is partial"));
    EXPECT_THAT(ran.err, HasSubstr("PARTIAL"));
    EXPECT_THAT(scratch.List("out"), Not(Contains(EndsWith(".tmp"))));
  }
}

TEST(RunVerb, BeingKilledHarmsNoReportThatStands) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  const Scratch scratch;
  const Ran first = RunTool(Small(scratch.Path("out"), {"--json"}));
  ASSERT_EQ(first.code, kExitClean) << first.err;
  const std::string html = ReadAll(scratch.Path("out/report.html"));
  Process run(ToolArgs(Endless(scratch.Path("out"))), {.terminal = true});
  ASSERT_TRUE(run.SaysOnError("steps (")) << run.err();
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Wait().code, 128 + SIGKILL);
  EXPECT_EQ(ReadAll(scratch.Path("out/report.json")), first.out);
  EXPECT_EQ(ReadAll(scratch.Path("out/report.html")), html);
}

TEST(RunVerb, ColoursOnlyOnATerminalThatWantsThem) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  const Scratch scratch;
  const std::vector<std::string> args = Small(scratch.Path("out"), {"--json"});
  const auto err = [&](const Process::Options& options) { return RunTool(args, options).err; };
  EXPECT_THAT(err({.env = {{"NO_COLOR", ""}, {"TERM", "xterm"}}, .terminal = true}),
              HasSubstr("\x1b["));
  EXPECT_THAT(err({.env = {{"NO_COLOR", "1"}}, .terminal = true}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(err({.env = {{"TERM", "dumb"}}, .terminal = true}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(err({.env = {{"NO_COLOR", ""}}}), Not(HasSubstr("\x1b")));
}

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Takes some free port of this machine and listens on it.
  int Listen() {
    socklen_t size = sizeof(address_);
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(fd_, address, size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, address, &size), 0);
    return ntohs(address_.sin_port);
  }
  // The body that a web server answers with.
  std::string Get(int port, const std::string& path) {
    address_.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
    const std::string ask =
        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(write(fd_, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(fd_, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
    const size_t end = answer.find("\r\n\r\n");
    return end == std::string::npos ? "" : answer.substr(end + 4);
  }

 private:
  int fd_;
  sockaddr_in address_{};
};

TEST(RunVerb, ServesMetricsThatPromtoolAccepts) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  const Scratch scratch;
  Process run(ToolArgs(Endless(scratch.Path("out"), {"--metrics_port=0"})), {.terminal = true});
  ASSERT_TRUE(run.SaysOnError("/metrics\n")) << run.err();
  ASSERT_TRUE(run.SaysOnError("faults, ")) << run.err();
  const size_t at = run.err().find("http://127.0.0.1:");
  ASSERT_NE(at, std::string::npos);
  const std::string text = Socket().Get(std::stoi(run.err().substr(at + 17)), "/metrics");
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait().code, kExitEnvironment);
  EXPECT_THAT(text, HasSubstr("kvfence_faults_injected_total{kind=\"row_tail\"} "));
  EXPECT_THAT(text, HasSubstr("kvfence_faults_injected_total{kind=\"tag_flip\"} 0\n"));  // I-70
  EXPECT_THAT(text, HasSubstr("kvfence_requests_checked_total"));
  const Ran promtool = Process({"promtool", "check", "metrics"}, {.input = text}).Wait();
  if (promtool.code == 127) GTEST_SKIP() << "promtool (Debian package prometheus) isn't on PATH";
  EXPECT_EQ(promtool.code, 0) << promtool.out << promtool.err;
  EXPECT_EQ(promtool.out + promtool.err, "");
}

TEST(RunVerb, APortInUseIsAnEnvironmentError) {
  const Scratch scratch;
  Socket taken;
  const int port = taken.Listen();
  const Ran ran = RunTool(Small(scratch.Path("out"), {"--metrics_port=" + std::to_string(port)}));
  EXPECT_EQ(ran.code, kExitEnvironment);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("kvfence run: --metrics_port"));
  EXPECT_THAT(ran.err, HasSubstr(std::to_string(port)));
}

TEST(RunVerb, CudaIsRefusedRatherThanIgnored) {
  const Scratch scratch;
  const Ran ran = RunTool(Small(scratch.Path("out"), {"--backend=cuda"}));
  EXPECT_EQ(ran.code, kExitEnvironment);
  EXPECT_THAT(ran.err, HasSubstr("--backend=cuda: "));
}

}  // namespace
}  // namespace kvfence::tools
