// Writes an event log (.kvlog): what a fence is told, line by line, so that it can be replayed.
//
// Invariant: keys stand in one order (log_schema.h) and what reads back is what was written, byte
// for byte if written again. A file is written under a temporary name (PATH.part) and renamed by
// Close, so a log under its own name is whole. Errors of the file are kept and come back from
// status() and Close(); after the first one nothing more is written.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "kvfence/config.h"
#include "kvfence/event_log.h"
#include "kvfence/log_names.h"
#include "kvfence/status.h"

namespace kvfence {

struct EventLogWriterOptions {
  // If set, `inc` is left out where it's the latest incarnation, as logs for people have it.
  std::function<RequestId(NameId)> latest{};
};

// Not thread-safe.
class EventLogWriter {
 public:
  // Both write the header. `names` must outlive the writer.
  static Result<std::unique_ptr<EventLogWriter>> Open(const std::string& path,
                                                      const FenceConfig& config,
                                                      const NameLookup* names,
                                                      EventLogWriterOptions options = {});
  // To a stream, which must outlive the writer; Close flushes it.
  static Result<std::unique_ptr<EventLogWriter>> ToStream(std::ostream* out,
                                                          const FenceConfig& config,
                                                          const NameLookup* names,
                                                          EventLogWriterOptions options = {});
  // Without Close a file keeps its temporary name: the run that wrote it didn't end well.
  ~EventLogWriter();

  void Write(const LogEvent& event);

  // The recorder's side: what a fence is called with, before the call. Array words are copied as
  // they stand now (so before failing rows are made harmless), from plain memory, in any layout.
  template <class E>
  void On(const E& event) {
    Write(LogEvent(event));
  }
  void On(const RetireEvent& event);
  void On(const StepEvent& event);
  // `failed(row)`: the fence altered that row's tables itself. Other rows whose tables are not
  // what the step's event said are recorded with the tables that the kernels read.
  void On(const ConfirmEvent& event, const std::function<bool(Row)>& failed);

  // Hands what is buffered to the file, so that a crash of the process loses nothing before this.
  Status Flush();
  // Flushes, and gives the file its name.
  Status Close();
  const Status& status() const;

 private:
  struct Rep;
  explicit EventLogWriter(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace kvfence
