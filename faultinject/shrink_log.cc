// See the header: from a log to its finding and back to a log; the trials are shrinker.h's.
#include "kvfence/shrink_log.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "kvfence/check.h"
#include "shrinker.h"
#include "whole_tables.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

const LoggedViolation* Choose(const CheckReport& report, const ShrinkOptions& options) {
  for (const auto* list : {&report.unexpected, &report.violations}) {
    for (const LoggedViolation& each : *list) {
      if (options.reason && each.violation.reason != *options.reason) continue;
      if (options.line == 0 || each.line == options.line) return &each;
    }
  }
  return nullptr;
}

Status NoFinding(const std::string& name, const CheckReport& report, const ShrinkOptions& options) {
  std::string text = name + ": no finding";
  if (options.reason) text += " of reason " + std::string(ReasonName(*options.reason));
  if (options.line != 0) text += " at line " + std::to_string(options.line);
  if (!report.violations.empty()) {
    const LoggedViolation& first = report.violations[0];
    text += "; the first is " + std::string(ReasonName(first.violation.reason)) + " at line " +
            std::to_string(first.line);
  } else if (!report.error.empty()) {
    text += "; " + report.error;
  }
  return Status::Invalid(text);
}

Json ExpectOf(const Violation& v, const FindingKey& key, size_t pools, bool ranks) {
  Json expect;
  expect["ev"] = "expect";
  expect["reason"] = ReasonName(v.reason);
  if (v.req) expect["req"] = std::get<1>(key);
  if (v.page >= 0) expect["page"] = v.page;
  if (v.pool >= 0 && pools > 1) expect["pool"] = std::get<2>(key);
  if (v.at >= 0) expect["at"] = v.at;
  if (v.step >= 0) expect["step"] = v.step;
  if (v.row >= 0) expect["row"] = v.row;
  if (ranks) expect["rank"] = v.rank;
  return expect;
}

// The lines with an `expect` behind each that reports something; `line`: where `key` is reported.
std::string WithExpects(const Json& header, const std::vector<std::string>& lines,
                        const FindingKey& key, uint64_t* line) {
  const Trial played = PlayTrial(header, lines);
  std::string text = header.dump() + "\n";
  uint64_t written = 1;
  size_t next = 0;
  std::set<std::string> said;
  *line = 0;
  for (uint64_t i = 1; i <= lines.size() + 1; ++i) {
    const uint64_t at = written;
    for (; next < played.found.size() && played.found[next].first == i; ++next) {
      if (*line == 0 && played.keys[next] == key) *line = at;
      const std::string expect = ExpectOf(played.found[next].second, played.keys[next],
                                          header["pools"].size(), header.contains("ranks"))
                                     .dump();
      if (!said.insert(expect).second) continue;
      text += expect + "\n";
      ++written;
    }
    if (i <= lines.size()) {
      text += lines[i - 1] + "\n";
      ++written;
    }
  }
  return text + "{\"ev\":\"expect\",\"clean\":true}\n";
}

}  // namespace

Result<ShrunkLog> ShrinkLog(std::istream* in, const std::string& name,
                            const ShrinkOptions& options) {
  std::ostringstream all;
  all << in->rdbuf();
  const std::string text = std::move(all).str();
  std::istringstream whole(text);
  Result<CheckReport> report = CheckLog(&whole, name, {.truth = false});
  if (!report.ok()) return Status(report.status().code(), report.status().message());
  const LoggedViolation* const finding = Choose(*report, options);
  if (finding == nullptr) return NoFinding(name, *report, options);

  std::istringstream lines(text);
  std::string line;
  uint64_t number = 0;
  std::optional<Json> header;
  std::optional<WholeTables> tables;
  std::vector<std::string> events;
  while (number < finding->line && std::getline(lines, line)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json json = Json::parse(line);
    if (!header) {
      tables.emplace(json);
      header = std::move(json);
    } else if (json.at("ev") != "expect") {
      if (tables->Expand(&json)) line = json.dump();
      events.push_back(line);
    }
  }
  const FindingKey key = KeyOf(finding->violation, finding->req, report->pools);
  Shrinker shrinker(std::move(*header), std::move(events), key, options);
  KVF_CHECK(shrinker.Begin(), "I-100 a log without what follows its finding still shows it");
  shrinker.Run();

  ShrunkLog shrunk;
  shrunk.finding = *finding;
  shrunk.pools = report->pools;
  shrunk.error = report->error;
  shrunk.cut_off = report->cut_off;
  shrunk.text = WithExpects(shrinker.header(), shrinker.lines(), key, &shrunk.line);
  shrunk.lines_before = report->events;
  shrunk.lines = shrinker.lines().size();
  shrunk.bytes_before = text.size();
  shrunk.bytes = shrunk.text.size();
  shrunk.plays = shrinker.plays();
  shrunk.stopped = shrinker.Done();
  std::istringstream again(shrunk.text);
  const Result<CheckReport> holds = CheckLog(&again, "shrunk", {.truth = false});
  KVF_CHECK(holds.ok() && const_cast<Result<CheckReport>&>(holds)->ok() && shrunk.line != 0,
            "I-100 a shrunk log reports the finding and meets its own expectations");
  return shrunk;
}

}  // namespace kvfence
