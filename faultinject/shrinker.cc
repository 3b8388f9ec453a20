#include "shrinker.h"

#include <algorithm>
#include <sstream>

#include "join_steps.h"
#include "self_written.h"

namespace kvfence {
namespace {

// Logs with more lines keep the keys of their lines: each key is a trial, and each trial plays all.
constexpr size_t kMostLinesToTrim = 1000;

std::string Joined(const nlohmann::ordered_json& header, const std::vector<std::string>& lines) {
  std::string text = header.dump() + "\n";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

FindingKey KeyOf(const Violation& v, std::string_view req, const std::vector<std::string>& pools) {
  return {v.reason, std::string(req), v.pool < 0 ? "" : pools[static_cast<size_t>(v.pool)],
          v.at,     v.page,           v.row,
          v.rank};
}

Trial PlayTrial(const nlohmann::ordered_json& header, const std::vector<std::string>& lines) {
  Trial played;
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
  std::istringstream in(Joined(header, lines));
  Result<CheckReport> report = CheckLog(&in, "trial", options);
  played.readable = report.ok() && report->error.empty();
  return played;
}

Shrinker::Shrinker(Json header, std::vector<std::string> lines, FindingKey key,
                   const ShrinkOptions& options)
    : options_(options),
      header_(std::move(header)),
      lines_(std::move(lines)),
      key_(std::move(key)),
      lines_before_(lines_.size()) {}

bool Shrinker::Begin() {
  const Trial whole = PlayTrial(header_, lines_);
  allowed_.insert(whole.keys.begin(), whole.keys.end());
  return whole.readable && allowed_.contains(key_);
}

void Shrinker::Run() {
  std::pair<size_t, size_t> before;
  do {
    before = Size();
    LeaveOut("requests", &LogParts::Requests);
    LeaveOut("steps", &LogParts::Steps);
    LeaveOut("lines", &LogParts::Lines);
    LeaveOut("rows", &LogParts::Items);
    Join();
    WriteThemselves();
    if (lines_.size() <= kMostLinesToTrim) {
      LeaveOutAlone();
      TrimLines();
    }
    phase_ = "header";
    TrimHeader();
  } while (!Done() && Size() < before);
}

bool Shrinker::Done() const {
  return (options_.stop != nullptr && *options_.stop) ||
         (options_.max_plays != 0 && plays_ >= options_.max_plays);
}

// Each change that stays makes it less, so that there's an end.
std::pair<size_t, size_t> Shrinker::Size() const {
  return {lines_.size(), Joined(header_, lines_).size()};
}

// Is the finding still there, and nothing that wasn't?
bool Shrinker::Shows(const Json& header, const std::vector<std::string>& lines) {
  if (Done()) return false;
  ++plays_;
  const Trial played = PlayTrial(header, lines);
  const bool shows = played.readable && std::ranges::find(played.keys, key_) != played.keys.end() &&
                     std::ranges::all_of(played.keys, [&](const FindingKey& key) {
                       return allowed_.contains(key);
                     });
  if (options_.progress) {
    options_.progress({phase_, plays_, shows ? lines.size() : lines_.size(), lines_before_});
  }
  return shows;
}

bool Shrinker::KeepIfShows(Lines lines) {
  if (!Shows(header_, lines)) return false;
  lines_ = std::move(lines);
  return true;
}

// Tries to leave out chunks of n things, from the last to the first, in ever smaller chunks.
// `without(gone)`: tries without these, sorted, and keeps the result if the finding is there.
void Shrinker::LeaveOutChunks(size_t n,
                              const std::function<bool(const std::vector<size_t>&)>& without) {
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

void Shrinker::LeaveOut(const char* phase,
                        std::vector<std::vector<PartRef>> (LogParts::*groups)() const) {
  phase_ = phase;
  const LogParts parts(lines_);
  const std::vector<std::vector<PartRef>> all = (parts.*groups)();
  LeaveOutChunks(all.size(), [&](const std::vector<size_t>& gone) {
    std::vector<PartRef> refs;
    for (const size_t i : gone) refs.insert(refs.end(), all[i].begin(), all[i].end());
    std::vector<std::string> trial = parts.Without(refs);
    if (trial == lines_) return true;  // it had gone with something else
    return KeepIfShows(std::move(trial));
  });
}

// Lines without what would hang on them: the rules of log_parts.h only propose.
void Shrinker::LeaveOutAlone() {
  phase_ = "lines alone";
  const std::vector<std::string> before = lines_;
  LeaveOutChunks(before.size(), [&](const std::vector<size_t>& gone) {
    std::vector<std::string> trial;
    for (size_t i = 0; i < before.size(); ++i) {
      if (!std::ranges::binary_search(gone, i)) trial.push_back(before[i]);
    }
    return KeepIfShows(std::move(trial));
  });
}

void Shrinker::Join() {
  phase_ = "joins";
  const std::vector<std::string> before = lines_;
  const std::vector<size_t> steps = StepLines(before);
  LeaveOutChunks(steps.size(), [&](const std::vector<size_t>& gone) {
    std::vector<size_t> at;
    for (const size_t i : gone) at.push_back(steps[i]);
    std::vector<std::string> trial = JoinSteps(before, at);
    return KeepIfShows(std::move(trial));
  });
}

// A load of a hundred pages takes hundreds of lines, a step that writes them takes one. The last
// step comes first, since earlier lines go with it.
void Shrinker::WriteThemselves() {
  phase_ = "loads";
  size_t behind = 0;  // steps that were tried already
  for (;;) {
    const std::vector<size_t> steps = StepLines(lines_);
    if (behind >= steps.size() || Done()) return;
    const size_t step = steps[steps.size() - 1 - behind++];
    std::vector<std::string> trial = SelfWritten(header_, lines_, step);
    if (trial.size() < lines_.size()) KeepIfShows(std::move(trial));
  }
}

// --- keys ------------------------------------------------------------------------------------

void Shrinker::TrimLines() {
  phase_ = "keys";
  for (size_t i = lines_.size(); i-- > 0;) {
    Json json = Json::parse(lines_[i]);
    Trim(&json, Path(), [&](const Json& trial) {
      std::vector<std::string> lines = lines_;
      lines[i] = trial.dump();
      return KeepIfShows(std::move(lines));
    });
  }
}

// Leaves out members and items of the value at `path` of `whole`, and of what they hold.
void Shrinker::Trim(Json* whole, const Path& path, const Try& keeps) {
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

void Shrinker::TrimHeader() {
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
void Shrinker::Lower(const Path& path, const Try& keeps) {
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

}  // namespace kvfence
