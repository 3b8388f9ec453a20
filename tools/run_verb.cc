// `kvfence run`: the main job. Traffic, faults, and what became of each.
#include <absl/flags/flag.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "atomic_file.h"
#include "cli.h"
#include "finish_report.h"
#include "interrupt.h"
#include "kvfence/backend.h"
#include "kvfence/campaign.h"
#include "kvfence/check.h"
#include "kvfence/fault_kind.h"
#include "kvfence/metrics.h"
#include "kvfence/metrics_exposer.h"
#include "progress.h"
#include "run_config.h"
#include "shared_flags.h"

namespace kvfence::tools {
namespace {

void ShowProgress(ProgressLine& line, const CampaignProgress& p) {
  if (!line.Due()) return;
  char text[256];
  std::snprintf(text, sizeof(text),
                "%3.0f%%  %s  %s steps (%s/s)  %s faults, %llu bad  %s, about %s left",
                p.fraction * 100, p.phase.c_str(), Short(static_cast<double>(p.steps)).c_str(),
                Short(p.steps_per_second).c_str(), Short(static_cast<double>(p.activated)).c_str(),
                static_cast<unsigned long long>(p.bad), Duration(p.seconds).c_str(),
                Duration(p.seconds_left).c_str());
  line.Show(text);
}

// Metrics on a port, kept until the run ends.
struct Serving {
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<MetricsExposer> exposer;
};

Status Serve(const RunConfig& config, CampaignHooks* hooks, Serving* serving) {
  if (config.metrics_port == -1) return Status();
  Metrics::Options options;
  const auto backend = Metrics::BackendFromName(config.backend);
  KVF_CHECK(backend.has_value(), "the backend's name was judged before");
  options.backend = *backend;
  for (const FaultKind& kind : FaultKinds()) options.fault_kinds.emplace_back(kind.name);
  Result<std::unique_ptr<Metrics>> metrics_made = Metrics::Create(std::move(options));
  if (!metrics_made.ok()) return Status::Invalid(metrics_made.status().message());
  serving->metrics = std::move(metrics_made).value();
  const auto port = static_cast<uint16_t>(config.metrics_port);
  Result<std::unique_ptr<MetricsExposer>> exposer =
      MetricsExposer::Start(*serving->metrics, {.port = port, .address = "127.0.0.1"});
  if (!exposer.ok()) return Status(StatusCode::kUnavailable, exposer.status().message());
  serving->exposer = std::move(exposer).value();
  std::fprintf(stderr, "metrics: http://127.0.0.1:%d/metrics\n", serving->exposer->port());
  Metrics* metrics = serving->metrics.get();
  hooks->sinks.push_back(metrics);
  hooks->on_fault = [metrics](const std::string& kind) {
    KVF_CHECK(metrics->CountFault(kind).ok(), "I-70 the metrics were given every fault kind");
  };
  hooks->on_outcome = [metrics](const std::string& kind, Outcome outcome) {
    const std::string_view name = kOutcomeNames[static_cast<size_t>(outcome)];
    KVF_CHECK(metrics->CountOutcome(kind, name).ok(), "I-70 the metrics know every outcome");
  };
  return Status();
}

// The reference engine's device is simulated on the CPU; asking for CUDA is refused, never ignored.
int RefuseCuda() {
  std::string why;
  if (!CudaAvailable(&why)) return Fail("run", kExitEnvironment, "--backend=cuda: " + why);
  return Fail("run", kExitEnvironment,
              "--backend=cuda: the engine's device is simulated on the CPU; CUDA kernels are run "
              "by ./dev gpu");
}

int Run(const std::vector<std::string>& words) {
  if (!words.empty()) return Fail("run", kExitUsage, "takes no words, got '" + words[0] + "'");
  Result<RunConfig> read = ReadRunConfig();
  if (!read.ok()) return Fail("run", kExitUsage, read.status().message());
  const RunConfig config = std::move(read).value();
  if (config.backend == "cuda") return RefuseCuda();
  const bool new_folder = !std::filesystem::exists(config.out);
  if (Status status = PrepareFolder(config.out); !status.ok()) {
    return Fail("run", kExitEnvironment, status.message());
  }
  const std::string command = CommandOf(config.campaign);
  std::fprintf(stderr, "%s\n", command.c_str());

  ProgressLine line(IsFancy(fileno(stderr)));
  CampaignHooks hooks;
  hooks.progress = [&](const CampaignProgress& progress) { ShowProgress(line, progress); };
  hooks.stop = &StopOnInterrupt();
  hooks.jobs = config.jobs;
  hooks.journal = config.out + "/campaign.journal";
  hooks.resume = config.resume;
  Serving serving;
  if (Status status = Serve(config, &hooks, &serving); !status.ok()) {
    return Fail("run", kExitEnvironment, "--metrics_port: " + status.message());
  }
  Result<CampaignReport> report = RunCampaign(config.campaign, hooks);
  line.Clear();
  if (!report.ok()) {
    std::error_code error;
    if (new_folder) std::filesystem::remove(config.out, error);  // unless something is in it
    const bool ours = report.status().code() == StatusCode::kResourceExhausted;
    return Fail("run", ours ? kExitEnvironment : kExitUsage, report.status().message());
  }
  return FinishReport("run", config.out, report.value(), command);
}

}  // namespace

const Verb& RunVerb() {
  static const Verb kVerb = {
      "run",
      "",
      "serves traffic on the reference engine, injects faults, tells what became of each",
      "The reference engine serves a request trace under continuous batching with FP8 KV pages.\n"
      "Beside the runs with faults there is one without (any report is a false alarm) and one\n"
      "without the fence (it must publish wrong tokens). Leaves report.html, report.json and one\n"
      ".kvlog per bad finding in --out. Ctrl-C ends early and marks the report as partial.\n"
      "A run that was stopped or killed leaves campaign.journal there: the same command with\n"
      "--resume goes on, and its report is the one of a run that was never killed.\n"
      "--jobs, --shard and --resume change nothing in the report.\n\n"
      "examples:\n"
      "  kvfence run\n"
      "  kvfence run --seed=7 --requests=300 --json\n"
      "  kvfence run --until=complete\n"
      "  kvfence run --trace=conversation.jsonl --faults=none --page_size=64\n"
      "  kvfence run --faults=row_tail,row_swap --metrics_port=9391\n"
      "  kvfence run --seed=$(git rev-parse HEAD) --duration=600 --jobs=2\n"
      "  kvfence run --faults=none --requests=200000 --requests_per_run=100    2,000 "
      "configurations\n"
      "  kvfence run --requests=100000 --shard=1/4 --out=part1    (then kvfence merge)\n"
      "  kvfence run --seed=7 --only_run=57 --jobs=0                  one run, for a debugger\n",
      RunFlags(),
      Run};
  return kVerb;
}

}  // namespace kvfence::tools
