// The trials of shrinking: what may be left out is left out, played, and kept or put back.
//
// Invariant: what is held here always shows the finding, and nothing that the whole log didn't.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kvfence/shrink_log.h"
#include "log_parts.h"

namespace kvfence {

// What makes two findings the same: all that names its place, but not when it was found.
// Reason, request, pool, logical page, page, row, rank.
using FindingKey = std::tuple<Reason, std::string, std::string, int64_t, int64_t, int64_t, int64_t>;
FindingKey KeyOf(const Violation& v, std::string_view req, const std::vector<std::string>& pools);

struct Trial {
  bool readable = false;
  std::vector<std::pair<uint64_t, Violation>> found;  // with their lines
  std::vector<FindingKey> keys;                       // of `found`
};
// The lines behind the header as one log, played.
Trial PlayTrial(const nlohmann::ordered_json& header, const std::vector<std::string>& lines);

class Shrinker {
 public:
  using Json = nlohmann::ordered_json;

  // `lines`: events, one each, no `expect`s. `options` must outlive this.
  Shrinker(Json header, std::vector<std::string> lines, FindingKey key,
           const ShrinkOptions& options);

  // False: the finding isn't there to begin with.
  bool Begin();
  // Until nothing more can go, or until Done().
  void Run();

  const Json& header() const { return header_; }
  const std::vector<std::string>& lines() const { return lines_; }
  uint64_t plays() const { return plays_; }
  // Asked to stop, or out of trials.
  bool Done() const;

 private:
  using Path = Json::json_pointer;
  using Lines = std::vector<std::string>;
  // Tries a value in place of another; true: it stays.
  using Try = std::function<bool(const Json&)>;

  std::pair<size_t, size_t> Size() const;
  bool Shows(const Json& header, const Lines& lines);
  bool KeepIfShows(Lines lines);
  void LeaveOutChunks(size_t n, const std::function<bool(const std::vector<size_t>&)>& without);
  void LeaveOut(const char* phase, std::vector<std::vector<PartRef>> (LogParts::*groups)() const);
  void LeaveOutAlone();
  void Join();
  void WriteThemselves();
  void TrimLines();
  void Trim(Json* whole, const Path& path, const Try& keeps);
  void TrimHeader();
  void Lower(const Path& path, const Try& keeps);

  const ShrinkOptions& options_;
  Json header_;
  Lines lines_;
  const FindingKey key_;
  std::set<FindingKey> allowed_;  // findings of the whole log
  const uint64_t lines_before_;
  uint64_t plays_ = 0;
  std::string_view phase_;
};

}  // namespace kvfence
