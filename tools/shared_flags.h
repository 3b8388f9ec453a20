// Flags that several verbs take; a verb that names one in its list reads it from here.
#pragma once

#include <absl/flags/declare.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvfence/status.h"

ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::string, level);
ABSL_DECLARE_FLAG(std::string, backend);
ABSL_DECLARE_FLAG(int64_t, page_size);
ABSL_DECLARE_FLAG(int64_t, rows);
ABSL_DECLARE_FLAG(std::vector<std::string>, kv);
ABSL_DECLARE_FLAG(std::vector<std::string>, weights);

namespace kvfence::tools {

// The flag's value, or what it must be.
Status ReadInteger(const char* name, int64_t value, int64_t least, int64_t most, uint64_t* out);
// A flag that wasn't given is -1 and leaves `out` as it is.
Status ReadOptional(const char* name, int64_t value, int64_t least, int64_t most, uint64_t* out);

}  // namespace kvfence::tools
