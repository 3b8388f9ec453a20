// `kvfence bugs`: real bookkeeping bugs as event logs, and what the fence says to each.
//
// Every entry of the catalogue is played at each level, beside its twin in which the bug is fixed.
// What the table says of publication is the logs' ground truth; scenarios.h has the rules.
#include <absl/flags/flag.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "log_words.h"
#include "scenarios.h"
#include "shared_flags.h"

ABSL_FLAG(std::string, scenarios, "",
          "folder with catalogue.json and the logs; default: tests/scenarios of the source tree "
          "that this program was built from");
ABSL_FLAG(std::string, only, "",
          "entries to play, comma-separated; * and ? stand for any: A-04,C-*");

namespace kvfence::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Sums {
  size_t answered = 0, before = 0, late = 0, unseen = 0, twins = 0, silent_twins = 0, failing = 0;
  std::array<size_t, 3> at{};  // answered before publication, by level
  size_t map_alone() const { return at[0]; }
};

Sums SumUp(const std::vector<PlayedEntry>& all) {
  Sums sums;
  for (const PlayedEntry& played : all) {
    if (!played.holds()) ++sums.failing;
    if (!played.entry.visible()) {
      ++sums.unseen;
      continue;
    }
    ++sums.twins;
    if (played.twin_is_silent()) ++sums.silent_twins;
    if (played.answered()) ++sums.answered;
    if (played.before_publication()) ++sums.before;
    if (played.answered() && !played.before_publication()) ++sums.late;
    for (size_t i = 0; i < sums.at.size(); ++i) {
      if (played.levels[i].before_publication()) ++sums.at[i];
    }
  }
  return sums;
}

// --- for people ----------------------------------------------------------------------------------

std::string Cell(const LevelAnswer& answer) {
  if (!answer.answered()) return "silent";
  return std::string(ReasonName(*answer.reason)) + (answer.before_publication() ? "" : ", late");
}

// The audit's answer where it differs from that of `full`.
std::string AuditCell(const PlayedEntry& played) {
  const std::string full = Cell(played.levels[1]), audit = Cell(played.levels[2]);
  return audit == full ? "as full" : audit;
}

class Table {
 public:
  Table(const Catalogue& catalogue, const std::vector<PlayedEntry>& all, bool fancy, std::FILE* out)
      : catalogue_(catalogue), all_(all), fancy_(fancy), out_(out) {
    for (const PlayedEntry& played : all) {
      for (size_t i = 0; i < 2; ++i) Widen(i, Cell(played.levels[i]));
      Widen(2, AuditCell(played));
    }
  }

  void Print() const {
    std::fprintf(out_,
                 "first reason reported at each level; `late`: a wrong token was published\n");
    std::fprintf(out_, "before its request was named\n\n%-5s  %-*s  %-*s  %-*s  %-6s  %s\n",
                 "entry", width_[0], "map", width_[1], "full", width_[2], "audit", "twin",
                 "what goes wrong");
    char letter = 0;
    for (const PlayedEntry& played : all_) {
      if (played.entry.letter() != letter) {
        letter = played.entry.letter();
        std::fprintf(out_, "\n%c  %s\n", letter, Printable(catalogue_.classes.at(letter)).c_str());
      }
      Line(played);
    }
    std::fputc('\n', out_);
    for (const PlayedEntry& played : all_) {
      for (const std::string& why : played.trouble) {
        std::fprintf(out_, "%s%s%s\n", Red(true), why.c_str(), Plain(true));
      }
    }
  }

 private:
  void Widen(size_t column, const std::string& cell) {
    width_[column] = std::max(width_[column], static_cast<int>(cell.size()));
  }
  const char* Red(bool mark) const { return fancy_ && mark ? kRed : ""; }
  const char* Plain(bool mark) const { return fancy_ && mark ? kPlain : ""; }

  void Line(const PlayedEntry& played) const {
    const CatalogueEntry& entry = played.entry;
    const bool bad = !played.holds();
    if (!entry.visible()) {
      std::fprintf(out_, "%-5s  not visible: %s\n       docs/limits.md#%s: %s\n", entry.id.c_str(),
                   Printable(entry.title).c_str(), Printable(entry.limit).c_str(),
                   Printable(entry.why).c_str());
      return;
    }
    std::fprintf(out_, "%s%-5s  %-*s  %-*s  %-*s  %-6s  %s%s%s\n", Red(bad),
                 Printable(entry.id).c_str(), width_[0], Cell(played.levels[0]).c_str(), width_[1],
                 Cell(played.levels[1]).c_str(), width_[2], AuditCell(played).c_str(),
                 played.twin_is_silent() ? "silent" : "SPEAKS", Printable(entry.title).c_str(),
                 bad ? "  DOESN'T HOLD" : "", Plain(bad));
  }

  const Catalogue& catalogue_;
  const std::vector<PlayedEntry>& all_;
  bool fancy_;
  std::FILE* out_;
  std::array<int, 3> width_ = {6, 6, 7};
};

void PrintSums(const std::vector<PlayedEntry>& all, const Sums& sums, bool fancy, std::FILE* out) {
  std::fprintf(out,
               "%zu entries: %zu answered before publication at full, %zu at audit, %zu by map "
               "alone; %zu late;\n%zu of %zu twins silent; %zu not visible (docs/limits.md): ",
               all.size(), sums.at[1], sums.at[2], sums.map_alone(), sums.late, sums.silent_twins,
               sums.twins, sums.unseen);
  const char* colour = !fancy ? "" : sums.failing == 0 ? kGreen : kRed;
  const char* plain = fancy ? kPlain : "";
  if (sums.failing == 0) {
    std::fprintf(out, "%sall hold%s\n", colour, plain);
  } else {
    std::fprintf(out, "%s%zu DON'T HOLD%s\n", colour, sums.failing, plain);
  }
}

// --- for programs --------------------------------------------------------------------------------

Json ToJson(const LevelAnswer& answer) {
  Json json;
  json["answered"] = answer.answered();
  json["reason"] = answer.answered() ? Json(ReasonName(*answer.reason)) : Json(nullptr);
  json["line"] = answer.answered() ? Json(answer.line) : Json(nullptr);
  json["before_publication"] = answer.before_publication();
  json["violations"] = answer.violations;
  json["wrong_tokens"] = answer.wrong_tokens;
  json["unnamed_wrong_tokens"] = answer.unnamed_wrong_tokens;
  return json;
}

Json ToJson(const PlayedEntry& played, const Catalogue& catalogue) {
  const CatalogueEntry& entry = played.entry;
  const std::optional<size_t> lowest = played.lowest();
  Json json;
  json["id"] = entry.id;
  json["class"] = std::string(1, entry.letter());
  json["class_name"] = catalogue.classes.at(entry.letter());
  json["title"] = entry.title;
  json["answered"] = played.answered();
  json["reason"] = lowest ? Json(ReasonName(*played.levels[*lowest].reason)) : Json(nullptr);
  json["level"] = lowest ? Json(LevelName(kPlayedLevels[*lowest])) : Json(nullptr);
  json["before_publication"] = played.before_publication();
  if (!entry.visible()) {
    json["limit"] = "docs/limits.md#" + entry.limit;
    json["why"] = entry.why;
    return json;
  }
  json["own_level"] = LevelName(played.own_level);
  json["holds"] = played.holds();
  json["twin_silent"] = played.twin_is_silent();
  for (size_t i = 0; i < kPlayedLevels.size(); ++i) {
    Json level = ToJson(played.levels[i]);
    level["twin_silent"] = played.twin_silent[i];
    json["levels"][std::string(LevelName(kPlayedLevels[i]))] = std::move(level);
  }
  json["trouble"] = played.trouble;
  return json;
}

void PrintJson(const std::vector<PlayedEntry>& all, const Catalogue& catalogue, const Sums& sums) {
  Json json;
  json["total"] = all.size();
  json["answered"] = sums.answered;
  json["answered_before_publication"] = sums.before;
  for (size_t i = 0; i < kPlayedLevels.size(); ++i) {
    json["answered_at"][std::string(LevelName(kPlayedLevels[i]))] = sums.at[i];
  }
  json["twins"] = sums.twins;
  json["twins_silent"] = sums.silent_twins;
  json["not_visible"] = sums.unseen;
  json["ok"] = sums.failing == 0;
  json["entries"] = Json::array();
  for (const PlayedEntry& played : all) json["entries"].push_back(ToJson(played, catalogue));
  std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

// --- the verb ------------------------------------------------------------------------------------

// The folder to read; empty after a message.
std::string Folder() {
  const std::string asked = absl::GetFlag(FLAGS_scenarios);
  const std::string dir = asked.empty() ? KVFENCE_SCENARIOS : asked;
  std::error_code error;
  if (std::filesystem::is_directory(dir, error)) return dir;
  if (asked.empty()) {
    Fail("bugs", kExitUsage,
         "the source tree that this program was built from is gone (" + dir +
             "); --scenarios=DIR says where its tests/scenarios lies now");
  } else {
    Fail("bugs", kExitUsage, "--scenarios=" + Printable(dir) + ": there's no such folder");
  }
  return "";
}

// Leaves only the selected entries. Not ok: a pattern that selects nothing.
Status Select(const std::string& only, Catalogue* catalogue) {
  const std::vector<std::string> patterns = absl::StrSplit(only, ',', absl::SkipEmpty());
  if (patterns.empty()) return Status();
  for (const std::string& pattern : patterns) {
    if (std::ranges::none_of(catalogue->entries,
                             [&](const auto& entry) { return Selected(entry.id, {pattern}); })) {
      std::vector<std::string_view> ids;
      for (const CatalogueEntry& entry : catalogue->entries) ids.push_back(entry.id);
      return Status::Invalid("--only: no entry is called '" + Printable(pattern) + "'" +
                             DidYouMean(pattern, ids));
    }
  }
  std::erase_if(catalogue->entries,
                [&](const CatalogueEntry& entry) { return !Selected(entry.id, patterns); });
  return Status();
}

int RunBugs(const std::vector<std::string>& words) {
  if (!words.empty()) return Fail("bugs", kExitUsage, "takes no words, got '" + words[0] + "'");
  const std::string dir = Folder();
  if (dir.empty()) return kExitUsage;
  Result<Catalogue> catalogue = ReadCatalogue(dir);
  if (!catalogue.ok()) return Fail("bugs", kExitUsage, catalogue.status().message());
  if (Status status = Select(absl::GetFlag(FLAGS_only), &*catalogue); !status.ok()) {
    return Fail("bugs", kExitUsage, status.message());
  }
  std::vector<PlayedEntry> all;
  for (const CatalogueEntry& entry : catalogue->entries) all.push_back(PlayEntry(dir, entry));
  const Sums sums = SumUp(all);
  const bool json = absl::GetFlag(FLAGS_json);
  std::FILE* const people = json ? stderr : stdout;
  const bool fancy = IsFancy(fileno(people));
  Table(*catalogue, all, fancy, people).Print();
  PrintSums(all, sums, fancy, people);
  if (json) PrintJson(all, *catalogue, sums);
  return sums.failing == 0 ? kExitClean : kExitFinding;
}

}  // namespace

const Verb& BugsVerb() {
  static const Verb kVerb = {
      "bugs",
      "",
      "plays the catalogue of real bookkeeping bugs: which check answers, from which level, in "
      "time",
      "Each entry is a log in which a bug happens as engines had it, and a twin in which it's "
      "fixed.\n"
      "Both are played at the levels map, full and audit. An entry holds if its own expectations\n"
      "are met, no wrong token of a request is published before a violation named the request, "
      "and\n"
      "the twin is silent at every level. What no event can show is argued in docs/limits.md.\n"
      "Exit 1: an entry doesn't hold.\n\n"
      "examples:\n"
      "  kvfence bugs\n"
      "  kvfence bugs --only=A-04,C-*\n"
      "  kvfence bugs --json | jq '.entries[] | select(.level == \"audit\") | .id'\n"
      "  kvfence bugs --scenarios=my/scenarios --only='?-01'\n",
      {"only", "scenarios", "json"},
      RunBugs};
  return kVerb;
}

}  // namespace kvfence::tools
