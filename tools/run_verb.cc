// `kvfence run`: the main job. Traffic, faults, and what became of each.
#include <absl/flags/flag.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atomic_file.h"
#include "cli.h"
#include "kvfence/backend.h"
#include "kvfence/campaign.h"
#include "kvfence/check.h"
#include "kvfence/fault_kind.h"
#include "kvfence/metrics.h"
#include "kvfence/metrics_exposer.h"
#include "outcome_table.h"
#include "progress.h"
#include "report_html.h"

ABSL_FLAG(uint64_t, seed, 1, "seed of the whole run: the same seed gives the same report");
ABSL_FLAG(std::string, trace, "", "request trace, Mooncake JSON Lines; default: the generator");
ABSL_FLAG(int64_t, requests, -1, "requests to serve; -1: the whole trace, or the default number");
ABSL_FLAG(int64_t, steps, -1, "stop each arm after this many steps; -1: when all is served");
ABSL_FLAG(int64_t, duration, -1, "stop after this many seconds; -1: no limit");
ABSL_FLAG(std::vector<std::string>, faults, std::vector<std::string>({"all"}),
          "all, none, or kinds (kvfence faults lists them), comma-separated");
ABSL_FLAG(std::string, level, "full", "map, full or audit");
ABSL_FLAG(std::string, policy, "abort", "log, abort or stop");
ABSL_FLAG(int64_t, page_size, -1, "tokens per page; -1: drawn from the seed");
ABSL_FLAG(int64_t, pages, -1, "pages in the pool, the null page counted; -1: drawn");
ABSL_FLAG(int64_t, rows, -1, "largest batch; -1: drawn");
ABSL_FLAG(std::string, until, "", "complete: go on until each kind has been activated often enough");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cuda");
ABSL_FLAG(std::string, out, "kvfence-out", "folder for report.html, report.json and findings");
ABSL_FLAG(int64_t, metrics_port, -1, "serve Prometheus metrics on this port of 127.0.0.1; 0: any");
ABSL_FLAG(bool, json, false, "print the report as one JSON object on standard output");

namespace kvfence::tools {
namespace {

std::atomic<bool> g_stop{false};

void OnInterrupt(int) {
  if (g_stop.exchange(true)) std::_Exit(130);  // the second time: at once
}

Status Positive(const char* name, int64_t value, uint64_t* out) {
  if (value == -1) return Status();
  if (value < 1) {
    return Status::Invalid("--" + std::string(name) + " must be at least 1, got " +
                           std::to_string(value));
  }
  *out = static_cast<uint64_t>(value);
  return Status();
}

Status ReadSizes(CampaignConfig* config) {
  const std::pair<const char*, std::pair<int64_t, uint64_t*>> sizes[] = {
      {"requests", {absl::GetFlag(FLAGS_requests), &config->requests}},
      {"steps", {absl::GetFlag(FLAGS_steps), &config->steps}},
      {"duration", {absl::GetFlag(FLAGS_duration), &config->duration_seconds}},
      {"page_size", {absl::GetFlag(FLAGS_page_size), &config->page_size}},
      {"pages", {absl::GetFlag(FLAGS_pages), &config->pages}},
      {"rows", {absl::GetFlag(FLAGS_rows), &config->rows}},
  };
  for (const auto& [name, value] : sizes) {
    if (Status status = Positive(name, value.first, value.second); !status.ok()) return status;
  }
  return Status();
}

Status ReadWords(CampaignConfig* config) {
  const auto level = LevelFromName(absl::GetFlag(FLAGS_level));
  if (!level || *level == Level::kOff) {
    return Status::Invalid("--level must be map, full or audit (the run has its own off arm)");
  }
  config->level = *level;
  const std::string policy = absl::GetFlag(FLAGS_policy);
  if (policy == "log") {
    config->policy = Policy::kLog;
  } else if (policy == "stop") {
    config->policy = Policy::kStop;
  } else if (policy != "abort") {
    return Status::Invalid("--policy must be log, abort or stop, got '" + policy + "'");
  }
  const std::string until = absl::GetFlag(FLAGS_until);
  if (!until.empty() && until != "complete") {
    return Status::Invalid("--until must be complete, got '" + until + "'");
  }
  config->until_complete = !until.empty();
  config->faults = absl::GetFlag(FLAGS_faults);
  for (const std::string& kind : config->faults) {
    if (kind != "all" && kind != "none" && FindFaultKind(kind) == nullptr) {
      return Status::Invalid("--faults: unknown kind '" + kind + "' (kvfence faults lists them)");
    }
  }
  return Status();
}

// The command that makes this report again.
std::string Command(const CampaignConfig& config) {
  std::string text = "kvfence run --seed=" + std::to_string(config.seed);
  const auto add = [&](const char* name, uint64_t value) {
    if (value != 0) text += " --" + std::string(name) + "=" + std::to_string(value);
  };
  if (!config.trace.empty()) text += " --trace=" + config.trace;
  add("requests", config.requests);
  add("steps", config.steps);
  add("page_size", config.page_size);
  add("pages", config.pages);
  add("rows", config.rows);
  std::string faults;
  for (const std::string& kind : config.faults) faults += (faults.empty() ? "" : ",") + kind;
  if (faults != "all") text += " --faults=" + faults;
  if (config.level != Level::kFull) text += " --level=" + std::string(LevelName(config.level));
  if (config.until_complete) text += " --until=complete";
  return text;
}

void ShowProgress(ProgressLine& line, const CampaignProgress& p) {
  if (!line.Due()) return;
  const double left = p.fraction > 0.01 ? p.seconds * (1 - p.fraction) / p.fraction : 0;
  char text[256];
  std::snprintf(text, sizeof(text),
                "%3.0f%%  %s  %s steps (%s/s)  %s faults, %llu bad  %s, about %s left",
                p.fraction * 100, p.phase.c_str(), Short(static_cast<double>(p.steps)).c_str(),
                Short(p.seconds > 0 ? static_cast<double>(p.steps) / p.seconds : 0).c_str(),
                Short(static_cast<double>(p.activated)).c_str(),
                static_cast<unsigned long long>(p.bad), Duration(p.seconds).c_str(),
                Duration(left).c_str());
  line.Show(text);
}

// Metrics on a port, kept until the run ends.
struct Serving {
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<MetricsExposer> exposer;
};

Status Serve(CampaignHooks* hooks, Serving* serving) {
  const int64_t port = absl::GetFlag(FLAGS_metrics_port);
  if (port == -1) return Status();
  if (port < 0 || port > 65535) return Status::Invalid("--metrics_port must be 0..65535");
  Metrics::Options options;
  const auto backend = Metrics::BackendFromName(absl::GetFlag(FLAGS_backend));
  if (!backend) return Status::Invalid("--backend must be cpu or cuda");
  options.backend = *backend;
  for (const FaultKind& kind : FaultKinds()) options.fault_kinds.emplace_back(kind.name);
  Result<std::unique_ptr<Metrics>> metrics_made = Metrics::Create(std::move(options));
  if (!metrics_made.ok()) return Status::Invalid(metrics_made.status().message());
  serving->metrics = std::move(metrics_made).value();
  Result<std::unique_ptr<MetricsExposer>> exposer = MetricsExposer::Start(
      *serving->metrics, {.port = static_cast<uint16_t>(port), .address = "127.0.0.1"});
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

int Finish(const CampaignReport& report, const std::string& command) {
  const std::string out = absl::GetFlag(FLAGS_out);
  const std::string html = out + "/report.html";
  for (const auto& [path, text] : {std::pair(out + "/report.json", ToJson(report) + "\n"),
                                   std::pair(html, HtmlReport(report, command))}) {
    if (Status status = WriteFile(path, text); !status.ok()) {
      return Fail("run", kExitEnvironment, status.message());
    }
  }
  if (absl::GetFlag(FLAGS_json)) std::cout << ToJson(report) << std::endl;
  std::FILE* people = absl::GetFlag(FLAGS_json) ? stderr : stdout;
  PrintReport(report, command, IsFancy(fileno(people)), people);
  std::fprintf(people, "report: %s\n", html.c_str());
  if (report.partial) return kExitEnvironment;
  return report.green && (report.complete || !report.config.until_complete) ? kExitClean
                                                                            : kExitFinding;
}

int Run(const std::vector<std::string>& words) {
  if (!words.empty()) return Fail("run", kExitUsage, "takes no words, got '" + words[0] + "'");
  CampaignConfig config;
  config.seed = absl::GetFlag(FLAGS_seed);
  config.trace = absl::GetFlag(FLAGS_trace);
  if (Status status = ReadSizes(&config); !status.ok()) {
    return Fail("run", kExitUsage, status.message());
  }
  if (Status status = ReadWords(&config); !status.ok()) {
    return Fail("run", kExitUsage, status.message());
  }
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend == "cuda") {
    std::string why;
    if (!CudaAvailable(&why)) return Fail("run", kExitEnvironment, "--backend=cuda: " + why);
    return Fail("run", kExitEnvironment, "--backend=cuda: the engine's device is simulated on the "
                                         "CPU; CUDA kernels are run by ./dev gpu");
  }
  if (backend != "cpu") return Fail("run", kExitUsage, "--backend must be cpu or cuda");
  if (Status status = PrepareFolder(absl::GetFlag(FLAGS_out)); !status.ok()) {
    return Fail("run", kExitEnvironment, status.message());
  }
  config.log_dir = absl::GetFlag(FLAGS_out);
  const std::string command = Command(config);
  std::fprintf(stderr, "%s\n", command.c_str());

  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  ProgressLine line(IsFancy(fileno(stderr)));
  CampaignHooks hooks;
  hooks.progress = [&](const CampaignProgress& progress) { ShowProgress(line, progress); };
  hooks.stop = &g_stop;
  Serving serving;
  if (Status status = Serve(&hooks, &serving); !status.ok()) {
    return Fail("run", status.code() == StatusCode::kUnavailable ? kExitEnvironment : kExitUsage,
                status.message());
  }
  Result<CampaignReport> report = RunCampaign(config, hooks);
  line.Clear();
  if (!report.ok()) return Fail("run", kExitUsage, report.status().message());
  return Finish(report.value(), command);
}

}  // namespace

const Verb& RunVerb() {
  static const Verb kVerb = {
      "run", "",
      "serves traffic on the reference engine, injects faults, tells what became of each",
      "The reference engine serves a request trace under continuous batching with FP8 KV pages.\n"
      "Beside the runs with faults there is one without (any report is a false alarm) and one\n"
      "without the fence (it must publish wrong tokens). Leaves report.html, report.json and one\n"
      ".kvlog per bad finding in --out.\n\n"
      "examples:\n"
      "  kvfence run\n"
      "  kvfence run --seed=7 --requests=300 --json\n"
      "  kvfence run --until=complete\n"
      "  kvfence run --trace=conversation.jsonl --faults=none --page_size=64\n"
      "  kvfence run --faults=late_write,row_swap --metrics_port=9391\n",
      {"seed", "trace", "requests", "steps", "duration", "faults", "until", "level", "policy",
       "page_size", "pages", "rows", "backend", "out", "metrics_port", "json"},
      Run};
  return kVerb;
}

}  // namespace kvfence::tools
