#include "sim_model.h"

#include <algorithm>
#include <utility>

#include "kvfence/check.h"

namespace kvfence {
namespace {

class SimSoloRun final : public SoloRun {
 public:
  explicit SimSoloRun(GoldenRun run) : run_(std::move(run)) {}
  std::unique_ptr<SoloRun> Copy() const override { return std::make_unique<SimSoloRun>(run_); }
  void Prefill(std::span<const uint32_t> prompt) override { run_.Prefill(prompt); }
  uint64_t Result() override { return run_.Result(); }
  void Advance(uint32_t sample) override { run_.Advance(sample); }
  void Ahead(size_t n, uint32_t sample, std::vector<uint64_t>* results) override {
    run_.Ahead(n, sample, results);
  }
  uint64_t ResultAt(uint64_t length) override { return run_.ResultAt(length); }

 private:
  GoldenRun run_;
};

}  // namespace

SimModel::SimModel(const std::vector<KvGroup>& groups, uint64_t ranks, int64_t null_page,
                   uint64_t quantiser, uint64_t index_bits)
    : groups_(groups.size()),
      quantiser_(quantiser),
      weights_(WeightsOf(groups)),
      kv_(MemoryOf(groups, weights_, ranks)),
      model_(ModelOf(groups, weights_, ranks)),
      pass_(&kv_, WindowsOf(model_), null_page, quantiser) {
  for (KvMemory& kv : kv_) kv.NarrowIndices(index_bits);
}

void SimModel::Try(std::span<const StepBuffers> parts, PassResult* out) {
  undo_.clear();
  pass_.Run(parts, out, &undo_);
  pass_.Undo(undo_);
}

uint32_t SimModel::TokenOf(uint64_t result, uint32_t sample) const {
  return kvfence::TokenOf(result, sample);
}

std::unique_ptr<SoloRun> SimModel::Alone(uint64_t salt, bool keep_results) const {
  return std::make_unique<SimSoloRun>(GoldenRun(&model_, salt, keep_results));
}

void SimModel::CopyPage(size_t group, uint64_t from, uint64_t to) {
  for (size_t part = group; part < kv_.size(); part += groups_) kv_[part].CopyPage(from, to);
}

HostPage SimModel::ReadPage(size_t group, uint64_t page) const {
  std::vector<uint64_t> all;
  for (size_t part = group; part < kv_.size(); part += groups_) {
    const std::vector<uint64_t> content = kv_[part].Content(page);
    all.insert(all.end(), content.begin(), content.end());
  }
  return std::make_shared<const std::vector<uint64_t>>(std::move(all));
}

void SimModel::WritePage(size_t group, uint64_t page, uint64_t tokens, const HostPage& content) {
  const uint64_t size = kv_[group].page_size();
  for (size_t part = group, rank = 0; part < kv_.size(); part += groups_, ++rank) {
    for (uint64_t o = 0; o < tokens; ++o) kv_[part].WriteAt(page, o, (*content)[rank * size + o]);
  }
}

void SimModel::FetchPage(ServedModel* from, size_t group, uint64_t from_page, uint64_t to_page,
                         uint64_t tokens) {
  auto* source = dynamic_cast<SimModel*>(from);
  KVF_CHECK(source != nullptr && source->kv_.size() == kv_.size(),
            "I-154 pages travel between engines of one model");
  // The other cache holds content as it is: pages travel from there to here only.
  KVF_CHECK(source->quantiser_ == 1, "I-154 pages travel between engines of one model");
  for (size_t part = group; part < kv_.size(); part += groups_) {
    for (uint64_t o = 0; o < tokens; ++o) {
      kv_[part].WriteAt(to_page, o, source->kv_[part].At(from_page, o) * quantiser_);
    }
  }
}

uint64_t SimModel::SumOf(size_t group, uint64_t page, uint64_t tokens) const {
  uint64_t sum = tokens;
  for (size_t part = group; part < kv_.size(); part += groups_) {
    for (uint64_t o = 0; o < tokens; ++o) sum = Mix64(sum ^ kv_[part].At(page, o));
  }
  return sum;
}

void SimModel::SwapSlots(uint64_t page, uint64_t a, uint64_t b) {
  for (size_t part = 0; part < kv_.size(); part += groups_) {
    const uint64_t content = kv_[part].At(page, a);
    kv_[part].WriteAt(page, a, kv_[part].At(page, b));
    kv_[part].WriteAt(page, b, content);
  }
}

void SimModel::Scribble(int64_t page, uint64_t first, uint64_t n, uint64_t seed) {
  KvMemory& kv = kv_.front();
  if (!kv.Contains(page)) return;
  for (uint64_t o = first; o < std::min(first + n, kv.page_size()); ++o) {
    kv.WriteAt(static_cast<uint64_t>(page), o, Mix64(seed + o));
  }
}

}  // namespace kvfence
