#include "shared_flags.h"

#include <absl/flags/flag.h>

ABSL_FLAG(bool, json, false,
          "print one JSON object on standard output; words for people go to "
          "standard error");
ABSL_FLAG(std::string, level, "", "map, full or audit; default: full, or what a log's header says");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cuda");
