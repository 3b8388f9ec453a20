#include "run_config.h"

#include <absl/flags/flag.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "cli.h"
#include "kvfence/fault_kind.h"
#include "numeric_flags.h"
#include "seed_words.h"
#include "shared_flags.h"

ABSL_FLAG(std::string, seed, "1",
          "seed of the whole run, a number or a commit id: the same seed gives the same report");
ABSL_FLAG(std::string, trace, "", "request trace, Mooncake JSON Lines; default: the generator");
ABSL_FLAG(int64_t, requests, -1,
          "requests to serve, and at least 8 with each fault kind; -1: the whole trace, or of the "
          "generator 20000, about a minute");
ABSL_FLAG(
    int64_t, steps, -1,
    "stop the no-fault arm after this many steps, and the faults once they have had as many and "
    "each kind a run; -1: when all is served");
ABSL_FLAG(int64_t, requests_per_run, -1,
          "requests of one run of the no-fault arm, which has drawn settings of its own; -1: 1000");
ABSL_FLAG(int64_t, duration, -1,
          "stop after this many seconds, and without --requests not before; -1: no limit");
ABSL_FLAG(std::vector<std::string>, faults, std::vector<std::string>({"all"}),
          "all (without those that the other flags leave no occasion for), none, or kinds (kvfence "
          "faults lists them), comma-separated");
ABSL_FLAG(
    std::vector<std::string>, features, {},
    "features of the engine, comma-separated: first perhaps all or none, then NAME (always on), "
    "-NAME (never); what isn't named is drawn from the seed");
ABSL_FLAG(
    std::string, policy, "abort",
    "what a finding does: log (tells, and lets wrong tokens leave: with faults the run is red), "
    "abort, recompute or stop");
ABSL_FLAG(int64_t, pages, -1, "pages in the pool, the null page counted; -1: drawn");
ABSL_FLAG(std::string, until, "",
          "complete: go on until each kind has been activated often enough");
ABSL_FLAG(std::string, out, "kvfence-out", "folder for report.html, report.json and findings");
ABSL_FLAG(int64_t, jobs, 1,
          "worker processes; 0: none, all is done in this process and ends with its first crash");
ABSL_FLAG(std::string, shard, "", "K/N: only the K-th of N parts; kvfence merge joins the reports");
ABSL_FLAG(bool, resume, false, "go on with the run that was killed or stopped, where there is one");
ABSL_FLAG(int64_t, only_run, -1, "only the run of this number, as reports name it; -1: all");
ABSL_FLAG(int64_t, metrics_port, -1,
          "serve Prometheus metrics on this port of 127.0.0.1; 0: any; -1: don't");

namespace kvfence::tools {
namespace {

// Above these a number is a slip of the hand: a page's record counts its slots in 14 bits, and a
// pool of this many slots takes gigabytes of ground truth.
constexpr int64_t kMaxPageSize = 16383;
constexpr int64_t kMaxPages = int64_t{1} << 24;
constexpr int64_t kMaxRows = 65536;
constexpr int64_t kMaxSlots = int64_t{1} << 28;
constexpr int64_t kMaxRequests = int64_t{1} << 24;  // all are made before the first is served
constexpr int64_t kMaxCount = int64_t{1} << 48;
constexpr int64_t kMaxJobs = 1024;

Status ReadSizes(CampaignConfig* config) {
  struct Size {
    const char* name;
    int64_t value, least, most;
    uint64_t* out;
  };
  const std::array<Size, 7> sizes = {{
      {"requests", absl::GetFlag(FLAGS_requests), 1, kMaxRequests, &config->requests},
      {"steps", absl::GetFlag(FLAGS_steps), 1, kMaxCount, &config->steps},
      {"requests_per_run", absl::GetFlag(FLAGS_requests_per_run), 1, kMaxRequests,
       &config->requests_per_run},
      {"duration", absl::GetFlag(FLAGS_duration), 1, kMaxCount, &config->duration_seconds},
      {"page_size", absl::GetFlag(FLAGS_page_size), 1, kMaxPageSize, &config->page_size},
      {"pages", absl::GetFlag(FLAGS_pages), 2, kMaxPages, &config->pages},
      {"rows", absl::GetFlag(FLAGS_rows), 1, kMaxRows, &config->rows},
  }};
  for (const Size& size : sizes) {
    Status status = ReadOptional(size.name, size.value, size.least, size.most, size.out);
    if (!status.ok()) return status;
  }
  if (const int64_t only = absl::GetFlag(FLAGS_only_run); only != -1) {
    uint64_t number = 0;
    Status status = ReadInteger("only_run", only, 1, kMaxCount, &number);
    if (!status.ok()) return status;
    config->only = number;
  }
  if (config->pages * config->page_size > static_cast<uint64_t>(kMaxSlots)) {
    return Status::Invalid("--pages * --page_size must be at most " + std::to_string(kMaxSlots) +
                           " slots, got " + std::to_string(config->pages * config->page_size));
  }
  return Status();
}

Status ReadSeed(CampaignConfig* config) {
  const std::string word = absl::GetFlag(FLAGS_seed);
  const std::optional<uint64_t> seed = SeedFromWord(word);
  if (!seed) {
    return Status::Invalid("--seed: '" + word +
                           "' isn't valid (a number below 2^64, or a commit id: hex digits)");
  }
  config->seed = *seed;
  return Status();
}

// "K/N".
Status ReadShard(CampaignConfig* config) {
  const std::string word = absl::GetFlag(FLAGS_shard);
  if (word.empty()) return Status();
  const std::string_view text = word;
  const size_t slash = text.find('/');
  const auto number = [](std::string_view digits, uint64_t* out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  Shard& shard = config->shard;
  if (slash == std::string_view::npos || !number(text.substr(0, slash), &shard.part) ||
      !number(text.substr(slash + 1), &shard.of) || shard.part == 0 || shard.part > shard.of ||
      shard.of > 65536) {
    return Status::Invalid("--shard must be K/N with 1 <= K <= N <= 65536, got '" + word + "'");
  }
  return Status();
}

Status ReadPolicy(CampaignConfig* config) {
  const std::string policy = absl::GetFlag(FLAGS_policy);
  if (policy == "log") {
    config->policy = Policy::kLog;
  } else if (policy == "stop") {
    config->policy = Policy::kStop;
  } else if (policy == "abort") {
    config->policy = Policy::kAbort;
  } else if (policy == "recompute") {
    config->policy = Policy::kRecompute;
  } else {
    return Status::Invalid("--policy must be log, abort, recompute or stop, got '" + policy + "'");
  }
  return Status();
}

Status ReadFaults(CampaignConfig* config) {
  config->faults = absl::GetFlag(FLAGS_faults);
  std::vector<std::string_view> known = {"all", "none"};
  for (const FaultKind& kind : FaultKinds()) known.push_back(kind.name);
  for (const std::string& kind : config->faults) {
    if (kind == "all" || kind == "none" || FindFaultKind(kind) != nullptr) continue;
    return Status::Invalid("--faults: unknown kind '" + kind + "'" + DidYouMean(kind, known) +
                           " (kvfence faults lists them)");
  }
  if (config->faults.empty()) return Status::Invalid("--faults must be all, none or kinds");
  return Status();
}

Status ReadWords(RunConfig* config) {
  const std::string level = absl::GetFlag(FLAGS_level);
  if (!level.empty()) {
    const auto read = LevelFromName(level);
    if (!read || *read == Level::kOff) {
      return Status::Invalid("--level must be map, full or audit, got '" + level +
                             "' (the run has its own arm without the fence)");
    }
    config->campaign.level = *read;
  }
  config->backend = absl::GetFlag(FLAGS_backend);
  if (config->backend != "cpu" && config->backend != "cuda") {
    return Status::Invalid("--backend must be cpu or cuda, got '" + config->backend + "'");
  }
  const std::string until = absl::GetFlag(FLAGS_until);
  if (!until.empty() && until != "complete") {
    return Status::Invalid("--until must be complete, got '" + until + "'");
  }
  config->campaign.until_complete = !until.empty();
  const bool none = config->campaign.faults == std::vector<std::string>{"none"};
  if (config->campaign.until_complete && (none || config->campaign.only)) {
    return Status::Invalid("--until=complete goes on until fault kinds are complete: not with " +
                           std::string(none ? "--faults=none" : "--only_run"));
  }
  config->out = absl::GetFlag(FLAGS_out);
  if (config->out.empty()) return Status::Invalid("--out must name a folder");
  const int64_t jobs = absl::GetFlag(FLAGS_jobs);
  if (jobs < 0 || jobs > kMaxJobs) {
    return Status::Invalid("--jobs must be 0.." + std::to_string(kMaxJobs) + ", got " +
                           std::to_string(jobs));
  }
  config->jobs = static_cast<uint64_t>(jobs);
  config->resume = absl::GetFlag(FLAGS_resume);
  config->metrics_port = absl::GetFlag(FLAGS_metrics_port);
  if (config->metrics_port < -1 || config->metrics_port > 65535) {
    return Status::Invalid("--metrics_port must be 0..65535, or -1 to serve none, got " +
                           std::to_string(config->metrics_port));
  }
  return Status();
}

// As a shell takes it for one word.
std::string Quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/,=:+@%";
  if (word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

// A folder beside `out` for the report of the same run made once more, so that it overwrites
// nothing.
std::string OutBeside(const std::string& out, const std::string& what) {
  std::string stem = out;
  while (stem.size() > 1 && stem.back() == '/') stem.pop_back();
  const std::string name = stem.substr(stem.rfind('/') + 1);
  return name.empty() || name == "." || name == ".." ? stem + "/" + what : stem + "-" + what;
}

}  // namespace

const std::vector<std::string_view>& RunFlags() {
  static const std::vector<std::string_view> kFlags = {"requests_per_run",
                                                       "seed",
                                                       "trace",
                                                       "requests",
                                                       "steps",
                                                       "duration",
                                                       "faults",
                                                       "features",
                                                       "until",
                                                       "level",
                                                       "policy",
                                                       "page_size",
                                                       "pages",
                                                       "rows",
                                                       "jobs",
                                                       "shard",
                                                       "resume",
                                                       "only_run",
                                                       "numeric",
                                                       "attention",
                                                       "kv",
                                                       "weights",
                                                       "trace_scale",
                                                       "backend",
                                                       "out",
                                                       "metrics_port",
                                                       "json"};
  return kFlags;
}

Result<RunConfig> ReadRunConfig() {
  RunConfig config;
  config.campaign.trace = absl::GetFlag(FLAGS_trace);
  if (Status status = ReadSeed(&config.campaign); !status.ok()) return status;
  if (Status status = ReadShard(&config.campaign); !status.ok()) return status;
  if (Status status = ReadSizes(&config.campaign); !status.ok()) return status;
  if (Status status = ReadPolicy(&config.campaign); !status.ok()) return status;
  if (Status status = ReadFaults(&config.campaign); !status.ok()) return status;
  config.campaign.features = absl::GetFlag(FLAGS_features);
  if (Status status = ReadNumeric(&config.campaign); !status.ok()) return status;
  if (Status status = ReadWords(&config); !status.ok()) return status;
  config.campaign.log_dir = config.out;
  if (Status status = CheckCampaignConfig(config.campaign); !status.ok()) return status;
  return config;
}

std::string CommandOf(const CampaignConfig& config, const std::string& beside) {
  std::string text = "kvfence run --seed=" + std::to_string(config.seed);
  const auto add = [&](const char* name, uint64_t value) {
    if (value != 0) text += " --" + std::string(name) + "=" + std::to_string(value);
  };
  if (!config.trace.empty()) text += " --trace=" + Quoted(config.trace);
  add("requests", config.requests);
  add("steps", config.steps);
  add("requests_per_run", config.requests_per_run);
  add("duration", config.duration_seconds);
  add("page_size", config.page_size);
  add("pages", config.pages);
  add("rows", config.rows);
  std::string faults;
  for (const std::string& kind : config.faults) faults += (faults.empty() ? "" : ",") + kind;
  if (faults != "all") text += " --faults=" + Quoted(faults);
  std::string features;
  for (const std::string& word : config.features) features += (features.empty() ? "" : ",") + word;
  if (!features.empty()) text += " --features=" + Quoted(features);
  text += NumericWords(config);
  if (config.level != Level::kFull) text += " --level=" + std::string(LevelName(config.level));
  if (config.policy == Policy::kLog) text += " --policy=log";
  if (config.policy == Policy::kStop) text += " --policy=stop";
  if (config.policy == Policy::kRecompute) text += " --policy=recompute";
  if (config.until_complete) text += " --until=complete";
  if (config.shard.of > 1) {
    text += " --shard=" + std::to_string(config.shard.part) + "/" + std::to_string(config.shard.of);
  }
  if (config.only) text += " --only_run=" + std::to_string(*config.only);
  if (!config.log_dir.empty()) text += " --out=" + Quoted(OutBeside(config.log_dir, beside));
  return text;
}

}  // namespace kvfence::tools
