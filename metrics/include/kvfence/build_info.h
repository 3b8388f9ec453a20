// Which build this is: shown by the metric kvfence_build_info and whoever else is asked.
#pragma once

#include <string_view>

namespace kvfence {

struct BuildInfo {
  std::string_view version;   // of the project, "0.1.0"
  std::string_view cuda;      // of the toolkit that the CUDA backend was built with, or "none"
  std::string_view revision;  // git commit, "-dirty" if changed, or "unknown" outside a checkout
};

// Of this library, fixed when it was built. Static storage.
const BuildInfo& ThisBuild();

}  // namespace kvfence
