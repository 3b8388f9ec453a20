// `kvfence shrink LOG`: a smallest log that still shows the same finding.
#include <absl/flags/flag.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "atomic_file.h"
#include "cli.h"
#include "interrupt.h"
#include "kvfence/shrink_log.h"
#include "log_words.h"
#include "progress.h"
#include "shared_flags.h"

ABSL_FLAG(std::string, o, "", "file for the shrunk log; default: standard output");
ABSL_FLAG(std::string, reason, "",
          "keep the first finding of this reason; default: the first that the log doesn't expect, "
          "else the first");
ABSL_FLAG(uint64_t, line, 0, "keep the first finding that this line of the log reports");

namespace kvfence::tools {
namespace {

// False after a message.
bool ReadOptions(ShrinkOptions* options) {
  options->line = absl::GetFlag(FLAGS_line);
  const std::string reason = absl::GetFlag(FLAGS_reason);
  if (reason.empty()) return true;
  options->reason = ReasonFromName(reason);
  if (options->reason) return true;
  const std::vector<std::string_view> names(kReasonNames.begin(), kReasonNames.end());
  Fail("shrink", kExitUsage,
       "--reason: there's no reason '" + Printable(reason) + "'" + DidYouMean(reason, names));
  return false;
}

void ShowProgress(ProgressLine* line, const ShrinkProgress& p) {
  if (!line->Due()) return;
  line->Show(std::string(p.phase) + ": " + std::to_string(p.lines_before) + " -> " +
             std::to_string(p.lines) + " lines, " + std::to_string(p.plays) + " trials");
}

void PrintPeople(const std::string& name, const std::string& out, const ShrunkLog& shrunk) {
  std::fprintf(stderr, "kept: %s:%llu: %s\n", Printable(name).c_str(),
               static_cast<unsigned long long>(shrunk.finding.line),
               Words(shrunk.finding, shrunk.pools).c_str());
  if (!shrunk.error.empty()) {
    std::fprintf(stderr, "%s; the log was read up to there\n", Printable(shrunk.error).c_str());
  }
  std::fprintf(stderr, "%llu -> %llu lines, %llu -> %llu bytes, %llu trials%s\n",
               static_cast<unsigned long long>(shrunk.lines_before),
               static_cast<unsigned long long>(shrunk.lines),
               static_cast<unsigned long long>(shrunk.bytes_before),
               static_cast<unsigned long long>(shrunk.bytes),
               static_cast<unsigned long long>(shrunk.plays),
               shrunk.stopped ? "; INTERRUPTED, there may be a smaller one" : "");
  if (!out.empty()) {
    std::fprintf(stderr, "%s:%llu reports it\n", Printable(out).c_str(),
                 static_cast<unsigned long long>(shrunk.line));
  }
}

void PrintJson(const std::string& out, const ShrunkLog& shrunk) {
  const Violation& v = shrunk.finding.violation;
  nlohmann::ordered_json json;
  json["out"] = out;
  json["reason"] = ReasonName(v.reason);
  json["req"] = shrunk.finding.req;
  json["line_before"] = shrunk.finding.line;
  json["line"] = shrunk.line;
  json["lines_before"] = shrunk.lines_before;
  json["lines"] = shrunk.lines;
  json["bytes_before"] = shrunk.bytes_before;
  json["bytes"] = shrunk.bytes;
  json["trials"] = shrunk.plays;
  json["interrupted"] = shrunk.stopped;
  if (!shrunk.error.empty()) {
    json["error"] = shrunk.error;
    json["cut_off"] = shrunk.cut_off;
  }
  using Json = nlohmann::ordered_json;
  std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

int RunShrink(const std::vector<std::string>& words) {
  if (words.size() != 1) {
    return Fail("shrink", kExitUsage, "needs one LOG (- for standard input)");
  }
  const std::string out = absl::GetFlag(FLAGS_o);
  const bool json = absl::GetFlag(FLAGS_json);
  if (json && out.empty()) {
    return Fail("shrink", kExitUsage, "--json needs -o: standard output is one object then");
  }
  ShrinkOptions options;
  if (!ReadOptions(&options)) return kExitUsage;
  ProgressLine line(IsFancy(fileno(stderr)));
  options.progress = [&](const ShrinkProgress& progress) { ShowProgress(&line, progress); };
  options.stop = &StopOnInterrupt();

  const std::string& name = words[0];
  std::ifstream file;
  if (name != "-") file.open(name, std::ios::binary);
  if (name != "-" && !file.is_open()) {
    return Fail("shrink", kExitUsage, Printable(name) + ": " + std::strerror(errno));
  }
  Result<ShrunkLog> shrunk =
      name == "-" ? ShrinkLog(&std::cin, "stdin", options) : ShrinkLog(&file, name, options);
  line.Clear();
  if (!shrunk.ok()) return Fail("shrink", kExitUsage, Printable(shrunk.status().message()));
  if (out.empty()) {
    std::fputs(shrunk->text.c_str(), stdout);
  } else if (Status status = WriteFile(out, shrunk->text); !status.ok()) {
    return Fail("shrink", kExitEnvironment, status.message());
  }
  PrintPeople(name, out, *shrunk);
  if (json) PrintJson(out, *shrunk);
  return shrunk->stopped ? kExitEnvironment : kExitClean;
}

}  // namespace

const Verb& ShrinkVerb() {
  static const Verb kVerb = {
      "shrink",
      "LOG",
      "makes a log without all that its finding does not need",
      "Leaves out requests, steps, lines, rows, keys and numbers as long as the finding is "
      "reported\n"
      "and nothing else is that the log didn't report. The result ends where the finding is\n"
      "reported, and holds an `expect` for it: `kvfence check` of it is ok. - reads standard "
      "input.\n"
      "Ctrl-C ends early and keeps the smallest so far (exit 3).\n\n"
      "examples:\n"
      "  kvfence shrink engine.kvlog -o small.kvlog\n"
      "  kvfence shrink engine.kvlog --reason=tag_mismatch -o small.kvlog\n"
      "  kvfence shrink engine.kvlog --line=48211 -o small.kvlog --json\n",
      {"o", "reason", "line", "json"},
      RunShrink};
  return kVerb;
}

}  // namespace kvfence::tools
