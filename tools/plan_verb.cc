// `kvfence plan`: what fits. Shows what plan_capacity counts; decides nothing itself.
#include <absl/flags/flag.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "log_words.h"
#include "plan_config.h"
#include "shared_flags.h"

namespace kvfence::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct PlannedRow {
  PlanCase asked;
  Capacity plan;
};

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string GiB(uint64_t bytes) { return Format("%.1f", static_cast<double>(bytes) / kGiB); }

// 1,234,567
std::string Grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

// "1.37M", "686K": as figures are published, rounded down.
std::string Rough(uint64_t tokens) {
  if (tokens < 1'000'000) return std::to_string(tokens / 1000) + "K";
  return Format("%.2fM", static_cast<double>(tokens / 10'000) / 100);
}

std::string Published(const PlanCase& asked) {
  if (!asked.published) return "";
  std::string text;
  if (asked.published->weight_gib > 0) {
    text = Format("%.0f GiB, ", asked.published->weight_gib) +
           Format("%.0f per GPU", asked.published->weight_gib_per_gpu);
  }
  if (asked.published->tokens > 0) {
    text += (text.empty() ? "" : ", ") + Rough(asked.published->tokens) + " tokens";
  }
  return text;
}

void PrintTable(const PlanConfig& config, const std::vector<PlannedRow>& rows, std::FILE* out) {
  bool published = false;
  int width = 9;
  for (const PlannedRow& row : rows) {
    published = published || row.asked.published.has_value();
    width = std::max(width, static_cast<int>(row.asked.model.name.size()));
  }
  std::fprintf(out, "%-*s  weights  kv    %9s %8s %9s %9s %12s %11s  %-17s%s\n", width, "model",
               "weights", "per GPU", "KV bytes", "KV pool", "tokens", "pages", "fence",
               published ? "  published" : "");
  std::fprintf(out, "%-*s  %-7s  %-4s  %9s %8s %9s %9s %12s %11s  %-17s\n", width, "", "", "",
               "GiB", "GiB", "a token", "GiB", "that fit", "", "MiB");
  for (const PlannedRow& row : rows) {
    const Capacity& plan = row.plan;
    const double fence = static_cast<double>(plan.fence_bytes);
    std::string share = Format("%.2f", fence / (kGiB / 1024));
    if (plan.kv_pool_bytes > 0) {
      share += Format(" (%.4f %%)", 100 * fence / static_cast<double>(plan.kv_pool_bytes));
    }
    std::fprintf(out, "%-*s  %-7s  %-4s  %9s %8s %9s %9s %12s %11s  %-17s%s\n", width,
                 Printable(row.asked.model.name).c_str(),
                 std::string(NameOf(row.asked.weights)).c_str(),
                 std::string(NameOf(row.asked.kv)).c_str(), GiB(plan.weight_bytes).c_str(),
                 GiB(plan.weight_bytes_per_gpu).c_str(), Grouped(plan.kv_bytes_per_token).c_str(),
                 GiB(plan.kv_pool_bytes).c_str(),
                 plan.tokens == 0 ? "doesn't fit" : Grouped(plan.tokens).c_str(),
                 Grouped(plan.pages).c_str(), share.c_str(),
                 published ? ("  " + Published(row.asked)).c_str() : "");
  }
  const PlanMachine& machine = config.machine;
  std::fprintf(
      out,
      "\nper GPU of %llu that share one model: %s GiB, of which %.4g for weights, KV cache "
      "and fence,\n%s GiB of that reserved; pages of %llu tokens, %llu rows, a page mapped "
      "by %.4g request%s on average.\nGiB are 2^30 bytes, which published figures call GB. "
      "Formulas and sources: docs/plan.md\n",
      static_cast<unsigned long long>(machine.gpus), GiB(machine.memory).c_str(),
      machine.utilisation, GiB(machine.reserve).c_str(),
      static_cast<unsigned long long>(machine.page_size),
      static_cast<unsigned long long>(machine.rows), machine.sharing,
      machine.sharing > 1 ? "s" : "");
}

void PrintJson(const PlanConfig& config, const std::vector<PlannedRow>& rows) {
  Json json;
  json["rows"] = Json::array();
  for (const PlannedRow& row : rows) {
    Json line;
    line["model"] = row.asked.model.name;
    line["weights"] = NameOf(row.asked.weights);
    line["kv"] = NameOf(row.asked.kv);
    line["weight_bytes"] = row.plan.weight_bytes;
    line["weight_bytes_per_gpu"] = row.plan.weight_bytes_per_gpu;
    line["kv_bytes_per_token"] = row.plan.kv_bytes_per_token;
    line["kv_pool_bytes"] = row.plan.kv_pool_bytes;
    line["tokens"] = row.plan.tokens;
    line["pages"] = row.plan.pages;
    line["fence_bytes"] = row.plan.fence_bytes;
    if (row.asked.published) {
      const PublishedFigures& figures = *row.asked.published;
      Json& published = line["published"];
      if (figures.weight_gib > 0) published["weight_gib"] = figures.weight_gib;
      if (figures.weight_gib_per_gpu > 0) {
        published["weight_gib_per_gpu"] = figures.weight_gib_per_gpu;
      }
      if (figures.tokens > 0) published["tokens"] = figures.tokens;
    }
    json["rows"].push_back(std::move(line));
  }
  const PlanMachine& machine = config.machine;
  json["machine"] = {{"gpus", machine.gpus},
                     {"gpu_memory_bytes", machine.memory},
                     {"utilisation", machine.utilisation},
                     {"reserve_bytes", machine.reserve},
                     {"page_size", machine.page_size},
                     {"rows", machine.rows},
                     {"sharing", machine.sharing},
                     {"kv_overhead", machine.kv_overhead}};
  std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

// Why none of the rows has room for a single token, in one line.
std::string WhyNothingFits(const PlanConfig& config, const std::vector<PlannedRow>& rows) {
  const PlannedRow* least = &rows.front();
  for (const PlannedRow& row : rows) {
    if (row.plan.weight_bytes < least->plan.weight_bytes) least = &row;
  }
  const PlanMachine& machine = config.machine;
  const double usable = static_cast<double>(machine.memory) * machine.utilisation -
                        static_cast<double>(machine.reserve);
  std::string text = "no KV cache fits: weights in " + std::string(NameOf(least->asked.weights)) +
                     " take " + GiB(least->plan.weight_bytes_per_gpu) +
                     " GiB of each GPU, and --gpu_memory * --utilisation - --reserve is " +
                     Format("%.1f GiB", usable / kGiB);
  if (usable <= 0) return text + "; expected more than 0";
  const auto least_gpus =
      static_cast<uint64_t>(static_cast<double>(least->plan.weight_bytes) / usable) + 1;
  return text + "; expected --gpus of at least " +
         std::to_string(std::max(least_gpus, machine.gpus + 1)) +
         ", more memory, or a smaller --weights format";
}

int RunPlan(const std::vector<std::string>& words) {
  if (!words.empty()) {
    return Fail(
        "plan", kExitUsage,
        "takes no words, got '" + Printable(words[0]) + "' (a model is --model=NAME or FILE)");
  }
  Result<PlanConfig> config = ReadPlanConfig();
  if (!config.ok()) return Fail("plan", kExitUsage, config.status().message());
  std::vector<PlannedRow> rows;
  bool some = false;
  for (const PlanCase& asked : config->cases) {
    Result<Capacity> plan = PlanCapacity(asked.model, asked.weights, asked.kv, config->machine);
    if (!plan.ok()) return Fail("plan", kExitUsage, plan.status().message());
    some = some || plan->tokens > 0;
    rows.push_back({asked, *plan});
  }
  if (!some) return Fail("plan", kExitUsage, WhyNothingFits(*config, rows));
  const bool json = absl::GetFlag(FLAGS_json);
  PrintTable(*config, rows, json ? stderr : stdout);
  if (json) PrintJson(*config, rows);
  return kExitClean;
}

}  // namespace

const Verb& PlanVerb() {
  static const Verb kVerb = {
      "plan",
      "",
      "capacity: how many tokens of KV cache fit, and what the fence takes of it",
      "Counts weights and cache from a model's shapes: one built in, a config.json as on\n"
      "Hugging Face's hub, or flags, which stand above a file. Without flags it prints cases "
      "whose\n"
      "figures were published. Formulas and sources: docs/plan.md.\n"
      "Exit 2: something impossible was asked, or not even one page fits.\n\n"
      "examples:\n"
      "  kvfence plan\n"
      "  kvfence plan --model=glm-5.2 --weights=fp8,int4,nvfp4 --kv=fp8 --page_size=1 --sharing=3\n"
      "  kvfence plan --model=my-model/config.json --gpus=4 --gpu_memory=80GB --utilisation=0.9\n"
      "  kvfence plan --layers=80 --kv_heads=8 --head_dim=128 --params=70.6B --weights=fp8 "
      "--gpus=4\n"
      "  kvfence plan --json | jq '.rows[] | {model, kv, tokens}'\n",
      PlanFlags(),
      RunPlan};
  return kVerb;
}

}  // namespace kvfence::tools
