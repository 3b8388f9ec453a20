// Flags that several verbs take; a verb that names one in its list reads it from here.
#pragma once

#include <absl/flags/declare.h>

#include <cstdint>
#include <string>
#include <vector>

ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::string, level);
ABSL_DECLARE_FLAG(std::string, backend);
ABSL_DECLARE_FLAG(int64_t, page_size);
ABSL_DECLARE_FLAG(int64_t, rows);
ABSL_DECLARE_FLAG(std::vector<std::string>, kv);
