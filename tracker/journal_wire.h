// A batch and its step's plan as 64-bit words: the frame that travels between processes.
//
// Idea: a frame adds to the batch what the same process would hand over as a pointer (the plan),
// and says how large everything is. Sizes, plan and boot have the frame's checksum; the deltas have
// the batch's own, which Gate::Apply asks as it does for every batch: no byte is without one.
// Words in host order, structs as they lie in memory: both ends are builds of one version, on one
// machine, and WireFingerprint says when they aren't.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/journal.h"
#include "kvfence/ledger.h"

namespace kvfence {

struct JournalFrame {
  uint64_t boot = 0;
  bool has_plan = false;
  JournalBatch batch;
  StepPlan plan;  // without same_step_reads
};

// Writes the frame over `words`. `plan` may be null.
void EncodeFrame(uint64_t boot, const JournalBatch& batch, const StepPlan* plan,
                 std::vector<uint64_t>* words);

// False: this isn't a whole frame. True says nothing yet about the batch: JournalBatch::Intact.
bool DecodeFrame(std::span<const uint64_t> words, JournalFrame* frame);

// One number for all that ledger and gate must agree on before a delta means anything: the config,
// and how this build lays out what it sends.
uint64_t WireFingerprint(const FenceConfig& config);

}  // namespace kvfence
