// `kvfence run`: the main job. Traffic, faults, and what became of each.
#include <absl/flags/flag.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atomic_file.h"
#include "cli.h"
#include "interrupt.h"
#include "kvfence/backend.h"
#include "kvfence/campaign.h"
#include "kvfence/check.h"
#include "kvfence/fault_kind.h"
#include "kvfence/metrics.h"
#include "kvfence/metrics_exposer.h"
#include "outcome_table.h"
#include "progress.h"
#include "report_html.h"
#include "run_config.h"
#include "shared_flags.h"

namespace kvfence::tools {
namespace {

void ShowProgress(ProgressLine& line, const CampaignProgress& p) {
  if (!line.Due()) return;
  const double left = p.fraction > 0.01 ? p.seconds * (1 - p.fraction) / p.fraction : 0;
  char text[256];
  std::snprintf(
      text, sizeof(text), "%3.0f%%  %s  %s steps (%s/s)  %s faults, %llu bad  %s, about %s left",
      p.fraction * 100, p.phase.c_str(), Short(static_cast<double>(p.steps)).c_str(),
      Short(p.seconds > 0 ? static_cast<double>(p.steps) / p.seconds : 0).c_str(),
      Short(static_cast<double>(p.activated)).c_str(), static_cast<unsigned long long>(p.bad),
      Duration(p.seconds).c_str(), Duration(left).c_str());
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

int Finish(const RunConfig& config, const CampaignReport& report, const std::string& command) {
  const std::string json = ToJson(report) + "\n";
  const std::string html = config.out + "/report.html";
  for (const auto& [path, text] : {std::pair(config.out + "/report.json", json),
                                   std::pair(html, HtmlReport(report, command))}) {
    if (Status status = WriteFile(path, text); !status.ok()) {
      return Fail("run", kExitEnvironment, status.message());
    }
  }
  const bool as_json = absl::GetFlag(FLAGS_json);
  if (as_json) std::fputs(json.c_str(), stdout);
  std::FILE* people = as_json ? stderr : stdout;
  PrintReport(report, command, IsFancy(fileno(people)), people);
  std::fprintf(people, "report: %s\n", html.c_str());
  if (report.partial) return kExitEnvironment;
  return report.green && (report.complete || !report.config.until_complete) ? kExitClean
                                                                            : kExitFinding;
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
  if (Status status = PrepareFolder(config.out); !status.ok()) {
    return Fail("run", kExitEnvironment, status.message());
  }
  const std::string command = CommandOf(config.campaign);
  std::fprintf(stderr, "%s\n", command.c_str());

  ProgressLine line(IsFancy(fileno(stderr)));
  CampaignHooks hooks;
  hooks.progress = [&](const CampaignProgress& progress) { ShowProgress(line, progress); };
  hooks.stop = &StopOnInterrupt();
  Serving serving;
  if (Status status = Serve(config, &hooks, &serving); !status.ok()) {
    return Fail("run", kExitEnvironment, "--metrics_port: " + status.message());
  }
  Result<CampaignReport> report = RunCampaign(config.campaign, hooks);
  line.Clear();
  if (!report.ok()) return Fail("run", kExitUsage, report.status().message());
  return Finish(config, report.value(), command);
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
      ".kvlog per bad finding in --out. Ctrl-C ends early and marks the report as partial.\n\n"
      "examples:\n"
      "  kvfence run\n"
      "  kvfence run --seed=7 --requests=300 --json\n"
      "  kvfence run --until=complete\n"
      "  kvfence run --trace=conversation.jsonl --faults=none --page_size=64\n"
      "  kvfence run --faults=row_tail,row_swap --metrics_port=9391\n",
      RunFlags(),
      Run};
  return kVerb;
}

}  // namespace kvfence::tools
