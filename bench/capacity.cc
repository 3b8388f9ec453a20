// FP8 against BF16 with one fixed pool: at how many requests at once does each run out of pages,
// and what becomes of the throughput on both sides of it?
//
// Idea: the same small transformer, the same requests and the same bytes of cache; pages of FP8
// have half the bytes, so there are twice as many. With n requests at once each arm serves 3 n
// requests over the reference engine, the fence at full: where a pool is too small the scheduler
// preempts, and what was preempted is computed again. Everything but seconds depends on nothing but
// the seed. Rates are of this thread's processor time. Tokens a step are what counts where a step
// takes the same time however many rows it has, as decode on a device does until it runs out of
// arithmetic.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/check.h"
#include "kvfence/engine.h"
#include "kvfence/fence.h"
#include "kvfence/switched_tracker.h"

namespace kvfence {
namespace {

constexpr uint32_t kInput = 48, kOutput = 80;
constexpr uint64_t kPageSize = 8;
constexpr uint64_t kPagesOfRequest = (kInput + kOutput) / kPageSize;
// The pool: what eight requests need at their longest in BF16, and the null page.
constexpr uint64_t kBf16Pages = 8 * kPagesOfRequest + 1;
constexpr KvType kTypes[] = {KvType::kBf16, KvType::kE4m3};

struct Served {
  uint64_t preemptions = 0;
  double tokens_per_step = 0, tokens_per_second = 0;
  double computed_per_token = 0;  // tokens that passed through the model, for one published
};

class Silent : public EventSink {
 public:
  void OnViolation(const Violation&) override { KVF_CHECK(false, "an honest run is silent"); }
};

uint64_t PageBytes(const TransformerShape& shape) {
  const uint64_t number = shape.kv == KvType::kE4m3 ? 1 : 2;
  return kPageSize * shape.layers * 2 * shape.kv_heads * shape.head_dim * number;
}

// Requests that share nothing and arrive at once.
std::vector<TraceRequest> Requests(uint64_t n) {
  std::vector<TraceRequest> trace(n);
  for (uint64_t i = 0; i < n; ++i) {
    trace[i] = {.input_length = kInput, .output_length = kOutput, .hash_ids = {i + 1}};
  }
  return trace;
}

Served Serve(KvType type, uint64_t at_once) {
  const TransformerShape shape = SmallTransformer(AttentionForm::kGqa, type, WeightType::kBf16);
  TransformerShape wide = shape;
  wide.kv = KvType::kBf16;
  EngineConfig config;
  config.numeric = shape;
  config.ground_truth = false;
  config.features.prefix_cache = false;
  config.page_size = kPageSize;
  config.pages = (kBf16Pages - 1) * PageBytes(wide) / PageBytes(shape) + 1;
  config.rows = at_once;
  config.token_budget = 128;
  const std::vector<TraceRequest> trace = Requests(3 * at_once);
  FenceConfig fence_config = FenceConfigFor(config, trace);
  fence_config.level = Level::kFull;
  Silent silent;
  const std::unique_ptr<Fence> fence = Fence::Create(fence_config, {&silent}).value();
  EngineNames names;
  names.name = [&](const std::string& name) { return fence->Intern(name); };
  names.copy = names.name;
  auto engine =
      Engine<SwitchedTracker>::Create(config, &trace, SwitchedTracker(fence.get()), names).value();
  const std::clock_t start = std::clock();
  const EngineReport& report = engine->Run();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  KVF_CHECK(report.tokens_published == trace.size() * kOutput, "everybody is served");
  const auto tokens = static_cast<double>(report.tokens_published);
  return {.preemptions = report.preemptions,
          .tokens_per_step = tokens / static_cast<double>(report.steps),
          .tokens_per_second = tokens / seconds,
          .computed_per_token = static_cast<double>(report.tokens_computed) / tokens};
}

void PrintJson(uint64_t at_once, const Served (&served)[2], bool first) {
  std::printf("%s{\"at_once\":%llu", first ? "" : ",\n", static_cast<unsigned long long>(at_once));
  for (size_t i = 0; i < 2; ++i) {
    std::printf(
        ",\"%s\":{\"preemptions\":%llu,\"tokens_per_step\":%.3f,\"computed_per_token\":%.3f,"
        "\"tokens_per_second\":%.0f}",
        std::string(KvTypeName(kTypes[i])).c_str(),
        static_cast<unsigned long long>(served[i].preemptions), served[i].tokens_per_step,
        served[i].computed_per_token, served[i].tokens_per_second);
  }
  std::printf("}");
}

void PrintRow(uint64_t at_once, const Served (&served)[2]) {
  std::printf("%7llu", static_cast<unsigned long long>(at_once));
  for (const Served& s : served) {
    std::printf("   %9llu %10.2f %14.2f %9.0f", static_cast<unsigned long long>(s.preemptions),
                s.tokens_per_step, s.computed_per_token, s.tokens_per_second);
  }
  std::printf("\n");
}

int Main(bool json) {
  const uint64_t bytes = kBf16Pages * PageBytes(SmallTransformer(AttentionForm::kGqa, KvType::kBf16,
                                                                 WeightType::kBf16));
  if (json) {
    std::printf("{\"pool_bytes\":%llu,\"rows\":[\n", static_cast<unsigned long long>(bytes));
  } else {
    std::printf(
        "a pool of %llu KiB, requests of %u tokens in and %u out\n"
        "           BF16                                              FP8\n"
        "at once   preempted  tokens/step  computed/token  tokens/s   preempted  "
        "tokens/step  computed/token  tokens/s\n",
        static_cast<unsigned long long>(bytes / 1024), kInput, kOutput);
  }
  bool first = true;
  for (const uint64_t at_once : {2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24}) {
    const Served served[2] = {Serve(kTypes[0], at_once), Serve(kTypes[1], at_once)};
    if (json) {
      PrintJson(at_once, served, first);
    } else {
      PrintRow(at_once, served);
    }
    first = false;
  }
  if (json) std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argc == 1 || argument == "--json") return kvfence::Main(argc == 2);
  std::fputs("usage: capacity [--json]\n", argument == "--help" ? stdout : stderr);
  return argument == "--help" ? 0 : 2;
}
