#include "scenarios.h"

#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "kvfence/check_log.h"
#include "log_words.h"

namespace kvfence::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string CatalogueFile(const std::string& dir) { return dir + "/catalogue.json"; }

// Throws nlohmann's exceptions where a key is absent or of another type.
Catalogue FromJson(const Json& json) {
  Catalogue catalogue;
  for (const auto& [letter, name] : json.at("classes").items()) {
    catalogue.classes[letter.at(0)] = name.get<std::string>();
  }
  for (const Json& each : json.at("entries")) {
    CatalogueEntry& entry = catalogue.entries.emplace_back();
    entry.id = each.at("id").get<std::string>();
    entry.title = each.at("title").get<std::string>();
    if (each.contains("limit")) {
      entry.limit = each.at("limit").get<std::string>();
      entry.why = each.at("why").get<std::string>();
    }
  }
  return catalogue;
}

std::string Mistake(const Catalogue& catalogue) {
  std::set<std::string_view> seen;
  for (const CatalogueEntry& entry : catalogue.entries) {
    if (entry.id.empty() || !catalogue.classes.contains(entry.letter())) {
      return "the id '" + Printable(entry.id) + "' begins with the letter of no class";
    }
    if (!seen.insert(entry.id).second) return "two entries have the id " + Printable(entry.id);
  }
  return catalogue.entries.empty() ? "has no entries" : "";
}

// One playing of a log; what it hears is kept in the order in which it was said.
struct Playing {
  LevelAnswer answer;
  std::set<std::pair<uint32_t, uint32_t>> named;     // requests: name, incarnation
  std::set<std::pair<int64_t, int64_t>> rows_named;  // step, row
  Level own_level = Level::kFull;

  void Hear(uint64_t line, const Violation& v) {
    if (!answer.answered()) {
      answer.reason = v.reason;
      answer.line = line;
    }
    ++answer.violations;
    if (v.req) named.insert({v.req.name().value(), v.req.incarnation()});
    if (v.row >= 0) rows_named.insert({v.step, v.row});
  }
  void Hear(const WrongRead& wrong) {
    answer.wrong_tokens += wrong.tokens;
    const auto step = static_cast<int64_t>(wrong.step.value());
    if (!named.contains({wrong.req.name().value(), wrong.req.incarnation()}) &&
        !rows_named.contains({step, wrong.row.value()})) {
      answer.unnamed_wrong_tokens += wrong.tokens;
    }
  }
};

Result<CheckReport> Play(const std::string& path, Level level, Playing* playing) {
  CheckOptions options;
  options.level = level;
  options.on_header = [playing](const FenceConfig& config) { playing->own_level = config.level; };
  options.on_violation = [playing](uint64_t line, const Violation& violation, std::string_view) {
    playing->Hear(line, violation);
  };
  options.on_wrong_read = [playing](const WrongRead& wrong) { playing->Hear(wrong); };
  return CheckLogFile(path, options);
}

// What the log demanded of its own level and didn't get.
void Demand(const std::string& file, const CheckReport& report, const LevelAnswer& answer,
            std::vector<std::string>* trouble) {
  const auto say = [&](uint64_t line, const std::string& what) {
    trouble->push_back(file + ":" + std::to_string(line) + ": " + what);
  };
  for (const LoggedExpect& expect : report.unmet) say(expect.line, Words(expect, report.pools));
  for (const LoggedViolation& violation : report.unexpected) {
    say(violation.line, Words(violation, report.pools) + ", which the log doesn't expect");
  }
  if (answer.answered() && !answer.before_publication()) {
    say(answer.line, std::to_string(answer.unnamed_wrong_tokens) +
                         " wrong tokens were published of requests that nothing had named");
  }
  if (!answer.answered()) trouble->push_back(file + ": nothing is reported");
}

// None, and the trouble is told, if the log can't be read to its end.
std::optional<CheckReport> PlayToTheEnd(const std::string& path, Level level, Playing* playing,
                                        std::vector<std::string>* trouble) {
  Result<CheckReport> report = Play(path, level, playing);
  if (report.ok() && report->error.empty()) return std::move(report).value();
  const std::string& why = report.ok() ? report->error : report.status().message();
  trouble->push_back(Printable(why));
  return std::nullopt;
}

void PlayBug(const std::string& dir, PlayedEntry* played) {
  const std::string file = played->entry.id + ".kvlog";
  for (size_t i = 0; i < kPlayedLevels.size(); ++i) {
    Playing playing;
    const std::optional<CheckReport> report =
        PlayToTheEnd(dir + "/" + file, kPlayedLevels[i], &playing, &played->trouble);
    if (!report) return;
    played->levels[i] = playing.answer;
    played->own_level = playing.own_level;
    if (playing.own_level == kPlayedLevels[i]) {
      Demand(file, *report, playing.answer, &played->trouble);
    }
  }
}

void PlayTwin(const std::string& dir, PlayedEntry* played) {
  const std::string file = played->entry.id + ".clean.kvlog";
  for (size_t i = 0; i < kPlayedLevels.size(); ++i) {
    Playing playing;
    const std::optional<CheckReport> report =
        PlayToTheEnd(dir + "/" + file, kPlayedLevels[i], &playing, &played->trouble);
    if (!report) return;
    played->twin_silent[i] = report->ok() && report->violations.empty() &&
                             playing.answer.wrong_tokens == 0 && report->events > 0;
    if (played->twin_silent[i]) continue;
    std::string why = "publishes " + std::to_string(playing.answer.wrong_tokens) + " wrong tokens";
    uint64_t line = 1;
    if (!report->violations.empty()) {
      why = Words(report->violations[0], report->pools);
      line = report->violations[0].line;
    } else if (!report->unmet.empty()) {
      why = Words(report->unmet[0], report->pools);
      line = report->unmet[0].line;
    }
    played->trouble.push_back(file + ":" + std::to_string(line) + ": the twin isn't silent at " +
                              std::string(LevelName(kPlayedLevels[i])) + ": " + why);
  }
}

}  // namespace

Result<Catalogue> ReadCatalogue(const std::string& dir) {
  const std::string path = CatalogueFile(dir);
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open()) {
    return Status(StatusCode::kUnavailable, path + ": " + std::strerror(errno));
  }
  try {
    Catalogue catalogue = FromJson(Json::parse(in));
    const std::string mistake = Mistake(catalogue);
    if (mistake.empty()) return catalogue;
    return Status::Invalid(path + ": " + mistake);
  } catch (const std::exception& error) {
    return Status::Invalid(path + ": " + error.what());
  }
}

std::optional<size_t> PlayedEntry::lowest() const {
  const auto in_time = std::ranges::find_if(levels, &LevelAnswer::before_publication);
  const auto found =
      in_time != levels.end() ? in_time : std::ranges::find_if(levels, &LevelAnswer::answered);
  if (found == levels.end()) return std::nullopt;
  return static_cast<size_t>(found - levels.begin());
}

PlayedEntry PlayEntry(const std::string& dir, const CatalogueEntry& entry) {
  PlayedEntry played;
  played.entry = entry;
  if (!entry.visible()) return played;
  PlayBug(dir, &played);
  PlayTwin(dir, &played);
  return played;
}

bool Selected(std::string_view id, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), std::string(id).c_str(), 0) == 0;
  });
}

}  // namespace kvfence::tools
