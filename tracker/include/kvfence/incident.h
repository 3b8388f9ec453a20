// Incident records: everything that a person on call needs to know of one violation, as a JSON
// line.
//
// Whose page it was is the question: the record holds the violation, the page's holders now and the
// page's last events. Making a record never influences a decision (I-16).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/finding.h"
#include "kvfence/history.h"

namespace kvfence {

struct IncidentRecord {
  Violation violation;
  uint64_t event = 0;  // number of the event that found it
  std::vector<RequestId> holders;
  std::vector<PageHistoryEntry> history;
};

// Names for ids, as the fence interned them.
struct IncidentNames {
  std::function<std::string_view(NameId)> request;
  std::function<std::string_view(uint32_t)> pool;
};

// One JSON object without a newline; keys in a fixed order; absent fields are left out.
std::string ToJson(const IncidentRecord& record, const IncidentNames& names);

}  // namespace kvfence
