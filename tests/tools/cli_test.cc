// What every verb promises: help, plain words for mistakes, exit codes, where output goes.
#include "cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "atomic_file.h"
#include "kvfence/fault_kind.h"
#include "run_config.h"
#include "seed_words.h"
#include "tests/tools/process.h"

namespace kvfence::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<const Verb*> AllVerbs() {
  return {&RunVerb(), &MergeVerb(), &CheckVerb(), &FaultsVerb(), &ExploreVerb(), &PlanVerb()};
}

// One line that begins as all messages of a verb do.
void ExpectUsage(const Ran& ran, const std::string& verb, const std::string& says) {
  EXPECT_EQ(ran.code, kExitUsage) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  EXPECT_THAT(ran.err, StartsWith("kvfence " + verb + ": "));
  EXPECT_THAT(ran.err, HasSubstr(says));
}

TEST(Cli, WithoutAVerbSaysHowAndFails) {
  const Ran ran = RunTool({});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("usage: kvfence VERB"));
}

TEST(Cli, HelpListsEveryVerbWithExamples) {
  const Ran ran = RunTool({"--help"});
  EXPECT_EQ(ran.code, kExitClean);
  EXPECT_EQ(ran.err, "");
  for (const Verb* verb : AllVerbs()) {
    EXPECT_THAT(ran.out, HasSubstr("\n  " + std::string(verb->name)));
  }
  EXPECT_THAT(ran.out, HasSubstr("examples:\n"));
  EXPECT_THAT(ran.out, HasSubstr("exit codes: 0 clean, 1 finding, 2"));
  EXPECT_EQ(RunTool({"-h"}).out, ran.out);
  EXPECT_EQ(RunTool({"help"}).out, ran.out);
}

TEST(Cli, EveryVerbHelpsWithAllItsFlagsAndExamples) {
  for (const Verb* verb : AllVerbs()) {
    const std::string name(verb->name);
    const Ran ran = RunTool({name, "--help"});
    EXPECT_EQ(ran.code, kExitClean);
    EXPECT_EQ(ran.err, "");
    EXPECT_THAT(ran.out, HasSubstr("examples:\n  kvfence " + name));
    EXPECT_THAT(ran.out, HasSubstr("exit codes:"));
    for (const std::string_view flag : verb->flags) {
      EXPECT_THAT(ran.out, HasSubstr("\n  --" + std::string(flag)));
    }
    EXPECT_EQ(RunTool({"help", name}).out, ran.out);
    EXPECT_EQ(RunTool({name, "--json", "-h"}).out, ran.out);
  }
}

TEST(Cli, SaysItsVersion) { EXPECT_THAT(RunTool({"--version"}).out, StartsWith("kvfence 0.")); }

TEST(Cli, UnknownVerbsGetTheNearest) {
  for (const auto& [typed, near] :
       {std::pair("rnu", "'run'"), std::pair("chek", "'check'"), std::pair("fault", "'faults'")}) {
    const Ran ran = RunTool({typed});
    EXPECT_EQ(ran.code, kExitUsage);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("unknown verb '" + std::string(typed) + "'"));
    EXPECT_THAT(ran.err, HasSubstr("did you mean " + std::string(near)));
  }
  EXPECT_THAT(RunTool({"zzzzzz"}).err, Not(HasSubstr("did you mean")));
}

TEST(Cli, UnknownFlagsGetTheNearestThatTheVerbTakes) {
  ExpectUsage(RunTool({"run", "--sed=3"}), "run", "did you mean '--seed'?");
  ExpectUsage(RunTool({"run", "--page-size=16"}), "run", "did you mean '--page_size'?");
  ExpectUsage(RunTool({"run", "--metrics=1"}), "run", "did you mean '--metrics_port'?");
  ExpectUsage(RunTool({"check", "--lvl=full", "x"}), "check", "did you mean '--level'?");
  // Another verb's flag isn't this one's.
  ExpectUsage(RunTool({"faults", "--seed=3"}), "faults", "unknown flag '--seed'");
  ExpectUsage(RunTool({"run", "--noseed"}), "run", "unknown flag '--noseed'");
}

TEST(Cli, BadValuesAreNamedAndNothingIsMade) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--page_size=0"}, "--page_size must be 1..16383, got 0"},
      {{"--page_size=-5"}, "--page_size must be"},
      {{"--page_size=16384"}, "--page_size must be 1..16383"},
      {{"--page_size=1000000000"}, "--page_size must be"},
      {{"--page_size=1e9"}, "--page_size: '1e9' isn't valid"},
      {{"--page_size="}, "--page_size: '' isn't valid"},
      {{"--pages=1"}, "--pages must be 2.."},
      {{"--pages=0"}, "--pages must be 2.."},
      {{"--pages=99999999999999999999999"}, "--pages: "},
      {{"--pages=16777216", "--page_size=4096"}, "slots"},
      {{"--rows=0"}, "--rows must be"},
      {{"--rows=-2"}, "--rows must be"},
      {{"--requests=0"}, "--requests must be"},
      {{"--steps=0"}, "--steps must be"},
      {{"--duration=-7"}, "--duration must be"},
      {{"--seed=-1"}, "--seed: '-1' isn't valid"},
      {{"--seed=master"}, "--seed: 'master' isn't valid"},
      {{"--seed="}, "--seed: '' isn't valid"},
      {{"--features=warp_drive"}, "unknown feature 'warp_drive'"},
      {{"--features=-"}, "unknown feature '-'"},
      {{"--jobs=-1"}, "--jobs must be 0..1024, got -1"},
      {{"--shard=3/2"}, "--shard must be K/N"},
      {{"--shard=0/2"}, "--shard must be K/N"},
      {{"--shard=1"}, "--shard must be K/N"},
      {{"--shard=1/x"}, "--shard must be K/N"},
      {{"--only_run=0"}, "--only_run must be 1.."},
      {{"--seed"}, "--seed needs a value"},
      {{"--level=off"}, "--level must be map, full or audit"},
      {{"--level=all"}, "--level must be"},
      {{"--policy=shrug"}, "--policy must be log, abort, recompute or stop, got 'shrug'"},
      {{"--until=midnight"}, "--until must be complete"},
      {{"--until=complete", "--faults=none"}, "not with --faults=none"},
      {{"--until=complete", "--only_run=2"}, "not with --only_run"},
      {{"--faults="}, "--faults must be"},
      {{"--faults=row_tial"}, "unknown kind 'row_tial', did you mean 'row_tail'?"},
      {{"--backend=tpu"}, "--backend must be cpu or cuda, got 'tpu'"},
      {{"--metrics_port=99999"}, "--metrics_port must be 0..65535"},
      {{"--metrics_port=-2"}, "--metrics_port must be 0..65535"},
      {{"--json=perhaps"}, "--json: 'perhaps' isn't valid"},
      {{"--out="}, "--out must name a folder"},
      {{"--shard=1/2", "--only_run=3"}, "only=N names a run"},
      {{"again"}, "takes no words, got 'again'"},
  };
  const Scratch scratch;
  for (const auto& [arguments, says] : cases) {
    std::vector<std::string> all = {"run", "--out=" + scratch.Path("out")};
    all.insert(all.end(), arguments.begin(), arguments.end());
    ExpectUsage(RunTool(all), "run", says);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.Path("out")));
}

TEST(Cli, FlagsComeInEveryForm) {
  // "--" ends the flags, so what follows is a word, and this verb takes none.
  ExpectUsage(RunTool({"run", "--", "--seed"}), "run", "got '--seed'");
  ExpectUsage(RunTool({"run", "--page_size", "0"}), "run", "--page_size must be");
  ExpectUsage(RunTool({"run", "-page_size=0"}), "run", "--page_size must be");
  EXPECT_EQ(RunTool({"faults", "--nojson"}).out, RunTool({"faults"}).out);
}

TEST(Cli, FaultsListsEveryKindForPeopleAndForPrograms) {
  const Ran people = RunTool({"faults"});
  const Ran json = RunTool({"faults", "--json"});
  EXPECT_EQ(people.code, kExitClean);
  EXPECT_EQ(json.code, kExitClean);
  const auto faults = nlohmann::json::parse(json.out).at("faults");
  EXPECT_GE(faults.size(), 12u);
  EXPECT_EQ(faults.size(), FaultKinds().size());
  for (const auto& fault : faults) {
    EXPECT_THAT(people.out, HasSubstr(fault.at("kind").get<std::string>()));
    EXPECT_EQ(fault.at("class").get<std::string>().size(), 1u);
    EXPECT_NE(fault.at("hook").get<std::string>(), "");
    EXPECT_TRUE(fault.at("bookkeeping_only").is_boolean());
    EXPECT_FALSE(fault.at("reasons").empty());
    for (const std::string reason : fault.at("reasons")) {
      EXPECT_TRUE(ReasonFromName(reason).has_value()) << reason;
      EXPECT_THAT(people.out, HasSubstr(reason));
    }
  }
}

TEST(Cli, OutputThatIsLostIsNoSuccess) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"faults", "--json"}, {"--help"}, {"run", "--help"}}) {
    const Ran ran = RunTool(arguments, {.out_to = "/dev/full"});
    EXPECT_EQ(ran.code, kExitEnvironment);
    EXPECT_THAT(ran.err, HasSubstr("cannot write to standard output"));
  }
}

TEST(Cli, CommandsSurviveAShell) {
  CampaignConfig config;
  EXPECT_EQ(CommandOf(config), "kvfence run --seed=1");
  config.seed = 9;
  config.trace = "my trace's.jsonl";
  config.requests_per_run = 50;
  config.page_size = 64;
  config.faults = {"row_tail", "row_swap"};
  config.features = {"none", "prefix_cache"};
  config.level = Level::kAudit;
  config.policy = Policy::kLog;
  config.until_complete = true;
  EXPECT_EQ(
      CommandOf(config),
      "kvfence run --seed=9 --trace='my trace'\\''s.jsonl' --requests_per_run=50 --page_size=64 "
      "--faults=row_tail,row_swap --features=none,prefix_cache "
      "--level=audit --policy=log --until=complete");
}

// The command in a report doesn't overwrite that report.
TEST(Cli, CommandsGoToAFolderOfTheirOwn) {
  CampaignConfig config;
  const auto out = [&](const std::string& folder, const std::string& beside = "again") {
    config.log_dir = folder;
    const std::string command = CommandOf(config, beside), flag = " --out=";
    return command.substr(command.find(flag) + flag.size());
  };
  EXPECT_EQ(out("kvfence-out"), "kvfence-out-again");
  EXPECT_EQ(out("a/b//"), "a/b-again");
  EXPECT_EQ(out("my out", "run57"), "'my out-run57'");
  EXPECT_EQ(out("."), "./again");
  EXPECT_EQ(out("a/.."), "a/../again");
  EXPECT_EQ(out("/"), "//again");
}

TEST(Cli, SeedsAreNumbersOrCommitIds) {
  EXPECT_EQ(SeedFromWord("7"), 7u);
  EXPECT_EQ(SeedFromWord("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(SeedFromWord("406abf5"), 0x406abf5u);
  EXPECT_EQ(SeedFromWord("406ABF5"), 0x406abf5u);
  EXPECT_EQ(SeedFromWord("0x10"), 16u);
  // A whole commit id counts by its first 16 digits, even if none of them is a letter.
  EXPECT_EQ(SeedFromWord("406abf53c842dbc254bdd1754daf06fcc68cf826"), 0x406abf53c842dbc2u);
  EXPECT_EQ(SeedFromWord("4060000000000000000000000000000000000000"), 0x4060000000000000u);
  for (const char* word : {"", "0x", "-1", "+1", " 1", "1 ", "1.5", "main", "406abf5g"}) {
    EXPECT_EQ(SeedFromWord(word), std::nullopt) << word;
  }
  EXPECT_EQ(SeedFromWord(std::string(65, 'a')), std::nullopt);
}

TEST(AtomicFile, IsWholeOrNotThere) {
  const Scratch scratch;
  ASSERT_TRUE(WriteFile(scratch.Path("a"), "one").ok());
  ASSERT_TRUE(WriteFile(scratch.Path("a"), "two").ok());
  EXPECT_EQ(ReadAll(scratch.Path("a")), "two");
  // The name is taken by a folder: nothing is left behind, and the message says where.
  std::filesystem::create_directory(scratch.Path("b"));
  const Status status = WriteFile(scratch.Path("b"), "three");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(scratch.Path("b")));
  EXPECT_FALSE(WriteFile(scratch.Path("a") + "/c", "below a file").ok());
  EXPECT_THAT(scratch.List(""), ::testing::ElementsAre("a", "b"));
}

}  // namespace
}  // namespace kvfence::tools
