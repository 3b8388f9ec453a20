// The log reader on arbitrary bytes: each input is read to its end or to an error that says where.
//
// Held against it besides not crashing: what reads well can be written, and what was written reads
// back and is written the same again, byte for byte.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "kvfence/event_log_reader.h"
#include "kvfence/event_log_writer.h"
#include "kvfence/log_names.h"

namespace kvfence {
namespace {

[[noreturn]] void Fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

// Writes the log's records anew up to its end or its first error. `read_whole`: there was none.
std::string Rewritten(const std::string& log, bool* read_whole) {
  std::istringstream in(log);
  *read_whole = false;
  auto reader = EventLogReader::FromStream(&in, "fuzz");
  if (!reader.ok()) {
    if (reader.status().message().find("fuzz:") == std::string::npos) {
      Fail("an error that doesn't say where", reader.status().message());
    }
    return "";
  }
  LogNames names;
  std::ostringstream out;
  auto writer = EventLogWriter::ToStream(&out, reader.value()->config(), &names);
  if (!writer.ok()) Fail("a header that reads can't be written", writer.status().message());
  LogRecord record;
  for (;;) {
    Result<bool> more = reader.value()->Next(&names, &record);
    if (!more.ok()) {
      if (more.status().message().find("fuzz:") == std::string::npos) {
        Fail("an error that doesn't say where", more.status().message());
      }
      if (reader.value()->Next(&names, &record).ok()) Fail("an error must stay", log);
      break;
    }
    if (!more.value()) {
      *read_whole = true;
      break;
    }
    writer.value()->Write(record.event);
  }
  if (!writer.value()->Close().ok()) Fail("a log that reads can't be written", log);
  return out.str();
}

}  // namespace
}  // namespace kvfence

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bool whole = false;
  const std::string once =
      kvfence::Rewritten(std::string(reinterpret_cast<const char*>(data), size), &whole);
  if (once.empty()) return 0;
  const std::string twice = kvfence::Rewritten(once, &whole);
  if (!whole || twice != once) kvfence::Fail("what was written reads back as another log", once);
  return 0;
}
