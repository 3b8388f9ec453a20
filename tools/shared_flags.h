// Flags that several verbs take; a verb that names one in its list reads it from here.
#pragma once

#include <absl/flags/declare.h>

#include <string>

ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::string, level);
ABSL_DECLARE_FLAG(std::string, backend);
