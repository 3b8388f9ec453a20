// The small transformer as the engine serves it: its cache in pages, its attention the reference
// kernels over the step's own buffers.
//
// A pass goes layer by layer, all rows at once: append through the slots on the device, then
// attention through table and lengths there, whatever these say. A guess of speculative decoding
// depends on the token before, so guesses follow one by one, over all rows that have any; that is
// the draft model's work and the verification in one, and gives the bits of a pass over all (I-151,
// I-62). Only rows that write or publish are computed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv_groups.h"
#include "numeric_memory.h"
#include "served_model.h"
#include "transformer.h"

namespace kvfence {

class NumericModel final : public ServedModel {
 public:
  // `wide`: the cache is BF16 and holds the numbers that the shape's cache would hold, as the pool
  // of an engine that only prefills; results are the same.
  NumericModel(const TransformerShape& shape, const std::vector<KvGroup>& groups, uint64_t ranks,
               uint32_t null_page, uint64_t seed, bool wide = false);

  void Run(std::span<const StepBuffers> parts, PassResult* out) override;
  void Try(std::span<const StepBuffers> parts, PassResult* out) override;
  uint32_t TokenOf(uint64_t result, uint32_t sample) const override {
    return transformer_.TokenOf(result, sample);
  }
  std::unique_ptr<SoloRun> Alone(uint64_t salt, bool keep_results) const override;
  void CopyPage(size_t group, uint64_t from, uint64_t to) override;
  HostPage ReadPage(size_t group, uint64_t page) const override;
  void WritePage(size_t group, uint64_t page, uint64_t tokens, const HostPage& content) override;
  void FetchPage(ServedModel* from, size_t group, uint64_t from_page, uint64_t to_page,
                 uint64_t tokens) override;
  uint64_t SumOf(size_t group, uint64_t page, uint64_t tokens) const override;
  void SwapSlots(uint64_t page, uint64_t a, uint64_t b) override;
  void Scribble(int64_t page, uint64_t first, uint64_t n, uint64_t seed) override;

  const Transformer& transformer() const { return transformer_; }

 private:
  // Tokens of some rows that are computed together, row by row.
  struct Batch {
    std::vector<TokenIn> tokens;
    std::vector<int32_t> starts;  // [rows + 1]: row r has the tokens starts[r] .. starts[r + 1]
    uint32_t most = 0;            // tokens of one row
    // By part of the model: the slots they write, and by row the length they attend to.
    std::vector<std::vector<int64_t>> slots;
    std::vector<std::vector<int32_t>> lengths;
  };
  // What was in a slot of a layer before it was written.
  struct Saved {
    size_t part, layer;
    int64_t slot;
    uint64_t at;  // in saved_bytes_
  };

  void Pass(std::span<const StepBuffers> parts, PassResult* out);
  // Tokens [first, first + n) of each row's new ones, n as `count(row)` says.
  template <class Count, class Token>
  void Gather(std::span<const StepBuffers> parts, uint64_t first, Count count, Token token);
  void ShareTables(std::span<const StepBuffers> parts);
  void Forward(std::span<const StepBuffers> parts);
  void Append(const LayerPlace& place, size_t part);
  void ToStoredNumbers(std::vector<float>* values) const;
  void Attend(std::span<const StepBuffers> parts, const LayerPlace& place, size_t part,
              std::vector<float>* o);
  void RunGuesses(std::span<const StepBuffers> parts, PassResult* out);
  void WriteAhead(std::span<const StepBuffers> parts, const PassResult& out);
  uint64_t ResultOfRow(uint64_t row) const;
  void Save(size_t part, size_t layer, int64_t slot);
  void Restore();
  static uint64_t CountWild(const NumericMemory& memory, const StepBuffers& buffers);

  size_t groups_;
  uint32_t null_page_;
  bool wide_;
  Transformer transformer_;
  std::vector<NumericMemory> memory_;  // by part
  Batch batch_;
  std::vector<float> h_, x_, q_, k_, v_;
  std::vector<std::vector<float>> o_;         // by rank
  std::vector<std::vector<int32_t>> tables_;  // by part: where a prefix table or a plan is
  bool trying_ = false;
  std::vector<Saved> saved_;
  std::vector<uint8_t> saved_bytes_;
};

}  // namespace kvfence
