// One line of a log to one record, or to "expected ..." and a column.
//
// Idea: log_schema.h says which keys a record has; FieldReader (log_fields.h) walks it for each key
// that the line brings. Arrays go to an arena that lives until the next line. Invariant: a line is
// refused as a whole or gives a record in which every index that must be in range (rows, pools,
// ranks, table widths) is in range.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "json_pull.h"
#include "kvfence/config.h"
#include "kvfence/event_log.h"
#include "kvfence/log_names.h"

namespace kvfence {

// Where and why a line was refused. `offset` counts bytes from 0.
struct LineError {
  size_t offset = 0;
  std::string expected;
  bool ran_out = false;  // the text ended too early
};

class LineParser {
 public:
  explicit LineParser(FenceConfig config);

  const FenceConfig& config() const { return config_; }
  // False: see error(). The record's views live until the next call.
  bool Parse(std::string_view line, NameIntern* names, LogEvent* event);
  const LineError& error() const { return error_; }

 private:
  friend class FieldReader;
  template <class E>
  bool ParseAs(JsonPull* json, bool skip_ev, LogEvent* event);
  bool Dispatch(std::string_view verb, size_t offset, JsonPull* json, bool skip_ev,
                LogEvent* event);
  bool FindVerb(std::string_view line, std::string* verb, size_t* offset, JsonPull* json);

  FenceConfig config_;
  NameIntern* names_ = nullptr;
  LineError error_;
  std::vector<std::byte> first_block_;
  std::pmr::monotonic_buffer_resource arena_;
  std::vector<int64_t> ints_;  // scratch of the array being read
  // Which line last named a batch row in a step: a row stands there once.
  std::vector<uint64_t> row_seen_;
  uint64_t serial_ = 0;
};

// The header line to a config; false: `error` says why.
bool ParseHeader(std::string_view line, FenceConfig* config, LineError* error);

}  // namespace kvfence
