// Sections that are figures: detection delay, the arms, throughput, the drawn configuration.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>

#include "progress.h"
#include "report/html_text.h"
#include "report/sections.h"

namespace kvfence::tools {
namespace {

// Steps 0..3 alone, then doubling: 4-7, 8-15 ... The bin's first step.
uint64_t BinOf(uint64_t steps) {
  if (steps < 4) return steps;
  uint64_t bin = 4;
  while (bin <= steps / 2) bin *= 2;
  return bin;
}

std::string BinLabel(uint64_t bin) {
  if (bin < 4) return bin == 1 ? "1 step" : std::to_string(bin) + " steps";
  return Grouped(bin) + " to " + Grouped(2 * bin - 1);
}

// The smallest delay that at least half of the reports kept to.
uint64_t Median(const std::map<uint64_t, uint64_t>& delays, uint64_t total) {
  uint64_t seen = 0;
  for (const auto& [steps, count] : delays) {
    seen += count;
    if (2 * seen >= total) return steps;
  }
  return 0;
}

uint64_t SumOf(const std::map<uint64_t, uint64_t>& delays) {
  uint64_t total = 0;
  for (const auto& [steps, count] : delays) total += count;
  return total;
}

std::string DelayTable(const CampaignReport& report) {
  std::string html =
      "<details><summary>Delay by kind</summary><div class=\"scroll\"><table class=\"plain\">"
      "<thead><tr><th scope=\"col\">fault</th><th scope=\"col\">reports</th><th scope=\"col\">in "
      "the same step</th><th scope=\"col\">median</th><th scope=\"col\">longest</th></tr></thead>"
      "<tbody>\n";
  for (const FaultTally& fault : report.faults) {
    const uint64_t total = SumOf(fault.delay_steps);
    if (total == 0) continue;
    const auto same = fault.delay_steps.find(0);
    html += "<tr><th scope=\"row\">" + Escape(fault.kind) + "</th><td class=\"n\">" +
            Grouped(total) + "</td><td class=\"n\">" +
            Percent(same == fault.delay_steps.end() ? 0 : same->second, total) +
            "</td><td class=\"n\">" + Grouped(Median(fault.delay_steps, total)) +
            "</td><td class=\"n\">" + Grouped(std::prev(fault.delay_steps.end())->first) +
            "</td></tr>\n";
  }
  return html + "</tbody></table></div></details>\n";
}

std::string Card(std::string_view title, std::string_view tone, std::string_view what,
                 std::initializer_list<std::pair<std::string_view, std::string>> figures) {
  std::string html = "<div class=\"card " + std::string(tone) + "\"><h3>" + Escape(title) +
                     "</h3><p>" + Escape(what) + "</p><dl>";
  for (const auto& [name, value] : figures) {
    html += "<div><dt>" + Escape(name) + "</dt><dd>" + Escape(value) + "</dd></div>";
  }
  return html + "</dl></div>\n";
}

std::string TokensPerSecond(double rate) {
  return rate > 0 ? Short(rate) + " tokens/s" : "not measured";
}

}  // namespace

std::string BarRow(const std::string& label, double share, const std::string& value,
                   std::string_view tone) {
  return "<div class=\"bar\"><span class=\"label\">" + Escape(label) +
         "</span><svg class=\"track\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" "
         "aria-hidden=\"true\"><rect class=\"" +
         std::string(tone) + "\" width=\"" + Fraction(share > 0 ? std::max(share, 0.004) : 0) +
         "\" height=\"10\" transform=\"scale(100 1)\"/></svg><span class=\"value\">" +
         Escape(value) + "</span></div>\n";
}

std::string DelaySection(const CampaignReport& report) {
  if (report.faults.empty()) return "";
  std::map<uint64_t, uint64_t> bins;
  uint64_t total = 0, highest = 0;
  for (const FaultTally& fault : report.faults) {
    for (const auto& [steps, count] : fault.delay_steps) {
      bins[BinOf(steps)] += count;
      total += count;
    }
  }
  std::string html =
      "<section id=\"delay\">\n<h2>How soon a fault was reported</h2>\n<p class=\"note\">Steps of "
      "the engine from the corruption to the first report. 0: in the very step of the "
      "corruption. A later report isn't a late one: many faults lie still until a request touches "
      "what they broke.</p>\n";
  if (total == 0) return html + "<p class=\"empty\">Nothing was reported.</p>\n</section>\n";
  for (const auto& [bin, count] : bins) highest = std::max(highest, count);
  html += "<div class=\"bars\">\n";
  for (uint64_t bin = 0; bin <= bins.rbegin()->first; bin = bin < 4 ? bin + 1 : bin * 2) {
    const auto it = bins.find(bin);
    const uint64_t count = it == bins.end() ? 0 : it->second;
    html += BarRow(BinLabel(bin), static_cast<double>(count) / static_cast<double>(highest),
                   Grouped(count) + "  (" + Percent(count, total) + ")", "info");
  }
  return html + "</div>\n" + DelayTable(report) + "</section>\n";
}

std::string ArmsSection(const CampaignReport& report) {
  const auto& clean = report.clean_arm;
  std::string html = "<section id=\"arms\">\n<h2>The arms beside it</h2>\n<div class=\"cards\">\n";
  const bool silent = clean.violations == 0 && clean.wrong_tokens_published == 0;
  html += Card("No faults, fence on", silent ? "good" : "bad",
               "The same traffic with nothing broken: every report here is a false alarm.",
               {{"steps", Grouped(clean.steps)},
                {"entries checked", Grouped(clean.entries_checked)},
                {"ownership changes", Grouped(clean.ownership_changes)},
                {"drawn configurations", Grouped(clean.runs)},
                {"reports", Grouped(clean.violations)},
                {"wrong tokens", Grouped(clean.wrong_tokens_published)}});
  if (report.faults.empty()) {
    html += Card("Faults, fence off", "idle",
                 "Without faults there is nothing to compare with: this arm was not run.", {});
  } else {
    const uint64_t wrong = report.off_arm.wrong_tokens_published;
    html += Card("Faults, fence off", wrong != 0 ? "good" : "bad",
                 "The same faults with nobody looking. It has to go wrong, or the faults and the "
                 "ground truth would prove nothing.",
                 {{"wrong tokens", Grouped(wrong)}});
    html += Card("Faults, fence on", report.wrong_tokens_published == 0 ? "good" : "bad",
                 report.config.policy == Policy::kRecompute
                     ? "What a deployment would see: requests that met a fault are computed again."
                     : "What a deployment would see: requests that met a fault end, the others go "
                       "on.",
                 {{"requests", Grouped(report.requests)},
                  {"ended by the fence", Grouped(report.requests_aborted)},
                  {"tokens published", Grouped(report.tokens_published)},
                  {"wrong tokens", Grouped(report.wrong_tokens_published)}});
  }
  if (const auto& again = report.recompute; report.config.policy == Policy::kRecompute) {
    html += Card("Computed again", again.lost() == 0 ? "good" : "bad",
                 "Requests with a failed row went back to what was good of them. Lost is what then "
                 "didn't end with right tokens.",
                 {{"requests", Grouped(again.requests)},
                  {"ended right", Grouped(again.right)},
                  {"taken back by their client", Grouped(again.withdrawn)},
                  {"lost", Grouped(again.lost())}});
  }
  return html + "</div>\n</section>\n";
}

std::string ThroughputSection(const CampaignReport& report) {
  const double on = report.clean_tokens_per_second, off = report.off_tokens_per_second;
  const double longest = std::max({on, off, 1e-9});
  std::string html =
      "<section id=\"throughput\">\n<h2>Throughput and overhead</h2>\n<div class=\"bars\">\n" +
      BarRow("fence on", on / longest, TokensPerSecond(on), "info") +
      BarRow("fence off", off / longest, TokensPerSecond(off), "idle") + "</div>\n";
  if (on > 0 && off > 0) {
    char text[64];
    const double loss = (1 - on / off) * 100;
    std::snprintf(text, sizeof(text), "%.1f%% %s", loss < 0 ? -loss : loss,
                  loss < 0 ? "more" : "fewer");
    html += "<p class=\"result\">With the fence: <strong>" + std::string(text) +
            " tokens per second</strong> of the simulation.</p>\n";
  }
  html +=
      "<p class=\"note\">Published tokens per second of wall clock on this machine: the traffic of "
      "the "
      "no-fault arm, served once with the fence and once without it. The reference engine's device "
      "is simulated and every read is compared with the ground truth, so this is neither the speed "
      "of a GPU nor the fence's share beside real attention kernels: <code>./dev bench</code> "
      "measures those. One run each, no error bars.</p>\n<dl class=\"pairs\"><div><dt>device bytes "
      "per page</dt><dd>" +
      Grouped(report.device_bytes_per_page) +
      "</dd></div><div><dt>device bytes per live entry</dt><dd>" +
      Grouped(report.device_bytes_per_entry) + "</dd></div></dl>\n</section>\n";
  return html;
}

namespace {

template <class Type>
std::string NamesOf(const std::vector<Type>& types, std::string_view (*name)(Type)) {
  std::string text;
  for (const Type type : types) text += (text.empty() ? "" : ", ") + std::string(name(type));
  return text;
}

}  // namespace

std::string ConfigSection(const CampaignReport& report) {
  const auto pair = [](std::string_view name, std::string_view value) {
    return "<div><dt>" + Escape(name) + "</dt><dd>" + Escape(value) + "</dd></div>";
  };
  std::string html = "<section id=\"config\">\n<h2>What was run</h2>\n<dl class=\"pairs\">";
  html += pair("seed", std::to_string(report.config.seed));
  html += pair("traffic", report.config.trace.empty() ? "generated" : report.config.trace);
  if (report.config.trace_scale != 1) {
    html += pair("requests' lengths divided by", std::to_string(report.config.trace_scale));
  }
  const std::optional<NumericChoice>& numeric = report.config.numeric;
  html += pair("model", numeric ? "small transformers, numeric" : "64 bits a slot");
  if (numeric) {
    html += pair("attention", NamesOf(numeric->attention, AttentionFormName));
    html += pair("KV cache", NamesOf(numeric->kv, KvTypeName));
    html += pair("weights", NamesOf(numeric->weights, WeightTypeName));
  }
  html += pair("level", LevelName(report.config.level));
  std::string features;
  for (const std::string& word : report.config.features) features += " " + word;
  html += pair("features", features.empty() ? "drawn" : features.substr(1));
  for (const std::string& line : report.left_out) html += pair("fault left out", line);
  html += pair("runs", Grouped(report.runs));
  html += pair("requests", Grouped(report.requests));
  html += pair("steps", Grouped(report.steps));
  html += pair("events", Grouped(report.events));
  html += pair("entries checked", Grouped(report.entries_checked));
  html += pair("ownership changes", Grouped(report.ownership_changes));
  html += "</dl>\n";
  if (report.drawn.empty()) return html + "</section>\n";
  html += "<h3>Drawn from the seed</h3>\n<dl class=\"pairs\">";
  for (const std::string& line : report.drawn) {
    const size_t equals = line.find('=');
    html += equals == std::string::npos ? pair(line, "")
                                        : pair(line.substr(0, equals), line.substr(equals + 1));
  }
  return html + "</dl>\n</section>\n";
}

}  // namespace kvfence::tools
