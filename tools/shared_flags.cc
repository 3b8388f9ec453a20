#include "shared_flags.h"

#include <absl/flags/flag.h>

ABSL_FLAG(bool, json, false,
          "print one JSON object on standard output; words for people go to "
          "standard error");
ABSL_FLAG(std::string, level, "", "map, full or audit; default: full, or what a log's header says");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cuda");
ABSL_FLAG(int64_t, page_size, -1, "tokens per page; -1: drawn from the seed (plan: 64)");
ABSL_FLAG(int64_t, rows, -1, "largest batch; -1: drawn from the seed (plan: 256)");
ABSL_FLAG(std::vector<std::string>, kv, {},
          "KV formats, comma-separated: bf16, fp8; default: both (run: with --numeric, each run "
          "draws one)");
ABSL_FLAG(std::vector<std::string>, weights, {},
          "weight formats, comma-separated: bf16, fp8, int4, and for plan nvfp4; default: the "
          "checkpoint's (run: with --numeric, each run draws one, of all three by default)");

namespace kvfence::tools {

Status ReadInteger(const char* name, int64_t value, int64_t least, int64_t most, uint64_t* out) {
  if (value < least || value > most) {
    return Status::Invalid("--" + std::string(name) + " must be " + std::to_string(least) + ".." +
                           std::to_string(most) + ", got " + std::to_string(value));
  }
  *out = static_cast<uint64_t>(value);
  return Status();
}

Status ReadOptional(const char* name, int64_t value, int64_t least, int64_t most, uint64_t* out) {
  return value == -1 ? Status() : ReadInteger(name, value, least, most, out);
}

}  // namespace kvfence::tools
