// `kvfence check LOG`: plays logs and says what the fence finds, and which `expect` lines hold.
//
// Each log is judged alone; the exit code is that of the worst. One line per violation and per
// expectation that wasn't met, beginning with FILE:LINE: as compilers do, so that editors jump
// there.
#include <absl/flags/flag.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "kvfence/backend.h"
#include "kvfence/check_log.h"
#include "shared_flags.h"

namespace kvfence::tools {
namespace {

constexpr const char* kRed = "\x1b[31m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

// A text from a log as part of one line: its bytes don't steer the terminal, its length is bounded.
std::string Printable(std::string_view text) {
  constexpr size_t kShown = 400;
  std::string out;
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  if (text.size() > kShown) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

void Add(std::string* text, std::string_view name, int64_t value) {
  if (value >= 0) *text += " " + std::string(name) + " " + std::to_string(value);
}

void AddPool(std::string* text, const CheckReport& report, int64_t pool) {
  if (pool < 0 || report.pools.size() < 2) return;
  *text += " pool " + Printable(report.pools[static_cast<size_t>(pool)]);
}

std::string Words(const LoggedViolation& logged, const CheckReport& report) {
  const Violation& v = logged.violation;
  std::string text(ReasonName(v.reason));
  if (!logged.req.empty()) text += " req " + Printable(logged.req);
  if (v.page != -1) text += " page " + std::to_string(v.page);
  Add(&text, "at", v.at);
  AddPool(&text, report, v.pool);
  Add(&text, "row", v.row);
  Add(&text, "step", v.step);
  if (v.expected != v.found) {
    text += ": expected " + std::to_string(v.expected) + ", found " + std::to_string(v.found);
  }
  return text;
}

std::string Words(const LoggedExpect& logged, const CheckReport& report) {
  const LogExpect& e = logged.expect;
  if (e.clean) return "expected clean, but violations were reported that no expect line covers";
  std::string text = "expected " + std::string(ReasonName(e.reason));
  if (!logged.req.empty()) text += " req " + Printable(logged.req);
  if (e.page) text += " page " + std::to_string(e.page->value());
  if (e.at) text += " at " + std::to_string(*e.at);
  if (e.pool) AddPool(&text, report, static_cast<int64_t>(e.pool->value()));
  if (e.row) text += " row " + std::to_string(e.row->value());
  if (e.step) text += " step " + std::to_string(e.step->value());
  return text + ", which was not reported";
}

bool Same(const LoggedViolation& a, const LoggedViolation& b) {
  const Violation &x = a.violation, &y = b.violation;
  return a.line == b.line && x.reason == y.reason && x.step == y.step && x.row == y.row &&
         x.pool == y.pool && x.at == y.at && x.page == y.page && x.rank == y.rank &&
         x.expected == y.expected && x.found == y.found && a.req == b.req;
}

// Violations and unmet expectations in the order of their lines, then the sum.
void PrintPeople(const std::string& name, const CheckReport& report, bool fancy, std::FILE* out) {
  std::vector<std::pair<uint64_t, std::string>> lines;
  auto unexpected = report.unexpected.begin();
  for (const LoggedViolation& violation : report.violations) {
    std::string text = Words(violation, report);
    if (unexpected != report.unexpected.end() && Same(*unexpected, violation)) {
      ++unexpected;
      if (fancy) text = kRed + text + kPlain;
    } else {
      text += " (as expected)";
    }
    lines.emplace_back(violation.line, std::move(text));
  }
  for (const LoggedExpect& expect : report.unmet) {
    const std::string text = Words(expect, report);
    lines.emplace_back(expect.line, fancy ? kRed + text + kPlain : text);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [line, text] : lines) {
    std::fprintf(out, "%s:%llu: %s\n", name.c_str(), static_cast<unsigned long long>(line),
                 text.c_str());
  }
  if (report.violations_not_kept != 0) {
    std::fprintf(out, "%s: %llu more unexpected violations, not listed\n", name.c_str(),
                 static_cast<unsigned long long>(report.violations_not_kept));
  }
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
}

struct Judged {
  int code = kExitClean;
  std::string json;  // one object
};

Judged CheckOne(const std::string& name, const CheckOptions& options, std::FILE* people) {
  Result<CheckReport> checked =
      name == "-" ? CheckLog(&std::cin, "stdin", options) : CheckLogFile(name, options);
  if (!checked.ok()) {
    std::fprintf(stderr, "%s\n", Printable(checked.status().message()).c_str());
    CheckReport refused;
    refused.error = checked.status().message();
    return {kExitUsage, refused.ToJson()};
  }
  const CheckReport& report = *checked;
  PrintPeople(name == "-" ? "stdin" : name, report, IsFancy(fileno(people)), people);
  return {report.exit_code(), report.ToJson()};
}

// The report of the only log as it is; of several, each under "logs" in the order given.
void PrintJson(const std::vector<Judged>& judged, int code) {
  if (judged.size() == 1) {
    if (!judged[0].json.empty()) std::puts(judged[0].json.c_str());
    return;
  }
  std::string text = "{\"logs\":[";
  for (size_t i = 0; i < judged.size(); ++i) {
    if (i != 0) text += ",";
    text += judged[i].json.empty() ? "null" : judged[i].json;
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
  const bool json = absl::GetFlag(FLAGS_json);
  std::vector<Judged> judged;
  int code = kExitClean;
  for (const std::string& name : words) {
    judged.push_back(CheckOne(name, options, json ? stderr : stdout));
    code = std::max(code, judged.back().code);
  }
  if (json) PrintJson(judged, code);
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
      "with them, when each is met and nothing else is found. - reads standard input.\n\n"
      "examples:\n"
      "  kvfence check engine.kvlog\n"
      "  kvfence check --level=audit one.kvlog two.kvlog\n"
      "  kvfence check --json bug.kvlog | jq .violations\n",
      {"level", "backend", "json"},
      RunCheck};
  return kVerb;
}

}  // namespace kvfence::tools
