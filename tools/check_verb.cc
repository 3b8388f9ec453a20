// `kvfence check LOG`: plays logs and says what the fence finds, and which `expect` lines hold.
//
// Each log is judged alone; the exit code is that of the worst. One line per violation and per
// expectation that wasn't met, beginning with FILE:LINE: as compilers do, so that editors jump
// there.
#include <absl/flags/flag.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "followed_log.h"
#include "interrupt.h"
#include "kvfence/backend.h"
#include "kvfence/check_log.h"
#include "kvfence/incident_log.h"
#include "log_words.h"
#include "shared_flags.h"

ABSL_FLAG(bool, follow, false,
          "go on reading while the log is being written, and tell findings as they come; Ctrl-C "
          "ends it with the summary, cut off if the log ends in mid-line");

ABSL_FLAG(std::string, incidents, "",
          "append an incident record of each finding to this file (JSON lines): whose page it was, "
          "who holds it, what happened to it last");

namespace kvfence::tools {
namespace {

bool Same(const LoggedViolation& a, const LoggedViolation& b) {
  const Violation &x = a.violation, &y = b.violation;
  return a.line == b.line && x.reason == y.reason && x.step == y.step && x.row == y.row &&
         x.pool == y.pool && x.at == y.at && x.page == y.page && x.rank == y.rank &&
         x.expected == y.expected && x.found == y.found && a.req == b.req;
}

void PrintLine(const std::string& name, uint64_t line, const std::string& text, std::FILE* out) {
  std::fprintf(out, "%s:%llu: %s\n", name.c_str(), static_cast<unsigned long long>(line),
               text.c_str());
}

// Violations and unmet expectations in the order of their lines.
void PrintFindings(const std::string& name, const CheckReport& report, bool fancy, std::FILE* out) {
  std::vector<std::pair<uint64_t, std::string>> lines;
  auto unexpected = report.unexpected.begin();
  for (const LoggedViolation& violation : report.violations) {
    std::string text = Words(violation, report.pools);
    if (unexpected != report.unexpected.end() && Same(*unexpected, violation)) {
      ++unexpected;
      if (fancy) text = kRed + text + kPlain;
    } else {
      text += " (as expected)";
    }
    lines.emplace_back(violation.line, std::move(text));
  }
  for (const LoggedExpect& expect : report.unmet) {
    const std::string text = Words(expect, report.pools);
    lines.emplace_back(expect.line, fancy ? kRed + text + kPlain : text);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [line, text] : lines) PrintLine(name, line, text, out);
  if (report.violations_not_kept != 0) {
    std::fprintf(out, "%s: %llu more unexpected violations, not listed\n", name.c_str(),
                 static_cast<unsigned long long>(report.violations_not_kept));
  }
}

void PrintSum(const std::string& name, const CheckReport& report, bool fancy, std::FILE* out) {
  if (!report.error.empty()) std::fprintf(stderr, "%s\n", Printable(report.error).c_str());
  std::fprintf(out,
               "%s: %llu events, %zu violations (%zu unexpected), %zu unmet expectations, "
               "%llu wrong reads published: %s%s%s\n",
               name.c_str(), static_cast<unsigned long long>(report.events),
               report.violations.size(), report.unexpected.size(), report.unmet.size(),
               static_cast<unsigned long long>(report.wrong_reads_published),
               fancy ? (report.ok() ? kGreen : kRed) : "",
               report.ok()            ? "ok"
               : report.error.empty() ? "NOT OK"
               : report.cut_off       ? "CUT OFF, checked up to there"
                                      : "UNREADABLE, checked up to there",
               fancy ? kPlain : "");
  if (report.wrong_reads_published == 0) return;
  // The verdict is about reports; the ground truth has a word of its own, not to be missed.
  std::fprintf(out,
               "%s: %sWRONG READS%s that nothing reported: the exit code says only whether the "
               "reports are as expected; another --level may see more\n",
               name.c_str(), fancy ? kRed : "", fancy ? kPlain : "");
}

struct Judged {
  int code = kExitClean;
  std::string json;  // one object
};

// One object also for a log whose header can't be read.
std::string RefusedJson(const std::string& error) {
  CheckReport refused;
  refused.error = error;
  return refused.ToJson();
}

Judged CheckOne(const std::string& name, const CheckOptions& options, bool json,
                std::FILE* people) {
  Result<CheckReport> checked =
      name == "-" ? CheckLog(&std::cin, "stdin", options) : CheckLogFile(name, options);
  if (!checked.ok()) {
    std::fprintf(stderr, "%s\n", Printable(checked.status().message()).c_str());
    return {kExitUsage, json ? RefusedJson(checked.status().message()) : ""};
  }
  const CheckReport& report = *checked;
  const std::string shown = name == "-" ? "stdin" : name;
  const bool fancy = IsFancy(fileno(people));
  PrintFindings(shown, report, fancy, people);
  PrintSum(shown, report, fancy, people);
  return {report.exit_code(), json ? report.ToJson() : ""};
}

// Plays a log while it's being written: findings are told as they come, until the log's writer or
// Ctrl-C ends it.
Judged FollowOne(const std::string& name, CheckOptions options, bool json, std::FILE* people) {
  const std::string shown = name == "-" ? "stdin" : name;
  const std::atomic<bool>& stop = StopOnInterrupt();
  Result<std::unique_ptr<FollowedLog>> opened = FollowedLog::Open(name, stop);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", Printable(opened.status().message()).c_str());
    return {kExitUsage, json ? RefusedJson(opened.status().message()) : ""};
  }
  FollowedLog& log = **opened;
  std::vector<std::string> pools;
  options.more = [&] { return log.More(); };
  options.on_header = [&](const FenceConfig& config) {
    for (const PoolConfig& pool : config.pools) pools.push_back(pool.name);
    std::fprintf(stderr, "following %s, Ctrl-C ends it\n", Printable(shown).c_str());
  };
  options.on_violation = [&](uint64_t line, const Violation& violation, std::string_view req) {
    PrintLine(shown, line, Words(LoggedViolation{line, violation, std::string(req)}, pools),
              people);
    std::fflush(people);
  };
  Result<CheckReport> checked = CheckLog(log.stream(), shown, options);
  if (!checked.ok()) {
    const std::string& why = log.trouble().empty() ? checked.status().message() : log.trouble();
    std::fprintf(stderr, "%s\n", Printable(why).c_str());
    return {kExitUsage, json ? RefusedJson(why) : ""};
  }
  CheckReport& report = *checked;
  if (!log.trouble().empty()) report.error = log.trouble();
  for (const LoggedExpect& unmet : report.unmet) {
    PrintLine(shown, unmet.line, Words(unmet, report.pools), people);
  }
  PrintSum(shown, report, IsFancy(fileno(people)), people);
  return {report.exit_code(), json ? report.ToJson() : ""};
}

// The report of the only log as it is; of several, each under "logs" in the order given.
void PrintJson(const std::vector<Judged>& judged, int code) {
  if (judged.size() == 1) {
    std::puts(judged[0].json.c_str());
    return;
  }
  std::string text = "{\"logs\":[";
  for (size_t i = 0; i < judged.size(); ++i) {
    if (i != 0) text += ",";
    text += judged[i].json;
  }
  text += std::string("],\"ok\":") + (code == kExitClean ? "true" : "false") + "}";
  std::puts(text.c_str());
}

int RunCheck(const std::vector<std::string>& words) {
  if (words.empty()) return Fail("check", kExitUsage, "needs a LOG (- for standard input)");
  CheckOptions options;
  const std::string level = absl::GetFlag(FLAGS_level);
  if (!level.empty()) {
    options.level = LevelFromName(level);
    if (!options.level || *options.level == Level::kOff) {
      return Fail("check", kExitUsage, "--level must be map, full or audit, got '" + level + "'");
    }
  }
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend == "cuda") {
    std::string why;
    if (!CudaAvailable(&why)) return Fail("check", kExitEnvironment, "--backend=cuda: " + why);
    return Fail("check", kExitEnvironment,
                "--backend=cuda: logs are played on the CPU; CUDA kernels are run by ./dev gpu");
  }
  if (backend != "cpu") {
    return Fail("check", kExitUsage, "--backend must be cpu or cuda, got '" + backend + "'");
  }
  const bool json = absl::GetFlag(FLAGS_json), follow = absl::GetFlag(FLAGS_follow);
  if (follow && words.size() > 1) {
    return Fail("check", kExitUsage, "--follow takes one LOG, got " + std::to_string(words.size()));
  }
  std::unique_ptr<IncidentLog> incidents;
  if (const std::string path = absl::GetFlag(FLAGS_incidents); !path.empty()) {
    // Room for many: a log is played faster than disks write.
    Result<std::unique_ptr<IncidentLog>> opened =
        IncidentLog::Open({.path = path, .waiting = size_t{1} << 16});
    if (!opened.ok()) return Fail("check", kExitEnvironment, opened.status().message());
    incidents = std::move(opened).value();
    options.incidents = incidents.get();
  }
  std::vector<Judged> judged;
  int code = kExitClean;
  for (const std::string& name : words) {
    std::FILE* const people = json ? stderr : stdout;
    judged.push_back(follow ? FollowOne(name, options, json, people)
                            : CheckOne(name, options, json, people));
    code = std::max(code, judged.back().code);
  }
  if (json) PrintJson(judged, code);
  if (incidents != nullptr) {
    incidents->Flush();
    if (incidents->lost() > 0) {
      return Fail("check", kExitEnvironment,
                  std::to_string(incidents->lost()) + " incident records could not be written");
    }
  }
  return code;
}

}  // namespace

const Verb& CheckVerb() {
  static const Verb kVerb = {
      "check",
      "LOG...",
      "plays event logs and reports what the fence finds in them",
      "A log (.kvlog) is what an engine recorded, a reproducer, or a scenario written by hand:\n"
      "docs/events.md is its language. A log without `expect` lines is ok when nothing is found;\n"
      "with them, when each is met and nothing else is found. - reads standard input.\n"
      "With --follow a log that shrinks, or whose name goes to another file, is an error.\n\n"
      "examples:\n"
      "  kvfence check engine.kvlog\n"
      "  kvfence check --level=audit one.kvlog two.kvlog\n"
      "  kvfence check --json bug.kvlog | jq .violations\n"
      "  kvfence check --incidents=incidents.jsonl engine.kvlog\n"
      "  kvfence check --follow engine.kvlog\n",
      {"level", "follow", "incidents", "backend", "json"},
      RunCheck};
  return kVerb;
}

}  // namespace kvfence::tools
