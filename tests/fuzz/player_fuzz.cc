// The player on arbitrary bytes: every input ends in a report or a refusal, never in a crash.
//
// The whole of `kvfence check` stands behind it: reader, facade, ledger, gate, kernels on the CPU,
// expectations and ground truth.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "kvfence/check_log.h"
#include "kvfence/event_log_reader.h"

namespace kvfence {
namespace {

// Some memory is the header's to ask for (a page record per page, a word per table entry); a fuzz
// run looks elsewhere.
bool IsSmall(const FenceConfig& config) {
  uint64_t pages = 0, width = config.width, page_size = 0;
  for (const PoolConfig& pool : config.pools) {
    pages += pool.pages;
    width = std::max(width, pool.width);
    page_size = std::max(page_size, pool.page_size);
  }
  return config.ranks <= 8 && pages <= 1024 && config.rows <= 256 && width <= 1024 &&
         page_size <= 1024;
}

void Play(const std::string& log) {
  std::istringstream header(log);
  const auto reader = EventLogReader::FromStream(&header, "fuzz");
  if (!reader.ok() ||
      !IsSmall(const_cast<Result<std::unique_ptr<EventLogReader>>&>(reader).value()->config())) {
    return;
  }
  std::istringstream in(log);
  Result<CheckReport> report = CheckLog(&in, "fuzz");
  if (!report.ok()) return;
  if (report->ToJson().empty()) std::abort();
  const bool clean = report->violations.empty() && report->error.empty();
  if (clean && !report->unexpected.empty()) std::abort();
}

}  // namespace
}  // namespace kvfence

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvfence::Play(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
