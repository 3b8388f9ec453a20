// The builds of the CPU attention loops that this machine can run; tests compare them to the bit.
#pragma once

#include <vector>

#include "kvfence/attention.h"

namespace kvfence::attention {

struct CpuBuild {
  const char* name;
  void (*run)(const DecodeAttention& args);  // args must have passed CheckDecodeAttention
};

// Slowest first; never empty.
std::vector<CpuBuild> CpuBuilds();

}  // namespace kvfence::attention
