// See the header. Trials are whole playings of a candidate; log_parts.h proposes what may go.
#include "kvfence/shrink_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "kvfence/check.h"
#include "log_parts.h"
#include "whole_tables.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;
using Path = Json::json_pointer;

// Logs with more lines keep the keys of their lines: each key is a trial, and each trial plays all.
constexpr size_t kMostLinesToTrim = 1000;

// What makes two findings the same: all that names its place, but not when it was found.
using Key = std::tuple<Reason, std::string, std::string, int64_t, int64_t, int64_t, int64_t>;
Key KeyOf(const Violation& v, std::string_view req, const std::vector<std::string>& pools) {
  return {v.reason, std::string(req), v.pool < 0 ? "" : pools[static_cast<size_t>(v.pool)],
          v.at,     v.page,           v.row,
          v.rank};
}

std::string Joined(const Json& header, const std::vector<std::string>& lines) {
  std::string text = header.dump() + "\n";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

struct Played {
  bool readable = false;
  std::vector<std::pair<uint64_t, Violation>> found;
  std::vector<Key> keys;  // of `found`
};

Played Play(const std::string& text) {
  Played played;
  std::vector<std::string> pools;
  CheckOptions options;
  options.truth = false;
  options.on_header = [&](const FenceConfig& config) {
    for (const PoolConfig& pool : config.pools) pools.push_back(pool.name);
  };
  options.on_violation = [&](uint64_t line, const Violation& violation, std::string_view req) {
    played.found.emplace_back(line, violation);
    played.keys.push_back(KeyOf(violation, req, pools));
  };
  std::istringstream in(text);
  Result<CheckReport> report = CheckLog(&in, "trial", options);
  played.readable = report.ok() && report->error.empty();
  return played;
}

class Shrinker {
 public:
  Shrinker(Json header, std::vector<std::string> lines, Key key, const ShrinkOptions& options)
      : options_(options),
        header_(std::move(header)),
        lines_(std::move(lines)),
        key_(std::move(key)),
        lines_before_(lines_.size()) {}

  // False: the finding isn't there to begin with.
  bool Begin() {
    const Played whole = Play(Joined(header_, lines_));
    allowed_.insert(whole.keys.begin(), whole.keys.end());
    return whole.readable && allowed_.contains(key_);
  }

  void Run() {
    size_t before;
    do {
      before = Joined(header_, lines_).size();
      LeaveOut("requests", &LogParts::Requests);
      LeaveOut("steps", &LogParts::Steps);
      LeaveOut("lines", &LogParts::Lines);
      LeaveOut("rows", &LogParts::Items);
      phase_ = "keys";
      if (lines_.size() <= kMostLinesToTrim) TrimLines();
      phase_ = "header";
      TrimHeader();
    } while (!Done() && Joined(header_, lines_).size() < before);
  }

  const Json& header() const { return header_; }
  const std::vector<std::string>& lines() const { return lines_; }
  uint64_t plays() const { return plays_; }
  bool Done() const {
    return (options_.stop != nullptr && *options_.stop) ||
           (options_.max_plays != 0 && plays_ >= options_.max_plays);
  }

 private:
  // Is the finding still there, and nothing that wasn't?
  bool Shows(const Json& header, const std::vector<std::string>& lines) {
    if (Done()) return false;
    ++plays_;
    const Played played = Play(Joined(header, lines));
    const bool shows =
        played.readable && std::ranges::find(played.keys, key_) != played.keys.end() &&
        std::ranges::all_of(played.keys, [&](const Key& key) { return allowed_.contains(key); });
    if (options_.progress) {
      options_.progress({phase_, plays_, shows ? lines.size() : lines_.size(), lines_before_});
    }
    return shows;
  }

  // Tries to leave out chunks of n things, from the last to the first, in ever smaller chunks.
  // `without(gone)`: tries without these, sorted, and keeps the result if the finding is there.
  void LeaveOutChunks(size_t n, const std::function<bool(const std::vector<size_t>&)>& without) {
    std::vector<size_t> left(n), gone;
    for (size_t i = 0; i < n; ++i) left[i] = i;
    for (size_t size = n; size > 0 && !Done(); size = size == 1 ? 0 : (size + 1) / 2) {
      for (size_t end = left.size(); end > 0 && !Done();) {
        const size_t begin = end > size ? end - size : 0;
        std::vector<size_t> trial = gone;
        trial.insert(trial.end(), left.begin() + static_cast<std::ptrdiff_t>(begin),
                     left.begin() + static_cast<std::ptrdiff_t>(end));
        std::ranges::sort(trial);
        if (without(trial)) {
          gone = std::move(trial);
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(begin),
                     left.begin() + static_cast<std::ptrdiff_t>(end));
        }
        end = begin;
      }
    }
  }

  void LeaveOut(const char* phase, std::vector<std::vector<PartRef>> (LogParts::*groups)() const) {
    phase_ = phase;
    const LogParts parts(lines_);
    const std::vector<std::vector<PartRef>> all = (parts.*groups)();
    LeaveOutChunks(all.size(), [&](const std::vector<size_t>& gone) {
      std::vector<PartRef> refs;
      for (const size_t i : gone) refs.insert(refs.end(), all[i].begin(), all[i].end());
      std::vector<std::string> trial = parts.Without(refs);
      if (trial == lines_) return true;  // it had gone with something else
      if (!Shows(header_, trial)) return false;
      lines_ = std::move(trial);
      return true;
    });
  }

  // --- keys ------------------------------------------------------------------------------------

  using Try = std::function<bool(const Json&)>;  // keeps the value if the finding is there

  void TrimLines() {
    for (size_t i = lines_.size(); i-- > 0;) {
      Json json = Json::parse(lines_[i]);
      Trim(&json, Path(), [&](const Json& trial) {
        std::vector<std::string> lines = lines_;
        lines[i] = trial.dump();
        if (!Shows(header_, lines)) return false;
        lines_ = std::move(lines);
        return true;
      });
    }
  }

  // Leaves out members and items of the value at `path` of `whole`, and of what they hold.
  void Trim(Json* whole, const Path& path, const Try& keeps) {
    const auto attempt = [&](const Json& trial) {
      if (!keeps(trial)) return false;
      *whole = trial;
      return true;
    };
    if (whole->at(path).is_array()) {
      const Json items = whole->at(path);
      LeaveOutChunks(items.size(), [&](const std::vector<size_t>& gone) {
        Json trial = *whole;
        trial[path] = Json::array();
        for (size_t i = 0; i < items.size(); ++i) {
          if (!std::ranges::binary_search(gone, i)) trial[path].push_back(items[i]);
        }
        return attempt(trial);
      });
      for (size_t i = 0; i < whole->at(path).size(); ++i) {
        if (whole->at(path)[i].is_object()) Trim(whole, path / i, keeps);
      }
      return;
    }
    std::vector<std::string> keys;
    for (const auto& [key, value] : whole->at(path).items()) keys.push_back(key);
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
      if (*key == "ev" || *key == "kvfence_log" || *key == "about") continue;
      Json trial = *whole;
      trial[path].erase(*key);
      if (attempt(trial)) continue;
      if (whole->at(path)[*key].is_structured()) Trim(whole, path / *key, keeps);
    }
  }

  void TrimHeader() {
    const Try keeps = [&](const Json& trial) {
      if (!Shows(trial, lines_)) return false;
      header_ = trial;
      return true;
    };
    Json header = header_;
    Trim(&header, Path(), keeps);
    for (const char* key : {"rows", "width"}) Lower(Path() / key, keeps);
    for (size_t i = 0; i < header_["pools"].size(); ++i) {
      for (const char* key : {"pages", "width"}) Lower(Path() / "pools" / i / key, keeps);
    }
  }

  // The smallest number that bisection finds.
  void Lower(const Path& path, const Try& keeps) {
    if (!header_.contains(path) || !header_.at(path).is_number_unsigned()) return;
    uint64_t low = 1, high = header_.at(path).get<uint64_t>();
    while (low < high && !Done()) {
      const uint64_t middle = low + (high - low) / 2;
      Json trial = header_;
      trial[path] = middle;
      if (keeps(trial)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
  }

  const ShrinkOptions& options_;
  Json header_;
  std::vector<std::string> lines_;
  const Key key_;
  std::set<Key> allowed_;  // findings of the whole log
  const uint64_t lines_before_;
  uint64_t plays_ = 0;
  std::string_view phase_;
};

// --- from log to log -----------------------------------------------------------------------------

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

Json ExpectOf(const Violation& v, const Key& key, size_t pools, bool ranks) {
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
std::string WithExpects(const Json& header, const std::vector<std::string>& lines, const Key& key,
                        uint64_t* line) {
  const Played played = Play(Joined(header, lines));
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
  const Key key = KeyOf(finding->violation, finding->req, report->pools);
  Shrinker shrinker(std::move(*header), std::move(events), key, options);
  KVF_CHECK(shrinker.Begin(), "I-100 a log without what follows its finding still shows it");
  shrinker.Run();

  ShrunkLog shrunk;
  shrunk.finding = *finding;
  shrunk.pools = report->pools;
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
