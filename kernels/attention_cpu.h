// Decode attention on the CPU: the builds of its loops that this machine can run (tests compare
// them to the bit), and what a thread holds while it works.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention_core.h"

namespace kvfence::attention {

inline constexpr uint32_t kTile = 32;  // positions at a time

// A line's softmax over the tiles so far. The sum is kept in sixteen parts: part i has the tokens i
// and i + 16 of each tile.
struct CpuLine {
  float max;
  float sum[16];
};

// The present tile's tokens: scale of their page, and all ones where the token may be read.
struct TileScales {
  const float *k, *v;       // [kTile]
  const int32_t* readable;  // [kTile]
};

struct CpuTile {
  uint64_t first;  // position of its first token
  TileScales scales;
  // Where each token's numbers lie; zeroes for tokens that may not be read.
  const uint8_t *k0[kTile], *k1[kTile], *v[kTile];
  // Pairs of lines of memory that the next tile needs, to be asked for meanwhile.
  const uint8_t* const* fetch;
  uint32_t fetches;
};

inline constexpr uint32_t kLinePair = 128;  // bytes

// Lines of 64 bytes of a tile of tokens with that many numbers: one per `number_bytes` pairs of
// them.
constexpr uint32_t FetchLines(uint32_t dims, uint32_t number_bytes) {
  return dims * number_bytes / 2;
}

// One KV head's lines, over one part of the context. Pointers are into the thread's memory.
struct CpuHead {
  uint32_t lines;
  float score_scale;
  const Span* spans;  // [lines] which positions each line reads
  float* q;           // [lines][dims of a key]
  float* acc;         // [lines][dim_v], to the line's max
  CpuLine* state;     // [lines]
  float* weights;     // [lines][kTile]
  float* keep;        // [lines]
  void* tile;         // the tile's keys or values, floats or halves
};

struct CpuBuild {
  const char* name;
  void (*take_tile)(const Problem& a, const CpuTile& tile, CpuHead* head);
};

// Slowest first; never empty.
std::vector<CpuBuild> CpuBuilds();

// Runs the problem, which must be of arguments that passed CheckDecodeAttention.
void RunOnCpu(const Problem& a, const CpuBuild& build, CpuThreads* threads);

}  // namespace kvfence::attention
