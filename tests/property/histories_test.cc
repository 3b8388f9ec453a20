// What holds of any history of the event language, legal or with one fault in it.
//
// Histories come from the naive engine, whose commands RapidCheck draws and shrinks. A history that
// breaks a property is written to a .kvlog, whose path the failure names; what is written last is
// the smallest.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "kvfence/check_log.h"
#include "kvfence/rng.h"
#include "naive_engine.h"
#include "recorded.h"
#include "tests/model/seeded.h"

namespace kvfence::testing {
namespace {

#define KVF_PROPERTY(name, cases)                                            \
  void name();                                                               \
  TEST(Histories, name) { CheckSeeded("Histories." #name, 7, cases, name); } \
  void name()

// --- generators ----------------------------------------------------------------------------------

// Bytes of full range, whatever RapidCheck's size; how many commands there are follows the size.
rc::Gen<Command> AnyCommand() {
  return rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<Command>());
}

struct Case {
  World world;
  std::vector<Command> commands;
};
Case AnyCase() {
  const World world = MakeWorld(*AnyCommand().as("world"));
  return {world, *rc::gen::container<std::vector<Command>>(AnyCommand()).as("commands")};
}

Strike AnyStrike() {
  const int fault = *rc::gen::inRange(1, kFaults).as("fault");
  // Of events and table rows there are many: any of them may be the one.
  const bool often = fault >= static_cast<int>(Fault::kLostEvent);
  const int nth = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, often ? 60 : 5)).as("nth");
  const Command pick = *AnyCommand().as("pick");
  return {static_cast<Fault>(fault), static_cast<uint32_t>(nth), pick[0]};
}

// --- playing -------------------------------------------------------------------------------------

CheckReport Play(const std::string& log, Level level, CheckSet disabled = {}) {
  std::istringstream in(log);
  CheckOptions options;
  options.level = level;
  options.disabled = disabled;
  auto report = CheckLog(&in, "history", options);
  RC_ASSERT(report.ok());
  return std::move(report).value();
}

std::string Show(const CheckReport& report) {
  std::string text = report.error;
  for (const LoggedViolation& v : report.violations) {
    text += "\nline " + std::to_string(v.line) + ": " +
            std::string(ReasonName(v.violation.reason)) + " req " + v.req + " page " +
            std::to_string(v.violation.page) + " at " + std::to_string(v.violation.at);
  }
  return text + "\nwrong reads published: " + std::to_string(report.wrong_reads_published);
}

// Where the counterexample of the running test is written.
std::string FindingPath() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = "kvfence-" + std::string(test->name()) + ".kvlog";
  return (std::filesystem::temp_directory_path() / name).string();
}

void Require(bool holds, const std::string& log, const std::string& why) {
  if (holds) return;
  const std::string path = FindingPath();
  std::ofstream(path) << log;
  RC_FAIL(why + "\nto see it again: kvfence check " + path);
}

// --- (a) legal histories -------------------------------------------------------------------------

KVF_PROPERTY(LegalOnesAreSilentAtEveryLevel, 100) {
  const Case c = AnyCase();
  const std::string log = WriteHistory(c.world, c.commands, {});
  for (const Level level : {Level::kMap, Level::kFull, Level::kAudit}) {
    const CheckReport report = Play(log, level);
    Require(report.ok() && report.violations.empty() && report.wrong_reads_published == 0, log,
            "level " + std::string(LevelName(level)) + ": " + Show(report));
    // Silence means something only where something was looked at (I-12).
    if (log.find("\"rows\":[{") != std::string::npos) {
      Require(report.stats.entries_checked > 0, log, "nothing was checked");
    }
  }
}

// Generators rot: each verb must be met in so many cases, each kind of world too.
TEST(Histories, AllVerbsAreMet) {
  std::map<std::string, int> met;
  Rng rng(11);
  const auto command = [&] {
    Command c;
    for (uint8_t& byte : c) byte = static_cast<uint8_t>(rng.Next());
    return c;
  };
  for (int i = 0; i < 60; ++i) {
    const World world = MakeWorld(command());
    std::vector<Command> commands(100);
    for (Command& c : commands) c = command();
    const std::string log = WriteHistory(world, commands, {});
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      ++met[line.substr(0, line.find(',', 8))];
      for (const char* key : {"\"pads\"", "\"prefix\"", "\"draft\"", "\"base\"", "\"keys\"",
                              "\"idle\"", "\"ok\":false", "\"reach\"", "\"table_epoch\""}) {
        if (line.find(key) != std::string::npos) ++met[key];
      }
    }
  }
  for (const char* verb :
       {"admit", "alloc",   "share",     "fork", "cow",     "trim",  "drop", "release",
        "free",  "publish", "unpublish", "pin",  "unpin",   "ready", "row",  "audit",
        "write", "read",    "scale",     "step", "confirm", "retire"}) {
    EXPECT_GE(met["{\"ev\":\"" + std::string(verb) + "\""], 10) << verb;
  }
  for (const char* key : {"\"pads\"", "\"prefix\"", "\"draft\"", "\"base\"", "\"keys\"", "\"idle\"",
                          "\"ok\":false", "\"reach\"", "\"table_epoch\""}) {
    EXPECT_GE(met[key], 5) << key;
  }
}

// What these properties found once: histories that must stay silent, faulty ones that must not
// publish anything wrong (their names begin with "fault-").
TEST(Histories, WhatWasFoundOnceStaysAnswered) {
  int played = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(KVFENCE_SOURCE_DIR) +
                                                               "/tests/property/regressions")) {
    const std::string path = entry.path().string();
    const bool faulty = entry.path().filename().string().starts_with("fault-");
    auto report = CheckLogFile(path);
    ASSERT_TRUE(report.ok()) << path;
    const CheckReport said = std::move(report).value();
    EXPECT_EQ(said.wrong_reads_published, 0u) << path;
    EXPECT_EQ(said.error, "") << path;
    EXPECT_EQ(said.violations.empty(), !faulty) << path << Show(said);
    ++played;
  }
  EXPECT_GT(played, 0);
}

// --- (b) one fault -------------------------------------------------------------------------------

// The promise: what a fault makes some later row read wrongly is never published.
KVF_PROPERTY(NothingWrongIsPublishedAfterOneFault, 250) {
  const Case c = AnyCase();
  const Strike strike = AnyStrike();
  bool struck = false;
  const std::string log = WriteHistory(c.world, c.commands, strike, &struck);
  RC_CLASSIFY(struck, "struck");
  const CheckReport report = Play(log, Level::kFull);
  Require(report.wrong_reads_published == 0, log, Show(report));
}

// That promise is empty where nothing would be wrong without the fence: so each kind of fault that
// can make a row read wrongly must do so, the fence off, in some of these cases, and what it did
// must have been answered with the fence on.
TEST(Histories, FaultsAreReal) {
  // What these break is bookkeeping: the fence speaks before any row reads.
  const std::set<Fault> quiet = {Fault::kDoubleFree,    Fault::kUnpublishMissed, Fault::kStaleHit,
                                 Fault::kOtherIdentity, Fault::kRowForgotten,    Fault::kPinMissing,
                                 Fault::kScaleMissing,  Fault::kTrimForgotten,   Fault::kCowSkipped,
                                 Fault::kEarlyReissue,  Fault::kEarlyUnpin,      Fault::kLateWrite,
                                 Fault::kTwiceEvent,    Fault::kWrongPrefix};
  Rng rng(12);
  const auto command = [&] {
    Command c;
    for (uint8_t& byte : c) byte = static_cast<uint8_t>(rng.Next());
    return c;
  };
  for (int f = 1; f < kFaults; ++f) {
    const auto fault = static_cast<Fault>(f);
    const std::string name(kFaultNames[static_cast<size_t>(f)]);
    int struck = 0, answered = 0, wrong = 0;
    for (int i = 0;
         i < 400 && (struck < 5 || answered == 0 || (wrong == 0 && !quiet.contains(fault))); ++i) {
      const World world = MakeWorld(command());
      std::vector<Command> commands(90);
      for (Command& c : commands) c = command();
      bool hit = false;
      const Strike strike{fault, static_cast<uint32_t>(i % 3), static_cast<uint8_t>(rng.Next())};
      const std::string log = WriteHistory(world, commands, strike, &hit);
      if (!hit) continue;
      ++struck;
      const CheckReport on = Play(log, Level::kFull);
      const CheckReport off = Play(log, Level::kFull, kAuditChecks);
      answered += !on.violations.empty() || !on.error.empty();
      if (off.wrong_reads_published == 0) continue;
      ++wrong;
      EXPECT_FALSE(on.violations.empty() && on.error.empty()) << name;
    }
    EXPECT_GE(struck, 5) << name;
    EXPECT_GT(answered, 0) << name;
    EXPECT_TRUE(wrong > 0 || quiet.contains(fault)) << name;
  }
}

// --- (d) record and replay -----------------------------------------------------------------------

using Said = std::tuple<uint64_t, Reason, int64_t, std::string, int64_t, int64_t, int64_t, int64_t,
                        int64_t, uint64_t, uint64_t>;
std::vector<Said> Findings(const CheckReport& report) {
  std::vector<Said> said;
  for (const LoggedViolation& l : report.violations) {
    const Violation& v = l.violation;
    said.emplace_back(l.line, v.reason, v.step, l.req, v.row, v.pool, v.at, v.page, v.rank,
                      v.expected, v.found);
  }
  return said;
}

KVF_PROPERTY(ARecordedRunReplaysToTheSameFindings, 60) {
  const Case c = AnyCase();
  const std::string log = WriteHistory(c.world, c.commands, AnyStrike());
  const CheckReport first = Play(log, Level::kFull);
  const std::string recorded = Recorded(log);
  const CheckReport again = Play(recorded, Level::kFull);
  Require(Findings(first) == Findings(again) &&
              first.wrong_reads_published == again.wrong_reads_published,
          log, "first:" + Show(first) + "\nreplayed:" + Show(again));
  Require(Recorded(recorded) == recorded, recorded, "recorded once more it's another log");
}

// --- (e) levels ----------------------------------------------------------------------------------

// The line of the first finding, and its places: until then a run at any level is the same run.
std::pair<uint64_t, std::set<Said>> FirstFindings(const CheckReport& report) {
  if (report.violations.empty()) return {~uint64_t{0}, {}};
  const uint64_t line = report.violations.front().line;
  std::set<Said> places;
  for (const LoggedViolation& l : report.violations) {
    const Violation& v = l.violation;
    if (l.line != line) continue;
    places.emplace(line, Reason{}, v.step, l.req, v.row, v.pool, v.at, v.page, v.rank, 0, 0);
  }
  return {line, places};
}

// I-4: what a level finds, the next one finds at the same line or has found something before. A
// place says only the first of what is wrong there, so places are compared, not reasons.
KVF_PROPERTY(I4AHigherLevelFindsAsMuchAndAsEarly, 100) {
  const Case c = AnyCase();
  const std::string log = WriteHistory(c.world, c.commands, AnyStrike());
  auto lower = FirstFindings(Play(log, Level::kMap));
  for (const Level level : {Level::kFull, Level::kAudit}) {
    const auto higher = FirstFindings(Play(log, level));
    const std::string name(LevelName(level));
    Require(higher.first <= lower.first, log, name + " speaks later than the level below");
    if (higher.first == lower.first) {
      Require(std::includes(higher.second.begin(), higher.second.end(), lower.second.begin(),
                            lower.second.end()),
              log, name + " misses a place that the level below names");
    }
    lower = higher;
  }
}

}  // namespace
}  // namespace kvfence::testing
