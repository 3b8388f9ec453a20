#include "recorded.h"

#include <sstream>

#include "integration/player.h"
#include "kvfence/check.h"
#include "kvfence/event_log_reader.h"
#include "kvfence/event_log_writer.h"

namespace kvfence::testing {

std::string Recorded(const std::string& log) {
  std::istringstream in(log);
  auto reader = EventLogReader::FromStream(&in, "history");
  KVF_CHECK(reader.ok(), "histories are logs");
  const FenceConfig config = reader.value()->config();
  auto fence = Fence::Create(config);
  KVF_CHECK(fence.ok(), "histories have headers that a fence accepts");
  Fence* const live = fence.value().get();
  std::ostringstream out;
  auto writer = EventLogWriter::ToStream(
      &out, config, &live->names(), {.latest = [live](NameId name) { return live->Latest(name); }});
  KVF_CHECK(writer.ok(), "a stream can be written to");
  live->Record(writer.value().get());
  TargetNames<Fence> names(live);
  Player<Fence> player(live, config, nullptr, [](StepId, Row) { return false; });
  LogRecord record;
  for (;;) {
    auto more = reader.value()->Next(&names, &record);
    KVF_CHECK(more.ok(), "histories are logs to their end");
    if (!more.value() || !player.Play(record.event).ok()) break;
  }
  KVF_CHECK(writer.value()->Close().ok(), "a stream can be written to");
  return out.str();
}

}  // namespace kvfence::testing
