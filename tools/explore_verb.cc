// `kvfence explore`: every interleaving of a world of two requests, four pages and one transfer.
// Shows what Explore counted; decides only whether that is good.
#include <absl/flags/flag.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "kvfence/explore.h"
#include "log_words.h"
#include "progress.h"
#include "shared_flags.h"

ABSL_FLAG(int64_t, depth, 16, "moves of a sequence, 1 to 24; each more takes 1.7 times as long");

namespace kvfence::tools {
namespace {

struct Explored {
  SmallFault fault{};
  Exploration with, without;  // the fence, and nobody looking
};

// Words for what must not be, empty when all is well.
std::string WrongOf(const Explored& e) {
  if (e.with.wrong_published > 0) {
    return "publishes a wrong token in: " + e.with.first_wrong;
  }
  if (e.with.refusals > 0) return "the fence refused a call of an honest engine";
  if (e.fault == SmallFault::kNone && e.with.reported > 0) {
    return "a report without a fault in: " + e.with.first_report;
  }
  if (e.fault == SmallFault::kNone && e.without.wrong_published > 0) {
    return "the world itself is wrong in: " + e.without.first_wrong;
  }
  return "";
}

Explored ExploreOne(SmallFault fault, uint64_t depth, ProgressLine* line) {
  Explored e{.fault = fault, .with = {}, .without = {}};
  ExploreOptions options{.depth = depth};
  options.on_progress = [&](uint64_t level, uint64_t sequences) {
    if (line->Due()) {
      line->Show(std::string(SmallFaultName(fault)) + (options.fence ? "" : ", no fence") +
                 ": depth " + std::to_string(level + 1) + " of " + std::to_string(depth) + ", " +
                 Short(static_cast<double>(sequences)) + " interleavings");
    }
    return true;
  };
  e.with = Explore(fault, options);
  options.fence = false;
  e.without = Explore(fault, options);
  line->Clear();
  return e;
}

nlohmann::ordered_json JsonOf(const Explored& e) {
  nlohmann::ordered_json json;
  json["fault"] = std::string(SmallFaultName(e.fault));
  json["interleavings"] = e.with.sequences;
  json["worlds"] = e.with.states;
  json["worlds_with_the_fault"] = e.with.faulted;
  json["worlds_reported"] = e.with.reported;
  json["worlds_ended_by_fence"] = e.with.ended_by_fence;
  json["wrong_published"] = e.with.wrong_published;
  json["wrong_published_without_fence"] = e.without.wrong_published;
  json["reasons"] = NamesOf(e.with.reasons);
  json["ok"] = WrongOf(e).empty();
  return json;
}

void PrintRow(const Explored& e) {
  std::string reasons;
  for (const std::string& name : NamesOf(e.with.reasons)) {
    reasons += (reasons.empty() ? "" : ", ") + name;
  }
  std::printf("%-14s %13llu %10llu %10llu %10llu %10llu  %s\n",
              std::string(SmallFaultName(e.fault)).c_str(),
              static_cast<unsigned long long>(e.with.sequences),
              static_cast<unsigned long long>(e.with.states),
              static_cast<unsigned long long>(e.with.reported),
              static_cast<unsigned long long>(e.with.wrong_published),
              static_cast<unsigned long long>(e.without.wrong_published), reasons.c_str());
  const std::string wrong = WrongOf(e);
  if (!wrong.empty()) std::printf("  %s\n", wrong.c_str());
  std::fflush(stdout);
}

int RunExplore(const std::vector<std::string>& words) {
  if (!words.empty()) {
    return Fail("explore", kExitUsage, "takes no words, got '" + words[0] + "'");
  }
  const int64_t depth = absl::GetFlag(FLAGS_depth);
  if (depth < 1 || depth > 24) {
    return Fail("explore", kExitUsage,
                "--depth=" + std::to_string(depth) + ": expected a number from 1 to 24");
  }
  const bool as_json = absl::GetFlag(FLAGS_json);
  ProgressLine line(IsFancy(STDERR_FILENO));
  nlohmann::ordered_json json;
  json["depth"] = depth;
  json["faults"] = nlohmann::ordered_json::array();
  if (!as_json) {
    std::printf("%-14s %13s %10s %10s %10s %10s\n%-14s %13s %10s %10s %10s %10s  %s\n", "", "", "",
                "worlds", "wrong", "wrong w/o", "fault", "interleavings", "worlds", "reported",
                "published", "the fence", "answered by");
  }
  int bad = 0, bite = 0;
  for (int i = 0; i < kSmallFaultCount; ++i) {
    const Explored e = ExploreOne(static_cast<SmallFault>(i), static_cast<uint64_t>(depth), &line);
    bad += WrongOf(e).empty() ? 0 : 1;
    bite += e.without.wrong_published > 0 ? 1 : 0;
    if (as_json) json["faults"].push_back(JsonOf(e));
    if (!as_json) PrintRow(e);
  }
  json["ok"] = bad == 0;
  if (as_json) {
    std::puts(json.dump(2).c_str());
  } else {
    std::printf(
        "\nevery interleaving of up to %lld moves: %s; %d of %d faults publish wrong tokens\n"
        "there when nobody looks\n",
        static_cast<long long>(depth),
        bad == 0 ? "no wrong token, no report without a fault" : "NOT GOOD, see above", bite,
        kSmallFaultCount - 1);
  }
  return bad == 0 ? kExitClean : kExitFinding;
}

}  // namespace

const Verb& ExploreVerb() {
  static const Verb kVerb = {
      "explore",
      "",
      "tries every interleaving of a small world, with and without one fault",
      "The world: two requests that come, grow, end or are taken back at any moment; three pages\n"
      "for the four they want; a step that is launched, attends, is confirmed and retires; one\n"
      "transfer that brings a first page. Each sequence of such moves up to --depth is played,\n"
      "without a fault and with one of eight at each moment at which it can happen, with the "
      "fence\n"
      "and without it. Good is: no wrong token published, and no report where there's no fault.\n\n"
      "examples:\n  kvfence explore\n  kvfence explore --depth=20 --json\n",
      {"depth", "json"},
      RunExplore};
  return kVerb;
}

}  // namespace kvfence::tools
