// Serves one trace, so that its instructions can be counted: without hooks, or with a fence that is
// absent. Which of them is chosen when this is compiled (KVF_DRIVE_OFF, KVF_DRIVE_COUNT).
#include <cstdio>
#include <string_view>
#include <vector>

#include "kvfence/engine.h"
#include "kvfence/trace.h"

#if defined(KVF_DRIVE_COUNT)
#include <map>
#include <span>
#include <string>

#include "engine_impl.h"
#elif defined(KVF_DRIVE_OFF)
#include "kvfence/switched_tracker.h"
#endif

namespace kvfence {
namespace {

#if defined(KVF_DRIVE_COUNT)
// How often each hook is called.
std::map<std::string, unsigned long> calls;

struct HookCounts {
#define KVF_COUNTED_HOOK(verb) \
  void verb(const verb##Event&) { ++calls[#verb]; }
  KVF_FOR_EACH_HOOK(KVF_COUNTED_HOOK)
#undef KVF_COUNTED_HOOK
};

// Counts, and lets every row be published.
class CountingTracker : public HookCounts {
 public:
  static constexpr bool kTracks = true;
  RequestId Admit(const AdmitEvent& event) {
    ++calls["Admit"];
    return RequestId(event.name, 1);
  }
  void Step(const StepEvent& event) {
    HookCounts::Step(event);
    launched_ = event.rows;
  }
  Result<Settlement> Retire(const RetireEvent& event) {
    ++calls["Retire"];
    rows_.clear();
    for (const RowPlan& plan : launched_) {
      RowResult& row = rows_.emplace_back();
      row.row = plan.row;
      row.req = plan.req;
      row.published = true;
    }
    Settlement settlement;
    settlement.step = event.step;
    settlement.rows = rows_;
    return settlement;
  }

 private:
  std::span<const RowPlan> launched_;  // the engine keeps them until Retire
  std::vector<RowResult> rows_;
};
using DrivenTracker = CountingTracker;
DrivenTracker MakeTracker() { return {}; }
#elif defined(KVF_DRIVE_OFF)
using DrivenTracker = SwitchedTracker;
DrivenTracker MakeTracker() { return SwitchedTracker(nullptr); }
#else
using DrivenTracker = NoopTracker;
DrivenTracker MakeTracker() { return {}; }
#endif

// Chat traffic with shared beginnings, small enough for a simulated processor.
std::vector<TraceRequest> Chat() {
  TraceShape shape;
  shape.requests = 120;
  shape.median_message = 600;
  shape.largest_input = 16000;
  shape.median_output = 60;
  return GenerateTrace(shape);
}

// 64 at once, each 8,192 tokens in that nobody else has, and 400 out.
std::vector<TraceRequest> Steady() {
  std::vector<TraceRequest> trace(64);
  uint64_t block = 0;
  for (TraceRequest& request : trace) {
    request.input_length = 8192;
    request.output_length = 400;
    for (uint32_t i = 0; i < 8192 / kTraceBlock; ++i) request.hash_ids.push_back(++block);
  }
  return trace;
}

EngineConfig Served() {
  EngineConfig config;
  config.page_size = 16;
  config.pages = 40'000;
  config.rows = 64;
  config.token_budget = 8192;
  return config;
}

// Prompts that come twice, the second time when their pages are in the prefix cache.
std::vector<TraceRequest> Twice() {
  std::vector<TraceRequest> trace(32);
  for (size_t i = 0; i < trace.size(); ++i) {
    trace[i] = {.input_length = 160, .output_length = 40, .hash_ids = {i % 16 + 1}};
  }
  return trace;
}

// The small transformer: a forward pass for each token, real attention over an FP8 cache. Without
// the golden run, which no serving engine has and which would be half of the work.
EngineConfig Numeric() {
  EngineConfig config;
  config.page_size = 16;
  config.pages = 1'000;
  config.rows = 16;
  config.numeric = SmallTransformer(AttentionForm::kGqa, KvType::kE4m3, WeightType::kBf16);
  config.ground_truth = false;
  return config;
}

int Drive(const EngineConfig& config, const std::vector<TraceRequest>& trace) {
  auto engine = Engine<DrivenTracker>::Create(config, &trace, MakeTracker()).value();
  const EngineReport& report = engine->Run();
  std::printf("steps %llu\nrows %llu\ntokens %llu\nwrong %llu\n",
              static_cast<unsigned long long>(report.steps),
              static_cast<unsigned long long>(report.rows),
              static_cast<unsigned long long>(report.tokens_published),
              static_cast<unsigned long long>(report.wrong_tokens));
#if defined(KVF_DRIVE_COUNT)
  for (const auto& [verb, count] : calls) std::printf("hook.%s %lu\n", verb.c_str(), count);
#endif
  return report.tokens_published > 0 && report.wrong_tokens == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  const std::string_view traffic = argc == 2 ? argv[1] : "";
  if (traffic == "chat") return kvfence::Drive(kvfence::Served(), kvfence::Chat());
  if (traffic == "steady") return kvfence::Drive(kvfence::Served(), kvfence::Steady());
  if (traffic == "numeric") return kvfence::Drive(kvfence::Numeric(), kvfence::Twice());
  std::fputs("usage: drive chat|steady|numeric\n", stderr);
  return 2;
}
