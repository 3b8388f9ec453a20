// Reads an event log (.kvlog) as a stream: a header, then one record per line.
//
// Memory is bounded by the longest line (kMaxLogLine) and the names, never by the log's size.
// Errors are one line, `FILE:LINE:COLUMN: expected ...` (columns are bytes, counted from 1), and
// final: everything before the bad line was delivered. A last line without its newline is read if
// it's whole, else it's reported as cut off.
#pragma once

#include <functional>
#include <istream>
#include <memory>
#include <string>

#include "kvfence/config.h"
#include "kvfence/event_log.h"
#include "kvfence/log_names.h"
#include "kvfence/status.h"

namespace kvfence {

struct EventLogReaderOptions {
  // Asked at the end of the input, if set: true means that there may be more by now (following a
  // log that is still being written), false that this was all.
  std::function<bool()> more{};
  uint64_t max_line = kMaxLogLine;  // bytes
};

// Not thread-safe.
class EventLogReader {
 public:
  // Both read the header. kUnavailable: the file can't be opened; kInvalidArgument: it's no log.
  static Result<std::unique_ptr<EventLogReader>> Open(const std::string& path,
                                                      EventLogReaderOptions options = {});
  // `in` must outlive the reader; `name` stands for it in errors.
  static Result<std::unique_ptr<EventLogReader>> FromStream(std::istream* in, std::string name,
                                                            EventLogReaderOptions options = {});
  ~EventLogReader();

  const FenceConfig& config() const;
  const std::string& name() const;

  // The next record; its strings are interned in `names`, its views live until the next call.
  // False: the log ends here. After an error every further call gives that error.
  Result<bool> Next(NameIntern* names, LogRecord* record);
  // "FILE:LINE" of the record last delivered, for messages of those who play it.
  std::string Where() const;
  // The error was a log that ends in mid-line.
  bool cut_off() const;

 private:
  struct Rep;
  explicit EventLogReader(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace kvfence
