// Both public forms of decode attention as the one problem that backends compute.
#pragma once

#include "attention_core.h"

namespace kvfence::attention {

// The arguments must have passed CheckDecodeAttention.
Problem ProblemOf(const DecodeAttention& attention);
Problem ProblemOf(const MlaDecodeAttention& attention);

// Parts of a row's context that a launch spreads over blocks; 1: rows are walked.
uint32_t SpreadParts(const Problem& problem);

// Floats that one line of one part leaves in the workspace: its weighted sum, max and sum.
KVF_HD uint32_t PartialFloats(uint32_t dim_v) { return dim_v + 2; }

}  // namespace kvfence::attention
