// What the engine serves: a model with its cache on the device, behind one interface.
//
// Idea: engine, fence and faults know pages, tables and lengths; what a slot holds, and what a pass
// computes from it, is the model's own. One implementation is a function of 64 bits that costs a
// multiplication per page (sim_model.h). Calls are per pass or per page, never per slot. Parts are
// groups of layers on ranks: part = rank * groups + group.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "step_buffers.h"

namespace kvfence {

struct PassResult {
  std::vector<uint64_t> results;  // by row, padded ones included
  // Rows with guesses have a result for each right one and one more: row r's are
  // verified[verified_at[r] .. verified_at[r+1]). Empty: no row of the pass has guesses.
  std::vector<uint64_t> verified;
  std::vector<uint32_t> verified_at;
  uint64_t wild_accesses = 0;  // beyond the pool or the table; nothing is touched there

  // The row's results, in the order of their positions; at least one.
  std::span<const uint64_t> Of(size_t row) const {
    if (verified_at.empty()) return {&results[row], 1};
    return std::span(verified).subspan(verified_at[row], verified_at[row + 1] - verified_at[row]);
  }
};

// A page's content on the host, all ranks' of one group; what the words mean is the model's own.
using HostPage = std::shared_ptr<const std::vector<uint64_t>>;

// One request alone: its golden run, with no cache shared, no pages and no batch around it.
class SoloRun {
 public:
  virtual ~SoloRun() = default;
  virtual std::unique_ptr<SoloRun> Copy() const = 0;
  // Once, before all else.
  virtual void Prefill(std::span<const uint32_t> prompt) = 0;
  // The result of the pass whose last token is the last one so far.
  virtual uint64_t Result() = 0;
  // Goes on with the token that sample `sample` takes from Result().
  virtual void Advance(uint32_t sample) = 0;
  // Appends Result() and those of the next n - 1 tokens to `results`; the run stays where it is.
  virtual void Ahead(size_t n, uint32_t sample, std::vector<uint64_t>* results) = 0;
  // The result of a pass that ended at `length`, 1 <= length <= the present one. Only if the run
  // was begun with keep_results.
  virtual uint64_t ResultAt(uint64_t length) = 0;
};

class ServedModel {
 public:
  virtual ~ServedModel() = default;

  // One pass over the buffers of each part, as they are, wrong words too.
  virtual void Run(std::span<const StepBuffers> parts, PassResult* out) = 0;
  // The same, and the cache is afterwards as it was.
  virtual void Try(std::span<const StepBuffers> parts, PassResult* out) = 0;
  // The token that a sample takes from a result; sample 0 is the request itself.
  virtual uint32_t TokenOf(uint64_t result, uint32_t sample) const = 0;
  // `salt` sets identities apart. The run must not outlive the model.
  virtual std::unique_ptr<SoloRun> Alone(uint64_t salt, bool keep_results) const = 0;

  // Pages of the group, on all ranks. They exist.
  virtual void CopyPage(size_t group, uint64_t from, uint64_t to) = 0;
  virtual HostPage ReadPage(size_t group, uint64_t page) const = 0;
  // Its first `tokens` slots.
  virtual void WritePage(size_t group, uint64_t page, uint64_t tokens, const HostPage& content) = 0;
  // Takes over a page's first `tokens` slots from the model of another engine of the run, in the
  // format of this one's cache.
  virtual void FetchPage(ServedModel* from, size_t group, uint64_t from_page, uint64_t to_page,
                         uint64_t tokens) = 0;
  // A checksum of the page's first `tokens` slots, all ranks'; it depends on their order, not on
  // where the page lies.
  virtual uint64_t SumOf(size_t group, uint64_t page, uint64_t tokens) const = 0;
  // Exchanges the content of two slots of the first group's page, on all ranks.
  virtual void SwapSlots(uint64_t page, uint64_t a, uint64_t b) = 0;
  // Junk, by the seed, into slots of the first part's page; nothing where there's no such page.
  virtual void Scribble(int64_t page, uint64_t first, uint64_t n, uint64_t seed) = 0;
};

}  // namespace kvfence
