// The catalogue of bookkeeping bugs as event logs: reads it, plays each log, judges what was said.
//
// An entry is two logs: `<ID>.kvlog`, in which the bug happens, and `<ID>.clean.kvlog`, the same
// work done right. Each is played at every level. An entry that no event can show has a paragraph
// in docs/limits.md instead of logs; catalogue.json says which, and names every entry.
//
// Invariant: what counts as answered is decided by the log's ground truth and the order of lines,
// never by the log's own expectations.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/reason.h"
#include "kvfence/status.h"

namespace kvfence::tools {

inline constexpr std::array<Level, 3> kPlayedLevels = {Level::kMap, Level::kFull, Level::kAudit};

struct CatalogueEntry {
  std::string id;     // "C-05"; the letter is its class
  std::string title;  // one line
  // Only for an entry without logs: its anchor in docs/limits.md, and in one line why.
  std::string limit, why;

  char letter() const { return id[0]; }
  bool visible() const { return limit.empty(); }
};

struct Catalogue {
  std::map<char, std::string> classes;  // letter -> name
  std::vector<CatalogueEntry> entries;  // in the file's order
};

// Reads `dir`/catalogue.json. kUnavailable: it can't be opened; kInvalidArgument: it's no
// catalogue.
Result<Catalogue> ReadCatalogue(const std::string& dir);

// What a fence of one level says of a log.
struct LevelAnswer {
  std::optional<Reason> reason{};  // of the first violation; none: silent
  uint64_t line = 0;               // where it was reported
  uint64_t violations = 0;
  // Tokens of rows that were published although they read what isn't theirs, and of these the
  // tokens of requests that no violation had named before: a deployment that ends a request at its
  // first violation would have published them all the same.
  uint64_t wrong_tokens = 0, unnamed_wrong_tokens = 0;

  bool answered() const { return reason.has_value(); }
  bool before_publication() const { return answered() && unnamed_wrong_tokens == 0; }
};

struct PlayedEntry {
  CatalogueEntry entry;
  Level own_level = Level::kFull;        // the log's header
  std::array<LevelAnswer, 3> levels{};   // in the order of kPlayedLevels
  std::array<bool, 3> twin_silent{};     // nothing reported, nothing wrong published
  std::vector<std::string> trouble;      // why it doesn't hold, one line each
  std::optional<size_t> lowest() const;  // index of the lowest level that answers before
                                         // publication, else of the lowest that answers
  bool answered() const { return lowest().has_value(); }
  bool before_publication() const { return answered() && levels[*lowest()].before_publication(); }
  bool twin_is_silent() const { return twin_silent[0] && twin_silent[1] && twin_silent[2]; }
  // The log's own expectations are met at its own level, which answers before publication, and the
  // twin is silent. An entry without logs holds.
  bool holds() const { return trouble.empty(); }
};

// Plays both logs of the entry at every level. Logs that can't be read are trouble, not a refusal.
PlayedEntry PlayEntry(const std::string& dir, const CatalogueEntry& entry);

// Does the id agree with one of the patterns ("A-04", "C-*", "?-01")?
bool Selected(std::string_view id, const std::vector<std::string>& patterns);

}  // namespace kvfence::tools
